from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime

import click
import pytest

from scheduler.cli.parameters import Duration, Moment
from scheduler.clock import HOUR, MINUTE, SECOND, to_micros

NOW = to_micros(datetime.fromisoformat("2026-10-01T03:00:00+02:00"))


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Three at night in Berlin."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    monkeypatch.setattr("scheduler.cli.parameters.now", lambda: NOW)
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-10-01T02:30:00+02:00", "2026-10-01T02:30:00+02:00"),
        ("2026-10-01T00:30Z", "2026-10-01T02:30:00+02:00"),
        ("2026-10-01 02:30", "2026-10-01T02:30:00+02:00"),
        ("2026-10-01", "2026-10-01T00:00:00+02:00"),
        ("02:30", "2026-10-01T02:30:00+02:00"),
        ("03:00", "2026-10-01T03:00:00+02:00"),
        ("23:59", "2026-09-30T23:59:00+02:00"),
    ],
)
def test_moments_without_an_offset_are_local(text: str, at: str) -> None:
    """A time of day is the last time that the clock showed it."""
    assert Moment().convert(text, None, None) == to_micros(datetime.fromisoformat(at))


def test_a_time_ago_counts_back_from_now() -> None:
    """Only where it makes sense."""
    assert Moment(ago=True).convert("2h", None, None) == NOW - 2 * HOUR
    with pytest.raises(click.UsageError, match="is no time"):
        Moment().convert("2h", None, None)


@pytest.mark.parametrize(
    ("text", "length"),
    [("90s", 90 * SECOND), ("1h30m", 90 * MINUTE), ("0.5", SECOND // 2), ("10", 10 * SECOND)],
)
def test_durations_are_those_of_job_files(text: str, length: int) -> None:
    """A bare number means seconds."""
    assert Duration().convert(text, None, None) == length


@pytest.mark.parametrize("text", ["", "0", "soon", "-5s", "5 parsecs"])
def test_what_is_no_duration_says_what_to_write(text: str) -> None:
    """It is a usage error."""
    with pytest.raises(click.UsageError):
        Duration().convert(text, None, None)
