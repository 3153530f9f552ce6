"""Blocking work off the event loop, each call in a thread of its own.

No pool: a call that hangs (an import, a dead network mount) takes no slot from the others, and because the
threads are daemonic it cannot hold up the exit of the process either.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

from scheduler.errors import SchedulerError

T = TypeVar("T")


class NoThread(SchedulerError):
    """The machine gives us no further thread (a process or memory limit)."""


async def off_loop(call: Callable[[], T], *, discard: Callable[[T], None] | None = None) -> T:
    """`call` has returned; the loop was free in the meantime.

    Args:
        call: runs in a thread; it raises `Exception`s only.
        discard: takes a result that nobody waits for any more; called on the loop.

    Raises:
        NoThread: the thread could not be started; `call` did not run.

    Cancellation:
        `call` runs to its end in its thread; its result goes to `discard`.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def deliver(result: T) -> None:
        if not answer.done():
            answer.set_result(result)
        elif discard is not None:
            discard(result)

    def fail(error: Exception) -> None:
        if not answer.done():
            answer.set_exception(error)

    def work() -> None:
        # A loop that was closed in the meantime waits for nothing.
        with contextlib.suppress(RuntimeError):
            try:
                result = call()
            except Exception as error:  # noqa: BLE001 - it is raised again where the call is awaited
                loop.call_soon_threadsafe(fail, error)
            else:
                loop.call_soon_threadsafe(deliver, result)

    start_thread(work, name="off-loop")
    return await answer


def start_thread(target: Callable[[], None], *, name: str) -> None:
    """A daemonic thread runs `target`.

    Raises:
        NoThread: it could not be started.
    """
    try:
        threading.Thread(target=target, name=name, daemon=True).start()
    except RuntimeError as error:
        raise NoThread(f"no further thread can be started: {error}; look at the limit on tasks") from error
