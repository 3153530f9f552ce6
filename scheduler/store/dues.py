"""What a tick has to know, read at one moment: which jobs are due, what may be claimed, what comes next."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.clock import Micros
from scheduler.store.liverows import jobs_of
from scheduler.store.rows import pause_span_of
from scheduler.store.transaction import Transaction
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


def due_look(tx: Transaction, limits: Limits) -> DueLook:
    """Jobs on time and jobs that are late, earliest first, and what a plan for them has to know."""
    tx.execute("begin_read")
    try:
        before = limits.late_before
        late = tx.gathered("due_late", late_before=before, limit=limits.late)
        on_time = tx.gathered("due_on_time", now=tx.now, late_before=before, limit=limits.on_time)
        jobs = tuple(jobs_of(tx, late + on_time, committed=True))
        slots = [job.next_fire_at for job in jobs if job.next_fire_at is not None]
        spans = tx.all("global_spans", after=min(slots)) if slots else []
        return DueLook(
            now=tx.now,
            jobs=jobs,
            paused=tuple(pause_span_of(row, tx.now) for row in spans),
            pause_over=bool(tx.value("is_pause_over", now=tx.now)),
            claimable=bool(tx.value("is_claimable", now=tx.now)),
            next_wake=tx.value("next_wake", after=tx.now),
        )
    finally:
        tx.execute("end_read")
