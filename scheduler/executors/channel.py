"""The daemon's end of the socket to a handler's child process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Callable
from typing import Final

from scheduler.executors.outcome import JsonValue, Outcome, from_json
from scheduler.executors.progress import LineSplitter

LONGEST_LINE: Final = 1 << 20
"""A result of 64 KiB grows when its characters are escaped."""


class ChildChannel:
    """What a child says, and the answers to what it asks. Lives on the loop, but for `feed`.

    Attributes:
        settled: done once the child has loaded its handler, or could not.
        broken: why it could not, or None.
        outcome: what came of the call, once it was told; the first word counts.
    """

    def __init__(self, ours: socket.socket, wish: Callable[[], str]) -> None:
        self._loop = asyncio.get_running_loop()
        self._answers = ours
        self._wish = wish
        self._lines = LineSplitter(LONGEST_LINE)
        self.settled: asyncio.Future[None] = self._loop.create_future()
        self.broken: str | None = None
        self.outcome: Outcome | None = None

    def reading_end(self) -> int:
        """A descriptor to read from, the caller's to close; answers go out on another one."""
        return os.dup(self._answers.fileno())

    def close(self) -> None:
        """No question is answered any more."""
        self._answers.close()

    def feed(self, data: bytes) -> None:
        """The messages in these bytes are on their way to the loop. Called in the pump's thread."""
        for line in self._lines.feed(data):
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(message, dict):
                with contextlib.suppress(RuntimeError):  # the loop was closed
                    self._loop.call_soon_threadsafe(self._take, message)

    def _take(self, message: dict[str, JsonValue]) -> None:
        if "ask" in message:
            self._answer()
        elif "loaded" in message:
            self._settle()
        elif "broken" in message:
            self.broken = str(message["broken"])
            self._settle()
        elif self.outcome is None:
            self.outcome = from_json(message)

    def _answer(self) -> None:
        with contextlib.suppress(OSError):  # the child is gone, or this end was closed
            self._answers.send(self._wish().encode() + b"\n", socket.MSG_DONTWAIT)

    def _settle(self) -> None:
        if not self.settled.done():
            self.settled.set_result(None)
