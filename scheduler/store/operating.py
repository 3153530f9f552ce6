"""The operator's verbs inside a transaction: pause, resume, cancel, retry, skip-next.

They write the operator's columns and nothing else: never a claim, an outcome or a counter (but to 0). A
run in flight learns of them through its `wish`. Each names in its WHERE the states that it accepts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from scheduler.clock import Micros, rfc3339
from scheduler.errors import Conflict, Invalid, NotFound
from scheduler.model.jobs import Job, JobId, JobStatus, Pause, PauseMode, PauseReason, PythonAction
from scheduler.model.runs import (
    Run,
    RunId,
    RunReason,
    RunState,
    RunTrigger,
    SkipReason,
    Wish,
    new_run_id,
)
from scheduler.rules.planning import SkippedSpan, missed_span
from scheduler.store.finishing import cancel_unstarted, end_if_past, end_job_if_exhausted
from scheduler.store.liverows import live_run
from scheduler.store.rows import job_of, run_of
from scheduler.store.settling import choose_items
from scheduler.store.skipping import tell_skipped
from scheduler.store.starting import NewRun, insert_runs
from scheduler.store.transaction import Transaction
from scheduler.store.values import (
    Cancelled,
    Finished,
    Missed,
    Operated,
    PauseRequest,
    Peer,
    ResumeRequest,
)
from scheduler.store.wishes import let_go, mode_of_all, stronger, wish_in_flight

_MOST_SKIPPED: Final = 1_000  # each is a step of the schedule, and a longer stretch is a pause
_RETRYABLE = (
    RunState.PARTIAL,
    RunState.FAILED,
    RunState.CANCELLED,
    RunState.CRASHED,
    RunState.INTERRUPTED,
)


def live_job(tx: Transaction, job_id: JobId) -> Job:
    """The job's row as it is now.

    Raises:
        NotFound: there is none, or it was removed.
    """
    row = tx.one("live_job", id=job_id)
    if row is None or row["removed_at"] is not None:
        raise NotFound(f"there is no job {job_id}")
    return job_of(row)


def unfinished(tx: Transaction, job_id: JobId) -> tuple[Run, ...]:
    """Live and queued runs of the job, oldest first."""
    return tuple(run_of(row) for row in tx.all("unfinished_runs", job=job_id))


def pause(tx: Transaction, request: PauseRequest) -> Operated:
    """The job is paused and the runs in flight know of it; a job that is paused keeps since when.

    # INVARIANT: I4, a pause writes the operator's columns only and bumps the revision that FIRE names.
    """
    job = live_job(tx, request.job_id)
    if job.status not in (JobStatus.ACTIVE, JobStatus.PAUSED):
        raise Conflict(
            f"job {job.id} is {job.status}: only an active job can be paused",
            hint="a failed job is made active by resume, a completed one by an edit",
        )
    if request.mode is PauseMode.FREEZE and isinstance(job.definition.action, PythonAction):
        raise Invalid(
            f"job {job.id} is a Python handler, which cannot be frozen",
            hint="use mode drain, item (a batch) or cancel",
        )
    if request.until is not None and request.until <= tx.now:
        raise Invalid("the end of the pause has passed already", hint="name a moment to come")
    changed = _write_pause(tx, job, request)
    wishes, cancelled = wish_in_flight(tx, job, stronger(job, request.mode, mode_of_all(tx)))
    if changed or wishes or cancelled:
        detail = {"mode": request.mode, "reason": request.note, "until": rfc3339(request.until)}
        tx.record("pause", request.peer, job=job.id, detail=json.dumps(detail))
    return Operated(
        job=live_job(tx, job.id),
        changed=changed,
        in_flight=unfinished(tx, job.id),
        wishes=wishes,
        cancelled=cancelled,
    )


def _write_pause(tx: Transaction, job: Job, request: PauseRequest) -> bool:
    if job.pause is not None and _says_the_same(job.pause, request):
        return False
    paused = job.status is JobStatus.PAUSED
    values: dict[str, object] = {
        "id": job.id,
        "reason": _reason(job, request),
        "mode": request.mode,
        "until": request.until,
        "by": str(request.peer),
        "note": request.note or (job.pause.note if job.pause else ""),
        "revision": tx.next_revision(),
        "seen_revision": job.revision,
    }
    if paused:
        written = tx.execute("change_pause", **values)
    else:
        written = tx.execute("pause_job", now=tx.now, **values)
        tx.execute("forget_under_pause", job=job.id)
    if written != 1:
        raise Conflict(f"job {job.id} changed while it was to be paused", hint="look again, then repeat")
    return True


def _reason(job: Job, request: PauseRequest) -> PauseReason:
    """An operator's pause takes the place of one for crashes; a spent budget stays spent.

    A timed one would lift itself and either of them with it, so it is refused there.
    """
    if job.pause is None or job.pause.reason is PauseReason.OPERATOR:
        return PauseReason.OPERATOR
    if request.until is not None:
        raise Conflict(
            f"job {job.id} is paused (reason {job.pause.reason}), which no pause with an end may lift",
            hint="pause it without an end, or resume it first",
        )
    return PauseReason.BUDGET if job.pause.reason is PauseReason.BUDGET else PauseReason.OPERATOR


def _says_the_same(pause: Pause, request: PauseRequest) -> bool:
    same_words = not request.note or request.note == pause.note
    same_reason = pause.reason in (PauseReason.OPERATOR, PauseReason.BUDGET)
    return same_reason and pause.mode is request.mode and same_words and pause.until == request.until


def resume(tx: Transaction, request: ResumeRequest) -> Operated:
    """The job is active from now; what the pause held back is told, and run where asked."""
    job = live_job(tx, request.job_id)
    if job.status is JobStatus.ACTIVE:
        return Operated(job=job, changed=False, in_flight=unfinished(tx, job.id))
    if job.definition_error is not None:
        raise Conflict(f"job {job.id} cannot be read on this machine: {job.definition_error}")
    if job.status is JobStatus.COMPLETED:
        raise Conflict(
            f"job {job.id} is completed: its schedule is over, or a run of it said that all is done",
            hint="edit its trigger, end_at or max_runs to make it active again",
        )
    done = lift(tx, job, request.missed, tx.now)
    if done is None:
        raise Conflict(f"job {job.id} changed while it was to be resumed", hint="look again, then repeat")
    tx.record("resume", request.peer, job=job.id, detail=json.dumps({"missed": request.missed}))
    return done


def lift(
    tx: Transaction, job: Job, missed: Missed, as_of: Micros, *, over_by: Micros | None = None
) -> Operated | None:
    """The job is active as of a moment, and its schedule goes on from there; None where it has changed.

    Args:
        over_by: only a timed pause whose end is not after this moment.
    """
    spans = held_back(tx, job, SkipReason.PAUSED, missed, as_of)
    following = next_from_now(tx, job, as_of)
    next_fire_at = following if job.enabled else None
    written = tx.execute(
        "resume_job",
        id=job.id,
        held_from=None if job.enabled else following,
        next_fire_at=next_fire_at,
        due_at=None if next_fire_at is None else job.definition.schedule.due_at(next_fire_at),
        revision=tx.next_revision(),
        seen_revision=job.revision,
        over_by=over_by,
    )
    if written != 1:
        return None
    tx.execute("forget_under_pause", job=job.id)
    wishes = let_go(tx, job)
    completed = end_if_past(tx, live_job(tx, job.id))
    return Operated(
        job=live_job(tx, job.id),
        changed=True,
        in_flight=unfinished(tx, job.id),
        wishes=wishes,
        spans=spans,
        completed=completed,
    )


def next_from_now(tx: Transaction, job: Job, as_of: Micros | None = None) -> Micros | None:
    """The next slot from now, or from `as_of`; None while a `delay` job's scheduled run is on its way."""
    schedule = job.definition.schedule
    if schedule.trigger.kind == "delay" and int(tx.value("other_scheduled_runs", job=job.id, id="")):
        return None
    after = tx.now if as_of is None else as_of
    if job.held_from is not None and schedule.trigger.kind != "delay":
        after = max(after, min(job.held_from - 1, tx.now))  # those before it are of another definition
    return next_untold(tx, job, after)


