"""Starts by hand, inside their transaction (design part 4)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from scheduler.errors import AlreadyRunning, Conflict, Draining, NotFound, SchedulerError
from scheduler.model.jobs import Job, JobStatus, Overlap, PauseReason
from scheduler.model.runs import Run, RunId, RunTrigger
from scheduler.rules.batch import tally
from scheduler.rules.planning import Admission, admit
from scheduler.store.items import item_counts
from scheduler.store.liverows import occupancy
from scheduler.store.once import once
from scheduler.store.rows import job_of
from scheduler.store.starting import NewRun, Room, grant_of, insert_runs, make_way
from scheduler.store.transaction import Transaction
from scheduler.store.values import Claimant, Started, StartRequest

_REFUSED = {Admission.SKIP_OVERLAP, Admission.SKIP_QUEUE_FULL}


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
    if admission in _REFUSED:
        raise _already(tx, job, admission)
    _refuse_unsettled(tx, job, request)
    cancel: list[RunId] = []
    cancelled: list[Run] = []
    if admission is Admission.REPLACE:
        cancel, cancelled = make_way(tx, job)
        job = startable(tx, who, request)  # the replaced run may have been the job's last
    claimed = admission is Admission.CLAIM
    new = NewRun(
        id=request.run_id,
        job=job,
        trigger=RunTrigger.MANUAL,
        claimant=who if claimed else None,
        generation=job.generation,
        args=request.args,
        under_pause=job.status is not JobStatus.ACTIVE,
    )
    (run,) = insert_runs(tx, [new])
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
    row = tx.one("unsettled_run", job=job.id)
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
