"""FIRE inside its transaction (design part 4): due jobs move to their next slots, and their runs begin.

What most fires are (one slot, nothing in the way, nothing to skip) is written as one set; a plan that asks
for more is carried out by itself, with the same statements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from scheduler.clock import Micros
from scheduler.model.jobs import Job
from scheduler.model.runs import Grant, Run, RunId, SkipReason
from scheduler.rules.planning import Admission, FirePlan, SkippedSpan, Slot, admit
from scheduler.store.finishing import end_job_if_exhausted
from scheduler.store.liverows import Standing, occupancy, standings
from scheduler.store.rows import job_of
from scheduler.store.skipping import Skip, one_skipped, tell_skipped, tell_skips
from scheduler.store.starting import NewRun, Room, grant_of, insert_runs, make_way
from scheduler.store.transaction import Transaction, packed
from scheduler.store.values import Claimant, Fired

_SKIP_OF = {
    Admission.SKIP_OVERLAP: SkipReason.OVERLAP,
    Admission.SKIP_QUEUE_FULL: SkipReason.QUEUE_FULL,
}
_STARTS = {Admission.CLAIM, Admission.QUEUE}
_UNTOUCHED = Fired(fired=False)


@dataclass(slots=True)
class _Fire:
    """What one plan has come to so far."""

    grants: list[Grant] = field(default_factory=list)
    queued: list[Run] = field(default_factory=list)
    skips: list[SkippedSpan] = field(default_factory=list)
    cancel: list[RunId] = field(default_factory=list)
    cancelled: list[Run] = field(default_factory=list)


def fire(tx: Transaction, who: Claimant, plans: Sequence[FirePlan]) -> list[Fired]:
    """FIRE for each plan: all of it, or nothing where the row is no longer as planned.

    # INVARIANT: I12, a draining daemon fires nothing: what is due stays due for the next start.
    """
    if who.draining:
        return [_UNTOUCHED for _ in plans]
    room = Room(tx, who)
    fired: list[Fired] = [_UNTOUCHED] * len(plans)
    plain: dict[int, NewRun] = {}
    moved = [place for place, has_moved in enumerate(_moved(tx, plans)) if has_moved]
    standing = standings(tx, [plans[place].job_id for place in moved])
    for place in moved:
        plan = plans[place]
        new = _plain_start(plan, who, standing[plan.job_id], room)
        if new is None:
            fired[place] = _fire_one(tx, who, plan, room)
        else:
            plain[place] = new
    begun = _begun(tx, [plans[place] for place in plain], list(plain.values()))
    for place, one in zip(plain, begun, strict=True):
        fired[place] = one
    return fired


def _moved(tx: Transaction, plans: Sequence[FirePlan]) -> list[bool]:
    """Of each plan, whether its job was still as planned from, and has moved.

    Which of a set was not cannot be told from the count, so the set is halved until it can; it is rare.
    """
    with tx.savepoint() as attempt:
        count = tx.execute("move_job", plans=packed([_move_of(plan) for plan in plans]))
        if 0 < count < len(plans):
            raise _SomeAreStale
    if isinstance(attempt.error, _SomeAreStale):
        half = len(plans) // 2
        return [*_moved(tx, plans[:half]), *_moved(tx, plans[half:])]
    if attempt.error is not None:
        raise attempt.error
    return [count > 0] * len(plans)


class _SomeAreStale(Exception):
    """Some of the plans were made from rows that have changed since."""


def _move_of(plan: FirePlan) -> tuple[object, ...]:
    return (
        *(plan.job_id, plan.next_fire_at, plan.due_at, plan.last_fire_at),
        *(plan.seen_fire_at, plan.seen_revision),
    )


def _plain_start(plan: FirePlan, who: Claimant, standing: Standing, room: Room) -> NewRun | None:
    """The one run that the plan comes to, if that, and at most one record of skips, is all."""
    definition = plan.job.definition
    if len(plan.slots) != 1 or len(plan.spans) > 1 or standing.problem_code is not None:
        return None
    # One with `max_runs` may leave no next slot, and one of a `delay` job another.
    if definition.max_runs is not None or plan.next_if_skipped is not None:
        return None
    seen = standing.occupancy(room=room.fits(definition.group))
    admission = admit(definition.overlap, definition.max_running, definition.queue_limit, seen)
    if admission not in _STARTS:
        return None
    claimed = admission is Admission.CLAIM
    if claimed:
        room.take(definition.group)
    return _new_run(plan.job, plan.slots[0], standing.generation, who if claimed else None)


def _new_run(job: Job, slot: Slot, generation: int, claimant: Claimant | None) -> NewRun:
    return NewRun(
        id=slot.run_id,
        job=job,
        trigger=slot.trigger,
        claimant=claimant,
        generation=generation,
        fire_time=slot.fire_time,
    )


def _begun(tx: Transaction, plans: Sequence[FirePlan], news: Sequence[NewRun]) -> list[Fired]:
    """The skips are told and the runs inserted; a slot that had its run already makes no other."""
    each = list(zip(plans, news, strict=True))
    tell_skips(tx, [Skip(new.job, new.generation, span) for plan, new in each for span in plan.spans])
    return [_fired(tx, plan, run) for plan, run in zip(plans, insert_runs(tx, news), strict=True)]


def _fired(tx: Transaction, plan: FirePlan, run: Run | None) -> Fired:
    """What the plan came to, whose one run is this; None: there was one already."""
    if run is None:
        completed = plan.next_fire_at is None and end_job_if_exhausted(tx, plan.job)
        return Fired(fired=True, skips=plan.spans, completed=completed)
    if run.claim == 0:
        return Fired(fired=True, queued=(run,), skips=plan.spans)
    return Fired(fired=True, grants=(grant_of(run, plan.job),), skips=plan.spans)


def _fire_one(tx: Transaction, who: Claimant, plan: FirePlan, room: Room) -> Fired:
    """All that a plan asks for, whose job has moved."""
    row = tx.one("live_job", id=plan.job_id)
    assert row is not None  # noqa: S101 - it moved a moment ago
    job = job_of(row)
    came = _Fire(skips=list(plan.spans))
    for span in plan.spans:
        tell_skipped(tx, job, span)
    for slot in plan.slots:
        _start_slot(tx, who, job, slot, room, came, in_turn=len(plan.slots) > 1)
    completed = _settle_next(tx, job, plan, came)
    return Fired(
        fired=True,
        grants=tuple(came.grants),
        queued=tuple(came.queued),
        skips=tuple(came.skips),
        cancel=tuple(came.cancel),
        cancelled=tuple(came.cancelled),
        completed=completed,
    )


def _start_slot(
    tx: Transaction, who: Claimant, job: Job, slot: Slot, room: Room, came: _Fire, *, in_turn: bool
) -> None:
    definition = job.definition
    seen, scheduled = occupancy(tx, job.id, room=room.fits(definition.group))
    if definition.max_runs is not None and job.fires_done + scheduled >= definition.max_runs:
        _skip(tx, job, SkipReason.MISFIRE, slot.fire_time, "max_runs leaves no place for it", came)
        return
    if job.problem_code is not None:
        _skip(tx, job, SkipReason.BROKEN, slot.fire_time, job.problem_message or "", came)
        return
    admission = admit(
        definition.overlap, definition.max_running, definition.queue_limit, seen, in_turn=in_turn
    )
    if admission in _SKIP_OF:
        _skip(tx, job, _SKIP_OF[admission], slot.fire_time, _blocker(tx, job), came)
        return
    claimed = admission is Admission.CLAIM
    (run,) = insert_runs(tx, [_new_run(job, slot, job.generation, who if claimed else None)])
    if run is None:
        return
    if admission is Admission.REPLACE:
        # After the insert, or the end of the replaced run could be taken for the end of the trigger.
        cancel, cancelled = make_way(tx, job, spare=run.id)
        came.cancel += cancel
        came.cancelled += cancelled
    if claimed:
        room.take(definition.group)
        came.grants.append(grant_of(run, job))
    else:
        came.queued.append(run)


def _skip(tx: Transaction, job: Job, reason: SkipReason, fire_time: Micros, note: str, came: _Fire) -> None:
    span = one_skipped(reason, fire_time, note)
    tell_skipped(tx, job, span)
    came.skips.append(span)


def _settle_next(tx: Transaction, job: Job, plan: FirePlan, came: _Fire) -> bool:
    """The job's next slot where FIRE left none; True if that was its end."""
    if job.next_fire_at is not None:
        return _end_by_max_runs(tx, job)
    if came.grants or came.queued:
        return False
    if plan.next_if_skipped is not None:
        due_at = job.definition.schedule.due_at(plan.next_if_skipped)
        tx.execute(
            "set_next_fire",
            id=job.id,
            next_fire_at=plan.next_if_skipped,
            due_at=due_at,
            seen_revision=job.revision,
        )
        return False
    return end_job_if_exhausted(tx, job)


def _end_by_max_runs(tx: Transaction, job: Job) -> bool:
    """`max_runs` also stops FIRE: once ended, live and queued runs reach it there is no next slot."""
    limit = job.definition.max_runs
    if limit is None:
        return False
    _, scheduled = occupancy(tx, job.id, room=True)
    if job.fires_done + scheduled < limit:
        return False
    tx.execute("set_next_fire", id=job.id, next_fire_at=None, due_at=None, seen_revision=job.revision)
    return scheduled == 0 and end_job_if_exhausted(tx, job)


def _blocker(tx: Transaction, job: Job) -> str:
    """Which run stands in the way, and since when, for the person who asks why nothing ran."""
    row = tx.one("unfinished_runs", job=job.id)
    if row is None:
        return ""
    since = row["started_at"] or row["queued_at"]
    age = (tx.now - since) // 1_000_000
    return f"run {row['id']} has been {row['state']} for {age} s"
