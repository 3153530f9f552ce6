"""Pauses beyond that of one job by hand: of all jobs, and those that lift themselves.

The pause of all jobs is a row of its own with its span; it rewrites no job. FIRE, starts and claims read it
in their own transaction; the slots that it held are told as such when the jobs next fire (`rules.planning`).
A timed pause is lifted *as of* its moment, so what came after it is late, and `catch_up` decides about it.
"""

from __future__ import annotations

import json
from typing import Final

from scheduler.clock import Micros, rfc3339
from scheduler.errors import Invalid
from scheduler.model.jobs import Job, JobId, PauseMode
from scheduler.model.runs import Run, RunId, RunState, Wish
from scheduler.store.operating import lift, live_job
from scheduler.store.pausevalues import (
    AllOperated,
    Expired,
    PauseAllRequest,
    PauseExpired,
    ResumeAllRequest,
)
from scheduler.store.rows import Row, job_of, pause_of, run_of
from scheduler.store.transaction import Transaction
from scheduler.store.values import Missed, Peer
from scheduler.store.wishes import stronger, wish_in_flight

_SLICE: Final = 100
"""Timed pauses that end in one transaction; bounds how long others wait for it."""


def pause_all(tx: Transaction, request: PauseAllRequest) -> AllOperated:
    """No job fires and no run is claimed until this ends; the runs in flight know of it."""
    if request.until is not None and request.until <= tx.now:
        raise Invalid("the end of the pause has passed already", hint="name a moment to come")
    row = tx.one("global_pause")
    values = {"mode": request.mode, "by": str(request.peer), "note": request.note, "until": request.until}
    if row is None:
        tx.execute("begin_global_pause", now=tx.now, **values)
        changed = True
    else:
        values["note"] = request.note or row["note"]
        changed = any(row[name] != values[name] for name in ("mode", "note", "until"))
        if changed:
            tx.execute("change_global_pause", id=row["id"], **values)
    wishes, cancelled = _wish_all(tx, request.mode)
    if changed or wishes or cancelled:
        detail = {"mode": request.mode, "reason": request.note, "until": rfc3339(request.until)}
        tx.record("pause-all", request.peer, detail=json.dumps(detail))
    return _operated(tx, changed=changed, wishes=wishes, cancelled=cancelled)


def resume_all(tx: Transaction, request: ResumeAllRequest) -> AllOperated:
    """The pause of all jobs is over; jobs that are paused by themselves stay so, with their modes."""
    row = tx.one("global_pause")
    if row is None:
        return _operated(tx, changed=False)
    done = _lift_all(tx, row, tx.now, over_by=None)
    tx.record("resume-all", request.peer)
    return done


def expire(tx: Transaction, peer: Peer) -> Expired:
    """Timed pauses whose moment has come are lifted as of that moment, in the order of those moments.

    # INVARIANT: I4, a timed pause lifts itself alone: the row must be as it was when the moment was read.
    """
    over_all = _expire_all(tx, peer)
    rows = tx.all("pauses_over", now=tx.now, limit=_SLICE)
    lifted = tuple(found for row in rows if (found := _expire_one(tx, row, peer)) is not None)
    return Expired(jobs=lifted, all=over_all, more=len(rows) == _SLICE)


def _expire_all(tx: Transaction, peer: Peer) -> AllOperated | None:
    row = tx.one("global_pause")
    if row is None or row["until"] is None or row["until"] > tx.now:
        return None
    done = _lift_all(tx, row, row["until"], over_by=tx.now)
    tx.record("resume-all", peer, detail=json.dumps({"until": rfc3339(row["until"])}))
    return done


def _expire_one(tx: Transaction, row: Row, peer: Peer) -> PauseExpired | None:
    job, until = live_job(tx, JobId(row["id"])), row["pause_until"]
    done = lift(tx, job, Missed.SKIP, until, over_by=tx.now)
    if done is None:
        return None
    tx.record("resume", peer, job=job.id, detail=json.dumps({"missed": Missed.SKIP, "until": rfc3339(until)}))
    return PauseExpired(job_id=job.id, until=until, done=done)


def _wish_all(tx: Transaction, mode: PauseMode) -> tuple[tuple[tuple[RunId, Wish], ...], tuple[Run, ...]]:
    """Every run in flight gets the wish of the mode, as far as its job can do as it says."""
    wishes: list[tuple[RunId, Wish]] = []
    cancelled: list[Run] = []
    for job in _jobs_at_work(tx):
        wished, ended = wish_in_flight(tx, job, stronger(job, _own_mode(job), mode))
        wishes += wished
        cancelled += ended
    return tuple(wishes), tuple(cancelled)


def _own_mode(job: Job) -> PauseMode:
    """What the job's own pause still says to its runs; a `cancel` was said to those of its moment."""
    mode = PauseMode.DRAIN if job.pause is None else job.pause.mode
    return PauseMode.DRAIN if mode is PauseMode.CANCEL else mode


def _jobs_at_work(tx: Transaction) -> list[Job]:
    """Jobs with a run in flight; one that was removed lets its run finish."""
    ids = dict.fromkeys(row["job"] for row in tx.all("runs_at_work"))
    rows = (tx.one("live_job", id=id) for id in ids)
    return [job_of(row) for row in rows if row is not None and row["removed_at"] is None]


def _lift_all(tx: Transaction, row: Row, as_of: Micros, *, over_by: Micros | None) -> AllOperated:
    """The span ends at `as_of`; wishes and held runs go back to what the jobs' own pauses say."""
    lifted_at = max(as_of, row["since"])
    if tx.execute("lift_global_pause", id=row["id"], lifted_at=lifted_at, over_by=over_by) != 1:
        return _operated(tx, changed=False)
    wishes = {RunId(run["id"]): Wish.RUN for run in tx.all("lift_all_wishes")}
    tx.execute("release_all_held", now=tx.now)
    for job in _jobs_at_work(tx):
        wishes.update(dict(wish_in_flight(tx, job, _own_mode(job))[0]))
    return _operated(tx, changed=True, wishes=tuple(wishes.items()), lifted_at=lifted_at)


def _operated(
    tx: Transaction,
    *,
    changed: bool,
    wishes: tuple[tuple[RunId, Wish], ...] = (),
    cancelled: tuple[Run, ...] = (),
    lifted_at: Micros | None = None,
) -> AllOperated:
    row = tx.one("global_pause")
    at_work = (run_of(run) for run in tx.all("runs_at_work"))
    return AllOperated(
        pause=None if row is None else pause_of(row),
        changed=changed,
        in_flight=tuple(run for run in at_work if run.state in (RunState.RUNNING, RunState.RECOVERING)),
        wishes=wishes,
        cancelled=cancelled,
        lifted_at=lifted_at,
    )
