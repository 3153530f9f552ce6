"""Rows as they are inside a transaction, many in one look."""

from __future__ import annotations

from collections.abc import Collection

from scheduler.model.jobs import Job, JobId
from scheduler.model.runs import Run, RunId
from scheduler.store.rows import JOB_REVISION, definition_of, job_from, run_from, run_of
from scheduler.store.transaction import Transaction, packed


def live_run(tx: Transaction, run_id: RunId) -> Run:
    """The run's row as it is now, which the caller knows to exist."""
    row = tx.one("live_run", id=run_id)
    assert row is not None  # noqa: S101 - runs are never deleted while a verb names them
    return run_of(row)


def live_runs(tx: Transaction, ids: Collection[str]) -> dict[str, Run]:
    """The rows of those of these runs that there are."""
    runs = (run_from(values) for values in tx.gathered("live_runs", ids=packed(list(ids))))
    return {run.id: run for run in runs}


def live_jobs(tx: Transaction, ids: Collection[JobId]) -> dict[JobId, Job]:
    """The rows of those of these jobs that ever were, tombstones too."""
    rows = tx.gathered("live_jobs", ids=packed(list(ids)))
    decoded = {row[0]: tx.definitions.find(row[0], row[JOB_REVISION]) for row in rows}
    missing = [id for id, found in decoded.items() if found is None]
    if missing:
        for id, _, source in tx.gathered("definitions", ids=packed(missing)):
            decoded[id] = definition_of(id, source)
    return {row[0]: job_from(row, found) for row in rows if (found := decoded[row[0]]) is not None}
