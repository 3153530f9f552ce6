"""The one reason why a job is not running now, and when it can. Pure.

The order is that in which the causes would have to be lifted: what stops the whole daemon first, then
what an operator said of this job, then what its own runs and limits do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from scheduler.clock import Micros
from scheduler.model.jobs import Job, JobStatus, Overlap, Pause
from scheduler.model.runs import Run, RunReason, RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """A reason, as a word and as a sentence.

    Attributes:
        is_blocked: False: nothing is in the way; it waits for its next fire time, or runs.
        since: when the reason came to be, or None.
        next_possible_at: when it can run; None where that depends on an operator or on a run's end.
        run_id: the run that the reason is about.
    """

    is_blocked: bool
    code: str
    message: str
    since: Micros | None = None
    next_possible_at: Micros | None = None
    run_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How full the store is: claims in force and how many may be, in all and in the job's group."""

    claimed: int
    max_running: int
    group_claimed: int = 0
    group_max: int | None = None


def why(
    job: Job,
    unfinished: Sequence[Run],
    limits: Limits,
    now: Micros,
    *,
    draining: bool,
    global_pause: Pause | None,
    serial: bool = False,
    stuck: AbstractSet[str] = frozenset(),
) -> Blocked:
    """The one reason, given the live rows.

    Args:
        unfinished: live and queued runs of the job, oldest first.
        serial: recovered runs restart one at a time.
        stuck: runs that were told to end and do not.
        global_pause: of all jobs, or None.
    """
    if draining:
        return Blocked(
            is_blocked=True, code="draining", message="the daemon is stopping and starts nothing new"
        )
    if global_pause is not None:
        return _paused("global_pause", global_pause, "all jobs are ")
    return (
        _of_job(job)
        or _of_stuck(unfinished, stuck)
        or _of_runs(job, unfinished, limits, now, serial=serial)
        or _of_schedule(job, now)
    )


def _paused(code: str, pause: Pause, who: str = "") -> Blocked:
    return Blocked(
        is_blocked=True,
        code=code,
        message=f"{who}{pause.words}",
        since=pause.since,
        next_possible_at=pause.until,
    )


_ENDED: Mapping[JobStatus, str] = {
    JobStatus.COMPLETED: "the job is completed: its schedule is over, or a run of it said that all is done",
    JobStatus.FAILED: "the job failed too often in a row: schedctl resume makes it active again",
}


def _of_job(job: Job) -> Blocked | None:
    if job.problem_code is not None:
        return Blocked(is_blocked=True, code="broken", message=f"the job is broken: {job.problem_message}")
    if job.pause is not None:
        return _paused("paused", job.pause)
    if job.status in _ENDED:
        return Blocked(is_blocked=True, code=job.status, message=_ENDED[job.status])
    if not job.enabled:
        return Blocked(is_blocked=True, code="disabled", message="enabled = false in its definition")
    return None


def _of_stuck(unfinished: Sequence[Run], stuck: AbstractSet[str]) -> Blocked | None:
    for run in unfinished:
        if run.id in stuck:
            message = (
                f"run {run.id} was told to end and does not; it is ended again and again,"
                f" and schedctl cancel --force {run.id} gives its slot back"
            )
            return Blocked(
                is_blocked=True, code="stuck", message=message, since=run.started_at, run_id=run.id
            )
    return None


def _of_runs(
    job: Job, unfinished: Sequence[Run], limits: Limits, now: Micros, *, serial: bool
) -> Blocked | None:
    live = [run for run in unfinished if run.state is not RunState.QUEUED]
    queued = [run for run in unfinished if run.state is RunState.QUEUED]
    slots = job.definition.max_running if job.definition.overlap is Overlap.ALLOW else 1
    if live and len(live) >= slots:
        return _of_live(live[0], now, serial=serial)
    if queued:
        return _of_queued(queued[0], job, limits)
    return None


def _of_live(run: Run, now: Micros, *, serial: bool) -> Blocked:
    since = run.started_at or run.queued_at
    age = max(0, now - (since or now)) // 1_000_000
    match run.state:
        case RunState.WAITING if serial and run.reason == RunReason.OWNER_DIED:
            message = (
                f"run {run.id} waits its turn: after repeated crashes recovered runs restart one at a time"
            )
            code, possible = "serial_restart", None
        case RunState.WAITING:
            message = f"run {run.id} waits for another try: {run.message or run.reason or 'interrupted'}"
            code, possible = "waiting_for_retry", run.ready_at
        case RunState.RECOVERING:
            message = f"what run {run.id} left behind is being ended"
            code, possible = "recovering", None
        case RunState.HELD:
            message, code, possible = f"run {run.id} is held until resume", "held", None
        case _:
            message = f"run {run.id} has been running for {age} s"
            code, possible = "already_running", None
    return Blocked(
        is_blocked=True, code=code, message=message, since=since, next_possible_at=possible, run_id=run.id
    )


def _of_queued(run: Run, job: Job, limits: Limits) -> Blocked:
    group = job.definition.group
    if limits.group_max is not None and limits.group_claimed >= limits.group_max:
        message = f"group {group} is full: {limits.group_claimed} of {limits.group_max} runs"
        code = "group_full"
    elif limits.claimed >= limits.max_running:
        message = f"the daemon is full: {limits.claimed} of {limits.max_running} runs (max_running)"
        code = "daemon_full"
    else:
        message, code = f"run {run.id} is queued and about to start", "queued"
    return Blocked(is_blocked=True, code=code, message=message, since=run.queued_at, run_id=run.id)


def _of_schedule(job: Job, now: Micros) -> Blocked:
    at = job.due_at
    if at is None:
        kind = job.definition.schedule.trigger.kind
        if kind == "manual":
            message = f"it starts only by hand: schedctl run {job.id}"
        else:
            message = "its next fire time is set when its run ends"
        return Blocked(is_blocked=False, code=kind, message=message)
    if at <= now:
        return Blocked(
            is_blocked=False, code="due", message="it is due and about to start", next_possible_at=at
        )
    return Blocked(
        is_blocked=False,
        code="not_due",
        message="nothing is in its way: it is not due yet",
        next_possible_at=at,
    )
