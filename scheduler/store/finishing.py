"""FINISH: verdicts meet the live rows, inside one transaction.

Read run and job as they are now, ask the pure `reconcile`, write conditionally. Whoever else wrote
between a run's start and its end is seen here, and what `reconcile` does not decide is not written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final, NamedTuple, TypeAlias

from scheduler.clock import Micros
from scheduler.errors import IllegalTransition, NotFound
from scheduler.model.jobs import Job, JobId, JobStatus, PauseMode, PauseReason
from scheduler.model.record import altered
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
from scheduler.store.liverows import live_jobs, live_runs, standings
from scheduler.store.rows import job_of, run_of
from scheduler.store.skipping import one_skipped, tell_skipped, tell_unfired
from scheduler.store.transaction import Transaction, packed
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


_LONG_RESULT: Final = 10_000
"""Characters; hundreds of longer ones would make one text of a set, whose size nobody bounds."""


def finish(tx: Transaction, verdicts: Sequence[Verdict], decide: Decide = reconcile) -> list[Finished]:
    """Each verdict reconciled and written. Those that concern no other row are written as one set, first.

    All of them are concurrent, so any order is right; but two ends of a job are not judged by one look.
    """
    if len(verdicts) == 1:
        return [finish_one(tx, verdicts[0], decide)]
    looks = _look(tx, [verdict.run_id for verdict in verdicts])
    solitary = _solitary(tx, looks.values())
    refused: dict[int, Finished] = {}
    ends: dict[int, _End] = {}
    jobs: set[JobId] = set()
    for place, verdict in enumerate(verdicts):
        look = looks.get(verdict.run_id)
        if look is None or look.run.items_total is not None or look.run.job in jobs:
            continue
        if len(verdict.result or "") > _LONG_RESULT:
            continue
        if _counts_others(look) and look.run.job not in solitary:
            continue
        live = LiveRows(run=look.run, job=look.job, others=0)
        decision = decide(verdict, live, tx.now)
        if decision.run is None:
            refused[place] = Finished(decision=decision, run=look.run, job=look.job)
        elif not _does_more(live.job, decision.job, decision.run, solitary):
            jobs.add(look.run.job)
            ends[place] = _End(verdict, live, decision, decision.run)
    written = dict(zip(ends, _write(tx, list(ends.values())), strict=True))
    return [
        refused.get(place) or written.get(place) or finish_one(tx, verdict, decide)
        for place, verdict in enumerate(verdicts)
    ]


def _solitary(tx: Transaction, looks: Collection[_Look]) -> set[JobId]:
    """Of the jobs for whose end others count: those that have no other unfinished run."""
    asked = {look.run.job for look in looks if _counts_others(look)}
    found = standings(tx, asked) if asked else {}
    return {job for job, standing in found.items() if standing.live + standing.queued <= 1}


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
    end = _End(verdict, live, decision, decision.run)
    _write_run_and_counters(tx, [end])
    finished = _finished(end, tx.now, _job_after(end))
    if decision.job is None or live.job is None:
        return finished
    more = _write_more(tx, live.job, decision.job)
    ended = cancel_rest(tx, live.job) if decision.ends_job else ()
    if more:
        after = _live_rows(tx, live.run.id)
        return Finished(decision=decision, run=after.run, job=after.job, ended=ended)
    return replace(finished, ended=ended)


class _Look(NamedTuple):
    """A run and its job as they are now."""

    run: Run
    job: Job | None


class _End(NamedTuple):
    """A verdict, what it met, and what is to be written."""

    verdict: Verdict
    live: LiveRows
    decision: Decision
    write: RunWrite


def _look(tx: Transaction, ids: Sequence[str]) -> dict[str, _Look]:
    runs = live_runs(tx, ids)
    jobs = live_jobs(tx, {run.job for run in runs.values()})
    return {id: _Look(run, jobs.get(run.job)) for id, run in runs.items()}


def _counts_others(look: _Look) -> bool:
    return look.job is not None and depends_on_others(look.job)


def _live_rows(tx: Transaction, run_id: RunId) -> LiveRows:
    look = _look(tx, [run_id]).get(run_id)
    if look is None:
        raise NotFound(f"there is no run {run_id}")
    run = look.run
    return LiveRows(
        run=run,
        job=look.job,
        others=int(tx.value("other_scheduled_runs", job=run.job, id=run_id)) if _counts_others(look) else 0,
        items=None if run.items_total is None else item_counts(tx, run_id),
    )


def _write(tx: Transaction, ends: Sequence[_End]) -> list[Finished]:
    """These ends, which concern no other row; each as it is now."""
    if not ends:
        return []
    _write_run_and_counters(tx, ends)
    _end_jobs(tx, [end for end in ends if end.decision.ends_job])
    return [_finished(end, tx.now, _job_after(end)) for end in ends]


def _write_run_and_counters(tx: Transaction, ends: Sequence[_End]) -> None:
    _write_runs(tx, ends)
    _write_counters(tx, [(end.live.job, end.decision.job) for end in ends])


def _end_jobs(tx: Transaction, ends: Sequence[_End]) -> None:
    """The jobs that end with these runs have ended."""
    rows = [
        (job.id, write.status, job.revision)
        for _, live, decision, _ in ends
        if (job := live.job) is not None and (write := decision.job) is not None
    ]
    if rows and tx.execute("end_job", ends=packed(rows)) != len(rows):
        raise IllegalTransition("a job changed inside the transaction that read it")


def _finished(end: _End, now: Micros, job: Job | None) -> Finished:
    return Finished(decision=end.decision, run=_run_after(end, now), job=job)


def _run_after(end: _End, now: Micros) -> Run:
    """The row as `finish_run` has left it."""
    verdict, write, run = end.verdict, end.write, end.live.run
    return altered(
        run,
        state=write.state,
        reason=write.reason,
        message=write.message,
        ready_at=write.ready_at,
        attempt=write.attempt,
        job_counted=write.counted,
        finished_at=now if write.state in TERMINAL else None,
        exit_code=verdict.exit_code,
        signal=verdict.signal,
        result=run.result if verdict.result is None else verdict.result,
        cost=run.cost if verdict.cost is None else verdict.cost,
        pid=None,
        pid_ticks=None,
    )


def _job_after(end: _End) -> Job | None:
    """The row as `write_counters` has left it, and `end_job`, where this ends it."""
    job, write = end.live.job, end.decision.job
    if job is None or write is None:
        return job
    counted = altered(job, failures=write.failures, crashes=write.crashes, fires_done=write.fires_done)
    if not end.decision.ends_job:
        return counted
    return altered(counted, status=write.status, pause=None, held_from=None, next_fire_at=None, due_at=None)


def _write_runs(tx: Transaction, ends: Sequence[_End]) -> None:
    rows = [
        (
            *(verdict.run_id, verdict.claim, verdict.expects),
            *(write.state, write.reason, write.message, write.ready_at, write.attempt, write.counted),
            tx.now if write.state in TERMINAL else None,
            *(verdict.exit_code, verdict.signal, verdict.result, verdict.cost),
        )
        for verdict, _, _, write in ends
    ]
    if tx.execute("finish_run", ends=packed(rows)) != len(ends):
        names = ", ".join(end.verdict.run_id for end in ends)
        raise IllegalTransition(f"run {names} changed inside the transaction that read it")
    attempts = [
        (
            *(verdict.run_id, verdict.claim, _ATTEMPT_STATE.get(verdict.ending, write.state)),
            *(verdict.reason, verdict.message, verdict.exit_code, verdict.signal),
        )
        for verdict, _, _, write in ends
    ]
    tx.execute("finish_attempt", ends=packed(attempts), now=tx.now)


def _write_counters(tx: Transaction, writes: Sequence[tuple[Job | None, JobWrite | None]]) -> None:
    rows = [
        (job.id, job.revision, job.added_revision, write.failures, write.crashes, write.fires_done)
        for job, write in writes
        if job is not None and write is not None
    ]
    if rows and tx.execute("write_counters", counters=packed(rows)) != len(rows):
        names = ", ".join(str(row[0]) for row in rows)
        raise IllegalTransition(f"job {names} changed inside the transaction that read it")


def _does_more(job: Job | None, write: JobWrite | None, run: RunWrite, solitary: AbstractSet[JobId]) -> bool:
    """An end writes more than its run, its job's counters, and the end of a job of which nothing is left."""
    if job is None or write is None:
        return False
    if write.problem is not None or write.pause_reason is not None:
        return True
    if write.status is not None:
        if run.state not in TERMINAL:  # what ends the job, and would come again, is cancelled with it
            return True
        return job.next_fire_at is not None or job.held_from is not None or job.id not in solitary
    return write.sets_next and write.next_fire_at is not None


def _write_more(tx: Transaction, job: Job, write: JobWrite) -> bool:
    """What an end does to its job beyond the counters is written; whether there was anything."""
    if write.problem is not None:
        tx.execute("set_problem", id=job.id, code="broken", message=write.problem)
    if write.pause_reason is not None:
        _pause_by_engine(tx, job, write)
    elif write.status is not None:
        tell_unfired(tx, job, SkipReason.MISFIRE, "found after the end of its job")
        tx.execute("end_job", ends=packed([(job.id, write.status, job.revision)]))
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
    if not may_be_exhausted(live):
        return False
    counted_out = definition.max_runs is not None and live.fires_done >= definition.max_runs
    if not counted_out and not is_exhausted(live, tx.now):
        return False
    if int(tx.value("other_scheduled_runs", job=job.id, id="")):
        return False
    ended = tx.execute("end_job", ends=packed([(job.id, JobStatus.COMPLETED, live.revision)]))
    if ended == 1:
        cancel_rest(tx, live)
    return ended == 1


def may_be_exhausted(job: Job) -> bool:
    """The job could fire and has no next slot, which a manual one never has."""
    return job.next_fire_at is None and job.may_fire and job.definition.schedule.trigger.kind != "manual"


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
