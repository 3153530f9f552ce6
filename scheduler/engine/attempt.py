"""One attempt, as a pipeline: start, supervise, end what is left, judge, write back.

The claim has durably committed before an attempt is made (I10). Timeout and stall are measured on the
monotonic clock from the sign of life last seen, never by the run's age on the wall clock. Whatever ends
it, nothing of the attempt runs any more when its outcome is written (I11), unless it ended by itself:
then what its main process left in the background is left alone, and told.
"""

from __future__ import annotations

import asyncio
import random
from typing import Final

from scheduler.clock import SECOND, Clock, Micros
from scheduler.engine.bell import Bell
from scheduler.engine.judging import Cause, judge, judge_spawn
from scheduler.engine.ports import Ended, Execution, Executor, Heeds, Isolated, ProgressReport
from scheduler.engine.reporting import Reporter
from scheduler.engine.stopwatch import Stopwatch
from scheduler.engine.writeback import WriteBack
from scheduler.errors import HandlerBroken, SpawnFailed
from scheduler.model.runs import Grant, Wish
from scheduler.rules.reconcile import Ending, Verdict
from scheduler.telemetry import Event, Logger

_STUCK_AGAIN: Final[Micros] = 20 * SECOND
"""How long to wait before what could not be ended is tried again."""

_TURNS: Final = 2
"""Turns of the loop within which an end that has come is told."""