def next_untold(tx: Transaction, job: Job, after: Micros) -> Micros | None:
    """The first slot after `after` that has no row yet: what `skip-next` told as skipped does not come."""
    schedule = job.definition.schedule
    following = schedule.next_fire(after)
    while following is not None:
        told = tx.one("run_at", job=job.id, fire_time=following)
        if told is None or told["generation"] != job.generation:
            break
        following = schedule.next_fire(max(following, told["fire_time_last"] or following))
    return following


def held_back(
    tx: Transaction, job: Job, reason: SkipReason, missed: Missed, as_of: Micros
) -> tuple[SkippedSpan, ...]:
    """The slots up to `as_of` that a pause held back are told as skipped, but for those that are to run."""
    first = job.held_from
    if first is None or first > as_of:
        return ()
    schedule = job.definition.schedule
    last = max(first, schedule.last_fire(as_of) or first)
    wanted = _wanted_of(job, first, last, missed)
    before = schedule.last_fire(wanted[0] - 1) if wanted else last
    spans: tuple[SkippedSpan, ...] = ()
    if before is not None and before >= first:
        words = job.pause.words if job.pause is not None and reason is SkipReason.PAUSED else ""
        spans = (missed_span(schedule, first, before, reason, words),)
        tell_skipped(tx, job, spans[0])
    for slot in wanted:  # after the skips, so that a later one does not reach over these runs
        _queue_catch_up(tx, job, slot)
    return spans


