"""What is to be done about a job that is due: which fire times run, which are told as skipped. Pure.

The cost is that of the runs wanted, never that of the times missed: the newest due slot is asked of the
trigger directly and the missed ones are counted by arithmetic (design part 7).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import islice
from typing import Final

from scheduler.clock import Micros
from scheduler.model.jobs import CatchUp, Job, JobDefinition, JobId, Overlap
from scheduler.model.record import record
from scheduler.model.runs import RunId, RunTrigger, SkipReason
from scheduler.model.triggers import Schedule

COUNT_CAP: Final = 10_000
"""Missed times are counted exactly up to here; above it the count is a lower bound and says so."""


@record
class Slot:
    """A fire time that is to run."""

    run_id: RunId
    fire_time: Micros
    trigger: RunTrigger


@record
class SkippedSpan:
    """Fire times that do not run: first and last of them, how many, why.

    Attributes:
        exact: False where `count` is only a lower bound.
        note: one line for a person, or "".
    """

    reason: SkipReason
    first: Micros
    last: Micros
    count: int
    exact: bool = True
    note: str = ""


@record
class FirePlan:
    """What FIRE is to write for one job, and all that was assumed of its row.

    Attributes:
        job: the row that was planned from.
        seen_fire_at: its `next_fire_at`.
        slots: fire times to run, oldest first.
        spans: fire times to record as skipped.
        next_fire_at: the slot after all of these; None when there is none or it depends on a run's end.
        next_if_skipped: for `delay`: the next slot where no run is made, since no end will set it.
        due_at: `next_fire_at` plus its jitter.
    """

    job: Job
    seen_fire_at: Micros
    slots: tuple[Slot, ...]
    spans: tuple[SkippedSpan, ...]
    last_fire_at: Micros
    next_fire_at: Micros | None
    due_at: Micros | None
    next_if_skipped: Micros | None = None

    @property
    def job_id(self) -> JobId:
        """Whose plan it is."""
        return self.job.id

    @property
    def seen_revision(self) -> int:
        """The row's revision that was planned from."""
        return self.job.revision


@record
class PauseSpan:
    """A pause of all jobs; slots from `since` to `until`, both included, were held by it.

    Attributes:
        words: who paused, and why.
    """

    since: Micros
    until: Micros
    words: str = "paused"


def plan_fire(
    job: Job, now: Micros, new_id: Callable[[], RunId], paused: Sequence[PauseSpan] = ()
) -> FirePlan | None:
    """The plan for a job whose `due_at` has come; None if nothing of it is due (the clock stepped back).

    Args:
        paused: pauses of all jobs since its slot, oldest first: what they held is told so, and no misfire.
    """
    seen = job.next_fire_at
    if seen is None or job.due_at is None or job.due_at > now:
        return None
    definition = job.definition
    newest = _newest_due(definition.schedule, seen, now)
    wanted, spans = _decide(definition, _Due(definition.schedule, seen, newest, tuple(paused)), now)
    slots = tuple(Slot(run_id=new_id(), fire_time=at, trigger=_cause(definition, at, now)) for at in wanted)
    following, after_skip = _following(definition.schedule, newest, now)
    return FirePlan(
        job=job,
        seen_fire_at=seen,
        slots=slots,
        spans=(*excluded_spans(definition.schedule, job.last_fire_at, newest), *spans),
        last_fire_at=newest,
        next_fire_at=following,
        due_at=None if following is None else definition.schedule.due_at(following),
        next_if_skipped=after_skip,
    )


def missed_span(
    schedule: Schedule, first: Micros, last: Micros, reason: SkipReason, note: str = ""
) -> SkippedSpan:
    """One record for every fire time in [first, last], both of them fire times."""
    counted = max(1, schedule.count_fires(first - 1, last, COUNT_CAP))
    exact = counted <= COUNT_CAP
    count = min(counted, COUNT_CAP)
    words = note if exact else f"{note}; at least {COUNT_CAP} fire times".lstrip("; ")
    return SkippedSpan(reason=reason, first=first, last=last, count=count, exact=exact, note=words)


