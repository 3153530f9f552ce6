"""Durations as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.clock import DAY, HOUR, MILLISECOND, MINUTE, SECOND
from scheduler.errors import Invalid
from scheduler.model.durations import LONGEST, format_duration, parse_duration


@pytest.mark.parametrize(
    ("value", "duration"),
    [
        ("500ms", 500 * MILLISECOND),
        ("90s", 90 * SECOND),
        ("15m", 15 * MINUTE),
        ("2h", 2 * HOUR),
        ("1d", DAY),
        ("1h30m", 90 * MINUTE),
        ("1d2h3m4s5ms6us", DAY + 2 * HOUR + 3 * MINUTE + 4 * SECOND + 5 * MILLISECOND + 6),
        ("1.5h", 90 * MINUTE),
        (" 10s ", 10 * SECOND),
        ("0", 0),
        ("0s", 0),
        ("90", 90 * SECOND),
        ("0.25", SECOND // 4),
        (90, 90 * SECOND),
        (0, 0),
        (0.1, 100 * MILLISECOND),
        (33.333333, 33_333_333),
        (1e-6, 1),
        (36_525 * 86_400, LONGEST),
    ],
)
def test_duration_is_read_exactly(value: str | float, duration: int) -> None:
    """Texts and numbers give whole microseconds without float drift."""
    assert parse_duration(value) == duration


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("", "write for example"),
        ("soon", "write for example"),
        ("-5s", "cannot be negative"),
        (-1, "cannot be negative"),
        (-0.5, "cannot be negative"),
        (float("nan"), "finite"),
        (float("inf"), "finite"),
        ("inf", "write for example"),
        ("NaN", "write for example"),
        (True, "write for example"),
        (False, "write for example"),
        ("37000d", "hundred years"),
        (10**30, "hundred years"),
        (1e300, "hundred years"),
        ("9" * 99, "hundred years"),
        ("9" * 200, "write for example"),
        ("5min", "write m"),
        ("5 minutes", "write for example"),
        ("2hours", "write h"),
        ("3S", "write s"),
        ("3secnds", "write s"),
        ("1w", "units are d, h, m, s, ms, us"),
        ("30m1h", "from large to small"),
        ("1h1h", "from large to small"),
        ("1h30", "write for example"),
        ("1e3s", "unknown unit"),
        ("1.0000001s", "finer than a microsecond"),
        ("٣s", "write for example"),
    ],
)
def test_fault_is_told_with_what_to_write(value: str | float, told: str) -> None:
    """Anything else is refused as `Invalid`, with a hint."""
    with pytest.raises(Invalid, match="bad duration") as refused:
        parse_duration(value)

    assert told in refused.value.message


@given(st.integers(0, LONGEST))
def test_formatted_duration_reads_back(duration: int) -> None:
    """What is written is read back as the same duration."""
    assert parse_duration(format_duration(duration)) == duration


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (0, "0s"),
        (90 * SECOND, "1m30s"),
        (DAY, "1d"),
        (1_500 * MILLISECOND, "1s500ms"),
        (-HOUR, "-1h"),
        (7, "7us"),
    ],
)
def test_format_is_the_largest_units_first(duration: int, text: str) -> None:
    """Only units that have a value are written."""
    assert format_duration(duration) == text
