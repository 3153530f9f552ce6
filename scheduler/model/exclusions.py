"""Times at which a job must not fire: dates, ranges of dates, and cron expressions.

Entries are read in one zone, the job's. A date means the whole local day, a range all its days, both ends
included, and `cron: <expression>` every wall minute that the expression matches (every second, if it has
six fields), literally and in both passes of a repeated hour: `cron: * * * * sun` is all of Sunday.
`calendar: <name>` stands for the entries of a calendar that the daemon's configuration names.

Answers are stretches, never single fires: where an excluded stretch ends, where the next one begins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import combinations
from typing import Final, Protocol, TypeAlias

from scheduler.errors import Fault, Invalid
from scheduler.model.cron import caught_seconds, count_matches
from scheduler.model.cron_wall import (
    DAY_MINUTES,
    WHOLE_MINUTE,
    DayTimes,
    WallTimes,
    high_bit,
    low_bit,
    wall_spans,
)
from scheduler.model.zones import DAY_SECONDS, FIRST_SECOND, LAST_SECOND, MARGIN, Segment, Zone, load_zone

HORIZON_SECONDS: Final = 28 * 366 * DAY_SECONDS
"""How far a search goes: after 28 years the calendar's dates and weekdays come round again."""

Pattern: TypeAlias = Callable[[int], DayTimes]
"""The times of day at which a trigger can fire at all, for an offset of its zone (seconds)."""

_MAX_STEPS: Final = 5_000
_MAX_EXPRESSIONS: Final = 5
_NO_CAP: Final = 10**18
_EPOCH: Final = date(1970, 1, 1)
_DATES: Final = re.compile(r"(\d{4}-\d{2}-\d{2})(?:\s*\.\.\s*(\d{4}-\d{2}-\d{2}))?", re.ASCII)


class _Rule(Protocol):
    """One entry, on the wall clock (wall seconds)."""

    def holds(self, wall: int) -> bool:
        """The wall second is excluded."""
        ...

    def end(self, wall: int, times: DayTimes | None) -> int | None:
        """The first wall second after the excluded `wall` that the rule leaves free.

        Where the rule excludes every one of `times`, a matching day is excluded as a whole.
        """
        ...

    def begin(self, wall: int, times: DayTimes | None) -> int | None:
        """The last wall second before the excluded `wall` that the rule leaves free (see `end`)."""
        ...

    def next_match(self, wall: int) -> int | None:
        """The first excluded wall second at or after `wall`."""
        ...


