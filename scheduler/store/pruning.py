"""History kept within bounds, in small steps: what may go is looked for beside the writer, then deleted.

By count go executed runs beyond what a job keeps; by age everything that ended, but for the newest executed
run of each job that there is. Never pruned: unfinished runs and runs with unknown items. Skip rows explain
fire times, and go by age alone. A job's `last_fire_at` guards the fire times behind it against firing again.
A removed job goes by age as well, once no run of it is left, unless it is to come back paused.

A run leaves the history in one transaction, which notes it as `pruned`; its output on disk and its items,
which may be many, follow in steps, also after a crash in between.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from scheduler.clock import Micros
from scheduler.model.jobs import JobId, Retention
from scheduler.model.runs import RunId
from scheduler.store.transaction import Transaction

_JOBS_A_LOOK: Final = 50
"""Jobs that one search looks at before it lets others read."""

_PAGES_A_STEP: Final = 200
_SPARE_PAGES: Final = 1_000
_SPARE_SHARE: Final = 5
"""Free pages that stay for what comes next: so many, or this part of the file."""


def surplus(
    db: sqlite3.Connection, queries: Mapping[str, str], kept: Retention, after: str, limit: int
) -> tuple[list[RunId], JobId | None]:
    """Up to `limit` runs that jobs with id > `after` do not keep; the job to go on after, None at the end."""
    found: list[RunId] = []
    jobs = db.execute(queries["jobs_after"], {"after": after, "limit": _JOBS_A_LOOK}).fetchall()
    for job in jobs:
        keep = job["keep_runs"] or kept.runs_per_job
        found += _of_job(db, queries, job["id"], kept.before, keep, limit - len(found))
        if len(found) >= limit:  # this job may have more
            return found, JobId(after)
        after = job["id"]
    return found, JobId(after) if jobs else None


def surplus_of(
    db: sqlite3.Connection, queries: Mapping[str, str], kept: Retention, jobs: Sequence[JobId], limit: int
) -> list[RunId]:
    """Up to `limit` runs that these jobs do not keep."""
    found: list[RunId] = []
    for job in db.execute(queries["jobs_named"], {"ids": json.dumps(jobs)}).fetchall():
        if len(found) >= limit:
            break
        keep = job["keep_runs"] or kept.runs_per_job
        found += _of_job(db, queries, job["id"], kept.before, keep, limit - len(found))
    return found


def _of_job(
    db: sqlite3.Connection,
    queries: Mapping[str, str],
    job: str,
    before: Micros | None,
    keep: int | None,
    limit: int,
) -> list[RunId]:
    """What the job does not keep, each run once, up to `limit`."""
    found: dict[RunId, None] = {}
    if keep is not None:
        rows = db.execute(queries["surplus_runs"], {"job": job, "keep": keep, "limit": limit})
        found.update((RunId(row["id"]), None) for row in rows.fetchall())
    if before is not None:
        for run in _aged(db, queries, job, before):
            if len(found) >= limit:
                break
            found[run] = None
    return list(found)


def _aged(db: sqlite3.Connection, queries: Mapping[str, str], job: str, before: Micros) -> Iterator[RunId]:
    """Rows of the job that are old enough to go; the walk ends at the first that ended later."""
    rows = db.execute(queries["rows_by_age"], {"job": job})
    try:
        for row in rows:
            if row["ended_at"] >= before:
                return
            if row["may_go"]:
                yield RunId(row["id"])
    finally:
        rows.close()  # an open one would keep its snapshot, and the write-ahead log would grow


def prune(tx: Transaction, runs: Sequence[RunId]) -> int:
    """Those of the runs that still may go have left the history; how many."""
    gone = [row["id"] for row in tx.all("delete_runs", runs=json.dumps(runs))]
    if gone:
        tx.execute("delete_attempts", runs=json.dumps(gone))
        tx.execute("note_pruned", runs=json.dumps(gone))
    return len(gone)


def clear(tx: Transaction, runs: Sequence[RunId], limit: int) -> None:
    """Up to `limit` items of these pruned runs are gone; a run that has none left is forgotten."""
    named = json.dumps(runs)
    for row in tx.all("runs_with_items", runs=named):
        if limit <= 0:
            break
        limit -= tx.execute("delete_items", run=row["run"], limit=limit)
    tx.execute("forget_pruned", runs=named)


def prune_records(tx: Transaction, before: Micros | None, limit: int) -> int:
    """Up to `limit` each of audit, removed jobs and changes that nobody needs are gone; how many."""
    aged = () if before is None else ("delete_audit", "delete_removed")
    gone = sum(tx.execute(name, before=before, limit=limit) for name in aged)
    return gone + tx.execute("delete_changes", limit=limit)


def give_back(tx: Transaction) -> bool:
    """Some free pages went back to the file system; False where there are few enough."""
    (counts,) = tx.all("page_counts")
    if counts["free"] <= max(_SPARE_PAGES, counts["pages"] // _SPARE_SHARE):
        return False
    for _ in range(_PAGES_A_STEP):  # one each: a statement without columns is stepped once by Python
        tx.execute("give_back_page")
    return True
