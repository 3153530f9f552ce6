"""Definitions come, change and go, inside one transaction (a reload, or one API call).

A change writes the operator's columns and recomputes the next slot; it never lifts a pause, touches a
claim, or forgets a fire time that was due: those are told as `edited`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from scheduler.clock import Micros
from scheduler.errors import Conflict, SchedulerError, Stale
from scheduler.model.jobs import Job, JobDefinition, JobId, JobStatus, Origin
from scheduler.model.runs import RunReason, SkipReason
from scheduler.store.adding import add_new, columns_of, definition_in, known, slot_of, told, write_definitions
from scheduler.store.finishing import cancel_rest, end_if_past
from scheduler.store.once import once
from scheduler.store.operating import live_job, next_from_now, next_untold, unfinished
from scheduler.store.rows import job_of
from scheduler.store.skipping import tell_unfired
from scheduler.store.transaction import Transaction
from scheduler.store.values import ChangeKind, DefinitionChange, Operated

_SLICE: Final = 200
"""Changes that are looked at together: bounds how long the interpreter's lock is held for one of them."""


def apply(tx: Transaction, changes: Sequence[DefinitionChange]) -> list[Operated | SchedulerError]:
    """What each change came to; a refused one is its error, with nothing of it written."""
    done: list[Operated | SchedulerError] = []
    for start in range(0, len(changes), _SLICE):
        part = changes[start : start + _SLICE]
        added = _add_together(tx, part)
        done += [
            added[place] if place in added else tx.alone(partial(_apply_once, tx, change))
            for place, change in enumerate(part)
        ]
    return done


def _add_together(tx: Transaction, changes: Sequence[DefinitionChange]) -> Mapping[int, Operated]:
    """Those changes, by their place, that add a job which never was: in one set, or none of them."""
    first: dict[JobId, int] = {}
    for place, change in enumerate(changes):
        if change.kind is ChangeKind.ADD and change.peer.key is None:
            first.setdefault(change.job_id, place)
    there = known(tx, first) if len(first) > 1 else first.keys()
    places = [place for job_id, place in first.items() if job_id not in there]
    if not places:
        return {}
    added = tx.alone(lambda: add_new(tx, [changes[place] for place in places]))
    # One that cannot be written has taken the others with it: each is tried alone then.
    return {} if isinstance(added, SchedulerError) else dict(zip(places, added, strict=True))


def _apply_once(tx: Transaction, change: DefinitionChange) -> Operated:
    """The change, which is carried out once if its peer's request has a key."""
    return once(tx, change.peer, partial(_apply, tx, change))


def _apply(tx: Transaction, change: DefinitionChange) -> Operated:
    """One change, whole."""
    match change.kind:
        case ChangeKind.ADD:
            return _add(tx, change)
        case ChangeKind.CHANGE:
            return _change(tx, change)
        case ChangeKind.REMOVE:
            return _remove(tx, change)
        case ChangeKind.MOVE:
            return _move(tx, change)


def _add(tx: Transaction, change: DefinitionChange) -> Operated:
    row = tx.one("live_job", id=change.job_id)
    if row is None:
        return add_new(tx, [change])[0]
    if row["removed_at"] is None:
        raise _taken(job_of(row))
    _restore(tx, change, definition_in(change), job_of(row), tx.next_revision())
    tx.record("add", change.peer, job=change.job_id, detail=told(change))
    completed = end_if_past(tx, live_job(tx, change.job_id))
    return _operated(tx, change, completed=completed)


def _taken(job: Job) -> Conflict:
    if job.origin is Origin.FILE:
        return Conflict(
            f"job {job.id} is defined in {job.origin_file}", hint="choose another id, or edit that file"
        )
    return Conflict(
        f"job {job.id} exists already, made through the API",
        hint=f"replace it (schedctl edit {job.id}) or choose another id",
    )


def _restore(
    tx: Transaction, change: DefinitionChange, definition: JobDefinition, tombstone: Job, revision: int
) -> None:
    """Putting a job back restores its pause, and fire times that were passed over stay so.

    What it was doing before is another incarnation's business.
    """
    same = tombstone.definition.schedule == definition.schedule
    following = next_untold(tx, tombstone, tx.now) if same else definition.schedule.next_fire(tx.now)
    fires = definition.enabled and tombstone.status is not JobStatus.PAUSED
    written = tx.execute(
        "restore_job",
        id=change.job_id,
        **columns_of(definition),
        revision=revision,
        origin=change.origin,
        origin_file=change.origin_file,
        held_from=None if fires else following,
        seen_revision=tombstone.revision,
        **slot_of(definition, following if fires else None),
    )
    if written != 1:
        raise Conflict(f"job {change.job_id} changed meanwhile", hint="repeat")
    write_definitions(tx, [definition])
    tx.execute("start_incarnation", id=change.job_id, added_revision=revision)


