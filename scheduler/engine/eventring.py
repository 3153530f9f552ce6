"""The last transitions, kept in memory for those who follow along (`/v1/events`).

What is told in the log is told here, by the same call: `Tee` is a `Logger` that does both. Followers read
from the ring by their own position, so a slow one costs nothing and is not waited for: when the ring has
run past it, it is cut and told to list again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from itertools import islice
from threading import RLock, get_ident
from typing import Final, NamedTuple, TypeAlias

from scheduler.clock import MILLISECOND, SECOND, Clock, Micros
from scheduler.telemetry import Event, Logger

SIZE: Final = 10_000
_CHUNK: Final = 200
_PROGRESS_EVERY: Final[Micros] = 5 * SECOND
_PROGRESS_KNOWN: Final = 1_000
_GATHER: Final[Micros] = 10 * MILLISECOND
"""Followers that were woken are let sleep so long: each wake-up costs the loop more than a telling does."""

_Told: TypeAlias = tuple[Micros, Event, Mapping[str, object]]
"""What becomes an `Entry` when it is read."""


class Entry(NamedTuple):
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


@dataclass(frozen=True, slots=True)
class Chunk:
    """Transitions that came after one another, and the id up to which a follower has seen everything."""

    until: str
    entries: list[Entry]


class Gap(Enum):
    """What a follower is told instead of transitions."""

    UNKNOWN = auto()
    """The id it came with is of another process, or no longer in the ring: it has to list again."""
    TOO_SLOW = auto()
    """The ring has run past it; this is the last thing told."""
    CLOSED = auto()
    """The daemon stops; this is the last thing told."""


class EventRing:
    """The newest `size` transitions of one daemon.

    Args:
        instance: the owner id of the process, the first part of every event's id.
    """

    def __init__(self, instance: str, clock: Clock, size: int = SIZE) -> None:
        self.instance = instance
        self._clock = clock
        self._size = size
        self._told: dict[int, _Told] = {}
        self._count = 0
        # Re-entrant: a destructor that tells may interrupt the telling of the same thread.
        self._one_at_a_time = RLock()
        self._loop = asyncio.get_running_loop()
        self._loop_thread = get_ident()
        self._news = asyncio.Event()
        self._closed = False
        self._is_waking = False
        self._woken_at = -_GATHER
        self.followers = 0

    @property
    def last_id(self) -> str:
        """The id of the newest transition."""
        return self.id_of(self._count)

    def monotonic(self) -> Micros:
        """The ring's clock."""
        return self._clock.monotonic()

    def id_of(self, number: int) -> str:
        """The id under which a transition is known outside."""
        return f"{self.instance}-{number}"

    def append(self, event: Event, fields: Mapping[str, object]) -> None:
        """The transition is known to followers. May be called from any thread."""
        told = (self._clock.now(), event, fields)
        with self._one_at_a_time:
            self._count = number = self._count + 1
            self._told[number] = told
            self._told.pop(number - self._size, None)
            wakes = self.followers > 0 and not self._is_waking
            self._is_waking = self._is_waking or wakes
        if not wakes:
            return
        if get_ident() == self._loop_thread:
            self._loop.call_soon(self._wake)
        else:
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        """Followers look again, soon; what was told since they last did costs one wake-up, however much."""
        pause = self._woken_at + _GATHER - self._clock.monotonic()
        if pause > 0:
            self._loop.call_later(pause / SECOND, self._wake_now)
        else:
            self._wake_now()

    def _wake_now(self) -> None:
        self._is_waking = False  # before they look: what comes after this wakes them anew
        self._woken_at = self._clock.monotonic()
        self._news.set()

    def close(self) -> None:
        """Followers get what there is, and then the end."""
        self._closed = True
        self._news.set()

    async def follow(
        self,
        after: str | None,
        *,
        wants: Callable[[Event, Mapping[str, object]], bool] = lambda _event, _fields: True,
        tail: int = 0,
        goes_on: bool = True,
        idle: float = 60.0,
    ) -> AsyncIterator[Chunk | Gap]:
        """Transitions after the id `after` (None: from now on), in chunks.

        A chunk without entries is a sign of life: it comes when nothing wanted has come for a while. After
        `UNKNOWN` it goes on from now.

        Args:
            wants: which events are told, by their fields.
            tail: without an id: begin with so many wanted ones that have been.
            goes_on: wait for further ones; else it ends with what there is.
            idle: seconds without news after which an empty chunk comes.
        """
        position = self._before_last(tail, wants) if after is None else self._position_of(after)
        if position is None:
            yield Gap.UNKNOWN
            position = self._count
        self.followers += 1
        told_at = self._clock.monotonic()
        try:
            while True:
                if position < self._oldest() - 1:
                    yield Gap.TOO_SLOW
                    return
                before = position
                wanted, position = self._after(position, wants)
                silent_for = self._clock.monotonic() - told_at
                if wanted or silent_for >= idle * SECOND:
                    told_at = self._clock.monotonic()
                    yield Chunk(self.id_of(position), wanted)
                elif position > before:
                    await self._clock.sleep(0)  # between what nobody wants, the loop is let go
                elif self._closed or not goes_on:
                    if goes_on:
                        yield Gap.CLOSED
                    return
                else:
                    await self._wait_for_news(idle - silent_for / SECOND)
        finally:
            self.followers -= 1

    async def _wait_for_news(self, at_most: float) -> None:
        self._news.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.001, at_most)):
                await self._news.wait()

    def _oldest(self) -> int:
        return max(0, self._count - self._size) + 1

    def _before_last(self, number: int, wants: Callable[[Event, Mapping[str, object]], bool]) -> int:
        """The position before the last so many wanted entries."""
        with self._one_at_a_time:
            entries = map(self._entry, range(self._count, self._oldest() - 1, -1))
            found = islice((entry for entry in entries if wants(entry.event, entry.fields)), number)
            return min((entry.number - 1 for entry in found), default=self._count)

    def _entry(self, number: int) -> Entry:
        return Entry(number, *self._told[number])

    def _position_of(self, after: str) -> int | None:
        instance, _, number = after.rpartition("-")
        if instance != self.instance or not number.isascii() or not number.isdecimal() or len(number) > 18:
            return None
        position = int(number)
        return position if self._oldest() - 1 <= position <= self._count else None

    def _after(
        self, position: int, wants: Callable[[Event, Mapping[str, object]], bool]
    ) -> tuple[list[Entry], int]:
        """What is wanted of a bounded chunk after `position`, and the position at its end."""
        with self._one_at_a_time:
            first = max(position + 1, self._oldest())
            end = min(first + _CHUNK, self._count + 1)
            told = [(number, self._told[number]) for number in range(first, end)]
        wanted = [
            Entry(number, at, event, fields) for number, (at, event, fields) in told if wants(event, fields)
        ]
        return wanted, end - 1