def unfired_spans(
    schedule: Schedule,
    first: Micros,
    last: Micros,
    paused: Sequence[PauseSpan],
    otherwise: SkipReason,
    note: str = "",
) -> Iterator[SkippedSpan]:
    """The records of slots that nothing will fire: what a pause of all held, and the rest `otherwise`."""
    due = _Due(schedule, first, last, tuple(paused))
    for pause, start, end in due.parts():
        yield from due.skipped(otherwise, start, end, note) if pause is None else due.held(pause, start, end)


def excluded_spans(schedule: Schedule, after: Micros | None, until: Micros) -> tuple[SkippedSpan, ...]:
    """The record of fire times that `except` took out of (after, until); none before a first fire."""
    if not schedule.exclusions or after is None:
        return ()
    counted = schedule.excluded_between(after, until, COUNT_CAP)
    first, last = schedule.trigger.next_fire(after), schedule.trigger.last_fire(until - 1)
    if counted == 0 or first is None or last is None:
        return ()
    exact = counted <= COUNT_CAP
    note = "taken out by except" if exact else f"taken out by except; at least {COUNT_CAP} fire times"
    count = min(counted, COUNT_CAP)
    reason = SkipReason.EXCLUDED
    return (SkippedSpan(reason=reason, first=first, last=last, count=count, exact=exact, note=note),)


def _newest_due(schedule: Schedule, seen: Micros, now: Micros) -> Micros:
    """The latest slot whose own due moment (slot + jitter) has come; never before the one on the row."""
    newest = schedule.last_fire(now)
    while newest is not None and newest > seen and schedule.due_at(newest) > now:
        newest = schedule.last_fire(newest - 1)
    return seen if newest is None else max(seen, newest)


@dataclass(slots=True)
class _Due:
    """The slots from `first` to `newest`, and the pauses that hold some of them."""

    schedule: Schedule
    first: Micros
    newest: Micros
    paused: tuple[PauseSpan, ...]

    def is_one_on_time(self, definition: JobDefinition, now: Micros) -> bool:
        """There is one slot, no pause may have held it, and it is not late."""
        if self.first != self.newest or self.paused:
            return False
        return now - self.schedule.due_at(self.newest) <= definition.late_after

    def newest_open(self) -> Iterator[Micros]:
        """Slots that no pause holds, newest first; it costs no more than the pauses and the slots taken."""
        slot: Micros | None = self.newest
        while slot is not None and slot >= self.first:
            span = self._holding(slot)
            if span is None:
                yield slot
            slot = self.schedule.last_fire((slot if span is None else span.since) - 1)

    def oldest_open(self) -> Micros | None:
        """The first slot that no pause holds."""
        slot: Micros | None = self.first
        while slot is not None and slot <= self.newest:
            span = self._holding(slot)
            if span is None:
                return slot
            slot = self.schedule.next_fire(span.until)
        return None

    def parts(self) -> Iterator[tuple[PauseSpan | None, Micros, Micros]]:
        """The whole in its order, as stretches of slots that a pause held, and that none did."""
        cursor = self.first
        for span in self.paused:
            if span.until < cursor or span.since > self.newest:
                continue
            if cursor < span.since:
                yield None, cursor, span.since - 1
            yield span, max(cursor, span.since), min(span.until, self.newest)
            cursor = span.until + 1
        if cursor <= self.newest:
            yield None, cursor, self.newest

    def held(self, span: PauseSpan, start: Micros, end: Micros) -> Iterator[SkippedSpan]:
        """The record of the slots within [start, end], which the pause held."""
        return self.skipped(SkipReason.GLOBAL_PAUSE, start, end, f"all jobs were {span.words}")

    def skipped(self, reason: SkipReason, start: Micros, end: Micros, note: str) -> Iterator[SkippedSpan]:
        """The record of the slots within [start, end]; none where there is none."""
        first = self.first if start <= self.first else self.schedule.next_fire(start - 1)
        last = self.newest if end >= self.newest else self.schedule.last_fire(end)
        if first is not None and first <= end:
            yield missed_span(self.schedule, first, max(first, last or first), reason, note)

    def _holding(self, slot: Micros) -> PauseSpan | None:
        return next((span for span in self.paused if span.since <= slot <= span.until), None)


