"""The kinds of trigger: one small value for each way in which a job can fire.

Every trigger answers three questions about instants (UTC microseconds): the next fire strictly after one,
the last fire at or before one, and how many lie between two. Each answer costs a few integer operations,
however long the span, so a daemon that was down for years plans as fast as one that was not. Start, end,
exclusions and jitter are laid over a trigger by `Schedule`.
"""

# ruff: noqa: ARG002 - every kind keeps the whole contract, also where an answer needs no argument

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Protocol, TypeAlias

from scheduler.clock import MILLISECOND, Micros
from scheduler.errors import Invalid
from scheduler.model.cron import Cron
from scheduler.model.durations import LONGEST, format_duration

COUNT_CAP: Final = 10_000
"""Counts of fires are exact up to this; one more means "more than that"."""

SHORTEST_PERIOD: Final[Micros] = MILLISECOND


class FireTimes(Protocol):
    """What a trigger and a schedule have in common."""

    @property
    def kind(self) -> str:
        """`cron`, `every`, `delay`, `at` or `manual`."""
        ...

    def next_fire(self, after: Micros) -> Micros | None:
        """The first fire strictly after `after`, or None if there is none."""
        ...

    def last_fire(self, at_or_before: Micros) -> Micros | None:
        """The last fire at or before `at_or_before`, or None if there is none."""
        ...

    def count_fires(self, after: Micros, until: Micros, cap: int = COUNT_CAP) -> int:
        """How many fires lie in (after, until]: exact up to `cap`, `cap + 1` means more."""
        ...


@dataclass(frozen=True, slots=True)
class Every:
    """Fires on a fixed grid of elapsed time: `anchor + k * period` for every whole k, also a negative one.

    A restart or reload does not shift it, and no clock change does: a grid of 24 hours moves on the wall
    clock by an hour twice a year (who wants the wall clock writes cron).

    Attributes:
        period: microseconds, at least a millisecond.
        anchor: one instant of the grid; by default the epoch.
    """

    kind: ClassVar[str] = "every"

    period: Micros
    anchor: Micros = 0

    def __post_init__(self) -> None:
        _check_period("every", self.period)

    def next_fire(self, after: Micros) -> Micros | None:
        """The first instant of the grid strictly after `after`."""
        return self.anchor + ((after - self.anchor) // self.period + 1) * self.period

    def last_fire(self, at_or_before: Micros) -> Micros | None:
        """The last instant of the grid at or before `at_or_before`."""
        return self.anchor + (at_or_before - self.anchor) // self.period * self.period

    def count_fires(self, after: Micros, until: Micros, cap: int = COUNT_CAP) -> int:
        """How many instants of the grid lie in (after, until]; `cap + 1` means more than `cap`."""
        count = (until - self.anchor) // self.period - (after - self.anchor) // self.period
        return min(max(count, 0), cap + 1)


@dataclass(frozen=True, slots=True)
class Delay:
    """Fires once, `period` after the instant it is asked about: the end of the scheduled run before.

    It has no grid, so it has no last fire: the one that is due is the one that was asked for and stored.

    Attributes:
        period: microseconds, at least a millisecond.
    """

    kind: ClassVar[str] = "delay"

    period: Micros

    def __post_init__(self) -> None:
        _check_period("delay", self.period)

    def next_fire(self, after: Micros) -> Micros | None:
        """`period` after `after`."""
        return after + self.period

    def last_fire(self, at_or_before: Micros) -> Micros | None:
        """None: a delay leaves no fires behind."""
        return None

    def count_fires(self, after: Micros, until: Micros, cap: int = COUNT_CAP) -> int:
        """1 if the one fire after `after` comes by `until`, else 0: the next waits for a run's end."""
        return int(after + self.period <= until)


@dataclass(frozen=True, slots=True)
class At:
    """Fires once, at `instant` (UTC microseconds)."""

    kind: ClassVar[str] = "at"

    instant: Micros

    def next_fire(self, after: Micros) -> Micros | None:
        """The instant, if it is still to come."""
        return self.instant if self.instant > after else None

    def last_fire(self, at_or_before: Micros) -> Micros | None:
        """The instant, if it has come."""
        return self.instant if self.instant <= at_or_before else None

    def count_fires(self, after: Micros, until: Micros, cap: int = COUNT_CAP) -> int:
        """1 if the instant lies in (after, until], else 0."""
        return int(after < self.instant <= until)


@dataclass(frozen=True, slots=True)
class Manual:
    """Never fires by itself: an operator starts the job."""

    kind: ClassVar[str] = "manual"

    def next_fire(self, after: Micros) -> Micros | None:
        """None."""
        return None

    def last_fire(self, at_or_before: Micros) -> Micros | None:
        """None."""
        return None

    def count_fires(self, after: Micros, until: Micros, cap: int = COUNT_CAP) -> int:
        """0."""
        return 0


Trigger: TypeAlias = Cron | Every | Delay | At | Manual


def _check_period(kind: str, period: Micros) -> None:
    if period < SHORTEST_PERIOD:
        raise Invalid(f"{kind} = {format_duration(period)!r} is too short: write 1ms or more")
    if period > LONGEST:
        raise Invalid(f"{kind} = {format_duration(period)!r} is too long: write a hundred years or less")
