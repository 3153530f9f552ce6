"""Durations as people write them: `500ms 90s 15m 2h 1d 1h30m`, or a number of seconds.

Inside, a duration is an integer number of microseconds; this is the only place that reads or writes the
text. A minute is 60 seconds and a day 24 hours of elapsed time, whatever a wall clock does.
"""

from __future__ import annotations

import difflib
import math
import re
from decimal import Decimal, InvalidOperation
from typing import Final

from scheduler.clock import DAY, HOUR, MILLISECOND, MINUTE, SECOND, Micros
from scheduler.errors import Invalid

LONGEST: Final[Micros] = 36_525 * DAY
"""A hundred years: anything longer is a slip of the keyboard."""

_UNITS: Final = {"d": DAY, "h": HOUR, "m": MINUTE, "s": SECOND, "ms": MILLISECOND, "us": 1}
_ORDER: Final = tuple(_UNITS)
_SPELLED: Final = {
    "day": "d", "days": "d", "hour": "h", "hours": "h", "hr": "h", "hrs": "h",
    "min": "m", "mins": "m", "minute": "m", "minutes": "m",
    "sec": "s", "secs": "s", "second": "s", "seconds": "s",
    "msec": "ms", "millis": "ms", "millisecond": "ms", "milliseconds": "ms",
    "usec": "us", "micros": "us", "microsecond": "us", "microseconds": "us", "µs": "us",
}  # fmt: skip
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([^0-9.\s]+)")
_PLAIN: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_MAX_TEXT: Final = 100
_EXAMPLES: Final = "write for example 500ms, 90s, 15m, 2h, 1d or 1h30m, or a number of seconds"


def parse_duration(value: str | float) -> Micros:
    """The duration in microseconds, 0 to a hundred years; a bare number means seconds.

    Raises:
        Invalid: not a duration; the message says what to write.
    """
    if isinstance(value, bool):
        raise _bad(value, _EXAMPLES)
    if isinstance(value, str):
        duration = _from_text(value)
    elif isinstance(value, int):
        duration = value * SECOND
    elif math.isfinite(value):
        duration = round(Decimal(repr(value)) * SECOND)
    else:
        raise _bad(value, "a duration is a finite number")
    if duration < 0:
        raise _bad(value, "a duration cannot be negative")
    if duration > LONGEST:
        raise _bad(value, "longer than a hundred years")
    return duration


def format_duration(duration: Micros) -> str:
    """The shortest text that `parse_duration` reads back as the same duration."""
    if duration == 0:
        return "0s"
    if duration < 0:
        return "-" + format_duration(-duration)
    text, rest = "", duration
    for unit, size in _UNITS.items():
        count, rest = divmod(rest, size)
        text += f"{count}{unit}" if count else ""
    return text


def _from_text(text: str) -> Micros:
    """The sum of the parts of a text; units come from large to small, each once."""
    stripped = text.strip()
    if not stripped or len(stripped) > _MAX_TEXT:
        raise _bad(text, _EXAMPLES)
    if _PLAIN.fullmatch(stripped):
        return _whole(Decimal(stripped) * SECOND, text)
    if stripped.startswith("-"):
        raise _bad(text, "a duration cannot be negative")
    total, position, last = Decimal(0), 0, -1
    while position < len(stripped):
        part = _PART.match(stripped, position)
        if part is None:
            raise _bad(text, _EXAMPLES)
        unit = part[2]
        if unit not in _UNITS:
            raise _bad(text, _unit_help(unit))
        if _ORDER.index(unit) <= last:
            raise _bad(text, "write the units from large to small, each once, for example 1h30m")
        total += Decimal(part[1]) * _UNITS[unit]
        position, last = part.end(), _ORDER.index(unit)
    return _whole(total, text)


def _whole(micros: Decimal, text: str) -> Micros:
    try:
        whole = int(micros)
    except (InvalidOperation, OverflowError) as error:
        raise _bad(text, "longer than a hundred years") from error
    if whole != micros:
        raise _bad(text, "finer than a microsecond")
    return whole


def _unit_help(unit: str) -> str:
    known = _SPELLED.get(unit.lower()) or (unit.lower() if unit.lower() in _UNITS else None)
    if known is None:
        near = difflib.get_close_matches(unit.lower(), [*_UNITS, *_SPELLED], n=1)
        known = _SPELLED.get(near[0], near[0]) if near else None
    if known is not None:
        return f"unknown unit {unit!r}: write {known}"
    return f"unknown unit {unit[:20]!r}: units are {', '.join(_ORDER)}"


def _bad(value: object, why: str) -> Invalid:
    shown = repr(value)
    return Invalid(f"bad duration {shown if len(shown) <= 60 else shown[:57] + '...'}: {why}")