def _wanted_of(job: Job, first: Micros, last: Micros, missed: Missed) -> list[Micros]:
    """The held-back slots that the operator wants run: none, the newest, or the newest `catch_up_limit`."""
    limit = {Missed.SKIP: 0, Missed.LATEST: 1, Missed.ALL: job.definition.catch_up_limit}[missed]
    wanted: list[Micros] = []
    slot: Micros | None = last
    while slot is not None and slot >= first and len(wanted) < limit:
        wanted.append(slot)
        slot = job.definition.schedule.last_fire(slot - 1)
    return wanted[::-1]


def _queue_catch_up(tx: Transaction, job: Job, slot: Micros) -> None:
    new = NewRun(
        id=new_run_id(tx.now),
        job=job,
        trigger=RunTrigger.CATCH_UP,
        generation=job.generation,
        fire_time=slot,
    )
    insert_runs(tx, [new])


def cancel(tx: Transaction, run_id: RunId, peer: Peer) -> Cancelled:
    """The wish is `cancel`; a run without a worker ends now, a terminal one stays as it is."""
    row = tx.one("live_run", id=run_id)
    if row is None:
        raise NotFound(f"there is no run {run_id}")
    run = run_of(row)
    if run.state in (RunState.RUNNING, RunState.RECOVERING):
        if tx.execute("wish_run", id=run.id, wish=Wish.CANCEL):
            tx.record("cancel", peer, job=run.job, run=run.id)
        return Cancelled(run=live_run(tx, run_id), tell_worker=True)
    if run.state not in (RunState.QUEUED, RunState.WAITING, RunState.HELD):
        raise Conflict(f"run {run.id} has ended already: {run.state}")
    finished = cancel_unstarted(tx, run, RunReason.CANCELLED, f"cancelled by {peer}")
    tx.record("cancel", peer, job=run.job, run=run.id)
    return Cancelled(run=finished.run, tell_worker=False, finished=finished)