@dataclass(frozen=True, slots=True)
class Exclusions:
    """The entries of a job's `except`, in its zone; an empty one excludes nothing.

    Attributes:
        entries: dates, ranges and `cron:` expressions as written, calendars already replaced.
        timezone: the zone in which they are read.

    Raises:
        Invalid: an entry cannot be read (all of them are listed), or the zone is unknown.
    """

    entries: tuple[str, ...] = ()
    timezone: str = "UTC"
    _rules: tuple[_Rule, ...] = field(init=False, repr=False, compare=False)
    _days: tuple[_Days, ...] = field(init=False, repr=False, compare=False)
    _zone: Zone = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_zone", load_zone(self.timezone))
        object.__setattr__(self, "_rules", tuple(_read_entries(self.entries)))
        object.__setattr__(self, "_days", _merged(self._rules))

    def __reduce__(self) -> tuple[type[Exclusions], tuple[tuple[str, ...], str]]:
        return Exclusions, (self.entries, self.timezone)

    def __bool__(self) -> bool:
        return bool(self._rules)

    def holds(self, second: int) -> bool:
        """The instant (UTC seconds) is excluded."""
        wall = second + self._zone.segment(second).offset
        return any(rule.holds(wall) for rule in self._rules)

    def free_from(self, second: int, pattern: Pattern | None = None) -> int | None:
        """The first free second at or after `second` (UTC), or None: nothing within 28 years.

        Args:
            pattern: the times of day that matter, on this object's zone; a stretch may go on over seconds
                that are not among them.
        """
        second = max(second, FIRST_SECOND)
        limit = min(second + HORIZON_SECONDS, LAST_SECOND)
        for _ in range(_MAX_STEPS):
            if second > limit:
                return None
            segment = self._zone.segment(second)
            wall = second + segment.offset
            rule = self._rule_at(wall)
            if rule is None:
                return second
            end = rule.end(wall, None if pattern is None else pattern(segment.offset))
            if end is None:
                return None
            second = min(end - segment.offset, segment.end)
        return None

    def free_up_to(self, second: int, pattern: Pattern | None = None) -> int | None:
        """The last free second at or before `second` (UTC), or None: nothing within 28 years."""
        second = min(second, LAST_SECOND)
        limit = max(second - HORIZON_SECONDS, FIRST_SECOND)
        for _ in range(_MAX_STEPS):
            if second < limit:
                return None
            segment = self._zone.segment(second)
            wall = second + segment.offset
            rule = self._rule_at(wall)
            if rule is None:
                return second
            begin = rule.begin(wall, None if pattern is None else pattern(segment.offset))
            if begin is None:
                return None
            second = max(begin - segment.offset, segment.start - 1)
        return None

    def next_excluded(self, second: int, until: int) -> int | None:
        """The first excluded second in [second, until) (UTC), or None."""
        first, second, until = None, max(second, FIRST_SECOND), min(until, LAST_SECOND)
        for rule in self._rules:
            found = self._next_match(rule, second, until)
            if found is not None and found < until:
                first = until = found
        return first

    def count_of(self, times: WallTimes, begin: int, end: int) -> int | None:
        """How many fires of a cron trigger of the same zone in [begin, end) (UTC seconds) are excluded.

        Counted by arithmetic, whatever the span: what two expressions share is again an expression. None:
        there are too many expressions for that.
        """
        expressions = [rule.times for rule in self._rules if isinstance(rule, _Expression)]
        if len(expressions) > _MAX_EXPRESSIONS:
            return None
        shared = _shared(times, expressions)
        total, second = 0, max(begin, FIRST_SECOND)
        while second < min(end, LAST_SECOND):
            segment = self._zone.segment(second)
            stop = min(end, segment.end)
            total += self._count_in(times, shared, segment, second, stop)
            caught = caught_seconds(times, segment, second, stop)
            total += sum(self.holds(segment.start + s) for s in range(60) if caught >> s & 1)
            second = segment.end
        return total

    def _count_in(
        self, times: WallTimes, shared: list[tuple[int, WallTimes]], segment: Segment, begin: int, end: int
    ) -> int:
        """The excluded wall-clock matches in [begin, end), both inside the segment."""

        def by_expressions(first: int, last: int) -> int:
            return sum(sign * count_matches(meet, segment, first, last, _NO_CAP) for sign, meet in shared)

        total = by_expressions(begin, end)
        for days in self._days:
            first, last = max(begin, days.first - segment.offset), min(end, days.last - segment.offset)
            if first < last:
                total += count_matches(times, segment, first, last, _NO_CAP) - by_expressions(first, last)
        return total

    def _rule_at(self, wall: int) -> _Rule | None:
        return next((rule for rule in self._rules if rule.holds(wall)), None)

    def _next_match(self, rule: _Rule, second: int, until: int) -> int | None:
        while second < until:
            segment = self._zone.segment(second)
            found = rule.next_match(second + segment.offset)
            if found is not None and found - segment.offset < segment.end:
                return found - segment.offset
            # A change may show the wall times before it again; nothing matches before `again`.
            again = rule.next_match(segment.end + segment.offset - MARGIN)
            if again is None:
                return None
            second = max(segment.end, again - segment.offset - MARGIN)
        return None


@dataclass(frozen=True, slots=True)
class _Days:
    """Whole days: wall seconds in [first, last)."""

    first: int
    last: int

    def holds(self, wall: int) -> bool:
        return self.first <= wall < self.last

    def end(self, wall: int, times: DayTimes | None) -> int | None:  # noqa: ARG002 - see `_Rule`
        return self.last

    def begin(self, wall: int, times: DayTimes | None) -> int | None:  # noqa: ARG002 - see `_Rule`
        return self.first - 1

    def next_match(self, wall: int) -> int | None:
        return max(wall, self.first) if wall < self.last else None


