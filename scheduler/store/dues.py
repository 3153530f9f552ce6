"""What a tick has to know, read at one moment: which jobs are due, what may be claimed, what comes next."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scheduler.clock import Micros
from scheduler.model.jobs import Job
from scheduler.store.rows import JOB_REVISION, Definitions, job_from, pause_span_of
from scheduler.store.transaction import gathered, packed
from scheduler.store.values import DueLook


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How many jobs one look finds.

    Attributes:
        on_time: of those that became due since `late_before`.
        late: of the others.
    """

    on_time: int
    late: int
    late_before: Micros


def due_look(
    db: sqlite3.Connection, queries: Mapping[str, str], known: Definitions, now: Micros, limits: Limits
) -> DueLook:
    """Jobs on time and jobs that are late, earliest first, and what a plan for them has to know."""
    db.execute(queries["begin_read"])
    try:
        late = gathered(db, queries["due_late"], {"late_before": limits.late_before, "limit": limits.late})
        on_time = {"now": now, "late_before": limits.late_before, "limit": limits.on_time}
        jobs = _jobs(db, queries, known, late + gathered(db, queries["due_on_time"], on_time))
        slots = [job.next_fire_at for job in jobs if job.next_fire_at is not None]
        spans = db.execute(queries["global_spans"], {"after": min(slots)}).fetchall() if slots else []
        return DueLook(
            now=now,
            jobs=jobs,
            paused=tuple(pause_span_of(row, now) for row in spans),
            pause_over=bool(_value(db, queries["is_pause_over"], now=now)),
            claimable=bool(_value(db, queries["is_claimable"], now=now)),
            next_wake=next_wake(db, queries, now),
        )
    finally:
        db.execute(queries["end_read"])


def next_wake(db: sqlite3.Connection, queries: Mapping[str, str], after: Micros) -> Micros | None:
    """The earliest moment after `after` at which something could act by itself."""
    moment: Micros | None = _value(db, queries["next_wake"], after=after)
    return moment


def _value(db: sqlite3.Connection, sql: str, **values: object) -> Any:
    return db.execute(sql, values).fetchall()[0][0]


def _jobs(
    db: sqlite3.Connection, queries: Mapping[str, str], known: Definitions, rows: Sequence[Sequence[Any]]
) -> tuple[Job, ...]:
    """The jobs of these rows, whose definitions are known afterwards."""
    decoded = {row[0]: known.find(row[0], row[JOB_REVISION]) for row in rows}
    missing = [id for id, found in decoded.items() if found is None]
    if missing:
        for id, revision, source in gathered(db, queries["definitions"], {"ids": packed(missing)}):
            decoded[id] = known.learn(id, revision, source)
    return tuple(job_from(row, found) for row in rows if (found := decoded[row[0]]) is not None)