class Attempt:
    """The worker of one claim: whatever may concern it rings its bell, and then it looks at everything."""

    def __init__(
        self,
        grant: Grant,
        *,
        executor: Executor,
        writeback: WriteBack,
        reporter: Reporter,
        clock: Clock,
        log: Logger,
        default_timeout: Micros | None,
    ) -> None:
        self.grant = grant
        self._executor = executor
        self._writeback = writeback
        self._reporter = reporter
        self._clock = clock
        self._timeout = grant.definition.timeout or default_timeout
        self._log = log
        self._wish = grant.run.wish
        self._cause: Cause | None = None
        self._fenced = False
        self._hurried = False
        self._abandoned = False
        self.is_isolated = grant.unit_claim is not None or grant.definition.isolate == "unit"
        """It outlives the daemon, in a unit of its own."""
        self._is_over = False
        self.is_left = False
        """It goes on without a worker."""
        self.is_stuck = False
        """It was told to end and does not; it keeps its slot."""
        self._urged = False
        self._bell = Bell(clock)
        self._watch = Stopwatch(clock)
        self._execution: Execution | None = None
        self._alive_at = self._watch.now()

    # --- what others tell it ---

    def wished(self, wish: Wish) -> None:
        """The operator's wish changed; `cancel` ends the attempt, `freeze` stops its clocks too."""
        self._wish = wish
        self._watch.set_frozen(wish is Wish.FREEZE)
        if wish is Wish.CANCEL:
            self.cut(Cause.CANCEL)
        elif isinstance(self._execution, Heeds):
            self._execution.heed(wish)
        self._bell.ring()

    def fenced(self) -> None:
        """The claim is another's now: the work is ended and nothing is written."""
        self._fenced = True
        self.cut(Cause.CANCEL)

    def cut(self, cause: Cause) -> None:
        """The attempt is ended for this cause; the first cause stands."""
        if self._cause is None:
            self._cause = cause
            self._bell.ring()

    def hurry(self) -> None:
        """The grace for a clean end is over, also where it has begun (a second stop signal)."""
        self._hurried = self._urged = True
        self._bell.ring()

    @property
    def is_tied(self) -> bool:
        """It ends with the daemon: it has no unit of its own, or its end is under way or being recorded."""
        return not self.is_isolated or self._cause is not None or self._is_over

    def leave(self) -> None:
        """The attempt goes on, and this worker ends without a verdict, unless the end has come first."""
        if not self.is_tied:
            self.is_left = True
            self._bell.ring()

    def abandon(self) -> None:
        """The process is about to exit: what cannot be ended is recorded as cut, and not waited for."""
        self._abandoned = self._urged = True
        self._bell.ring()

    # --- what the execution tells (AttemptHooks) ---

    def child_started(self, pid: int, start_ticks: int) -> None:
        self._reporter.child(self.grant.run, pid, start_ticks)

    def progressed(self, report: ProgressReport) -> None:
        self._alive_at = self._watch.now()
        self._reporter.alive(self.grant.run, report)

    def output_seen(self, size: int) -> None:  # noqa: ARG002 - that it came is what counts
        self._alive_at = self._watch.now()
        self._reporter.alive(self.grant.run)

    def wish(self) -> str:
        return self._wish

    # --- the pipeline ---

    async def run(self) -> None:
        """The attempt from start to recorded outcome."""
        verdict = await self._verdict()
        if self._fenced:
            message = "ended without writing: the claim is another's now"
            self._log.warning(Event.RUN_FENCED, **self._ids(), message=message)
            await self._collect()
            return
        telling = await self._tell_rest()
        if self.is_left:
            message = "it goes on in its unit; the next start takes it up"
            self._log.info(Event.RUN_PROGRESSED, **self._ids(), message=message)
        else:
            await self._writeback.finish(verdict)
            await self._collect()
        if telling is not None:
            await telling

    async def _tell_rest(self) -> asyncio.Task[None] | None:
        """What the run has told is on its way to the record, ahead of its outcome and in the same commit."""
        if not self._reporter.owes(self.grant.run):
            return None
        telling = asyncio.create_task(self._reporter.flush())
        await self._clock.sleep(0)
        return telling

    async def _collect(self) -> None:
        if self.is_isolated and isinstance(self._execution, Isolated):
            await self._execution.collect()

    async def _verdict(self) -> Verdict:
        if self._wish is Wish.CANCEL:
            self.cut(Cause.CANCEL)
        try:
            execution = await self._executor.start(self.grant, self)
        except HandlerBroken as error:
            return judge_spawn(self.grant, error, random.random(), broken=True)  # noqa: S311 - spreads retries
        except SpawnFailed as error:
            self._has_ended()
            return judge_spawn(self.grant, error, random.random(), broken=False)  # noqa: S311 - the same
        self._execution = execution
        if self._wish is not Wish.RUN:
            self.wished(self._wish)
        event = Event.RUN_STARTED if self.grant.unit_claim is None else Event.RUN_RESUMED
        run = self.grant.run
        self._log.info(event, **self._ids(), fire_time=run.fire_time, trigger=run.trigger)
        ended = await self._supervise(execution)
        verdict = judge(self.grant, ended, self._cause, random.random())  # noqa: S311 - the same
        await self._clear_away(execution, verdict, ended)
        return verdict

    async def _supervise(self, execution: Execution) -> Ended | None:
        """The end of the execution, by itself or because a cause cut it."""
        ending: asyncio.Future[Ended] = asyncio.ensure_future(execution.wait())
        ending.add_done_callback(self._bell.ring)
        try:
            if not self._is_called_off:
                await self._until_end_or_cause(execution, ending)
            if ending.done():
                self._cause = None  # no signal was sent yet: an end that precedes it counts as itself
                self._has_ended()
                return await ending
            if self.is_left:
                return None
            if await self._end(execution, ending):
                return await ending
            return None
        finally:
            ending.cancel()

    def _has_ended(self) -> None:
        """What is to be recorded is not left to the next daemon."""
        self._is_over, self.is_left = True, False

    async def _until_end_or_cause(self, execution: Execution, ending: asyncio.Future[Ended]) -> None:
        worked = execution.worked() if self.is_isolated and isinstance(execution, Isolated) else 0
        started_at = self._watch.now() - worked
        while not ending.done():
            left, cause = self._nearest_deadline(started_at)
            if cause is not None and left <= 0:
                self.cut(cause)
            else:
                await self._bell.rung(None if cause is None else left)
            if self._is_called_off:
                await self._let_ends_be_told()
                return

    async def _let_ends_be_told(self) -> None:
        """Who has ended before this call has told so: no signal was sent yet, so such an end counts."""
        for _ in range(_TURNS):
            await self._clock.sleep(0)

    @property
    def _is_called_off(self) -> bool:
        """Its worker does not wait for its end any more."""
        return self._cause is not None or self.is_left

    def _nearest_deadline(self, started_at: Micros) -> tuple[Micros, Cause | None]:
        """In how many microseconds of monotonic time the first deadline is, and which; none: 0, None."""
        stall = self.grant.definition.stall_after
        deadlines: list[tuple[Micros, Cause]] = []
        if self._timeout is not None:
            deadlines.append((started_at + self._timeout, Cause.TIMEOUT))
        if stall is not None:
            deadlines.append((self._alive_at + stall, Cause.STALL))
        if not deadlines or self._watch.is_frozen:
            return 0, None
        at, cause = min(deadlines, key=lambda deadline: deadline[0])
        return at - self._watch.now(), cause

    async def _end(self, execution: Execution, ending: asyncio.Future[Ended]) -> bool:
        """Nothing of the attempt runs any more. False: the process exits, and it still does."""
        while not await self._end_once(execution):
            if self._abandoned:
                return ending.done()
            if not self.is_stuck:
                self.is_stuck = True
                message = "it does not end; it keeps its slot and is ended again and again"
                self._log.error(Event.RUN_STUCK, **self._ids(), message=message)
            if not (ending.done() or self._urged):
                await self._bell.rung(_STUCK_AGAIN)
        return True

    async def _end_once(self, execution: Execution) -> bool:
        """Whether one try ended it; who hurries in the middle of its grace gets another one without."""
        self._urged = False
        trying = asyncio.create_task(execution.end(self._grace()))
        trying.add_done_callback(self._bell.ring)
        try:
            while not (trying.done() or self._urged):
                await self._bell.rung()
            return await trying if trying.done() else await execution.end(0)
        finally:
            trying.cancel()

    def _grace(self) -> Micros:
        return 0 if self._hurried else self.grant.definition.kill_grace

    async def _clear_away(self, execution: Execution, verdict: Verdict, ended: Ended | None) -> None:
        """Before another attempt of the run, nothing of this one is left; else it is only told (I11)."""
        if self._cause is not None or ended is None:
            return
        if verdict.ending is Ending.SUCCEEDED or not self._may_come_again(verdict):
            if ended.left_behind:
                self._log.info(
                    Event.RUN_PROGRESSED,
                    **self._ids(),
                    left_behind=ended.left_behind,
                    message="the main process ended; its background processes are left alone",
                )
            return
        await execution.end(self._grace())

    def _may_come_again(self, verdict: Verdict) -> bool:
        policy = self.grant.definition.retry
        return verdict.ending is Ending.RETRY_ASKED or (verdict.retryable and policy.attempts > 0)

    def _ids(self) -> dict[str, object]:
        """What each line of its log names."""
        run = self.grant.run
        return {"job": run.job, "run_id": run.id, "attempt": run.attempt, "claim": run.claim}
