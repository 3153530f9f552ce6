"""FINISH: verdicts meet the live rows, inside one transaction.

Read run and job as they are now, ask the pure `reconcile`, write conditionally. Whoever else wrote
between a run's start and its end is seen here, and what `reconcile` does not decide is not written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from scheduler.clock import Micros
from scheduler.errors import IllegalTransition, NotFound
from scheduler.model.jobs import Job, JobStatus, PauseMode, PauseReason
from scheduler.model.runs import TERMINAL, Run, RunId, RunReason, RunState, SkipReason
from scheduler.rules.reconcile import (
    Decision,
    Ending,
    JobWrite,
    LiveRows,
    RunWrite,
    Verdict,
    depends_on_others,
    is_exhausted,
    reconcile,
)
from scheduler.store.ending import settle_begun
from scheduler.store.items import item_counts
from scheduler.store.rows import job_of, run_of
from scheduler.store.starting import one_skipped, tell_skipped, tell_unfired
from scheduler.store.transaction import Transaction
from scheduler.store.values import Finished, own_peer

Decide: TypeAlias = Callable[[Verdict, LiveRows, Micros], Decision]

_ATTEMPT_STATE = {
    Ending.SUCCEEDED: RunState.SUCCEEDED,
    Ending.FAILED: RunState.FAILED,
    Ending.RETRY_ASKED: RunState.FAILED,
    Ending.CANCELLED: RunState.CANCELLED,
    Ending.CRASHED: RunState.CRASHED,
    Ending.SHUTDOWN: RunState.INTERRUPTED,
}


def finish(tx: Transaction, verdicts: Sequence[Verdict], decide: Decide = reconcile) -> list[Finished]:
    """Each verdict reconciled and written, in order."""
    return [finish_one(tx, verdict, decide) for verdict in verdicts]


def finish_one(tx: Transaction, verdict: Verdict, decide: Decide = reconcile) -> Finished:
    """One verdict: lock and read, decide, write."""
    live = _live_rows(tx, RunId(verdict.run_id))
    if live.items is not None and verdict.expects in (RunState.RUNNING, RunState.RECOVERING):
        stamped = replace(live.run, claim=verdict.claim)
        if settle_begun(tx, stamped, live.job, verdict.expects):
            live = _live_rows(tx, live.run.id)
    decision = decide(verdict, live, tx.now)
    if decision.run is None:
        return Finished(decision=decision, run=live.run, job=live.job)
    run = _write_run(tx, verdict, decision.run)
    if decision.job is None or live.job is None:
        return Finished(decision=decision, run=run, job=live.job)
    job = _write_counters(tx, live.job, decision.job)
    more = _write_more(tx, live.job, decision.job)
    ended = cancel_rest(tx, live.job) if decision.ends_job else ()
    if more:
        after = _live_rows(tx, run.id)
        return Finished(decision=decision, run=after.run, job=after.job, ended=ended)
    return Finished(decision=decision, run=run, job=job, ended=ended)


def _live_rows(tx: Transaction, run_id: RunId) -> LiveRows:
    row = tx.one("live_run", id=run_id)
    if row is None:
        raise NotFound(f"there is no run {run_id}")
    job_row = tx.one("live_job", id=row["job"])
    job = None if job_row is None else job_of(job_row)
    counts = job is not None and depends_on_others(job)
    return LiveRows(
        run=run_of(row),
        job=job,
        others=int(tx.value("other_scheduled_runs", job=row["job"], id=run_id)) if counts else 0,
        items=None if row["items_total"] is None else item_counts(tx, run_id),
    )


def _write_run(tx: Transaction, verdict: Verdict, write: RunWrite) -> Run:
    """The run as it is now."""
    row = tx.changed(
        "finish_run",
        id=verdict.run_id,
        claim=verdict.claim,
        expects=verdict.expects,
        state=write.state,
        reason=write.reason,
        message=write.message,
        ready_at=write.ready_at,
        attempt=write.attempt,
        counted=write.counted,
        finished_at=tx.now if write.state in TERMINAL else None,
        exit_code=verdict.exit_code,
        signal=verdict.signal,
        result=verdict.result,
        cost=verdict.cost,
    )
    if row is None:
        raise IllegalTransition(f"run {verdict.run_id} changed inside the transaction that read it")
    tx.execute(
        "finish_attempt",
        run=verdict.run_id,
        claim=verdict.claim,
        now=tx.now,
        state=_ATTEMPT_STATE.get(verdict.ending, write.state),
        reason=verdict.reason,
        message=verdict.message,
        exit_code=verdict.exit_code,
        signal=verdict.signal,
    )
    return run_of(row)


def _write_counters(tx: Transaction, job: Job, write: JobWrite) -> Job:
    """The job as it is now."""
    row = tx.changed(
        "write_counters",
        id=job.id,
        seen_revision=job.revision,
        added_revision=job.added_revision,
        failures=write.failures,
        crashes=write.crashes,
        fires_done=write.fires_done,
    )
    if row is None:
        raise IllegalTransition(f"job {job.id} changed inside the transaction that read it")
    return job_of(row)


def _write_more(tx: Transaction, job: Job, write: JobWrite) -> bool:
    """What an end does to its job beyond the counters is written; whether there was anything."""
    if write.problem is not None:
        tx.execute("set_problem", id=job.id, code="broken", message=write.problem)
    if write.pause_reason is not None:
        _pause_by_engine(tx, job, write)
    elif write.status is not None:
        tell_unfired(tx, job, SkipReason.MISFIRE, "found after the end of its job")
        tx.execute("end_job", id=job.id, status=write.status, seen_revision=job.revision)
    elif write.sets_next and write.next_fire_at is not None:
        tx.execute(
            "set_next_fire",
            id=job.id,
            next_fire_at=write.next_fire_at,
            due_at=write.due_at,
            seen_revision=job.revision,
        )
    else:
        return write.problem is not None
    return True


def _pause_by_engine(tx: Transaction, job: Job, write: JobWrite) -> None:
    """Crashes pause an active job through the operator's own statement, signed by the daemon.

    They also end the licence of a run that was started under an earlier pause, or it would crash for ever.
    """
    tx.execute("forget_under_pause", job=job.id)
    if job.status is JobStatus.PAUSED:
        tx.execute("add_pause_evidence", id=job.id, note=write.pause_note, seen_revision=job.revision)
        return
    tx.execute(
        "pause_job",
        id=job.id,
        reason=write.pause_reason or PauseReason.CRASHES,
        mode=PauseMode.DRAIN,
        by="schedulerd",
        note=write.pause_note,
        now=tx.now,
        until=None,
        revision=tx.next_revision(),
        seen_revision=job.revision,
    )
    detail = {"mode": PauseMode.DRAIN, "reason": write.pause_note}
    tx.record("pause", own_peer(), job=job.id, detail=json.dumps(detail))


def cancel_unstarted(
    tx: Transaction, run: Run, reason: RunReason, message: str, decide: Decide = reconcile
) -> Finished:
    """A queued, waiting or held run is cancelled, through FINISH like every other end."""
    return finish_one(
        tx,
        Verdict(
            run_id=run.id,
            claim=run.claim,
            expects=run.state,
            ending=Ending.CANCELLED,
            reason=reason,
            message=message,
        ),
        decide,
    )


def cancel_rest(
    tx: Transaction, job: Job, reason: RunReason = RunReason.JOB_ENDED, message: str = "the job ended"
) -> tuple[Run, ...]:
    """The job's queued, waiting and held runs are cancelled; those that run go on."""
    unstarted = (RunState.QUEUED, RunState.WAITING, RunState.HELD)
    runs = [run_of(row) for row in tx.all("unfinished_runs", job=job.id)]
    return tuple(cancel_unstarted(tx, run, reason, message).run for run in runs if run.state in unstarted)


