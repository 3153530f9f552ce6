"""The wall clock, watched against the monotonic one on a timer of our own (design part 7).

Without it a step back would silence the wake-up, and a suspend would delay it by its own length. What is
seen is remembered in the store, so that a step while the daemon was down is noticed at the next start.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from scheduler.clock import SECOND, Clock, Micros
from scheduler.errors import StoreUnavailable
from scheduler.store.protocol import Store
from scheduler.telemetry import Event, Logger

_STEP: Final[Micros] = SECOND
"""A smaller difference within one look is slew, not a step."""


class WallWatch:
    """Notices steps of the wall clock and lets the triggers follow."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        log: Logger,
        *,
        period: Micros,
        on_step: Callable[[], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._log = log
        self._period = period
        self._on_step = on_step
        self._wall = clock.now()
        self._monotonic = clock.monotonic()

    async def start(self) -> None:
        """A step back while no daemon was running has been followed."""
        before = await self._store.see_wall()
        now = self._clock.now()
        if before is not None and before - now > _STEP:
            await self._follow(now - before)

    async def run(self) -> None:
        """Looks for as long as the daemon lives."""
        while True:
            await self._clock.sleep(self._period)
            try:
                await self.look()
            except StoreUnavailable:
                continue  # told by the store's own watcher; the step is seen again at the next look

    async def look(self) -> None:
        """A step since the last look has been followed."""
        wall, monotonic = self._clock.now(), self._clock.monotonic()
        step = (wall - self._wall) - (monotonic - self._monotonic)
        if abs(step) > _STEP:
            await self._follow(step)
        self._wall, self._monotonic = wall, monotonic  # followed, whether or not it can be remembered now
        await self._store.see_wall()

    async def _follow(self, step: Micros) -> None:
        self._log.warning(Event.CLOCK_STEPPED, seconds=round(step / SECOND, 3))
        if step < 0:
            await self._store.rearm(-step)
        self._on_step()