class Tee:
    """A `Logger` whose events also go into the ring. It logs as structlog was set up when it was made.

    Signs of progress of a run go there every few seconds at most: they are many, and would push the
    transitions out.
    """

    __slots__ = ("_bound", "_log", "_progressed", "_ring")

    def __init__(
        self,
        log: Logger,
        ring: EventRing,
        bound: Mapping[str, object] | None = None,
        progressed: dict[object, int] | None = None,
    ) -> None:
        # With nothing to bind: a logger that looks for the set-up anew each time costs more than the event.
        self._log = log.bind() if bound is None else log
        self._ring = ring
        self._bound = dict(bound or {})
        self._progressed: dict[object, int] = {} if progressed is None else progressed

    def bind(self, **fields: object) -> Logger:
        # The logger gets what is bound with each event, as the ring does: to bind it costs more.
        return Tee(self._log, self._ring, {**self._bound, **fields}, self._progressed)

    def debug(self, event: Event, **fields: object) -> None:
        told = {**self._bound, **fields} if self._bound else fields
        self._log.debug(event, **told)
        self._tell(event, told)

    def info(self, event: Event, **fields: object) -> None:
        told = {**self._bound, **fields} if self._bound else fields
        self._log.info(event, **told)
        self._tell(event, told)

    def warning(self, event: Event, **fields: object) -> None:
        told = {**self._bound, **fields} if self._bound else fields
        self._log.warning(event, **told)
        self._tell(event, told)

    def error(self, event: Event, **fields: object) -> None:
        told = {**self._bound, **fields} if self._bound else fields
        self._log.error(event, **told)
        told.pop("exc_info", None)
        self._tell(event, told)

    def _tell(self, event: Event, told: Mapping[str, object]) -> None:
        if event is not Event.RUN_PROGRESSED or self._is_news(told.get("run_id")):
            self._ring.append(event, told)

    def _is_news(self, run_id: object) -> bool:
        """No sign of progress of this run was told within the last seconds."""
        now = self._ring.monotonic()
        if now - self._progressed.get(run_id, now - _PROGRESS_EVERY) < _PROGRESS_EVERY:
            return False
        self._progressed.pop(run_id, None)
        self._progressed[run_id] = now
        if len(self._progressed) > _PROGRESS_KNOWN:
            del self._progressed[next(iter(self._progressed))]
        return True
