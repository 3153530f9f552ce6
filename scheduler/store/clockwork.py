"""The wall clock inside a transaction: remembered, and what follows from a step back (design part 7)."""

from __future__ import annotations

from typing import Final

from scheduler.clock import HOUR, Micros
from scheduler.model.jobs import Job
from scheduler.model.triggers import Cron
from scheduler.store.rows import job_of
from scheduler.store.transaction import Transaction

_SLICE: Final = 500
_CORRECTION: Final[Micros] = 3 * HOUR
"""Steps from here on are corrections of the clock: fixed-time jobs follow them at once (cron(8))."""


def see_wall(tx: Transaction) -> Micros | None:
    """The wall time is remembered for the next start; the one that was remembered before."""
    before: Micros | None = tx.value("read_meta", name="wall_seen")
    tx.execute("write_meta", name="wall_seen", value=tx.now)
    return before


def rearm(tx: Transaction, stepped: Micros, after: str) -> str | None:
    """A slice of the armed jobs follows a clock that stepped back by `stepped`; where the next slice starts.

    `every` and wildcard cron start a new generation from now, so they do not fall silent until the time
    they had reached comes again. Fixed-time cron keeps its slot for steps below three hours: it has run.
    """
    rows = tx.all("armed_jobs", after=after, limit=_SLICE)
    for row in rows:
        _rearm_one(tx, job_of(row), stepped)
    return rows[-1]["id"] if len(rows) == _SLICE else None


def _rearm_one(tx: Transaction, job: Job, stepped: Micros) -> None:
    schedule = job.definition.schedule
    following = schedule.next_fire(tx.now)
    if job.next_fire_at is None or following is None or following >= job.next_fire_at:
        return
    trigger = schedule.trigger
    fixed = isinstance(trigger, Cron) and trigger.fixed_time and stepped < _CORRECTION
    if fixed or trigger.kind == "at":
        return
    tx.execute(
        "rearm_job",
        id=job.id,
        generation=job.generation + (trigger.kind != "delay"),
        next_fire_at=following,
        due_at=schedule.due_at(following),
        seen_revision=job.revision,
    )
