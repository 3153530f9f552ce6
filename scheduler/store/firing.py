"""FIRE, manual starts and claims, each inside its transaction (design part 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from scheduler.clock import Micros
from scheduler.errors import AlreadyRunning, Conflict, Draining, NotFound, SchedulerError
from scheduler.model.jobs import Job, JobStatus, Overlap, PauseReason
from scheduler.model.runs import (
    Grant,
    Run,
    RunId,
    RunReason,
    RunState,
    RunTrigger,
    SkipReason,
    Wish,
)
from scheduler.rules.batch import tally
from scheduler.rules.planning import Admission, FirePlan, SkippedSpan, Slot, admit
from scheduler.rules.reconcile import SCHEDULED
from scheduler.store.finishing import cancel_unstarted, end_job_if_exhausted
from scheduler.store.items import item_counts
from scheduler.store.once import once
from scheduler.store.operating import next_from_now
from scheduler.store.rows import job_of, run_of
from scheduler.store.starting import (
    Room,
    grant_of,
    insert_run,
    live_run,
    occupancy,
    one_skipped,
    record_attempt,
    tell_skipped,
)
from scheduler.store.transaction import Transaction
from scheduler.store.values import Claimant, Fired, Started, StartRequest

_SKIP_OF = {
    Admission.SKIP_OVERLAP: SkipReason.OVERLAP,
    Admission.SKIP_QUEUE_FULL: SkipReason.QUEUE_FULL,
}


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
        return [Fired(fired=False) for _ in plans]
    room = Room(tx, who)
    return [_fire_one(tx, who, plan, room) for plan in plans]


def _fire_one(tx: Transaction, who: Claimant, plan: FirePlan, room: Room) -> Fired:
    row = tx.changed(
        "move_job",
        id=plan.job_id,
        next_fire_at=plan.next_fire_at,
        due_at=plan.due_at,
        last_fire_at=plan.last_fire_at,
        seen_fire_at=plan.seen_fire_at,
        seen_revision=plan.seen_revision,
    )
    if row is None:
        return Fired(fired=False)
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
    run = insert_run(tx, who, job, slot.run_id, slot.trigger, claimed=claimed, fire_time=slot.fire_time)
    if run is None:
        return
    if admission is Admission.REPLACE:
        # After the insert, or the end of the replaced run could be taken for the end of the trigger.
        cancel, cancelled = _make_way(tx, job, spare=run.id)
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


def _make_way(tx: Transaction, job: Job, spare: RunId | None = None) -> tuple[list[RunId], list[Run]]:
    """`cancel_running`: queued runs are replaced, live ones get the wish `cancel`; those with a worker."""
    cancel: list[RunId] = []
    cancelled: list[Run] = []
    for row in tx.all("unfinished_runs", job=job.id):
        run = run_of(row)
        if run.id == spare:
            continue
        if run.state in (RunState.RUNNING, RunState.RECOVERING):
            if tx.execute("wish_run", id=run.id, wish=Wish.CANCEL):
                cancel.append(run.id)
        else:
            why = 'replaced by the next run (overlap = "cancel_running")'
            cancelled.append(cancel_unstarted(tx, run, RunReason.CANCELLED, why).run)
    return cancel, cancelled


def start(tx: Transaction, who: Claimant, requests: Sequence[StartRequest]) -> list[Started | SchedulerError]:
    """Manual starts in order: each sees the rows of those before it (I2)."""
    room = Room(tx, who)
    return [
        tx.alone(partial(once, tx, request.peer, partial(_start_one, tx, who, request, room)))
        for request in requests
    ]


def _start_one(tx: Transaction, who: Claimant, request: StartRequest, room: Room) -> Started:
    job = startable(tx, who, request)
    definition = job.definition
    overlap = request.overlap or Overlap.SKIP
    seen, _ = occupancy(tx, job.id, room=room.fits(definition.group))
    admission = admit(overlap, definition.max_running, definition.queue_limit, seen)
    if admission in _SKIP_OF:
        raise _already(tx, job, admission)
    _refuse_unsettled(tx, job, request)
    cancel: list[RunId] = []
    cancelled: list[Run] = []
    if admission is Admission.REPLACE:
        cancel, cancelled = _make_way(tx, job)
        job = startable(tx, who, request)  # the replaced run may have been the job's last
    claimed = admission is Admission.CLAIM
    run = insert_run(
        tx,
        who,
        job,
        request.run_id,
        RunTrigger.MANUAL,
        claimed=claimed,
        args=request.args,
        under_pause=job.status is not JobStatus.ACTIVE,
    )
    if run is None:
        raise Conflict(f"a run {request.run_id} exists already", hint="repeat the start")
    if claimed:
        room.take(definition.group)
    tx.record("run", request.peer, job=job.id, run=run.id)
    return Started(
        run=run,
        grant=grant_of(run, job) if claimed else None,
        cancel=tuple(cancel),
        cancelled=tuple(cancelled),
    )


def _refuse_unsettled(tx: Transaction, job: Job, request: StartRequest) -> None:
    """A fresh batch run would bill again what a run that was cut has done, or may have done."""
    if job.definition.batch is None or request.new:
        return
    row = tx.one("unsettled_run", job=job.id, added_revision=job.added_revision)
    if row is None:
        return
    counts = item_counts(tx, RunId(row["id"]))
    told = tally(counts) if counts is not None else ""
    raise AlreadyRunning(
        f"job {job.id} has a run that is not whole: {row['id']} is {row['state']}, {told}",
        run_id=row["id"],
        hint=f"retry: schedctl retry {row['id']} goes on with it; schedctl run {job.id} --new starts afresh",
    )


def startable(tx: Transaction, who: Claimant, request: StartRequest) -> Job:
    """The job, if an operator may start it now: any status, never past a global or budget pause."""
    if who.draining:
        raise Draining("the daemon is stopping and starts nothing new")
    row = tx.one("live_job", id=request.job_id)
    if row is None or row["removed_at"] is not None:
        raise NotFound(f"there is no job {request.job_id}")
    job = job_of(row)
    if job.problem_code is not None:
        raise Conflict(f"job {job.id} is broken: {job.problem_message}", hint="mend it, then reload")
    if tx.value("global_pause_open") is not None:
        raise Conflict("all jobs are paused", hint="resume them first: schedctl resume --all")
    if job.pause is not None and job.pause.reason is PauseReason.BUDGET:
        raise Conflict(f"job {job.id} has spent its budget", hint="raise the budget or resume the job")
    if request.overlap is Overlap.ALLOW and job.definition.overlap is not Overlap.ALLOW:
        raise Conflict(
            f'job {job.id} does not allow runs beside each other (overlap = "{job.definition.overlap}")',
            hint="use overlap skip, queue or cancel_running",
        )
    return job


def _already(tx: Transaction, job: Job, admission: Admission) -> AlreadyRunning:
    row = tx.one("unfinished_runs", job=job.id)
    assert row is not None  # noqa: S101 - admission saw it in this transaction
    full = " and its queue is full" if admission is Admission.SKIP_QUEUE_FULL else ""
    return AlreadyRunning(
        f"job {job.id} has a run that is {row['state']}{full}: {row['id']}",
        run_id=row["id"],
        hint=f"wait for it, or cancel it: schedctl cancel {row['id']}",
    )


def claim(tx: Transaction, who: Claimant, limit: int) -> tuple[list[Grant], list[Run]]:
    """Queued and waiting runs that may start now are running; queued ones that expired are skipped."""
    room = Room(tx, who)
    if who.draining or room.left == 0:
        return [], []
    grants: list[Grant] = []
    expired: list[Run] = []
    serial_live = who.serial and tx.value("serial_run_in_force") is not None
    rows = tx.all("claim_candidates", now=tx.now, full_groups=room.full_groups(), limit=limit)
    for row in rows:
        run = run_of(row)
        job_row = tx.one("live_job", id=run.job)
        assert job_row is not None  # noqa: S101 - joined a moment ago
        job = job_of(job_row)
        if _is_expired(run, job, tx.now):
            expired += _expire(tx, run, job)
            continue
        serial = who.serial and run.reason == RunReason.OWNER_DIED
        if serial and serial_live:
            continue
        if room.fits(job.definition.group) and _has_slot(tx, run, job):
            granted = _claim_one(tx, who, run, job, serial=serial)
            if granted:
                room.take(job.definition.group)
                serial_live = serial_live or serial
            grants += granted
    return grants, expired


def _has_slot(tx: Transaction, run: Run, job: Job) -> bool:
    """A queued run needs a free slot, ranked within this batch (I2).

    A waiting run holds its slot already; it only stands back where an edit left fewer slots than it finds
    runs in force.
    """
    limit = 1 if job.definition.solo else job.definition.max_running
    if run.state is RunState.WAITING:
        return int(tx.value("claimed_of_job", job=job.id)) < limit
    seen, _ = occupancy(tx, job.id, room=True)
    return seen.live < limit


def _claim_one(tx: Transaction, who: Claimant, run: Run, job: Job, *, serial: bool) -> list[Grant]:
    changed = tx.execute(
        "claim_run",
        id=run.id,
        owner=who.owner.id,
        lease_until=tx.now + who.lease,
        now=tx.now,
        definition_revision=job.definition_revision,
        solo=job.definition.solo,
        serial=serial,
        seen_state=run.state,
        seen_claim=run.claim,
    )
    if changed != 1:
        return []
    claimed = live_run(tx, run.id)
    record_attempt(tx, claimed)
    return [grant_of(claimed, job)]


def _is_expired(run: Run, job: Job, now: Micros) -> bool:
    """A queued fire time is older than its window; what was older when somebody asked for it counts anew."""
    if run.state is not RunState.QUEUED or run.trigger not in SCHEDULED or run.claim > 0:
        return False
    if run.fire_time is None or run.queued_at is None:
        return False
    window = job.definition.catch_up_window
    asked_for = run.queued_at - run.fire_time > window
    return now - (run.queued_at if asked_for else run.fire_time) > window


def _expire(tx: Transaction, run: Run, job: Job) -> list[Run]:
    changed = tx.execute(
        "expire_run",
        id=run.id,
        now=tx.now,
        seen_claim=run.claim,
        message="waited in the queue for longer than catch_up_window",
    )
    if changed != 1:
        return []
    if not end_job_if_exhausted(tx, job):
        _fire_again(tx, job)
    return [live_run(tx, run.id)]


def _fire_again(tx: Transaction, job: Job) -> None:
    """A job that waited for the end of the expired run, which will not come, has a next slot again."""
    limit = job.definition.max_runs
    _, scheduled = occupancy(tx, job.id, room=True)
    full = limit is not None and job.fires_done + scheduled >= limit
    if full or job.next_fire_at is not None or not job.may_fire:
        return
    following = next_from_now(tx, job)
    if following is not None:
        due_at = job.definition.schedule.due_at(following)
        tx.execute(
            "set_next_fire", id=job.id, next_fire_at=following, due_at=due_at, seen_revision=job.revision
        )
