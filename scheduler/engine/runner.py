"""The attempts of this daemon: one task each, owned here, each tied to its claim in the registry."""

from __future__ import annotations

import asyncio
from typing import Final

from scheduler.clock import Clock, Micros
from scheduler.engine.attempt import Attempt
from scheduler.engine.claims import Claims
from scheduler.engine.judging import Cause
from scheduler.engine.ports import Executor
from scheduler.engine.reporting import Reporter
from scheduler.engine.writeback import WriteBack
from scheduler.model.runs import Grant, RunId
from scheduler.store.values import ClaimRef
from scheduler.telemetry import Event, Logger

_LEAVE_WAIT: Final = 3.0
"""Seconds for workers to let go; one whose unit is just being started needs longer, and is not needed."""


class Runner:
    """Starts attempts and knows which are under way."""

    def __init__(
        self,
        *,
        executor: Executor,
        writeback: WriteBack,
        reporter: Reporter,
        claims: Claims,
        clock: Clock,
        log: Logger,
        default_timeout: Micros | None,
    ) -> None:
        self._executor = executor
        self._writeback = writeback
        self._reporter = reporter
        self._claims = claims
        self._clock = clock
        self._log = log
        self._default_timeout = default_timeout
        self._cut_for: Cause | None = None
        self._attempts: dict[RunId, Attempt] = {}
        self._tasks: dict[RunId, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def stuck(self) -> set[RunId]:
        """Runs whose attempt was told to end and does not."""
        return {run_id for run_id, attempt in self._attempts.items() if attempt.is_stuck}

    def start(self, grant: Grant) -> None:
        """The granted claim has its attempt, running as a task."""
        run = grant.run
        attempt = Attempt(
            grant,
            executor=self._executor,
            writeback=self._writeback,
            reporter=self._reporter,
            clock=self._clock,
            log=self._log,
            default_timeout=self._default_timeout,
        )
        self._log.info(
            Event.RUN_CLAIMED,
            job=run.job,
            run_id=run.id,
            attempt=run.attempt,
            claim=run.claim,
            fire_time=run.fire_time,
            trigger=run.trigger,
        )
        self._claims.hold(run, attempt)
        self._attempts[run.id] = attempt
        if self._cut_for is not None and attempt.is_tied:
            attempt.cut(self._cut_for)
        self._tasks[run.id] = asyncio.create_task(self._work(attempt), name=f"run:{run.id}")

    def cut_all(self, cause: Cause) -> None:
        """Every attempt under way is ended for this cause, and so is one whose claim was on its way.

        But for those in units of their own, which `leave` is for.
        """
        self._cut_for = cause
        for attempt in self._attempts.values():
            if attempt.is_tied:
                attempt.cut(cause)

    def hurry(self) -> None:
        """No attempt gets a grace any more."""
        for attempt in self._attempts.values():
            attempt.hurry()

    def abandon(self) -> None:
        """The process is about to exit: nothing that cannot be ended is waited for."""
        for attempt in self._attempts.values():
            attempt.abandon()

    async def idle(self) -> None:
        """No attempt is under way that would end with the daemon, and every outcome of such is recorded."""
        while tied := self.tied():
            await asyncio.wait(tied)

    def tied(self) -> list[asyncio.Task[None]]:
        """The attempts under way that end with the daemon."""
        return [self._tasks[run_id] for run_id, attempt in self._attempts.items() if attempt.is_tied]

    async def leave(self) -> list[ClaimRef]:
        """The attempts in units of their own have no worker any more and go on; their claims."""
        left = [attempt for attempt in self._attempts.values() if not attempt.is_tied]
        for attempt in left:
            attempt.leave()
        if left:
            await asyncio.wait([self._tasks[one.grant.run.id] for one in left], timeout=_LEAVE_WAIT)
        runs = [attempt.grant.run for attempt in left if attempt.is_left]
        return [ClaimRef(run_id=run.id, claim=run.claim) for run in runs]

    def cut_plain(self, cause: Cause) -> None:
        """Every attempt but those of batches (no item is cut for a deploy) is ended for this cause."""
        for attempt in self._attempts.values():
            if attempt.grant.definition.batch is None and attempt.is_tied:
                attempt.cut(cause)

    def longest_item(self) -> Micros:
        """The longest `item_timeout` of the batches under way; 0 where there is none."""
        batches = (attempt.grant.definition.batch for attempt in self._attempts.values())
        return max((batch.item_timeout for batch in batches if batch is not None), default=0)

    def longest_grace(self) -> Micros:
        """The longest `kill_grace` of the attempts under way."""
        graces = (attempt.grant.definition.kill_grace for attempt in self._attempts.values())
        return max(graces, default=0)

    async def _work(self, attempt: Attempt) -> None:
        """The attempt from start to recorded outcome; a bug of ours is told, and ends no more than this."""
        try:
            await attempt.run()
        except Exception as error:  # noqa: BLE001 - memory forgets the claim, so the sweep recovers its row
            message = f"its worker broke: {error!r}"
            self._log.error(Event.RUN_STUCK, run_id=attempt.grant.run.id, message=message, exc_info=error)
        finally:
            self._forget(attempt)

    def _forget(self, attempt: Attempt) -> None:
        """The attempt is not under way, unless the run's next one has taken its place already.

        An outcome that lets the run start again is committed before this is called, and the next claim may
        even be part of that same commit.
        """
        run_id = attempt.grant.run.id
        if self._attempts.get(run_id) is attempt:
            del self._attempts[run_id], self._tasks[run_id]
        self._claims.let_go(run_id, attempt)
