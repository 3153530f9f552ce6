"""The last transitions, kept in memory for those who follow along (`/v1/events`).

What is told in the log is told here, by the same call: `Tee` is a `Logger` that does both. Followers read
from the ring by their own position, so a slow one costs nothing and is not waited for: when the ring has
run past it, it is cut and told to list again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from itertools import islice
from typing import Final

from scheduler.clock import Clock, Micros
from scheduler.telemetry import Event, Logger

SIZE: Final = 10_000
_CHUNK: Final = 200


@dataclass(frozen=True, slots=True)
class Entry:
    """One transition.

    Attributes:
        number: counts up from 1 within this process.
        at: wall time of the telling.
        fields: what the event says beyond its name.
    """

    number: int
    at: Micros
    event: Event
    fields: Mapping[str, object]


class Gap(Enum):
    """Why a follower has to list again."""

    UNKNOWN = auto()
    """The id it came with is of another process, or no longer in the ring."""
    TOO_SLOW = auto()
    """The ring has run past it."""


class EventRing:
    """The newest `size` transitions of one daemon.

    Args:
        instance: the owner id of the process, the first part of every event's id.
    """

    def __init__(self, instance: str, clock: Clock, size: int = SIZE) -> None:
        self.instance = instance
        self._clock = clock
        self._entries: deque[Entry] = deque(maxlen=size)
        self._count = 0
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._followers = 0

    @property
    def last_id(self) -> str:
        """The id of the newest transition."""
        return self.id_of(self._count)

    def id_of(self, number: int) -> str:
        """The id under which a transition is known outside."""
        return f"{self.instance}-{number}"

    def append(self, event: Event, fields: Mapping[str, object]) -> None:
        """The transition is known to followers. May be called from any thread."""
        self._count += 1
        self._entries.append(Entry(self._count, self._clock.now(), event, fields))
        if self._followers:
            self._loop.call_soon_threadsafe(self._news.set)

    async def follow(self, after: str | None) -> AsyncIterator[list[Entry] | Gap]:
        """Transitions after the id `after` (None: from now on), in chunks; a `Gap` is the last thing told,
        unless it is `UNKNOWN`, after which it goes on from now."""
        position = self._position_of(after)
        if position is None:
            yield Gap.UNKNOWN
            position = self._count
        self._followers += 1
        try:
            while True:
                if position < self._oldest() - 1:
                    yield Gap.TOO_SLOW
                    return
                chunk = self._after(position)
                if chunk:
                    position = chunk[-1].number
                    yield chunk
                    continue
                self._news.clear()
                await self._news.wait()
        finally:
            self._followers -= 1

    def _oldest(self) -> int:
        return self._count - len(self._entries) + 1

    def _position_of(self, after: str | None) -> int | None:
        if after is None:
            return self._count
        instance, _, number = after.rpartition("-")
        if instance != self.instance or not number.isascii() or not number.isdecimal():
            return None
        position = int(number)
        return position if self._oldest() - 1 <= position <= self._count else None

    def _after(self, position: int) -> list[Entry]:
        """A bounded chunk of what came after `position`, so that no follower holds the loop for long."""
        skip = max(0, len(self._entries) - (self._count - position))
        return list(islice(self._entries, skip, skip + _CHUNK))


class Tee:
    """A `Logger` whose events also go into the ring."""

    def __init__(self, log: Logger, ring: EventRing, bound: Mapping[str, object] | None = None) -> None:
        self._log = log
        self._ring = ring
        self._bound = dict(bound or {})

    def bind(self, **fields: object) -> Logger:
        return Tee(self._log.bind(**fields), self._ring, {**self._bound, **fields})

    def debug(self, event: Event, **fields: object) -> None:
        self._log.debug(event, **fields)
        self._ring.append(event, {**self._bound, **fields})

    def info(self, event: Event, **fields: object) -> None:
        self._log.info(event, **fields)
        self._ring.append(event, {**self._bound, **fields})

    def warning(self, event: Event, **fields: object) -> None:
        self._log.warning(event, **fields)
        self._ring.append(event, {**self._bound, **fields})

    def error(self, event: Event, **fields: object) -> None:
        self._log.error(event, **fields)
        self._ring.append(event, {name: value for name, value in {**self._bound, **fields}.items() if name != "exc_info"})
