"""What one task waits for when many things may concern it: a ring, or some time.

    while not over():
        await bell.rung(time_left())

It tells nothing but that it is time to look again. Between a look and the wait nothing else runs on the loop,
so no ring is lost. One future instead of a task for each thing that may come.
"""

from __future__ import annotations

import asyncio

from scheduler.clock import Clock, Micros


class Bell:
    """Wakes the one task that waits for it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: asyncio.Future[None] | None = None

    def ring(self, _: object = None) -> None:
        """Who waits now goes on; nobody has to wait. Also a callback, of a future for instance."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def rung(self, within: Micros | None = None) -> None:
        """It was rung since this was called, or `within` microseconds have passed."""
        self._waiting = asyncio.get_running_loop().create_future()
        alarm = None if within is None else self._clock.call_later(within, self.ring)
        try:
            await self._waiting
        finally:
            if alarm is not None:
                alarm.cancel()
