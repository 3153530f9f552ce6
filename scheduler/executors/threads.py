"""Blocking work off the event loop, each call in a thread that is its own for so long.

No pool of a fixed size: a call that hangs (an import, a dead network mount) takes no slot from the others,
and because the threads are daemonic it cannot hold up the exit of the process either.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, TypeVar

from scheduler.errors import SchedulerError

T = TypeVar("T")

Work = Callable[[], None]
"""Never raises."""

_KEPT: Final = 4
"""Idle threads that `Workers` keep."""

_PATIENCE: Final = 0.02
"""Seconds for which nothing that waits was taken up: then those at work hang, and one more thread begins."""


class NoThread(SchedulerError):
    """The machine gives us no further thread (a process or memory limit)."""


class Workers:
    """Threads for many calls: one that is idle is used again, and where none is idle one more begins.

    Args:
        name: of the threads.
        prepare: called once in each thread, before its first work.
        at_once: so many are enough where work is short, for all of them together have one interpreter; what
            comes on top waits for the next that is free, but not for one that hangs. None: no work waits.
    """

    def __init__(self, name: str, *, prepare: Work | None = None, at_once: int | None = None) -> None:
        self._name = name
        self._prepare = prepare
        self._at_once = at_once
        self._lock = threading.Lock()
        self._handed: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._waiting: deque[Work] = deque()
        self._threads = 0
        self._idle = 0
        self._taken = 0
        self._is_relieving = False
        self._closed = False

    def begin(self, work: Work) -> None:
        """`work` is done soon, in a thread that does nothing else meanwhile. Called on the loop.

        Raises:
            NoThread: there is none.
        """
        with self._lock:
            if self._idle:
                self._idle -= 1
                self._handed.put(work)
                return
            if self._at_once is not None and self._threads >= self._at_once:
                self._waiting.append(work)
                self._relieve_later()
                return
        self._add_thread(work)

    async def run(self, call: Callable[[], T], *, discard: Callable[[T], None] | None = None) -> T:
        """As `off_loop`, in one of these threads."""
        return await _answer(call, self.begin, discard)

    def close(self) -> None:
        """No thread is kept any more; those at work end after it. Safe to call twice."""
        with self._lock:
            self._closed = True
            for _ in range(self._idle):
                self._handed.put(None)
            self._idle = 0

    def _add_thread(self, work: Work) -> None:
        with self._lock:
            self._threads += 1
        try:
            start_thread(lambda: self._live(work), name=self._name)
        except NoThread:
            with self._lock:
                self._threads -= 1
            raise

    def _live(self, first: Work) -> None:
        """The life of a thread."""
        if self._prepare is not None:
            self._prepare()
        work: Work | None = first
        del first  # what work holds is let go when it is done
        while work is not None:
            work()
            work = None
            work = self._next()

    def _next(self) -> Work | None:
        """What the thread does now, perhaps after a long wait; None: it ends."""
        with self._lock:
            if self._waiting:
                self._taken += 1
                return self._waiting.popleft()
            if self._closed or self._idle == _KEPT:
                self._threads -= 1
                return None
            self._idle += 1
        return self._handed.get()

    def _relieve_later(self) -> None:
        if not self._is_relieving:
            self._is_relieving = True
            asyncio.get_running_loop().call_later(_PATIENCE, self._relieve, self._taken)

    def _relieve(self, taken_before: int) -> None:
        """Where nothing that waits was taken up for so long, one more thread does it."""
        with self._lock:
            self._is_relieving = False
            if not self._waiting:
                return
            self._relieve_later()
            if self._taken != taken_before:
                return
            work = self._waiting.popleft()
        try:
            self._add_thread(work)
        except NoThread:  # then it waits on
            with self._lock:
                self._waiting.appendleft(work)


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
    return await _answer(call, lambda work: start_thread(work, name="off-loop"), discard)


async def _answer(
    call: Callable[[], T], begin: Callable[[Work], None], discard: Callable[[T], None] | None
) -> T:
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

    begin(work)
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
