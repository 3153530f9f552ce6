"""Queued and waiting runs are claimed, or told as expired, inside one transaction (design part 4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from scheduler.clock import Micros
from scheduler.errors import IllegalTransition
from scheduler.model.jobs import Job, JobId
from scheduler.model.record import altered
from scheduler.model.runs import Grant, Run, RunReason, RunState
from scheduler.rules.reconcile import SCHEDULED
from scheduler.store.finishing import end_job_if_exhausted
from scheduler.store.liverows import Standing, live_jobs, live_run, occupancy, standings
from scheduler.store.operating import next_from_now
from scheduler.store.rows import run_from
from scheduler.store.starting import Room, grant_of, record_attempts
from scheduler.store.transaction import Transaction, packed
from scheduler.store.values import Claimant


def claim(tx: Transaction, who: Claimant, limit: int) -> tuple[list[Grant], list[Run]]:
    """Queued and waiting runs that may start now are running; queued ones that expired are skipped.

    Where some have expired only that is done: it may change what stands behind them.
    """
    room = Room(tx, who)
    if who.draining or room.left == 0:
        return [], []
    chosen: list[_Chosen] = []
    for at_most in (min(limit, room.left), limit):
        runs, jobs = _candidates(tx, room, at_most)
        expired = [run for run in runs if _is_expired(run, jobs[run.job], tx.now)]
        if expired:
            return [], [gone for run in expired for gone in _expire(tx, run, jobs[run.job])]
        chosen = _chosen(tx, who, runs, jobs, room)
        if len(chosen) == at_most or len(runs) < at_most:
            break
        # Some have no slot of their own, and should not hide those behind them: a wider look begins anew.
        room = Room(tx, who)
    return _claim_all(tx, who, chosen), []


def _candidates(tx: Transaction, room: Room, limit: int) -> tuple[list[Run], dict[JobId, Job]]:
    rows = tx.gathered("claim_candidates", now=tx.now, full_groups=room.full_groups(), limit=limit)
    runs = [run_from(values) for values in rows]
    return runs, live_jobs(tx, {run.job for run in runs})


class _Chosen(NamedTuple):
    """A run that is to be claimed; `serial`: by itself, as daemons died repeatedly."""

    run: Run
    job: Job
    serial: bool


def _chosen(
    tx: Transaction, who: Claimant, runs: Sequence[Run], jobs: Mapping[JobId, Job], room: Room
) -> list[_Chosen]:
    """Those that have room and a slot, ranked within this batch (I2)."""
    serial_live = who.serial and tx.value("serial_run_in_force") is not None
    standing = standings(tx, jobs)
    begun: Counter[tuple[JobId, bool]] = Counter()
    chosen: list[_Chosen] = []
    for run in runs:
        job = jobs[run.job]
        serial = who.serial and run.reason == RunReason.OWNER_DIED
        if (serial and serial_live) or not room.fits(job.definition.group):
            continue
        if not _has_slot(run, job, standing[job.id], begun):
            continue
        room.take(job.definition.group)
        begun[job.id, run.state is RunState.QUEUED] += 1
        serial_live = serial_live or serial
        chosen.append(_Chosen(run, job, serial))
    return chosen


def _has_slot(run: Run, job: Job, standing: Standing, begun: Mapping[tuple[JobId, bool], int]) -> bool:
    """A queued run needs a free slot.

    A waiting run holds its slot already; it only stands back where an edit left fewer slots than it finds
    runs in force.
    """
    limit = 1 if job.definition.solo else job.definition.max_running
    were_queued, waited = begun.get((job.id, True), 0), begun.get((job.id, False), 0)
    if run.state is RunState.WAITING:
        return standing.claimed + were_queued + waited < limit
    return standing.live + were_queued < limit


def _claim_all(tx: Transaction, who: Claimant, chosen: Sequence[_Chosen]) -> list[Grant]:
    if not chosen:
        return []
    rows = [
        (run.id, job.definition_revision, job.definition.solo, serial, run.state, run.claim)
        for run, job, serial in chosen
    ]
    lease_until = tx.now + who.lease
    claimed = tx.execute(
        "claim_run", claims=packed(rows), owner=who.owner.id, lease_until=lease_until, now=tx.now
    )
    if claimed != len(rows):
        raise IllegalTransition("a run changed inside the transaction that read it")
    runs = [_as_claimed(one, who, lease_until, tx.now) for one in chosen]
    record_attempts(tx, runs)
    return [grant_of(run, job) for run, (_, job, _) in zip(runs, chosen, strict=True)]


def _as_claimed(chosen: _Chosen, who: Claimant, lease_until: Micros, now: Micros) -> Run:
    """The row as `claim_run` has left it."""
    run = chosen.run
    return altered(
        run,
        state=RunState.RUNNING,
        reason=None,
        message=None,
        ready_at=None,
        claim=run.claim + 1,
        owner=who.owner.id,
        lease_until=lease_until,
        claimed_at=now,
        started_at=now if run.started_at is None else run.started_at,
        progress_at=now,
        definition_revision=chosen.job.definition_revision,
        serial=chosen.serial,
    )


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