def release(tx: Transaction, run_id: RunId, peer: Peer) -> Finished:
    """A run whose work cannot be ended gives its slot back, by the operator's explicit word (`--force`)."""
    row = tx.one("live_run", id=run_id)
    if row is None:
        raise NotFound(f"there is no run {run_id}")
    run = run_of(row)
    if run.state not in (RunState.RUNNING, RunState.RECOVERING):
        raise Conflict(f"run {run.id} is {run.state}: only a live one is released by force")
    tx.execute("wish_run", id=run.id, wish=Wish.CANCEL)
    tx.record("cancel-force", peer, job=run.job, run=run.id)
    message = f"released by force by {peer}: what could not be ended may still run"
    return cancel_unstarted(tx, run, RunReason.CANCELLED, message)


def retry_now(tx: Transaction, run_id: RunId, peer: Peer) -> Run:
    """A waiting run may be claimed now."""
    row = tx.one("live_run", id=run_id)
    if row is None:
        raise NotFound(f"there is no run {run_id}")
    if tx.execute("ready_now", id=run_id, now=tx.now) != 1:
        raise Conflict(
            f"run {run_id} is {row['state']}: only a waiting run can be hurried",
            hint="a run that has ended is repeated by retry",
        )
    tx.record("retry-now", peer, job=JobId(row["job"]), run=run_id)
    return live_run(tx, run_id)


def retry(
    tx: Transaction,
    run_id: RunId,
    peer: Peer,
    *,
    keys: Sequence[str] | None = None,
    failed_only: bool = False,
) -> Run:
    """A run that ended without success is queued again, a batch for the items that are not done.

    Args:
        keys: only these items of a batch.
        failed_only: only its failed items.
    """
    row = tx.one("live_run", id=run_id)
    if row is None:
        raise NotFound(f"there is no run {run_id}")
    run = run_of(row)
    job = live_job(tx, run.job)
    if run.items_total is not None:
        choose_items(tx, run, keys, failed_only=failed_only)
    elif keys is not None or failed_only:
        raise Conflict(f"run {run.id} has no items to choose from", hint="retry it whole")
    if run.state not in _RETRYABLE:
        raise Conflict(f"run {run.id} is {run.state}: there is nothing to retry")
    written = tx.execute(
        "requeue_run",
        id=run.id,
        now=tx.now,
        seen_claim=run.claim,
        under_pause=not job.may_fire,
        added_revision=job.added_revision,
    )
    if written != 1:
        raise Conflict(f"run {run.id} changed while it was to be queued again", hint="look again")
    chosen = list(keys) if keys is not None else "failed" if failed_only else None
    tx.record("retry", peer, job=run.job, run=run.id, detail=json.dumps({"items": chosen}))
    return live_run(tx, run.id)


def skip_next(tx: Transaction, job_id: JobId, count: int, peer: Peer) -> Operated:
    """The next `count` slots are passed over, told as skipped by the operator's hand."""
    if not 1 <= count <= _MOST_SKIPPED:
        raise Invalid(f"n = {count} is out of range", hint=f"write a number from 1 to {_MOST_SKIPPED}")
    job = live_job(tx, job_id)
    first = job.next_fire_at
    if first is None:
        raise Conflict(f"job {job.id} has no next fire time to skip ({job.status})")
    schedule = job.definition.schedule
    last, following = first, schedule.next_fire(first)
    for _ in range(count - 1):
        if following is None:
            break
        last, following = following, schedule.next_fire(following)
    written = tx.execute(
        "pass_over",
        id=job.id,
        next_fire_at=following,
        due_at=None if following is None else schedule.due_at(following),
        seen_fire_at=first,
        seen_revision=job.revision,
        revision=tx.next_revision(),
    )
    if written != 1:
        raise Conflict(f"job {job.id} changed meanwhile", hint="look again, then repeat")
    span = missed_span(schedule, first, last, SkipReason.PAUSED, f"skipped by {peer}")
    tell_skipped(tx, job, span)
    tx.record("skip-next", peer, job=job.id, detail=json.dumps({"n": span.count}))
    completed = end_job_if_exhausted(tx, live_job(tx, job.id))
    return Operated(
        job=live_job(tx, job.id),
        changed=True,
        in_flight=unfinished(tx, job.id),
        spans=(span,),
        completed=completed,
    )
