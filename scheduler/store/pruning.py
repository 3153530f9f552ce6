"""History kept within what a job asks for (`keep_runs`), in small steps inside transactions.

Never pruned: unfinished runs, runs with unknown items, skip rows (they explain fire times and go by age), and
so the fire times that a job has behind it: `last_fire_at` guards those against firing again.
"""

from __future__ import annotations

from scheduler.model.jobs import JobId, Retention
from scheduler.model.runs import RunId
from scheduler.store.transaction import Transaction


def retentions(tx: Transaction, after: str, limit: int) -> list[Retention]:
    """A slice of the jobs that keep only so many runs, by id."""
    rows = tx.all("jobs_with_retention", after=after, limit=limit)
    return [Retention(job_id=JobId(row["id"]), keep_runs=int(row["keep_runs"])) for row in rows]


def prune(tx: Transaction, retention: Retention, limit: int) -> list[RunId]:
    """Up to `limit` runs beyond what the job keeps are gone, oldest first; their output is the caller's."""
    gone: list[RunId] = []
    rows = tx.all("prunable_runs", job=retention.job_id, keep=retention.keep_runs, limit=limit)
    for row in rows:
        if tx.execute("delete_run", seq=row["seq"]) == 1:
            tx.execute("delete_attempts", run=row["id"])
            tx.execute("delete_items", run=row["id"])
            gone.append(RunId(row["id"]))
    return gone
