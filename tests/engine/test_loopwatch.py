"""The look at the event loop: what is told of a loop that came back late."""

from __future__ import annotations

import asyncio
import sys
import threading
from contextlib import suppress

from scheduler.clock import MINUTE, SECOND
from scheduler.engine.loopwatch import LoopWatch
from scheduler.metrics import Metrics
from scheduler.telemetry import Event
from tests.support.clock import FakeClock, settle
from tests.support.engine import ToldLog


class LevelLog(ToldLog):
    """Remembers also how loud a line was."""

    def warning(self, event: Event, **fields: object) -> None:
        super().warning(event, level="warning", **fields)

    def error(self, event: Event, **fields: object) -> None:
        super().error(event, level="error", **fields)


class Watched:
    """A loop that is watched, and a thread that looks at it while it waits."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.log = LevelLog()
        self.watch = LoopWatch(self.clock, self.log, Metrics())

    async def look(self) -> None:
        """A look while the loop stands in its `select`."""
        await asyncio.to_thread(self._look_in_select, asyncio.get_running_loop(), threading.get_ident())

    def _look_in_select(self, loop: asyncio.AbstractEventLoop, thread: int) -> None:
        while sys._current_frames()[thread].f_code.co_name != "select":  # noqa: SLF001 - as the watch does
            pass
        self.watch.look(loop, thread)


async def test_the_start_is_not_counted() -> None:
    """What the daemon took until its loop first came round held no loop."""
    watched = Watched()
    watched.clock.move(MINUTE)

    watching = asyncio.create_task(watched.watch.run())
    await settle()
    await watched.look()
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching

    assert not watched.log.lines


async def test_a_loop_that_only_waits_blames_no_handler() -> None:
    """It came back late, but nothing of ours holds it: a warning, once, without the advice for handlers."""
    watched = Watched()

    watched.clock.move(2 * SECOND)

    await watched.look()
    await watched.look()

    (told,) = watched.log.of(Event.LOOP_BLOCKED)
    assert (told["level"], told["task"]) == ("warning", None)
    assert told["message"] == "the loop was held for 2.0 s (the start, or a busy machine)"
