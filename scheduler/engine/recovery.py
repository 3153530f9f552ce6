"""Recoverers: one task per `recovering` row ends what is left of it, then records its end through FINISH.

Only that job waits for it. What cannot be killed is told (`run_stuck`) and tried again at the next sweep;
its row keeps its slot meanwhile, so nothing of an earlier attempt runs beside the next one (I11).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from scheduler.clock import SECOND, Micros
from scheduler.engine.ports import Undertaker
from scheduler.engine.writeback import WriteBack
from scheduler.errors import SchedulerError
from scheduler.metrics import Metrics
from scheduler.model.jobs import JobId
from scheduler.model.runs import Run, RunId, RunReason, RunState
from scheduler.rules.reconcile import Ending, Standing, Verdict
from scheduler.store.protocol import Reads
from scheduler.telemetry import Event, Logger

_DEFAULT_GRACE: Micros = 10 * SECOND


class Recoverer:
    """The recoveries under way in this process."""

    def __init__(
        self,
        *,
        undertaker: Undertaker,
        writeback: WriteBack,
        grace_of: Callable[[JobId], Awaitable[Micros]],
        log: Logger,
        metrics: Metrics,
    ) -> None:
        self._undertaker = undertaker
        self._writeback = writeback
        self._grace_of = grace_of
        self._log = log
        self._metrics = metrics
        self._take_back: Callable[[Run], Awaitable[bool]] | None = None
        self._tasks: dict[RunId, asyncio.Task[None]] = {}
        self.stuck: set[RunId] = set()
        """Runs of which something could not be ended when it was last tried."""

    def ask_first(self, take_back: Callable[[Run], Awaitable[bool]]) -> None:
        """A run that `take_back` gives to a worker again needs no recovery."""
        self._take_back = take_back

    def take_up(self, run: Run, *, counts_crash: bool) -> None:
        """The row has a recoverer; one that has it already keeps it."""
        if run.id in self._tasks:
            return
        task = asyncio.create_task(self._recover(run, counts_crash=counts_crash), name=f"recover:{run.id}")
        self._tasks[run.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(run.id, None))

    async def stop(self) -> None:
        """No recoverer is at work; their rows stay `recovering` for the next start."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _recover(self, run: Run, *, counts_crash: bool) -> None:
        try:
            if self._take_back is not None and await self._take_back(run):
                return
            grace = await self._grace_of(run.job)
            if not await self._undertaker.end_leftovers(run, grace):
                self.stuck.add(run.id)
                self._log.error(
                    Event.RUN_STUCK,
                    job=run.job,
                    run_id=run.id,
                    claim=run.claim,
                    message="a process of it could not be ended; tried again at the next sweep",
                )
                return
            self.stuck.discard(run.id)
            await self._record(run, counts_crash=counts_crash)
        except SchedulerError as error:
            self._log.error(Event.RUN_STUCK, job=run.job, run_id=run.id, message=str(error))
        except Exception as error:  # noqa: BLE001 - the row stays `recovering`: the next sweep tries again
            message = f"its recovery broke and is tried again at the next sweep: {error!r}"
            self._log.error(Event.RUN_STUCK, job=run.job, run_id=run.id, message=message, exc_info=error)

    async def _record(self, run: Run, *, counts_crash: bool) -> None:
        finished = await self._writeback.finish(
            Verdict(
                run_id=run.id,
                claim=run.claim,
                expects=RunState.RECOVERING,
                ending=Ending.CRASHED,
                reason=RunReason.OWNER_DIED,
                message=f"the daemon that ran it (owner {run.owner}) died during the run",
                counts_crash=counts_crash,
            )
        )
        if finished.decision.standing is Standing.WRITTEN:
            self._metrics.recovered(finished.run.state)
            self._log.info(
                Event.RUN_RECOVERED, job=run.job, run_id=run.id, claim=run.claim, state=finished.run.state
            )


def grace_of(store: Reads) -> Callable[[JobId], Awaitable[Micros]]:
    """Tells the `kill_grace` of a job; the usual one where it was removed: its run is ended all the same."""

    async def kill_grace(job_id: JobId) -> Micros:
        try:
            return (await store.job(job_id)).job.definition.kill_grace
        except SchedulerError:
            return _DEFAULT_GRACE

    return kill_grace
