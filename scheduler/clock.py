"""The only place of ours that reads time.

Instants are UTC microseconds since 1970 as `int` (`Micros`), durations are microseconds as `int`: one
unit everywhere, exact, the same fire key in every store. Zone-aware datetimes exist at the edges only.
Deadlines, timeouts and leases are measured on the monotonic clock, which no step of the wall clock moves.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final, Protocol, TypeAlias

Micros: TypeAlias = int

MILLISECOND: Final[Micros] = 1_000
SECOND: Final[Micros] = 1_000_000
MINUTE: Final[Micros] = 60 * SECOND
HOUR: Final[Micros] = 60 * MINUTE
DAY: Final[Micros] = 24 * HOUR

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class Alarm(Protocol):
    """A call that is going to be made."""

    def cancel(self) -> object:
        """It is not made, unless it has been already."""
        ...


class Clock(Protocol):
    """Wall time, monotonic time, sleep and alarms, injected by constructor."""

    def now(self) -> Micros:
        """The wall clock: UTC microseconds since 1970."""
        ...

    def monotonic(self) -> Micros:
        """Microseconds that never step back, from an arbitrary origin."""
        ...

    async def sleep(self, duration: Micros) -> None:
        """Return after `duration` microseconds of monotonic time."""
        ...

    def call_later(self, duration: Micros, call: Callable[[], object]) -> Alarm:
        """The loop makes the call after `duration` microseconds of monotonic time: cheaper than a sleep."""
        ...


class SystemClock:
    """The clock of the machine."""

    def now(self) -> Micros:
        return time.time_ns() // 1_000

    def monotonic(self) -> Micros:
        return time.monotonic_ns() // 1_000

    async def sleep(self, duration: Micros) -> None:
        import asyncio  # noqa: PLC0415  schedctl reads this clock too, and has no loop: 50 ms of its start

        await asyncio.sleep(max(0, duration) / SECOND)

    def call_later(self, duration: Micros, call: Callable[[], object]) -> Alarm:
        import asyncio  # noqa: PLC0415  as in `sleep`

        return asyncio.get_running_loop().call_later(max(0, duration) / SECOND, call)


def from_micros(instant: Micros, zone: tzinfo = UTC) -> datetime:
    """The instant as an aware datetime in `zone`, exact to the microsecond."""
    moment = _EPOCH + timedelta(microseconds=instant)
    return moment if zone is UTC else moment.astimezone(zone)


def to_micros(moment: datetime) -> Micros:
    """The aware datetime as UTC microseconds; a naive one is refused.

    Raises:
        ValueError: the datetime has no zone, so it names no instant.
    """
    if moment.tzinfo is None:
        raise ValueError("a time without a zone names no instant: add an offset, for example +01:00 or Z")
    return (moment - _EPOCH) // _MICROSECOND


def rfc3339(instant: Micros | None, zone: tzinfo = UTC) -> str | None:
    """The instant as RFC 3339 text with its offset; None stays None."""
    return None if instant is None else from_micros(instant, zone).isoformat()


def seconds(duration: Micros) -> float:
    """The duration in seconds, for a wire or a library that wants them."""
    return duration / SECOND
