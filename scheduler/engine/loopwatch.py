"""The event loop, watched: how late it comes back, and who held it.

A handler that blocks the loop stops everything, also what would notice it; so a thread looks on. It reads
the name of the task that the loop is in, which for a run is `run:<id>` (I15).
"""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from typing import Final

from scheduler.clock import MILLISECOND, SECOND, Clock, Micros
from scheduler.metrics import Metrics
from scheduler.telemetry import Event, Logger

_PERIOD: Final[Micros] = 250 * MILLISECOND
_BLOCKED: Final[Micros] = SECOND
_RUN: Final = "run:"
_WAITS: Final = " in select"
"""Where the loop stands while it has nothing to do."""


class LoopWatch:
    """Measures the loop's lag and tells of a loop that is held for longer than a second."""

    def __init__(self, clock: Clock, log: Logger, metrics: Metrics) -> None:
        self._clock = clock
        self._log = log
        self._metrics = metrics
        self._came_back = clock.monotonic()
        self._told_of: Micros | None = None
        self._over = threading.Event()
        self.lag: Micros = 0

    async def run(self) -> None:
        """Looks for as long as the daemon lives, from the moment at which the loop first comes round."""
        loop = asyncio.get_running_loop()
        self._came_back = self._clock.monotonic()
        thread = threading.Thread(
            target=self._look_on, args=(loop, threading.get_ident()), name="loop-watch", daemon=True
        )
        thread.start()
        try:
            while True:
                before = self._clock.monotonic()
                await self._clock.sleep(_PERIOD)
                self._came_back = self._clock.monotonic()
                self.lag = max(0, self._came_back - before - _PERIOD)
                self._metrics.loop_lagged(self.lag)
        finally:
            self._over.set()

    def _look_on(self, loop: asyncio.AbstractEventLoop, loop_thread: int) -> None:
        while not self._over.wait(_PERIOD / SECOND):
            self.look(loop, loop_thread)

    def look(self, loop: asyncio.AbstractEventLoop, loop_thread: int) -> None:
        """From another thread: one line per blockade, with the task and the place that hold the loop.

        A loop that stands in its `select` by now is held by no task of it: the process did not get to run.
        """
        seen = self._came_back
        held = self._clock.monotonic() - seen
        if held < _BLOCKED + _PERIOD or seen == self._told_of:
            return
        self._told_of = seen
        task, place = _task_in(loop), _place_of(loop_thread)
        seconds = round(held / SECOND, 3)
        if task is None and place is not None and place.endswith(_WAITS):
            message = f"the loop was held for {seconds:.1f} s (the start, or a busy machine)"
            self._log.warning(
                Event.LOOP_BLOCKED, run_id=None, seconds=seconds, task=None, place=place, message=message
            )
            return
        self._log.error(
            Event.LOOP_BLOCKED,
            run_id=None if task is None or not task.startswith(_RUN) else task.removeprefix(_RUN),
            seconds=seconds,
            task=task,
            place=place,
            message="the event loop is held: blocking code belongs into a sync handler or process = true",
        )


def _task_in(loop: asyncio.AbstractEventLoop) -> str | None:
    task = asyncio.current_task(loop)
    return None if task is None else task.get_name()


def _place_of(thread: int) -> str | None:
    frame = sys._current_frames().get(thread)  # noqa: SLF001 - the documented way to another thread's stack
    if frame is None:
        return None
    innermost = traceback.extract_stack(frame)[-1]
    return f"{innermost.filename}:{innermost.lineno} in {innermost.name}"
