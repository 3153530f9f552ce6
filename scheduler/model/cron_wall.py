"""Finds the wall-clock times that a cron expression names, by bit arithmetic, without zones.

A wall minute is a number: days since 1970-01-01 times 1440 plus the minute of the day, on a wall clock
that never changes. A search goes by months (one mask of matching days each) and inside a day by bits, so
a job of every minute and one of every leap year cost the same. Clock changes are the business of `cron`.
"""

from __future__ import annotations

from calendar import isleap
from collections.abc import Callable
from datetime import date
from functools import lru_cache
from typing import Final, NamedTuple

from scheduler.model.cron_parse import CronFields, parse_cron

DAY_MINUTES: Final = 1440

_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_FIRST_DAY: Final = 1 - _EPOCH_ORDINAL
_FINAL_DAY: Final = date.max.toordinal() - _EPOCH_ORDINAL
# The longest gap between two matches is 40 years (29 February on a given weekday, across 2100).
_SEARCH_YEARS: Final = 48
_LENGTHS: Final = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_WHOLE_DAY: Final = (1 << DAY_MINUTES) - 1
WHOLE_MINUTE: Final = (1 << 60) - 1


class DayTimes(NamedTuple):
    """Times of day, as bits.

    Attributes:
        minutes: minutes of the day, 0-1439.
        seconds: seconds within each of those minutes, 0-59.
    """

    minutes: int
    seconds: int


