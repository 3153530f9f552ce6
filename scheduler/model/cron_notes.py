"""Says what may surprise about a cron expression that is read and will fire.

A note is no fault: the expression does what crontab(5) says, but perhaps not what its author meant.
"""

from __future__ import annotations

from collections.abc import Iterator

from scheduler.model.cron_parse import ALIASES, DAY, HOUR, MINUTE, MONTH, SECOND, WEEKDAY, Field

_FIELDS = (SECOND, MINUTE, HOUR, DAY, MONTH, WEEKDAY)


def cron_notes(expression: str) -> list[str]:
    """What may surprise about an expression that `parse_cron` accepts, one sentence each."""
    words = ALIASES.get(expression.strip(" \t"), expression).split()
    fields = _FIELDS[-len(words) :]
    notes = [note for field, word in zip(fields, words, strict=True) for note in _step_notes(field, word)]
    day, weekday = words[-3], words[-1]
    if not day.startswith("*") and not weekday.startswith("*"):
        notes.append(
            f"day-of-month {day!r} and day-of-week {weekday!r}: both are restricted, so either one is enough"
        )
    elif day != "*" and weekday != "*":
        notes.append(
            f"day-of-month {day!r} and day-of-week {weekday!r}: one begins with *, so both must match"
        )
    return notes


def _step_notes(field: Field, word: str) -> Iterator[str]:
    """Steps that never take a second value, and steps that do not come out even."""
    size = field.high - field.low + 1
    for element in word.split(","):
        span, slash, step = element.partition("/")
        if not slash or span != "*":
            continue
        if int(step) >= size:
            yield f"{field.name} {element!r}: the step is as large as the range, so only {field.low} matches"
        elif field in (SECOND, MINUTE, HOUR) and size % int(step):
            yield f"{field.name} {element!r}: {size} is no multiple of {step}, so the last span is shorter"
