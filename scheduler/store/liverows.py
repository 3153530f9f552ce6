"""Rows as they are inside a transaction, many in one look."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from scheduler.model.jobs import Job, JobId
from scheduler.model.record import record
from scheduler.model.runs import Run, RunId
from scheduler.rules.planning import Occupancy
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
    return {job.id: job for job in jobs_of(tx, tx.gathered("live_jobs", ids=packed(list(ids))))}


def jobs_of(tx: Transaction, rows: Sequence[Sequence[Any]], *, committed: bool = False) -> list[Job]:
    """The jobs of these rows of `JOB_COLUMNS`.

    Args:
        committed: what is read is durable, so its definitions are learnt; see `Definitions`.
    """
    decoded = {row[0]: tx.definitions.find(row[0], row[JOB_REVISION]) for row in rows}
    missing = [id for id, found in decoded.items() if found is None]
    if missing:
        for id, revision, source in tx.gathered("definitions", ids=packed(missing)):
            learn = tx.definitions.learn
            decoded[id] = learn(id, revision, source) if committed else definition_of(id, source)
    return [job_from(row, found) for row in rows if (found := decoded[row[0]]) is not None]


@record
class Standing:
    """A job that is asked for a run: what stands in the way, and what the engine itself may have changed.

    Attributes:
        claimed: those of the live ones that run or are being recovered: a claim is in force.
        scheduled: its scheduled runs that are not yet counted in `fires_done`.
    """

    live: int
    claimed: int
    recovering: int
    queued: int
    scheduled: int
    generation: int
    problem_code: str | None

    def occupancy(self, *, room: bool) -> Occupancy:
        """The rows that stand in the way, where `room` says whether a claim fits into the limits."""
        return Occupancy(live=self.live, recovering=self.recovering, queued=self.queued, room=room)


def standings(tx: Transaction, jobs: Collection[JobId]) -> dict[JobId, Standing]:
    """How each of these jobs stands now."""
    return {
        JobId(row[0]): Standing(
            live=row[1],
            claimed=row[2],
            recovering=row[3],
            queued=row[4],
            scheduled=row[5],
            generation=row[6],
            problem_code=row[7],
        )
        for row in tx.gathered("occupancy", jobs=packed(list(jobs)))
    }


def occupancy(tx: Transaction, job: JobId, *, room: bool) -> tuple[Occupancy, int]:
    """What stands in the way of a start of this job now, and its scheduled runs not yet counted."""
    standing = standings(tx, [job])[job]
    return standing.occupancy(room=room), standing.scheduled