class WallTimes:
    """The wall minutes, and the seconds within them, of a cron expression, or of what several share.

    Attributes:
        day_minutes: bits of the matching minutes of every matching day; at least one.
        seconds: bits of the seconds within each matching minute; at least one.
        months: bits of the months in which days match; at least one.
        fixed_time: the clock-change rule of fixed times holds.
        minutes_a_day: how many minutes of a matching day match.
    """

    __slots__ = ("_day_mask", "_masks", "day_minutes", "fixed_time", "minutes_a_day", "months", "seconds")

    def __init__(
        self, *, times: DayTimes, months: int, day_mask: Callable[[int, int], int], fixed_time: bool
    ) -> None:
        self.day_minutes, self.seconds = times
        self.months = months
        self.fixed_time = fixed_time
        self.minutes_a_day = times.minutes.bit_count()
        self._day_mask = day_mask
        self._masks: dict[tuple[int, int], int] = {}

    @property
    def day_times(self) -> DayTimes:
        """The times of day of every matching day."""
        return DayTimes(self.day_minutes, self.seconds)

    def meet(self, other: WallTimes) -> WallTimes | None:
        """The times that match both, under this one's clock-change rule; None if no time of day does."""
        times = DayTimes(self.day_minutes & other.day_minutes, self.seconds & other.seconds)
        months = self.months & other.months
        if not (times.minutes and times.seconds and months):
            return None
        return WallTimes(
            times=times,
            months=months,
            day_mask=lambda weekday, length: self._days(weekday, length) & other._days(weekday, length),
            fixed_time=self.fixed_time,
        )

    def holds(self, minute: int) -> bool:
        """The wall minute matches."""
        day, of_day = divmod(minute, DAY_MINUTES)
        return bool(self.day_minutes >> of_day & 1) and self.holds_day(day)

    def holds_day(self, day: int) -> bool:
        """The day (days since 1970) matches."""
        if not _FIRST_DAY <= day <= _FINAL_DAY:
            return False
        on = date.fromordinal(day + _EPOCH_ORDINAL)
        return bool(self._month(on.year, on.month) >> on.day & 1)

    def next_minute(self, minute: int) -> int | None:
        """The first matching wall minute at or after `minute`, or None within 48 years."""
        day, of_day = divmod(minute, DAY_MINUTES)
        rest = self.day_minutes >> of_day
        if rest and self.holds_day(day):
            return minute + low_bit(rest)
        following = self._next_day(day + 1)
        return None if following is None else following * DAY_MINUTES + low_bit(self.day_minutes)

    def last_minute(self, minute: int) -> int | None:
        """The last matching wall minute at or before `minute`, or None within 48 years."""
        day, of_day = divmod(minute, DAY_MINUTES)
        rest = self.day_minutes & (2 << of_day) - 1
        if rest and self.holds_day(day):
            return day * DAY_MINUTES + high_bit(rest)
        before = self._last_day(day - 1)
        return None if before is None else before * DAY_MINUTES + high_bit(self.day_minutes)

    def count_minutes(self, begin: int, end: int, cap: int) -> int:
        """How many wall minutes in [begin, end) match; counting may stop early above `cap`."""
        if end <= begin:
            return 0
        (first, first_of_day), (last, last_of_day) = divmod(begin, DAY_MINUTES), divmod(end, DAY_MINUTES)
        head = self._minutes_before(first_of_day) if self.holds_day(first) else 0
        tail = self._minutes_before(last_of_day) if self.holds_day(last) else 0
        days = self._count_days(first, last, cap // self.minutes_a_day + 1)
        return days * self.minutes_a_day - head + tail

    def next_clear(self, minute: int) -> int | None:
        """The first wall minute at or after `minute` that does not match, or None within 48 years."""
        day, of_day = divmod(minute, DAY_MINUTES)
        if not self.holds_day(day):
            return minute
        rest = (_WHOLE_DAY ^ self.day_minutes) >> of_day
        if rest:
            return minute + low_bit(rest)
        if self.day_minutes != _WHOLE_DAY:
            return self.next_clear((day + 1) * DAY_MINUTES)
        return self.next_clear_day(day + 1)

    def last_clear(self, minute: int) -> int | None:
        """The last wall minute at or before `minute` that does not match, or None within 48 years."""
        day, of_day = divmod(minute, DAY_MINUTES)
        if not self.holds_day(day):
            return minute
        rest = (_WHOLE_DAY ^ self.day_minutes) & (2 << of_day) - 1
        if rest:
            return day * DAY_MINUTES + high_bit(rest)
        if self.day_minutes != _WHOLE_DAY:
            return self.last_clear(day * DAY_MINUTES - 1)
        return self.last_clear_day(day - 1)

    def next_clear_day(self, day: int) -> int | None:
        """The first minute of the first day from `day` on that does not match, or None within 48 years."""
        for candidate in range(day, day + _SEARCH_YEARS * 366):
            if not self.holds_day(candidate):
                return candidate * DAY_MINUTES
        return None

    def last_clear_day(self, day: int) -> int | None:
        """The last minute of the last day up to `day` that does not match, or None within 48 years."""
        for candidate in range(day, day - _SEARCH_YEARS * 366, -1):
            if not self.holds_day(candidate):
                return candidate * DAY_MINUTES + DAY_MINUTES - 1
        return None

    def _minutes_before(self, of_day: int) -> int:
        return (self.day_minutes & (1 << of_day) - 1).bit_count()

    def _next_day(self, day: int) -> int | None:
        if day > _FINAL_DAY:
            return None
        on = date.fromordinal(max(day, _FIRST_DAY) + _EPOCH_ORDINAL)
        year, month = on.year, on.month
        mask = self._month(year, month) >> on.day << on.day
        last_year = min(year + _SEARCH_YEARS, date.max.year)
        while not mask:
            rest = self.months >> month + 1
            month = month + 1 + low_bit(rest) if rest else low_bit(self.months)
            year += not rest
            if year > last_year:
                return None
            mask = self._month(year, month)
        return date(year, month, low_bit(mask)).toordinal() - _EPOCH_ORDINAL

    def _last_day(self, day: int) -> int | None:
        if day < _FIRST_DAY:
            return None
        on = date.fromordinal(min(day, _FINAL_DAY) + _EPOCH_ORDINAL)
        year, month = on.year, on.month
        mask = self._month(year, month) & (2 << on.day) - 1
        first_year = max(year - _SEARCH_YEARS, date.min.year)
        while not mask:
            rest = self.months & (1 << month) - 1
            month = high_bit(rest or self.months)
            year -= not rest
            if year < first_year:
                return None
            mask = self._month(year, month)
        return date(year, month, high_bit(mask)).toordinal() - _EPOCH_ORDINAL

    def _count_days(self, begin: int, end: int, enough: int) -> int:
        """How many days in [begin, end) match; stops early when more than `enough` were found."""
        begin, end = max(begin, _FIRST_DAY), min(end, _FINAL_DAY)
        first, last = date.fromordinal(begin + _EPOCH_ORDINAL), date.fromordinal(end + _EPOCH_ORDINAL)
        # Whole months up to the last one, less the days before `begin`, plus those before `end`.
        total = -(self._month(first.year, first.month) & (1 << first.day) - 1).bit_count()
        year, month = first.year, first.month
        while (year, month) < (last.year, last.month) and total <= enough:
            total += self._month(year, month).bit_count()
            year, month = (year, month + 1) if month < 12 else (year + 1, 1)
        if (year, month) == (last.year, last.month):
            total += (self._month(year, month) & (1 << last.day) - 1).bit_count()
        return total

    def _month(self, year: int, month: int) -> int:
        """The matching days of a month, bits 1-31."""
        if not self.months >> month & 1:
            return 0
        length = _LENGTHS[month] + (month == 2 and isleap(year))
        return self._days(date(year, month, 1).isoweekday() % 7, length)

    def _days(self, first_weekday: int, length: int) -> int:
        """The matching days of a month that begins on `first_weekday`, kept for the next such month."""
        mask = self._masks.get((first_weekday, length))
        if mask is None:
            mask = self._masks[first_weekday, length] = self._day_mask(first_weekday, length)
        return mask


@lru_cache(maxsize=4096)
def wall_times(expression: str) -> WallTimes:
    """The wall times at which an expression fires; the same object for the same text.

    Raises:
        Invalid: the expression cannot be read or can never fire.
    """
    fields = parse_cron(expression)
    return _from_fields(fields, fields.seconds)


@lru_cache(maxsize=4096)
def wall_spans(expression: str) -> WallTimes:
    """The wall times that an expression covers: with five fields every second of its minutes.

    Raises:
        Invalid: the expression cannot be read or matches no time.
    """
    fields = parse_cron(expression)
    return _from_fields(fields, fields.seconds if fields.has_seconds else WHOLE_MINUTE)


def _from_fields(fields: CronFields, seconds: int) -> WallTimes:
    hours = (hour for hour in range(24) if fields.hours >> hour & 1)
    minutes = sum(fields.minutes << hour * 60 for hour in hours)
    return WallTimes(
        times=DayTimes(minutes, seconds),
        months=fields.months,
        day_mask=fields.day_mask,
        fixed_time=fields.fixed_time,
    )


def low_bit(bits: int) -> int:
    """The number of the lowest bit that is set."""
    return (bits & -bits).bit_length() - 1


def high_bit(bits: int) -> int:
    """The number of the highest bit that is set."""
    return bits.bit_length() - 1
