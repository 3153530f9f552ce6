"""The one place where finished work meets the live row.

Every way a run ends comes through here: an outcome, a recovery, the cancel of a run that has no worker.
The store reconciles and writes in one transaction (`rules.reconcile`, FINISH); this module hands verdicts
in and tells what came of them, one event per transition. An outcome is told only after it is durable.
"""

from __future__ import annotations

from typing import Final, Protocol

from scheduler.clock import Micros
from scheduler.metrics import Metrics
from scheduler.model.jobs import Job, JobStatus
from scheduler.model.runs import TERMINAL, Run, RunState
from scheduler.rules.reconcile import JobWrite, Standing, Verdict
from scheduler.store.protocol import Store
from scheduler.store.values import Finished
from scheduler.telemetry import Event, Logger

_EVENT_OF: Final = {
    RunState.SUCCEEDED: Event.RUN_SUCCEEDED,
    RunState.PARTIAL: Event.RUN_PARTIAL,
    RunState.FAILED: Event.RUN_FAILED,
    RunState.CANCELLED: Event.RUN_CANCELLED,
    RunState.CRASHED: Event.RUN_CRASHED,
    RunState.INTERRUPTED: Event.RUN_INTERRUPTED,
    RunState.WAITING: Event.RUN_RETRYING,
    RunState.HELD: Event.RUN_HELD,
}


class Slots(Protocol):
    """Who fills the slots that ends give back."""

    def ending(self) -> bool:
        """An outcome is about to be written; whether what waits for a slot is claimed in the same commit."""
        ...

    def freed(self, *, claimed_along: bool) -> None:
        """An end only gave its slot back; `claimed_along`: what `ending` said."""
        ...

    def wake(self) -> None:
        """An end may start something by itself: a next try, a next slot."""
        ...


class WriteBack:
    """Records outcomes and tells of them. `slots` is to be set before the first one."""

    slots: Slots

    def __init__(self, store: Store, log: Logger, metrics: Metrics) -> None:
        self._store = store
        self._log = log
        self._metrics = metrics

    async def finish(self, verdict: Verdict) -> Finished:
        """The verdict is durable, or was refused because the claim moved on; either is told.

        It waits for a store that cannot commit, without end: an outcome is never dropped.
        """
        claimed_along = self.slots.ending()
        finished = (await self._store.finish([verdict]))[0]
        self.tell(finished, verdict, claimed_along=claimed_along)
        return finished

    def tell(self, finished: Finished, verdict: Verdict, *, claimed_along: bool = False) -> None:
        """One event per transition that this write-back made.

        Args:
            claimed_along: its commit has claimed what waits for a slot, too.
        """
        decision, run = finished.decision, finished.run
        if decision.standing is not Standing.WRITTEN:
            self._tell_refused(finished, verdict)
            return
        self._tell_run(run)
        if decision.met_pause and finished.job is not None and finished.job.pause is not None:
            pause = finished.job.pause
            self._metrics.pause_preserved()
            self._log.info(
                Event.PAUSE_PRESERVED, job=run.job, run_id=run.id, by=pause.by, since_at=pause.since
            )
        if decision.job is not None and finished.job is not None:
            self._tell_job(finished.job, decision.job, run)
        for ended in finished.ended:
            self._tell_run(ended)
        if decision.completion_ignored:
            self._log.warning(
                Event.JOB_CHANGED,
                job=run.job,
                run_id=run.id,
                message="its run said completed, but the definition was changed during the run: ignored",
            )
        if run.state in TERMINAL and (decision.job is None or decision.job.next_fire_at is None):
            self.slots.freed(claimed_along=claimed_along)
        else:
            self.slots.wake()

    def tell_ended(self, run: Run) -> None:
        """The event of a run that another verb ended in its own transaction."""
        self._tell_run(run)

    def _tell_refused(self, finished: Finished, verdict: Verdict) -> None:
        if finished.decision.standing is Standing.ALREADY_WRITTEN:
            return
        self._metrics.write_fenced()
        self._log.warning(
            Event.RUN_FENCED,
            job=finished.run.job,
            run_id=finished.run.id,
            claim=verdict.claim,
            live_claim=finished.run.claim,
            live_state=finished.run.state,
            message="the claim moved on: this outcome was not written",
        )

    def _tell_run(self, run: Run) -> None:
        fields: dict[str, object] = {
            "job": run.job,
            "run_id": run.id,
            "attempt": run.attempt,
            "claim": run.claim,
            "fire_time": run.fire_time,
            "reason": run.reason,
            "message": run.message,
            "exit_code": run.exit_code,
            "signal": run.signal,
            "ready_at": run.ready_at if run.state is RunState.WAITING else None,
            "seconds": _duration(run),
        }
        told = {name: value for name, value in fields.items() if value is not None}
        quiet = run.state in (RunState.SUCCEEDED, RunState.CANCELLED, RunState.HELD)
        (self._log.info if quiet else self._log.warning)(_EVENT_OF[run.state], **told)
        if run.state in TERMINAL:
            self._metrics.job_ran(run.job, run.state, run.reason, run.finished_at)
        if run.finished_at is not None and run.claimed_at is not None:
            self._metrics.run_ended(run.state, max(0, run.finished_at - run.claimed_at))

    def _tell_job(self, job: Job, write: JobWrite, run: Run) -> None:
        if write.problem is not None:
            self._log.error(Event.JOB_BROKEN, job=job.id, run_id=run.id, message=write.problem)
        if write.status is JobStatus.COMPLETED:
            self._log.info(Event.JOB_COMPLETED, job=job.id, run_id=run.id)
        elif write.status is JobStatus.FAILED:
            self._log.error(Event.JOB_FAILED, job=job.id, run_id=run.id, failures=write.failures)
        elif write.status is JobStatus.PAUSED:
            self._log.error(
                Event.JOB_PAUSED,
                job=job.id,
                reason=write.pause_reason,
                by="schedulerd",
                message=write.pause_note,
            )


def _duration(run: Run) -> float | None:
    """Seconds from the claim to the end; a wall clock that stepped back gives 0, never a negative one."""
    if run.finished_at is None or run.claimed_at is None:
        return None
    elapsed: Micros = max(0, run.finished_at - run.claimed_at)
    return round(elapsed / 1_000_000, 3)
