"""Word of many descriptors for the price of one descriptor of the loop.

A command has four that the loop waits for: three pipes, and its end. With the loop's own bookkeeping each of
them costs tens of microseconds; an epoll of ours, which the loop watches as one descriptor, costs a tenth of
that. Everything here happens on the loop and does no more than to call those who asked.

Source: epoll(7), on EPOLLONESHOT and on an epoll within another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
from collections.abc import Callable
from typing import Final

_AT_ONCE: Final = 64
"""Calls in one turn of the loop; the others come in the next one."""

OnReady = Callable[[int], None]
"""Is told the events, as select.EPOLLIN and others; never raises."""


class Readiness:
    """Calls on the loop when a descriptor has something to read, or its other end is closed."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._calls: dict[int, OnReady] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def close(self) -> None:
        """Nobody is called any more; the descriptors stay their owners'. Safe to call twice."""
        if self._loop is not None:
            self._loop.remove_reader(self._epoll.fileno())
            self._loop = None
        self._calls.clear()
        self._epoll.close()

    def watch(self, descriptor: int, call: OnReady) -> None:
        """`call` is called once, on the running loop. Only on that loop, as everything here.

        Raises:
            OSError: the kernel does not take it.
        """
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            loop.add_reader(self._epoll.fileno(), self._turn)
            self._loop = loop
        # INVARIANT: what was told is told no more. A process that is being started holds a copy of the
        # descriptor for a moment; after our close it could speak in the name of the next one of that number.
        self._epoll.register(descriptor, select.EPOLLIN | select.EPOLLONESHOT)
        self._calls[descriptor] = call

    def forget(self, descriptor: int) -> None:
        """Nobody is called for it any more; to be done before it is closed, if it was not told yet."""
        if self._calls.pop(descriptor, None) is not None:
            with contextlib.suppress(OSError, ValueError):
                self._epoll.unregister(descriptor)

    async def ready(self, descriptor: int) -> None:
        """The descriptor has something to read, or its other end is closed.

        Raises:
            OSError: the kernel does not take it.
        """
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def settle(_events: int) -> None:
            if not over.done():
                over.set_result(None)

        self.watch(descriptor, settle)
        try:
            await over
        finally:
            self.forget(descriptor)

    def _turn(self) -> None:
        for descriptor, events in self._epoll.poll(0, _AT_ONCE):
            call = self._calls.pop(descriptor, None)
            if call is not None:  # not forgotten by an earlier call of this turn
                call(events)
