"""The heart: what a finished piece of work may write, decided against the live row. Pure.

A run read its job when it was claimed. By the time it ends an operator may have paused, resumed, edited,
removed or re-added the job, and another daemon may have taken the claim. So nothing of what the run read
is written back: `reconcile` is given the verdict and the rows as they are now, inside the transaction
that will write, and says which columns change. The story behind it is the stomped pause (README).

Rules, in this order (design part 4):
1. the claim moved on, or the state is not the one the writer names: nothing is written (I3);
2. the run's own result is kept, whatever became of the job (I6);
3. the job's status belongs to the operator: only `completed` and `failed` win over a pause (I4, I5);
4. what the job does next is judged from its live definition, never from the one the run was started with.
"""

from __future__ import annotations

from typing import Final

from scheduler.clock import Micros
from scheduler.model.jobs import Job, JobStatus, OnCrash, PauseReason
from scheduler.model.runs import (
    Run,
    RunReason,
    RunState,
    RunTrigger,
    Wish,
    require_transition,
)
from scheduler.rules.batch import BatchEnd, batch_end, tally
from scheduler.rules.retry import backoff, may_retry
from scheduler.rules.verdicts import (
    Decision,
    Ending,
    JobWrite,
    LiveRows,
    RunWrite,
    Standing,
    Verdict,
)

__all__ = [
    "COUNTED_FAILURES",
    "SCHEDULED",
    "Decision",
    "Ending",
    "JobWrite",
    "LiveRows",
    "RunWrite",
    "Standing",
    "Verdict",
    "reconcile",
]

COUNTED_FAILURES: Final = frozenset({RunState.FAILED})
SCHEDULED: Final = frozenset({RunTrigger.SCHEDULE, RunTrigger.CATCH_UP})


def reconcile(verdict: Verdict, live: LiveRows, now: Micros) -> Decision:
    """The columns to write for `verdict`, given the live rows.

    # INVARIANT: I3, a write-back whose claim or state moved on changes nothing.
    # INVARIANT: I4, a pause, resume, edit or removal that committed during the run survives.

    Raises:
        IllegalTransition: the verdict asks for a step that the table does not have.
    """
    if live.run.claim != verdict.claim or live.run.state is not verdict.expects:
        return Decision(standing=_standing_of_refused(verdict, live.run))
    job = _own_job(live)
    run = _run_write(verdict, live, job, now)
    require_transition(live.run.state, run.state)
    if job is None:
        return Decision(standing=Standing.WRITTEN, run=run)
    write, ignored = _job_write(verdict, live, run, job, now)
    ends = write.status in (JobStatus.COMPLETED, JobStatus.FAILED)
    return Decision(
        standing=Standing.WRITTEN,
        run=run,
        job=write,
        ends_job=ends,
        met_pause=job.status is JobStatus.PAUSED and not ends,
        completion_ignored=ignored,
    )


def _standing_of_refused(verdict: Verdict, run: Run) -> Standing:
    """A row that already bears my claim and my verdict was written before: the answer was lost."""
    by_items = verdict.ending is Ending.ITEMS and run.state in _ITEMS_LEAD_TO
    said = _TERMINAL_OF.get(verdict.ending, verdict.ending)
    mine = run.claim == verdict.claim and (by_items or run.state.value == said.value)
    return Standing.ALREADY_WRITTEN if mine and verdict.claim > 0 else Standing.FENCED


_ITEMS_LEAD_TO: Final = frozenset({RunState.SUCCEEDED, RunState.PARTIAL, RunState.FAILED, RunState.HELD})


def _own_job(live: LiveRows) -> Job | None:
    """The job this run belongs to, or None if it was removed, or removed and added again since (I6)."""
    job = live.job
    if job is None or job.removed_at is not None or job.added_revision != live.run.added_revision:
        return None
    return job


