"""Why a job is not running, as an answer: the reason found by the rules, or the row of a past fire time."""

from __future__ import annotations

from scheduler.clock import Micros, from_micros
from scheduler.control.ports import Why
from scheduler.model.jobs import Job, JobId, Pause
from scheduler.model.runs import Run, RunId
from scheduler.model.zones import load_zone
from scheduler.rules.why import Blocked
from scheduler.store.protocol import Reads


def explained(job_id: JobId, found: Blocked) -> Why:
    """The reason, as the API's answer."""
    return Why(
        job=job_id,
        blocked=found.is_blocked,
        code=found.code,
        message=found.message,
        since=found.since,
        next_possible_at=found.next_possible_at,
        run_id=None if found.run_id is None else RunId(found.run_id),
    )


async def explained_then(reads: Reads, job: Job, at: Micros, now: Micros) -> Why:
    """What became of one fire time, from the row that explains it, or from what keeps it from having one."""
    run = await reads.run_at(job.id, at)
    if run is None or not _speaks_of(run, job, at):
        held = _held_back(job, at) or _held_with_all(job, at, now, await reads.global_pause())
        return held or Why(job=job.id, blocked=False, code="no_record", message=_no_record(job, at, now))
    reason = f" ({run.reason})" if run.reason else ""
    note = f": {run.message}" if run.message else ""
    return Why(
        job=job.id,
        blocked=run.state == "skipped",
        code=run.reason or run.state,
        message=f"{run.state}{reason}{note}",
        since=run.started_at or run.queued_at,
        run_id=run.id,
    )


def _speaks_of(run: Run, job: Job, at: Micros) -> bool:
    """A row of several skipped fire times spans times between them, too, of which it says nothing."""
    return at in (run.fire_time, run.fire_time_last) or job.definition.schedule.last_fire(at) == at


def _held_back(job: Job, at: Micros) -> Why | None:
    """What keeps this slot from running, or has: its row is written when that ends."""
    if job.held_from is None or at < job.held_from or job.definition.schedule.last_fire(at) != at:
        return None
    what = job.pause.words if job.pause is not None else "disabled: enabled = false in its definition"
    return Why(
        job=job.id,
        blocked=True,
        code="paused" if job.pause is not None else "disabled",
        message=f"held back: the job is {what}; it is told as skipped when that ends",
        since=job.pause.since if job.pause is not None else None,
    )


def _held_with_all(job: Job, at: Micros, now: Micros, pause: Pause | None) -> Why | None:
    """The pause of all jobs, where this slot came within it."""
    if pause is None or not _has_come(job, at, now) or at < pause.since:
        return None
    if job.definition.schedule.last_fire(at) != at:
        return None
    return Why(
        job=job.id,
        blocked=True,
        code="global_pause",
        message=f"held back: all jobs are {pause.words}; it is told as skipped when that ends",
        since=pause.since,
    )


def _has_come(job: Job, at: Micros, now: Micros) -> bool:
    """The slot has passed, its jitter too, and the job has not fired for it."""
    if job.next_fire_at is None or job.due_at is None:
        return False
    return job.next_fire_at <= at <= now and job.due_at <= now


def _nearby(job: Job, at: Micros, before: Micros | None) -> str:
    """What the job's own clock shows then, and when it fired last: it may be the zone that was mistaken."""
    if before is None:
        return ""
    name = job.definition.timezone
    zone = load_zone(name).info
    shown, last = (from_micros(moment, zone).isoformat() for moment in (at, before))
    return f": it is {shown} in {name}, and the fire time before it is {last}"


def _no_record(job: Job, at: Micros, now: Micros) -> str:
    before = job.definition.schedule.last_fire(at)
    if before != at:
        return f"this is no fire time of the job as it is defined now{_nearby(job, at, before)}"
    if _has_come(job, at, now):
        return f"this fire time has come, and nothing has started for it: schedctl why {job.id} tells why"
    if job.next_fire_at is not None and at >= job.next_fire_at:
        return "this fire time is still to come"
    return "nothing is recorded of this fire time: it lies before the job was added, or its row was pruned"
