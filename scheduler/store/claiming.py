"""Queued and waiting runs are claimed, or told as expired, inside one transaction (design part 4)."""

from __future__ import annotations

from scheduler.clock import Micros
from scheduler.model.jobs import Job
from scheduler.model.runs import Grant, Run, RunReason, RunState
from scheduler.rules.reconcile import SCHEDULED
from scheduler.store.finishing import end_job_if_exhausted
from scheduler.store.operating import next_from_now
from scheduler.store.rows import job_of, run_of
from scheduler.store.starting import Room, grant_of, live_run, occupancy, record_attempts
from scheduler.store.transaction import Transaction
from scheduler.store.values import Claimant


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
    record_attempts(tx, [claimed])
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
