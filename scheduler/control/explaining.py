"""Why a job is not running, as an answer: the reason found by the rules, or the row of a past fire time."""

from __future__ import annotations

from scheduler.clock import Micros, from_micros
from scheduler.control.ports import Why
from scheduler.model.jobs import Job, JobId
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


async def explained_then(reads: Reads, job: Job, at: Micros) -> Why:
    """What became of one fire time, from the row that explains it."""
    run = await reads.run_at(job.id, at)
    if run is None or not _speaks_of(run, job, at):
        return _held_back(job, at) or Why(
            job=job.id, blocked=False, code="no_record", message=_no_record(job, at)
        )
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


def _nearby(job: Job, at: Micros, before: Micros | None) -> str:
    """What the job's own clock shows then, and when it fired last: it may be the zone that was mistaken."""
    if before is None:
        return ""
    name = job.definition.timezone
    zone = load_zone(name).info
    shown, last = (from_micros(moment, zone).isoformat() for moment in (at, before))
    return f": it is {shown} in {name}, and the fire time before it is {last}"


def _no_record(job: Job, at: Micros) -> str:
    before = job.definition.schedule.last_fire(at)
    if before != at:
        return f"this is no fire time of the job as it is defined now{_nearby(job, at, before)}"
    if job.next_fire_at is not None and at >= job.next_fire_at:
        return "this fire time is still to come"
    return "nothing is recorded of this fire time: it lies before the job was added, or its row was pruned"
