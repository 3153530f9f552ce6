"""Zones as segments of one offset, against the tz database itself."""

import struct
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from zoneinfo import TZPATH, available_timezones

import pytest

from scheduler.errors import Invalid
from scheduler.model.zones import DAY_SECONDS, load_zone

SINCE, UNTIL = 2 * 365 * DAY_SECONDS, 2_100_000_000  # 1972, from when offsets are whole minutes, to 2036
# The shortest spells there are, odd changes, and a part of all the others.
ZONES = sorted(
    {
        "America/Boa_Vista",
        "America/Noronha",
        "Africa/Casablanca",
        "Pacific/Apia",
        "Australia/Lord_Howe",
        "UTC",
    }
    | set(sorted(zone for zone in available_timezones() if "/" in zone)[::9])
)


def _data(name: str) -> bytes:
    for folder in TZPATH:
        path = Path(folder) / name
        if path.is_file():
            return path.read_bytes()
    return files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()


def _changes(name: str) -> list[tuple[int, int]]:
    """(second, new offset) of every change that the database lists, read from its file (RFC 8536)."""
    data = _data(name)

    def counts(at: int) -> tuple[int, ...]:
        return struct.unpack(">6l", data[at + 20 : at + 44])

    is_utc, is_std, leaps, times, types, chars = counts(0)
    second_header = 44 + times * 5 + types * 6 + chars + leaps * 8 + is_std + is_utc
    _, _, _, times, types, _ = counts(second_header)
    at = second_header + 44
    seconds = struct.unpack(f">{times}q", data[at : at + 8 * times])
    numbers = data[at + 8 * times : at + 9 * times]
    at += 9 * times
    offsets = [struct.unpack(">l", data[at + 6 * n : at + 6 * n + 4])[0] for n in range(types)]
    spells = [(second, offsets[number]) for second, number in zip(seconds, numbers, strict=True)]
    return [spell for before, spell in pairwise(spells) if before[1] != spell[1]]


@pytest.mark.parametrize("name", ZONES)
def test_every_change_of_the_database_is_a_border(name: str) -> None:
    """The segments change exactly where the database says, and to the offset that it says."""
    zone = load_zone(name)
    found, segment = [], zone.segment(SINCE)
    listed = _changes(name)
    end = min(UNTIL, listed[-1][0] + 1 if listed else UNTIL)
    while segment.end < end:
        following = zone.segment(segment.end)
        if following.offset != segment.offset:
            found.append((following.start, following.offset))
        segment = following

    assert found == [change for change in listed if SINCE < change[0] < end]


def test_border_says_what_the_wall_clock_has_shown() -> None:
    """A gap, a repeated span and the border of a year differ in `high` alone."""
    zone = load_zone("Europe/Berlin")
    spring, autumn = 1_774_746_000, 1_792_890_000  # 2026-03-29 and 2026-10-25, 01:00 UTC

    gap, repeated = zone.segment(spring), zone.segment(autumn)

    assert (gap.start, gap.offset, gap.start + gap.offset - gap.high) == (spring, 7_200, 3_600)
    assert (repeated.start, repeated.offset) == (autumn, 3_600)
    assert repeated.high - (repeated.start + repeated.offset) == 3_600
    border = zone.segment(zone.segment(autumn).end)
    assert border.high == border.start + border.offset


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Berlin", "Europe/Berlin"),
        ("europe/berlin", "Europe/Berlin"),
        ("new york", "America/New_York"),
        ("Europe/Berlim", "Europe/Berlin"),
        ("Europe", "did you mean|for example"),
        ("", "for example"),
        ("../../etc/passwd", "unknown time zone"),
        ("/etc/localtime", "unknown time zone"),
        ("Zürich", "unknown time zone"),
        ("UTC\0", "unknown time zone"),
        (" UTC", "UTC"),
        ("x" * 5_000, "unknown time zone"),
    ],
)
def test_unknown_zone_is_refused_with_a_hint(name: str, hint: str) -> None:
    """No text but a name of the database is a zone, and the refusal helps."""
    with pytest.raises(Invalid, match=hint):
        load_zone(name)