def end_job_if_exhausted(tx: Transaction, job: Job) -> bool:
    """The job is completed if its trigger has no further fire time and no scheduled run is on its way."""
    row = tx.one("live_job", id=job.id)
    if row is None:
        return False
    live = job_of(row)
    definition = live.definition
    if live.status is not JobStatus.ACTIVE or live.next_fire_at is not None or not live.may_fire:
        return False
    if definition.schedule.trigger.kind == "manual":
        return False
    counted_out = definition.max_runs is not None and live.fires_done >= definition.max_runs
    if not counted_out and not is_exhausted(live, tx.now):
        return False
    if int(tx.value("other_scheduled_runs", job=job.id, id="")):
        return False
    ended = tx.execute("end_job", id=job.id, status=JobStatus.COMPLETED, seen_revision=live.revision)
    if ended == 1:
        cancel_rest(tx, live)
    return ended == 1


def end_if_past(tx: Transaction, job: Job) -> bool:
    """As `end_job_if_exhausted`, for a verb that let the job act again.

    The last slot of the schedule, if nothing else explains it, is told as missed (I13).
    """
    ended = end_job_if_exhausted(tx, job)
    last = job.definition.schedule.last_fire(tx.now)
    if not ended or last is None or (job.last_fire_at is not None and job.last_fire_at >= last):
        return ended
    if tx.one("run_at", job=job.id, fire_time=last) is None:
        note = "lay in the past when the schedule came into force"
        tell_skipped(tx, job, one_skipped(SkipReason.MISFIRE, last, note))
    return ended
