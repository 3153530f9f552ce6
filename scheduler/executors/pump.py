"""Emptying the pipes of one process, in a thread of its own.

A thread and not the loop, because what is read is written to a disk, and a disk may take its time. The job is
slowed by its own thread at most, never by a pipe that nobody reads, and never slows the loop. The thread
reads on after the attempt is over, into nothing, for as long as somebody holds the other end: closing it
would kill, by SIGPIPE, the background processes that a job has left on purpose.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import threading
from collections.abc import Callable, Mapping
from typing import Final

from scheduler.executors.threads import NoThread, start_thread

SLICE: Final = 64 * 1024
PIPE_WAIT: Final = 2.0
"""Seconds that the pipes may stay open after the end of the main process."""


Sink = Callable[[bytes], None]
"""Takes a slice, in the pump's thread; never raises."""


class Pump:
    """Reads descriptors until their ends and hands what comes to their sinks.

    Takes the descriptors over and closes each at its end.

    Args:
        sinks: descriptor -> who takes what it gives.
        on_over: called once in the thread, when no sink is going to be called any more.
    """

    def __init__(self, sinks: Mapping[int, Sink], *, on_over: Callable[[], None]) -> None:
        self._sinks = dict(sinks)
        self._on_over = on_over
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._wake_is_open = True
        self._closing = threading.Lock()
        self._discarding = False

    def start(self) -> None:
        """The thread runs.

        Raises:
            NoThread: it could not be started; the descriptors are still the caller's.
        """
        try:
            start_thread(self._run, name="pump")
        except NoThread:
            self._close_wake()
            raise

    async def drained(self, within: float) -> bool:
        """Every pipe has come to its end and every slice was taken; False: not `within` that many seconds."""
        done, _ = await asyncio.wait({self._over}, timeout=within)
        return bool(done)

    def discard(self) -> None:
        """What still comes from now on is read and thrown away. Returns at once."""
        self._discarding = True
        with self._closing:
            if self._wake_is_open:
                os.eventfd_write(self._wake, 1)

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        for descriptor in self._sinks:
            poll.register(descriptor, select.POLLIN)
        told = False
        while self._sinks:
            for descriptor, _ in poll.poll():
                if descriptor == self._wake:
                    poll.unregister(self._wake)
                elif not self._move(descriptor):
                    poll.unregister(descriptor)
                    os.close(descriptor)
                    del self._sinks[descriptor]
            if self._discarding and not told:
                told = True
                self._tell_over()
        if not told:
            self._tell_over()
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

    def _close_wake(self) -> None:
        """The number is free for others, and `discard` knows."""
        with self._closing:
            self._wake_is_open = False
            os.close(self._wake)

    def _tell_over(self) -> None:
        self._on_over()
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits
            self._loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        if not self._over.done():
            self._over.set_result(None)