def _decide(definition: JobDefinition, due: _Due, now: Micros) -> tuple[list[Micros], list[SkippedSpan]]:
    """Which slots run; all others, stretch by stretch, are told. Those that run are the newest open ones."""
    if due.is_one_on_time(
        definition, now
    ):  # what nearly every fire is: the rest says the same, in more steps
        return [due.newest], []
    wanted = _wanted(definition, due, now)
    spans: list[SkippedSpan] = []
    for pause, start, end in due.parts():
        if pause is not None:
            spans += due.held(pause, start, end)
        else:
            before = end if not wanted else min(end, wanted[0] - 1)
            spans += due.skipped(SkipReason.MISFIRE, start, before, _why(definition))
    return wanted, spans


def _wanted(definition: JobDefinition, due: _Due, now: Micros) -> list[Micros]:
    newest = next(due.newest_open(), None)
    if newest is None:
        return []
    late = now - definition.schedule.due_at(newest)  # a start that jitter puts off is not late
    if newest == due.oldest_open() and late <= definition.late_after:
        return [newest]
    match definition.catch_up:
        case CatchUp.LATEST:
            return [newest] if late <= definition.catch_up_window else []
        case CatchUp.SKIP:
            return [newest] if late <= definition.late_after else []
        case CatchUp.ALL:
            return _within_window(definition, due, now)


def _within_window(definition: JobDefinition, due: _Due, now: Micros) -> list[Micros]:
    """The newest `catch_up_limit` open slots inside the window, oldest first."""
    oldest = now - definition.catch_up_window
    newest = islice(due.newest_open(), definition.catch_up_limit)
    return [slot for slot in newest if slot >= oldest][::-1]


def _cause(definition: JobDefinition, fire_time: Micros, now: Micros) -> RunTrigger:
    late = now - definition.schedule.due_at(fire_time) > definition.late_after
    return RunTrigger.CATCH_UP if late else RunTrigger.SCHEDULE


def _why(definition: JobDefinition) -> str:
    return f'found late; catch_up = "{definition.catch_up}"'


def _following(schedule: Schedule, newest: Micros, now: Micros) -> tuple[Micros | None, Micros | None]:
    """The slot after `newest`; for `delay` only the end of the run, or a skip, gives one."""
    if schedule.trigger.kind == "delay":
        return None, schedule.next_fire(now)
    return schedule.next_fire(newest), None


class Admission(Enum):
    """What becomes of a start that is due now."""

    CLAIM = auto()
    QUEUE = auto()
    REPLACE = auto()
    SKIP_OVERLAP = auto()
    SKIP_QUEUE_FULL = auto()


@record
class Occupancy:
    """The rows that stand in the way of a start, counted in its own transaction.

    Attributes:
        live: runs of the job that take a slot.
        recovering: those of them whose owner is gone and whose processes are being ended.
        queued: runs of the job that wait for a slot.
        room: a claim fits into the global and group limits.
    """

    live: int
    recovering: int
    queued: int
    room: bool


def admit(
    overlap: Overlap, max_running: int, queue_limit: int, seen: Occupancy, *, in_turn: bool = False
) -> Admission:
    """The decision for one start; `in_turn` queues what `skip` would drop (`catch_up = "all"`).

    # INVARIANT: I2, at most `max_running` live runs per job: CLAIM only while `live + queued` leaves a slot.
    """
    free = Admission.CLAIM if seen.room else Admission.QUEUE
    taken = seen.live + seen.queued
    if taken < (max_running if overlap is Overlap.ALLOW else 1):
        return free
    if in_turn or (seen.live == seen.recovering and seen.queued == 0):
        return Admission.QUEUE
    match overlap:
        case Overlap.SKIP | Overlap.ALLOW:
            return Admission.SKIP_OVERLAP
        case Overlap.QUEUE:
            return Admission.QUEUE if seen.queued < queue_limit else Admission.SKIP_QUEUE_FULL
        case Overlap.CANCEL_RUNNING:
            return Admission.REPLACE