def _change(tx: Transaction, change: DefinitionChange) -> Operated:
    definition = definition_in(change)
    job = _expected(tx, change)
    if job.definition.source == definition.source:
        return _operated(tx, change, changed=False)
    revision = tx.next_revision()
    if _revives(job, definition):
        tx.execute("revive_job", id=job.id)
        tx.execute("start_incarnation", id=job.id, added_revision=job.added_revision)
        job = live_job(tx, job.id)
    following = _next_after_edit(tx, job, definition)
    fires = definition.enabled and job.status is JobStatus.ACTIVE
    _tell_before_edit(tx, job, definition, following, fires=fires)
    written = tx.execute(
        "change_job",
        id=job.id,
        **columns_of(definition),
        revision=revision,
        origin_file=change.origin_file,
        held_from=_held_after_edit(job, definition, following, fires=fires),
        seen_revision=job.revision,
        **slot_of(definition, following if fires else None),
    )
    if written != 1:
        raise Conflict(f"job {job.id} changed meanwhile", hint="look again, then repeat")
    write_definitions(tx, [definition])
    tx.record("edit", change.peer, job=job.id, detail=told(change))
    completed = end_if_past(tx, live_job(tx, job.id))
    return _operated(tx, change, completed=completed)


def _revives(job: Job, definition: JobDefinition) -> bool:
    """A changed trigger, `end_at` or `max_runs` makes a completed job active from now."""
    if job.status is not JobStatus.COMPLETED:
        return False
    return job.definition.schedule != definition.schedule or job.definition.max_runs != definition.max_runs


def _tell_before_edit(
    tx: Transaction, job: Job, definition: JobDefinition, following: Micros | None, *, fires: bool
) -> None:
    """Slots that were due or held back, and that the new definition does not take over, are told."""
    if job.definition.schedule == definition.schedule:
        if fires and job.held_from is not None:
            tell_unfired(tx, job, SkipReason.EDITED)
        return
    # With jitter the new schedule may take up a slot again whose start is still to come.
    until = tx.now if following is None else min(tx.now, following - 1)
    tell_unfired(tx, job, SkipReason.EDITED, "its schedule was changed", until=until)


def _held_after_edit(
    job: Job, definition: JobDefinition, following: Micros | None, *, fires: bool
) -> Micros | None:
    """The first slot that is held back from now on; an untouched schedule keeps the one that was."""
    if fires or job.status in (JobStatus.COMPLETED, JobStatus.FAILED):
        return None
    same = job.definition.schedule == definition.schedule
    return job.held_from if same and job.held_from is not None else following


def _next_after_edit(tx: Transaction, job: Job, definition: JobDefinition) -> Micros | None:
    """The next slot of the new definition: an untouched schedule keeps its slot, also one that is due.

    A changed one counts from max(last fire, now - jitter), so that a slot whose jittered start is still
    to come is not lost and none fires twice.
    """
    old, schedule = job.definition.schedule, definition.schedule
    if job.next_fire_at is not None and old == schedule:
        return job.next_fire_at
    if schedule.trigger.kind == "delay":
        return next_from_now(tx, replace(job, definition=definition))
    after = max(tx.now - schedule.jitter, job.last_fire_at or 0)
    return next_untold(tx, job, after) if old == schedule else schedule.next_fire(after)


def _remove(tx: Transaction, change: DefinitionChange) -> Operated:
    job = _expected(tx, change)
    tell_unfired(tx, job, SkipReason.EDITED, "the job was removed")
    written = tx.execute(
        "remove_job", id=job.id, now=tx.now, revision=tx.next_revision(), seen_revision=job.revision
    )
    if written != 1:
        raise Conflict(f"job {job.id} changed meanwhile", hint="look again, then repeat")
    cancelled = cancel_rest(tx, job, RunReason.REMOVED, "the job was removed")
    tx.record("remove", change.peer, job=job.id, detail=told(change))
    row = tx.one("live_job", id=job.id)
    assert row is not None  # noqa: S101 - a tombstone stays
    return Operated(job=job_of(row), changed=True, in_flight=unfinished(tx, job.id), cancelled=cancelled)


def _move(tx: Transaction, change: DefinitionChange) -> Operated:
    tx.execute("move_file", id=change.job_id, origin_file=change.origin_file)
    return _operated(tx, change, changed=False)


def _expected(tx: Transaction, change: DefinitionChange) -> Job:
    """The live job, if it is the author's to change and still the one that the author saw."""
    job = live_job(tx, change.job_id)
    if job.origin is not change.origin:
        if job.origin is Origin.FILE:
            raise Conflict(
                f"job {job.id} is defined in {job.origin_file}", hint="edit that file, then `schedctl reload`"
            )
        raise Conflict(f"job {job.id} was made through the API", hint="choose another id in the file")
    if change.expects is not None and change.expects != job.definition_revision:
        raise Stale(
            f"job {job.id} was changed since your copy"
            f" (yours {change.expects}, now {job.definition_revision})",
            hint="read it again, then repeat your change",
        )
    return job


def _operated(
    tx: Transaction, change: DefinitionChange, *, changed: bool = True, completed: bool = False
) -> Operated:
    return Operated(
        job=live_job(tx, change.job_id),
        changed=changed,
        in_flight=unfinished(tx, change.job_id),
        completed=completed,
    )