class _Expression:
    """The wall times that a cron expression covers."""

    __slots__ = ("times",)

    def __init__(self, times: WallTimes) -> None:
        self.times = times

    def holds(self, wall: int) -> bool:
        minute, of_minute = divmod(wall, 60)
        return bool(self.times.seconds >> of_minute & 1) and self.times.holds(minute)

    def end(self, wall: int, times: DayTimes | None) -> int | None:
        minute, of_minute = divmod(wall, 60)
        if self._covers(times):
            free = self.times.next_clear_day(minute // DAY_MINUTES + 1)
        elif self.times.seconds == WHOLE_MINUTE:
            free = self.times.next_clear(minute)
        else:
            rest = (WHOLE_MINUTE ^ self.times.seconds) >> of_minute
            return wall + low_bit(rest) if rest else (minute + 1) * 60
        return None if free is None else free * 60

    def begin(self, wall: int, times: DayTimes | None) -> int | None:
        minute, of_minute = divmod(wall, 60)
        if self._covers(times):
            free = self.times.last_clear_day(minute // DAY_MINUTES - 1)
        elif self.times.seconds == WHOLE_MINUTE:
            free = self.times.last_clear(minute)
        else:
            rest = (WHOLE_MINUTE ^ self.times.seconds) & (2 << of_minute) - 1
            return minute * 60 + high_bit(rest) if rest else minute * 60 - 1
        return None if free is None else free * 60 + 59

    def next_match(self, wall: int) -> int | None:
        minute, of_minute = divmod(wall, 60)
        rest = self.times.seconds >> of_minute
        found = self.times.next_minute(minute if rest else minute + 1)
        if found is None:
            return None
        if found == minute:
            return wall + low_bit(rest)
        return found * 60 + low_bit(self.times.seconds)

    def _covers(self, times: DayTimes | None) -> bool:
        if times is None:
            return False
        return not (times.minutes & ~self.times.day_minutes or times.seconds & ~self.times.seconds)


def _merged(rules: Sequence[_Rule]) -> tuple[_Days, ...]:
    """The ranges of days without overlaps, so that none is counted twice."""
    merged: list[_Days] = []
    for days in sorted((rule for rule in rules if isinstance(rule, _Days)), key=lambda days: days.first):
        if merged and days.first <= merged[-1].last:
            merged[-1] = _Days(merged[-1].first, max(merged[-1].last, days.last))
        else:
            merged.append(days)
    return tuple(merged)


def _shared(times: WallTimes, expressions: Sequence[WallTimes]) -> list[tuple[int, WallTimes]]:
    """What `times` shares with each set of the expressions, with the sign of inclusion and exclusion."""
    shared: list[tuple[int, WallTimes]] = []
    for size in range(1, len(expressions) + 1):
        for chosen in combinations(expressions, size):
            meet: WallTimes | None = times
            for expression in chosen:
                meet = None if meet is None else meet.meet(expression)
            if meet is not None:
                shared.append((1 if size % 2 else -1, meet))
    return shared


def parse_exclusions(
    entries: Sequence[str], timezone: str, calendars: Mapping[str, Sequence[str]] | None = None
) -> Exclusions:
    """The entries with `calendar: <name>` replaced by what `calendars` has under that name.

    Raises:
        Invalid: entries that cannot be read, or a calendar that is not configured; all are listed.
    """
    known = calendars or {}
    expanded: list[str] = []
    for entry in entries:
        name = _after_prefix(entry, "calendar:")
        if name is None:
            expanded.append(entry)
        elif name in known:
            expanded.extend(known[name])
        else:
            listed = ", ".join(sorted(known)) or "none is configured"
            raise Invalid(
                f"unknown calendar {name!r} in `except`: add it to [calendars] in scheduler.toml"
                f" (known calendars: {listed})"
            )
    return Exclusions(tuple(expanded), timezone)


def _read_entries(entries: Sequence[str]) -> Iterator[_Rule]:
    faults: list[Fault] = []
    for entry in entries:
        try:
            yield _read_entry(entry)
        except Invalid as error:
            faults.append(Fault(message=error.message, key="except"))
    if faults:
        raise Invalid("; ".join(fault.message for fault in faults), faults=faults)


def _read_entry(entry: str) -> _Rule:
    expression = _after_prefix(entry, "cron:")
    if expression is not None:
        return _Expression(wall_spans(expression))
    dates = _DATES.fullmatch(entry.strip())
    if dates is None:
        raise Invalid(
            f"bad exclusion {entry!r}: write a date (2026-12-24), a range (2026-12-24..2026-12-26)"
            " or cron: and an expression"
        )
    try:
        first = date.fromisoformat(dates[1])
        last = date.fromisoformat(dates[2] or dates[1])
    except ValueError as error:
        raise Invalid(f"bad exclusion {entry!r}: no such date ({error})") from error
    if last < first:
        raise Invalid(f"bad exclusion {entry!r}: the range runs backwards: write {last}..{first}")
    return _Days(_wall_second(first), _wall_second(last) + DAY_SECONDS)


def _after_prefix(entry: str, prefix: str) -> str | None:
    stripped = entry.strip()
    return stripped[len(prefix) :].strip() if stripped.startswith(prefix) else None


def _wall_second(day: date) -> int:
    return (day - _EPOCH).days * DAY_SECONDS


NO_EXCLUSIONS: Final = Exclusions()
"""Nothing is excluded."""