def _run_write(verdict: Verdict, live: LiveRows, job: Job | None, now: Micros) -> RunWrite:
    run, end = live.run, _end_of_batch(verdict, live, job)
    state, ready_at, charged = _next_state(verdict, run, job, now) if end is None else (end.state, None, 0)
    terminal = state not in (RunState.WAITING, RunState.HELD)
    reason, message = verdict.reason, verdict.message
    if state is RunState.CANCELLED and verdict.ending is not Ending.CANCELLED:
        reason = _why_cancelled(run, job)
    if end is not None:
        reason, message = end.reason, end.message
    elif live.items is not None:
        message = "; ".join(part for part in (message, tally(live.items)) if part)
    if state is RunState.FAILED and job is None and _was_worth_a_try(verdict, live):
        message = "; ".join(part for part in (message, "not tried again: the job was removed") if part)
    if state is RunState.FAILED and reason is None:
        reason = RunReason.REMOVED if job is None else RunReason.JOB_ENDED
    return RunWrite(
        state=state,
        reason=None if state is RunState.SUCCEEDED else reason,
        message=None if state is RunState.SUCCEEDED else message,
        attempt=run.attempt + charged,
        ready_at=ready_at,
        counted=run.job_counted or (terminal and run.trigger in SCHEDULED),
    )


def _was_worth_a_try(verdict: Verdict, live: LiveRows) -> bool:
    """Another try would have been left, had the job not been removed."""
    if verdict.ending is Ending.RETRY_ASKED:
        return True
    if live.job is None or verdict.ending is not Ending.FAILED or not verdict.retryable:
        return False
    return may_retry(live.job.definition.retry, live.run.attempt, verdict.exit_code)


def _why_cancelled(run: Run, job: Job | None) -> RunReason:
    """A batch with items left can also lose its job."""
    if run.wish is Wish.CANCEL:
        return RunReason.CANCELLED
    return RunReason.REMOVED if job is None else RunReason.JOB_ENDED


_ENDED_IN_ORDER: Final = frozenset({Ending.ITEMS, Ending.SHUTDOWN, Ending.CANCELLED})


def _end_of_batch(verdict: Verdict, live: LiveRows, job: Job | None) -> BatchEnd | None:
    """What its items make of a batch of which nothing is left to run; None: they do not decide.

    Not after a crash: from `recovering` a batch goes on under another claim, which finds nothing left.
    """
    if live.items is None or live.run.state is not RunState.RUNNING or verdict.ending not in _ENDED_IN_ORDER:
        return None
    end = batch_end(job.definition.batch if job is not None else None, live.items)
    cancelled = verdict.ending is Ending.CANCELLED or live.run.wish is Wish.CANCEL
    return None if end is None or (cancelled and end.state is not RunState.SUCCEEDED) else end


def _next_state(
    verdict: Verdict, run: Run, job: Job | None, now: Micros
) -> tuple[RunState, Micros | None, int]:
    """State, moment of the next claim, and tries charged: success wins over any wish, then the wish."""
    if verdict.ending is Ending.SUCCEEDED:
        return RunState.SUCCEEDED, None, 0
    if verdict.ending is Ending.CANCELLED or run.wish is Wish.CANCEL:
        return RunState.CANCELLED, None, 0
    terminal = _TERMINAL_OF[verdict.ending]
    wait = _wait(verdict, run, job)
    if wait is None:
        return terminal, None, 0
    if run.wish is Wish.HOLD and run.state is RunState.RUNNING:
        return RunState.HELD, None, int(verdict.ending is Ending.FAILED)
    return RunState.WAITING, now + wait, int(verdict.ending is Ending.FAILED)


_TERMINAL_OF: Final = {
    Ending.FAILED: RunState.FAILED,
    Ending.RETRY_ASKED: RunState.FAILED,
    Ending.CRASHED: RunState.CRASHED,
    Ending.SHUTDOWN: RunState.INTERRUPTED,
    Ending.ITEMS: RunState.CANCELLED,
}


def _wait(verdict: Verdict, run: Run, job: Job | None) -> Micros | None:
    """How long the run waits for its next claim; None when it gets none."""
    if job is None or job.status in (JobStatus.COMPLETED, JobStatus.FAILED):
        return None
    definition = job.definition
    match verdict.ending:
        case Ending.RETRY_ASKED:
            return verdict.retry_after
        case Ending.ITEMS:
            return 0
        case Ending.CRASHED | Ending.SHUTDOWN:
            return None if definition.on_crash is OnCrash.RECORD else 0
        case Ending.FAILED:
            if not verdict.retryable or not may_retry(definition.retry, run.attempt, verdict.exit_code):
                return None
            return backoff(definition.retry, run.attempt, verdict.spread)
    return None


