"""Emptying the pipes of one process, from its first byte on in a thread of its own.

A thread and not the loop, because what is read is written to a disk, and a disk may take its time. The job is
slowed by its own thread at most, never by a pipe that nobody reads, and never slows the loop. A process that
says nothing needs none: all that the loop learns of its pipes is that they are closed. What comes after the
attempt is over is read too, into nothing, for as long as somebody holds the other end: closing it would kill,
by SIGPIPE, the background processes that a job has left on purpose.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import select
import threading
from collections.abc import Callable, Mapping
from typing import Final

from scheduler.executors.readiness import Readiness
from scheduler.executors.threads import NoThread, Workers

SLICE: Final = 64 * 1024
PIPE_WAIT: Final = 2.0
"""Seconds that the pipes may stay open after the end of the main process."""

_AGAIN: Final = 0.2
"""Seconds until a thread is asked for again where there was none; the pipe holds the output meanwhile."""


Sink = Callable[[bytes], None]
"""Takes a slice, in the pump's thread; never raises."""


class Pump:
    """Reads descriptors until their ends and hands what comes to their sinks.

    Takes the descriptors over and closes each at its end.

    Args:
        sinks: descriptor -> who takes what it gives.
        on_over: called once when no sink is going to be called any more: in the thread, or, where no sink was
            ever called, on the loop.
        readiness: tells that something can be read.
        workers: the thread is one of theirs.
    """

    def __init__(
        self,
        sinks: Mapping[int, Sink],
        *,
        on_over: Callable[[], None],
        readiness: Readiness,
        workers: Workers,
    ) -> None:
        self._sinks = dict(sinks)
        self._on_over = on_over
        self._readiness = readiness
        self._workers = workers
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._wake: int | None = None
        self._closing = threading.Lock()
        self._discarding = False
        self._is_told = False

    def start(self, *, at_once: bool = False) -> None:
        """What comes is going to be read; `at_once`: by a thread that waits for it already.

        Raises:
            NoThread, OSError: it is not; the descriptors are still the caller's.
        """
        if at_once:
            self._begin_thread()
            return
        try:
            for descriptor in self._sinks:
                self._readiness.watch(descriptor, functools.partial(self._heard, descriptor))
        except OSError:
            self._listen_no_more()
            raise

    async def drained(self, within: float) -> bool:
        """Every pipe has come to its end and every slice was taken; False: not `within` that many seconds."""
        if not self._over.done():
            await asyncio.wait({self._over}, timeout=within)
        return self._over.done()

    def discard(self) -> None:
        """What still comes from now on is read and thrown away. Returns at once."""
        self._discarding = True
        with self._closing:
            if self._wake is not None:
                os.eventfd_write(self._wake, 1)
                return
        if self._sinks:
            self._tell_over(self._settle)

    def _heard(self, descriptor: int, events: int) -> None:
        """On the loop: a pipe has something to read, or has come to its end without that."""
        if events & select.EPOLLIN:
            self._listen_no_more()
            self._begin_reading()
            return
        self._end(descriptor)
        if not self._sinks and not self._is_told:
            self._tell_over(self._settle)

    def _listen_no_more(self) -> None:
        for descriptor in self._sinks:
            self._readiness.forget(descriptor)

    def _begin_reading(self) -> None:
        """A thread reads from now on, or soon."""
        try:
            self._begin_thread()
        except (NoThread, OSError):
            self._loop.call_later(_AGAIN, self._begin_reading)

    def _begin_thread(self) -> None:
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        try:
            self._workers.begin(self._run)
        except NoThread:
            self._close_wake()
            raise

    def _run(self) -> None:
        poll = select.poll()
        assert self._wake is not None  # noqa: S101 - made before the thread began
        poll.register(self._wake, select.POLLIN)
        for descriptor in self._sinks:
            poll.register(descriptor, select.POLLIN)
        while self._sinks:
            for descriptor, _ in poll.poll():
                if descriptor == self._wake:
                    poll.unregister(self._wake)
                elif not self._move(descriptor):
                    poll.unregister(descriptor)
                    self._end(descriptor)
            if self._discarding and not self._is_told:
                self._tell_over(self._settle_from_thread)
        if not self._is_told:
            self._tell_over(self._settle_from_thread)
        self._close_wake()

    def _move(self, descriptor: int) -> bool:
        """One slice was taken; False at the end of the pipe."""
        try:
            data = os.read(descriptor, SLICE)
        except OSError:
            return False
        if data and not self._discarding:
            self._sinks[descriptor](data)
        return bool(data)

    def _end(self, descriptor: int) -> None:
        os.close(descriptor)
        del self._sinks[descriptor]

    def _close_wake(self) -> None:
        """The number is free for others, and `discard` knows."""
        with self._closing:
            if self._wake is not None:
                os.close(self._wake)
                self._wake = None

    def _tell_over(self, settle: Callable[[], None]) -> None:
        self._is_told = True
        self._on_over()
        settle()

    def _settle(self) -> None:
        if not self._over.done():
            self._over.set_result(None)

    def _settle_from_thread(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits
            self._loop.call_soon_threadsafe(self._settle)
