"""Time zones as tables of offset segments, in whole seconds.

A zone is cut into segments of constant UTC offset, found by probing `zoneinfo` (the system's database,
else the tzdata package) one year at a time and kept for the life of the process. Wall-clock arithmetic
inside a segment is then integer addition, and a clock change is nothing but a border between two
segments. Instants here are UTC seconds since 1970; "wall seconds" are the same plus the offset. Offsets and
changes are whole minutes: the few that were not (all before 1972) are rounded, so minutes stay minutes.
"""

from __future__ import annotations

import difflib
from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo, available_timezones

from scheduler.clock import SECOND, Micros
from scheduler.errors import Invalid

DAY_SECONDS: Final = 86_400

# More than any change moves a wall clock (Samoa skipped 24 hours in 2011).
MARGIN: Final = 2 * DAY_SECONDS

# Instants outside these bounds are not looked at: `datetime` ends there, and an offset needs room.
FIRST_SECOND: Final = -62_135_596_800 + 3 * DAY_SECONDS
LAST_SECOND: Final = 253_402_300_799 - 3 * DAY_SECONDS

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_YEAR: Final = 366 * DAY_SECONDS
# The shortest spell of a changed offset in the tz database is 3.99 days (Freetown 1939), 6.96 after 1970
# (north-eastern Brazil 2000), so a probe every three days misses none.
_PROBE: Final = 3 * DAY_SECONDS


class Segment(NamedTuple):
    """A span of one UTC offset.

    Attributes:
        start: first second of the span, UTC.
        end: first second after it, UTC.
        offset: local minus UTC, in seconds.
        high: the wall clock has already shown everything below this wall second; above the segment's
            first wall second it marks a repeated span, below it a gap, and equal to it neither.
    """

    start: int
    end: int
    offset: int
    high: int


class Zone:
    """A named zone: offsets, segments, and local times resolved to instants."""

    __slots__ = ("_blocks", "info", "name")

    def __init__(self, name: str, info: ZoneInfo) -> None:
        self.name = name
        self.info = info
        self._blocks: dict[int, tuple[tuple[int, ...], tuple[Segment, ...]]] = {}

    def segment(self, second: int) -> Segment:
        """The segment that holds the instant `second` (UTC seconds, within the bounds of this module)."""
        number = second // _YEAR
        block = self._blocks.get(number)
        if block is None:
            block = self._blocks[number] = self._probe_block(number)
        starts, segments = block
        return segments[bisect_right(starts, second) - 1]

    def _probe_block(self, number: int) -> tuple[tuple[int, ...], tuple[Segment, ...]]:
        """The segments of one year, cut at its borders; the days before show an overlap that reaches in."""
        begin, end = number * _YEAR, (number + 1) * _YEAR
        spells = self._spells(max(begin - _PROBE, FIRST_SECOND), min(end, LAST_SECOND + DAY_SECONDS))
        ends = [start for start, _ in spells[1:]] + [end]
        segments: list[Segment] = []
        high = spells[0][0] + spells[0][1]
        for (start, offset), until in zip(spells, ends, strict=True):
            if until > begin:
                # At a block's border inside a spell the wall clock has shown everything below it.
                first = max(start, begin)
                seen = high if first == start else max(high, first + offset)
                segments.append(Segment(first, until, offset, seen))
            high = max(high, until + offset)
        return tuple(segment.start for segment in segments), tuple(segments)

    def _spells(self, begin: int, end: int) -> list[tuple[int, int]]:
        """(first second, offset) of every spell between two instants, the first one cut at `begin`."""
        spells = [(begin, self._offset(begin))]
        low = begin
        while low < end:
            high = min(low + _PROBE, end)
            offset = self._offset(high)
            while spells[-1][1] != offset:
                changed_at = self._change_between(max(low, spells[-1][0]), high, spells[-1][1])
                spells.append((changed_at, self._offset(changed_at)))
            low = high
        # What begins exactly at `end` belongs to the next block.
        return [spell for spell in spells if spell[0] < end]

    def _change_between(self, low: int, high: int, offset: int) -> int:
        """The first whole minute after `low` whose offset is no longer `offset`; `high` has another one."""
        while high - low > 60:
            middle = (low + high) // 120 * 60
            if self._offset(middle) == offset:
                low = middle
            else:
                high = middle
        return high

    def _offset(self, second: int) -> int:
        offset = datetime.fromtimestamp(second, self.info).utcoffset()
        return 0 if offset is None else (offset.days * DAY_SECONDS + offset.seconds) // 60 * 60

    def resolve(self, wall: int) -> tuple[int, bool]:
        """The first instant that shows the wall second, and True; in a gap: the end of the gap, and False."""
        segment = self.segment(wall - MARGIN)
        while wall >= segment.end + segment.offset:
            segment = self.segment(segment.end)
        if wall < segment.start + segment.offset:
            return segment.start, False
        return wall - segment.offset, True


@lru_cache(maxsize=1024)
def load_zone(name: str) -> Zone:
    """The zone of that name from the tz database, the same object each time.

    Raises:
        Invalid: no such zone; the message names one that is near.
    """
    try:
        if not name or not name.isascii() or name != name.strip():
            raise ValueError(name)
        return Zone(name, ZoneInfo(name))
    except (ValueError, OSError, KeyError) as error:
        # ZoneInfo raises KeyError (not found), ValueError (path tricks) or OSError (a directory).
        shown = name if len(name) <= 60 else name[:57] + "..."
        hint = _zone_hint(shown)
        raise Invalid(f"unknown time zone {shown!r}: {hint}", hint=hint) from error


def resolve_local(moment: datetime, zone: str) -> Micros:
    """The instant of a naive local time: in a gap the end of the gap, in a repeated span the first pass.

    Raises:
        Invalid: the zone is unknown, or the time is outside the years that a clock can show.
    """
    wall, micros = divmod((moment.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1), SECOND)
    if not FIRST_SECOND < wall - MARGIN < wall + MARGIN < LAST_SECOND:
        raise Invalid(f"the time {moment.isoformat()} is out of range: write a year between 1 and 9998")
    second, exists = load_zone(zone).resolve(wall)
    return second * SECOND + (micros if exists else 0)


def _zone_hint(name: str) -> str:
    """What to write instead of an unknown zone name."""
    known = sorted(available_timezones())
    last_parts = {zone.rpartition("/")[2].lower(): zone for zone in known if "/" in zone}
    wanted = name.strip().lower().replace(" ", "_")
    same = [zone for zone in known if zone.lower() == wanted]
    if not same and wanted in last_parts:
        same = [last_parts[wanted]]
    near = same or difflib.get_close_matches(name.strip(), known, n=1, cutoff=0.6)
    if near:
        return f"did you mean {near[0]}?"
    return "write a name of the tz database, for example Europe/Berlin or UTC"
