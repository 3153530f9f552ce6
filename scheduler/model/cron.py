"""Cron as a value: which instants an expression names in a zone, clock changes included.

The rule is Debian cron's, by the first character of the minute and hour fields. A *wildcard* job (`*` in
either) follows the wall clock as real time passes: skipped times are not seen, repeated times fire twice.
A *fixed-time* job runs times that a change skips once, at the first minute after the gap, and of repeated
times only the first pass counts. Any change of offset counts, also one of half an hour or of a whole day.
With six fields the rule is applied to the minute, and the seconds are added to it.

The set of fire times does not depend on where one starts asking. Nothing here walks from fire to fire
but the caller: a search is a few integer operations per change of offset.

Source: cron(8) and crontab(5) of Debian; the tests carry a corpus that other implementations agree on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Final

from scheduler.clock import SECOND, Micros
from scheduler.model.cron_wall import WallTimes, high_bit, low_bit, wall_times
from scheduler.model.zones import FIRST_SECOND, LAST_SECOND, MARGIN, Segment, Zone, load_zone

_COUNT_CAP: Final = 10_000


@dataclass(frozen=True, slots=True)
class Cron:
    """Fires at the times that a cron expression names in a time zone.

    Attributes:
        expression: five fields, six with leading seconds, or one of seven aliases (`@daily`).
        timezone: a name of the tz database.

    Raises:
        Invalid: the expression cannot be read or never fires, or the zone is unknown.
    """

    kind: ClassVar[str] = "cron"

    expression: str
    timezone: str = "UTC"
    _times: WallTimes = field(init=False, repr=False, compare=False)
    _zone: Zone = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_times", wall_times(self.expression))
        object.__setattr__(self, "_zone", load_zone(self.timezone))

    def __reduce__(self) -> tuple[type[Cron], tuple[str, str]]:
        return Cron, (self.expression, self.timezone)

    @property
    def fixed_time(self) -> bool:
        """Neither minute nor hour begins with `*`: skipped times run late, repeated times once."""
        return self._times.fixed_time

    def next_fire(self, after: Micros) -> Micros | None:
        """The first fire time strictly after `after` (UTC microseconds), or None where the calendar ends."""
        found = _next_second(self._times, self._zone, after // SECOND + 1)
        return None if found is None else found * SECOND

    def last_fire(self, at_or_before: Micros) -> Micros | None:
        """The last fire time at or before `at_or_before`, or None where the calendar begins."""
        found = _last_second(self._times, self._zone, at_or_before // SECOND)
        return None if found is None else found * SECOND

    def count_fires(self, after: Micros, until: Micros, cap: int = _COUNT_CAP) -> int:
        """How many fire times lie in (after, until]: exact up to `cap`, `cap + 1` means more than that."""
        begin, end = after // SECOND + 1, until // SECOND + 1
        return _count_seconds(self._times, self._zone, begin, end, cap=cap)


def _next_second(times: WallTimes, zone: Zone, second: int) -> int | None:
    """The first fire at or after `second` (UTC seconds)."""
    second = max(second, FIRST_SECOND)
    while second <= LAST_SECOND:
        segment = zone.segment(second)
        minute, of_minute = divmod(second + segment.offset, 60)
        rest = times.seconds >> of_minute
        found = _next_minute(times, segment, minute if rest else minute + 1)
        if found is None:
            return None
        fire = found * 60 - segment.offset
        if fire < segment.end:
            of_minute = of_minute + low_bit(rest) if rest and found == minute else low_bit(times.seconds)
            return fire + of_minute if fire <= LAST_SECOND else None
        second = _skip_ahead(times, segment, found)
    return None


def _last_second(times: WallTimes, zone: Zone, second: int) -> int | None:
    """The last fire at or before `second` (UTC seconds)."""
    second = min(second, LAST_SECOND)
    while second >= FIRST_SECOND:
        segment = zone.segment(second)
        minute, of_minute = divmod(second + segment.offset, 60)
        rest = times.seconds & (2 << of_minute) - 1
        found = _last_minute(times, segment, minute if rest else minute - 1)
        if found is None:
            return None
        fire = found * 60 - segment.offset
        if fire >= segment.start and found >= _first_minute(times, segment):
            of_minute = high_bit(rest if found == minute else times.seconds)
            return fire + of_minute if fire >= FIRST_SECOND else None
        second = _skip_back(times, segment, found)
    return None


def _count_seconds(times: WallTimes, zone: Zone, begin: int, end: int, cap: int) -> int:
    """How many fires lie in [begin, end) (UTC seconds); `cap + 1` means more than `cap`."""
    total = 0
    second, end = max(begin, FIRST_SECOND), min(end, LAST_SECOND + 1)
    while second < end and total <= cap:
        segment = zone.segment(second)
        stop = min(end, segment.end)
        total += count_matches(times, segment, second, stop, cap)
        total += caught_seconds(times, segment, second, stop).bit_count()
        second = segment.end
    return min(total, cap + 1)


def _first_minute(times: WallTimes, segment: Segment) -> int:
    """The first wall minute of the segment that can fire by itself: a fixed time needs its first pass."""
    first = segment.start + segment.offset
    return max(first, segment.high) // 60 if times.fixed_time else first // 60


def _catches_up(times: WallTimes, segment: Segment) -> bool:
    """The segment begins with a gap in which a fixed time lies, so it fires once at the segment's start."""
    first = (segment.start + segment.offset) // 60
    if not times.fixed_time or segment.high // 60 >= first:
        return False
    skipped = times.next_minute(segment.high // 60)
    return skipped is not None and skipped < first


def _next_minute(times: WallTimes, segment: Segment, minute: int) -> int | None:
    """The first firing wall minute from `minute` on; one beyond the segment is only a wall-clock match."""
    first = _first_minute(times, segment)
    if minute <= first and _catches_up(times, segment):
        return first
    return times.next_minute(max(minute, first))


def _last_minute(times: WallTimes, segment: Segment, minute: int) -> int | None:
    """The last firing wall minute up to `minute`; one before the segment is only a wall-clock match."""
    first = _first_minute(times, segment)
    found = times.last_minute(minute)
    if (found is None or found < first) and minute >= first and _catches_up(times, segment):
        return first
    return found


def _skip_ahead(times: WallTimes, segment: Segment, match: int) -> int:
    """Where to look on, when the next wall-clock match lies beyond the segment."""
    target = match * 60 - segment.offset - MARGIN
    if target > segment.end:
        # A change in between may show wall times again: jump only if none of those matches either.
        before = times.last_minute(match - 1)
        if before is None or before * 60 - segment.offset < segment.end - MARGIN:
            return target
    return segment.end


def _skip_back(times: WallTimes, segment: Segment, match: int) -> int:
    """Where to look on, when the last wall-clock match lies before the segment."""
    target = match * 60 - segment.offset + MARGIN
    if target < segment.start:
        following = times.next_minute(match + 1)
        if following is None or following * 60 - segment.offset > segment.start + MARGIN:
            return target
    return segment.start - 1


def caught_seconds(times: WallTimes, segment: Segment, begin: int, end: int) -> int:
    """Bits of the seconds in [begin, end) at which the segment's first minute fires only for a gap."""
    first = (segment.start + segment.offset) // 60
    if not _catches_up(times, segment) or times.holds(first):
        return 0
    low, high = min(begin - segment.start, 60), min(end - segment.start, 60)
    return times.seconds & ((1 << high) - (1 << low))


def count_matches(times: WallTimes, segment: Segment, begin: int, end: int, cap: int) -> int:
    """How many wall-clock matches of the segment fire in [begin, end); counting may stop above `cap`."""
    first = _first_minute(times, segment)
    begin_minute, begin_second = divmod(begin + segment.offset, 60)
    end_minute, end_second = divmod(end + segment.offset, 60)

    def seconds_before(minute: int, of_minute: int) -> int:
        matches = minute >= first and times.holds(minute)
        return (times.seconds & (1 << of_minute) - 1).bit_count() if matches else 0

    minutes = times.count_minutes(max(begin_minute, first), max(end_minute, first), cap)
    whole = minutes * times.seconds.bit_count()
    return whole - seconds_before(begin_minute, begin_second) + seconds_before(end_minute, end_second)
