"""A clock that stands still until a test moves it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from heapq import heappop, heappush
from itertools import count
from typing import Final

from scheduler.clock import Alarm, Micros, to_micros
from scheduler.model.runs import RunId, new_run_id

START: Final[Micros] = to_micros(datetime(2027, 1, 1, 12, tzinfo=UTC))
"""Where a fake clock begins: a whole minute, hour and day of the UTC grid."""

_REAL_SECONDS: Final = 20.0
_TURNS: Final = 20


class FakeClock:
    """`Clock` whose wall and monotonic time move only by `advance` and `step`; sleepers wait in a heap."""

    def __init__(self, now: Micros = START, monotonic: Micros = 0) -> None:
        self._now = now
        self._monotonic = monotonic
        self._sleepers: list[tuple[Micros, int, asyncio.Future[None]]] = []
        self._order = count()
        self._slept = asyncio.Event()

    def now(self) -> Micros:
        return self._now

    def monotonic(self) -> Micros:
        return self._monotonic

    async def sleep(self, duration: Micros) -> None:
        if duration <= 0:
            await asyncio.sleep(0)
            return
        await self._woken_after(duration)

    def call_later(self, duration: Micros, call: Callable[[], object]) -> Alarm:
        woken = self._woken_after(max(0, duration))
        woken.add_done_callback(lambda woken: None if woken.cancelled() else call())
        return woken

    def _woken_after(self, duration: Micros) -> asyncio.Future[None]:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heappush(self._sleepers, (self._monotonic + duration, next(self._order), woken))
        self._slept.set()
        return woken

    def run_id(self) -> RunId:
        """A fresh id for a run made now."""
        return new_run_id(self._now)

    def step(self, duration: Micros) -> None:
        """The wall clock was set: forward, or back where `duration` is negative. Nobody wakes."""
        self._now += duration

    def move(self, duration: Micros) -> None:
        """Time passed while nobody looked: as `advance`, but sleepers wake only at the next `advance`."""
        self._now += duration
        self._monotonic += duration

    async def advance(self, duration: Micros) -> None:
        """Time passed; each sleeper woke at its moment and did what it could do without a thread's answer."""
        until = self._monotonic + duration
        await settle()
        while self._sleepers and self._sleepers[0][0] <= until:
            at, _, woken = heappop(self._sleepers)
            self.move(max(0, at - self._monotonic))
            if not woken.done():
                woken.set_result(None)
            await settle()
        self.move(until - self._monotonic)
        await settle()

    def nearest(self) -> Micros | None:
        """How long until the first sleeper wakes; None where nobody sleeps."""
        while self._sleepers and self._sleepers[0][2].done():
            heappop(self._sleepers)
        return self._sleepers[0][0] - self._monotonic if self._sleepers else None

    @property
    def sleepers(self) -> int:
        """How many wait now."""
        return sum(not woken.done() for _, _, woken in self._sleepers)

    async def asleep(self, number: int = 1) -> None:
        """At least `number` sleepers wait: what is under way in a thread came back and went to sleep."""
        async with asyncio.timeout(_REAL_SECONDS):
            while self.sleepers < number:
                self._slept.clear()
                await self._slept.wait()


async def settle() -> None:
    """Everything that can go on without a thread, a timer or the test has gone on."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)
