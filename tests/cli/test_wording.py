from __future__ import annotations

import time
import unicodedata
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.cli import wording
from scheduler.cli.wording import (
    brief,
    duration,
    elapsed,
    escape,
    escape_lines,
    instant,
    local,
    moment,
    outcome,
    progress,
    relative,
    schedule,
)
from scheduler.clock import DAY, HOUR, MINUTE, SECOND, Micros, to_micros

NOW = 1_790_000_000 * SECOND  # 2026-09-21T14:13:20Z


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The local zone is Berlin and the time stands still."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    monkeypatch.setattr(wording, "now", lambda: NOW)
    yield
    monkeypatch.undo()
    time.tzset()


@given(st.text())
def test_escaped_text_has_no_control_character(text: str) -> None:
    """No control, no line separator, no mark that reorders, no half of a code point is left."""
    for shown in (escape(text), escape_lines(text).replace("\n", "").replace("\t", "")):
        kinds = {unicodedata.category(character) for character in shown}
        assert not kinds & {"Cc", "Cs", "Zl", "Zp"}
        assert not set(shown) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ✓ grün", "plain ✓ grün"),
        ("a\nb\tc\rd", "a\\nb\\tc\\rd"),
        ("\x1b[2J", "\\e[2J"),
        ("\x00\x7f\x9b", "\\x00\\x7f\\x9b"),
        ("\u202e\ud800", "\\u202e\\ud800"),
    ],
)
def test_escapes_are_readable(text: str, shown: str) -> None:
    """Common ones by name, the others by number."""
    assert escape(text) == shown


@pytest.mark.parametrize(
    ("length", "said"),
    [
        (0, "0 s"),
        (300_000, "300 ms"),
        (12 * SECOND, "12 s"),
        (4 * MINUTE + 59 * SECOND, "4 min"),
        (3 * HOUR, "3 h"),
        (3 * HOUR + 20 * MINUTE, "3 h 20 min"),
        (5 * DAY + 2 * HOUR, "5 d 2 h"),
        (90 * DAY + 2 * HOUR, "90 d"),
        (-5, "0 s"),
    ],
)
def test_durations_say_what_matters(length: Micros, said: str) -> None:
    """One or two units."""
    assert duration(length) == said


@pytest.mark.parametrize(
    ("away", "said"),
    [(4 * MINUTE, "in 4 min"), (-3 * HOUR, "3 h ago"), (0, "now"), (-SECOND // 2, "now")],
)
def test_relative_times_name_their_direction(away: Micros, said: str) -> None:
    """Ahead or ago."""
    assert relative(NOW + away) == said


def test_times_are_local_with_their_offset() -> None:
    """The zone of this machine, whatever zone they came in; without the date where it is today."""
    assert moment("2026-09-21T14:17:20Z") == "2026-09-21 16:17:20+02:00 (in 4 min)"
    assert local(NOW + 250_123) == "2026-09-21 16:13:20+02:00"
    assert local(NOW + 250_000) == "2026-09-21 16:13:20.250+02:00"
    assert brief(NOW + MINUTE) == "16:14:20+02:00"
    assert brief(NOW + DAY) == "2026-09-22 16:13+02:00"
    assert moment(None) == "-"


def test_what_is_no_time_is_no_instant() -> None:
    """A missing, malformed or zoneless time is None, never an error."""
    assert instant("2026-09-21T16:13:20+02:00") == NOW
    assert [instant(value) for value in (None, 5, "soon", "2026-09-21T14:13:20")] == [None] * 4


def test_progress_says_what_is_known() -> None:
    """Numbers where there are some, the message as it is."""
    assert progress({"progress": {"done": 3, "total": 10, "failed": 1, "unknown": 0, "message": "x"}}) == (
        "3/10, 1 failed: x"
    )
    assert progress({"progress": {"done": 3, "total": None, "message": None}}) == "3 done"
    assert progress({"progress": {"done": None, "message": "x"}}) == "x"
    assert progress({"progress": None}) == ""


def test_outcome_says_reason_exit_and_message() -> None:
    """A success says nothing more."""
    assert outcome({"reason": None, "exit_code": 0, "count": 1}) == ""
    assert outcome({"reason": "exit_code", "exit_code": 3, "message": "m"}) == "exit_code, exit 3: m"
    said = {"reason": "exit_code", "exit_code": 3, "message": "exited with code 3"}
    assert outcome(said) == "exit_code: exited with code 3"
    assert outcome({"reason": "signal", "signal": 9}) == "signal, signal 9"
    assert outcome({"reason": "paused", "count": 12}) == "paused, 12 fire times"


def test_elapsed_counts_to_now_and_is_never_negative() -> None:
    """A run that never started has none; a clock that was set back gives zero."""
    assert elapsed({"started_at": "2026-09-21T14:12:20Z"}) == MINUTE
    assert elapsed({"started_at": "2026-09-21T15:00:00Z"}) == 0
    assert elapsed({"started_at": None}) is None


@pytest.mark.parametrize(
    ("trigger", "said"),
    [
        (
            {"kind": "cron", "cron": "30 2 * * *", "timezone": "Europe/Berlin"},
            "cron 30 2 * * * Europe/Berlin",
        ),
        ({"kind": "every", "every": 900}, "every 15 min"),
        ({"kind": "delay", "delay": 90.5}, "delay 90.5 s"),
        ({"kind": "at", "at": "2027-01-01T09:00:00+01:00"}, "at 2027-01-01T09:00:00+01:00"),
        ({"kind": "manual"}, "manual"),
        (None, "-"),
    ],
)
def test_schedules_read_as_they_are_written(trigger: object, said: str) -> None:
    """Kind, then what it says; numbers of seconds as durations."""
    assert schedule(trigger) == said


def test_now_is_the_machines_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon's clock is the same one."""
    monkeypatch.undo()

    assert abs(wording.now() - to_micros(datetime.now(UTC))) < 5 * SECOND