def _job_write(
    verdict: Verdict, live: LiveRows, run: RunWrite, job: Job, now: Micros
) -> tuple[JobWrite, bool]:
    failures, crashes = _counters(verdict, run, job)
    done = job.fires_done + int(run.counted and not live.run.job_counted)
    moved = job.definition_revision != live.run.definition_revision
    ignored = verdict.completed and moved
    status = _verdict_on_job(verdict, live, run, job, failures, done, now, moved=moved)
    pauses = status is None and _crashes_pause(job, crashes)
    sets_next, following = _next_fire(live, run, job, now)
    blocked = pauses or status is not None or not job.may_fire
    following = None if blocked else following
    return (
        JobWrite(
            status=JobStatus.PAUSED if pauses and job.status is JobStatus.ACTIVE else status,
            failures=failures,
            crashes=crashes,
            fires_done=done,
            sets_next=sets_next or pauses or status is not None,
            next_fire_at=following,
            due_at=None if following is None else job.definition.schedule.due_at(following),
            pause_reason=PauseReason.CRASHES if pauses else None,
            pause_note=_evidence(verdict, crashes) if pauses else "",
            problem=verdict.broken,
        ),
        ignored,
    )


def _counters(verdict: Verdict, run: RunWrite, job: Job) -> tuple[int, int]:
    """Consecutive failures and crashes after this end (design part 4)."""
    if run.state is RunState.SUCCEEDED:
        return 0, 0
    match verdict.ending:
        case Ending.CRASHED:
            return job.failures, job.crashes + int(verdict.counts_crash)
        case Ending.SHUTDOWN:
            return job.failures, 0
        case _:
            return job.failures + int(run.state in COUNTED_FAILURES), job.crashes


def _crashes_pause(job: Job, crashes: int) -> bool:
    limit = job.definition.max_crashes
    return (
        0 < limit <= crashes
        and crashes > job.crashes
        and job.status
        in (
            JobStatus.ACTIVE,
            JobStatus.PAUSED,
        )
    )


def _evidence(verdict: Verdict, crashes: int) -> str:
    return f"{crashes} crashes in a row; the last: {verdict.message or verdict.reason or 'owner died'}"


def _verdict_on_job(
    verdict: Verdict,
    live: LiveRows,
    run: RunWrite,
    job: Job,
    failures: int,
    done: int,
    now: Micros,
    *,
    moved: bool,
) -> JobStatus | None:
    """`completed` or `failed` where this end decides it, else None: the status stays the operator's.

    # INVARIANT: I5, these two win over a pause that raced in.
    """
    if job.status in (JobStatus.COMPLETED, JobStatus.FAILED):
        return None
    if verdict.completed and not moved:
        return JobStatus.COMPLETED
    if run.state in (RunState.WAITING, RunState.HELD):
        return None
    definition = job.definition
    if run.state in COUNTED_FAILURES and 0 < definition.max_failures <= failures:
        return JobStatus.FAILED
    if definition.max_runs is not None and done >= definition.max_runs:
        return JobStatus.COMPLETED
    return JobStatus.COMPLETED if _is_exhausted(live, job, now) else None


def _is_exhausted(live: LiveRows, job: Job, now: Micros) -> bool:
    """The live definition has no further fire time, and no other run of the trigger is on its way."""
    if live.run.trigger not in SCHEDULED or live.others:
        return False
    return is_exhausted(job, now)


def depends_on_others(job: Job) -> bool:
    """What an end does to this job depends on its other runs: it may be its last, or sets its next slot."""
    return job.next_fire_at is None or job.definition.schedule.trigger.kind == "delay"


def is_exhausted(job: Job, now: Micros) -> bool:
    """The trigger has no further fire time, as its live row and definition say.

    An active job that lacks a next slot has none left, also where an operator passed over those to come;
    but for `delay`, whose next slot comes from the end of a run, and `max_runs`, which stops firing early.
    """
    definition = job.definition
    kind = definition.schedule.trigger.kind
    if kind == "manual" or job.next_fire_at is not None:
        return False
    if job.may_fire and kind != "delay" and definition.max_runs is None:
        return True
    return definition.schedule.next_fire(now) is None


def _next_fire(live: LiveRows, run: RunWrite, job: Job, now: Micros) -> tuple[bool, Micros | None]:
    """Only the end of a scheduled run of a `delay` job moves its `next_fire_at`."""
    if job.definition.schedule.trigger.kind != "delay" or live.run.trigger not in SCHEDULED:
        return False, None
    if run.state in (RunState.WAITING, RunState.HELD) or live.others:
        return False, None
    return True, job.definition.schedule.next_fire(now)
