"""An orderly stop: nothing new starts, what runs may finish, the rest is cut and recorded (I12)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from scheduler.clock import SECOND, Clock, Micros
from scheduler.engine.claims import Claims
from scheduler.engine.engine import Engine
from scheduler.engine.judging import Cause
from scheduler.engine.runner import Runner
from scheduler.telemetry import Event, Logger

_AFTER_KILL: Final[Micros] = 5 * SECOND
"""What an attempt gets beyond its grace to be killed, judged and written back."""


class Extender(Protocol):
    """Tells the service manager that a stop takes longer."""

    def __call__(self, duration: Micros) -> None: ...


class Drain:
    """The stop of the engine and its attempts; may be hurried by a second signal."""

    def __init__(
        self,
        *,
        engine: Engine,
        claims: Claims,
        runner: Runner,
        clock: Clock,
        log: Logger,
        timeout: Micros,
        extend: Extender,
    ) -> None:
        self._engine = engine
        self._claims = claims
        self._runner = runner
        self._clock = clock
        self._log = log
        self._timeout = timeout
        self._extend = extend
        self._hurried = asyncio.Event()

    def hurry(self) -> None:
        """The wait and the grace are over now."""
        self._hurried.set()
        self._runner.hurry()

    async def run(self) -> None:
        """No attempt is under way but in units of their own; every outcome that could be had is recorded."""
        await self._end_tied()
        await self._within(self._leave, _AFTER_KILL, hurries=False)

    async def _leave(self) -> None:
        """What goes on without us says so."""
        await self._claims.leave(await self._runner.leave())

    async def _end_tied(self) -> None:
        self._engine.stop()
        self._log.info(Event.DAEMON_DRAINING, live_runs=len(self._runner), seconds=self._timeout / SECOND)
        longest_item = self._runner.longest_item()
        self._extend(max(self._timeout, longest_item) + self._runner.longest_grace() + _AFTER_KILL)
        if await self._within(self._idle, self._timeout, hurries=True):
            return
        if longest_item > self._timeout and not self._hurried.is_set():
            # A paid call is not cut for a deploy: items that run get their own time, no further one begins.
            self._runner.cut_plain(Cause.SHUTDOWN)
            if await self._within(self._idle, longest_item - self._timeout, hurries=True):
                return
        self._runner.cut_all(Cause.SHUTDOWN)
        grace = 0 if self._hurried.is_set() else self._runner.longest_grace()
        if await self._within(self._idle, grace + _AFTER_KILL, hurries=False):
            return
        self._runner.abandon()
        await self._within(self._idle, _AFTER_KILL, hurries=False)

    async def _idle(self) -> None:
        """Nothing is under way, and no claim that committed before the stop is still on its way to us."""
        await self._engine.ended()
        while True:
            await self._claims.answered()
            if not self._runner.tied():
                return
            await self._runner.idle()

    async def _within(self, wait: Callable[[], Awaitable[None]], at_most: Micros, *, hurries: bool) -> bool:
        """Whether it came within `at_most`, or before the second signal where that counts."""
        waiting = asyncio.ensure_future(wait())
        sleeping = asyncio.ensure_future(self._clock.sleep(at_most))
        others = {sleeping}
        hurrying = asyncio.ensure_future(self._hurried.wait())
        watched: set[asyncio.Future[object]] = {waiting, sleeping}  # type: ignore[arg-type] # one set of three kinds
        if hurries:
            watched.add(hurrying)  # type: ignore[arg-type] # as above
        try:
            await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            return waiting.done()
        finally:
            for task in (waiting, hurrying, *others):
                task.cancel()
