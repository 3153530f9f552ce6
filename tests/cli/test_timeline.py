"""The picture of the last runs: marks, their lengths, and the text beside them."""

from __future__ import annotations

from typing import Any

from tests.cli.conftest import Schedctl
from tests.cli.support.builders import job, run
from tests.cli.support.client import call_on_terminal
from tests.cli.support.stub import StubDaemon


def took(seconds: int, number: int, **changes: Any) -> dict[str, Any]:
    times = {
        "started_at": "2026-10-01T00:00:00+00:00",
        "finished_at": f"2026-10-01T00:{seconds // 60:02}:{seconds % 60:02}+00:00",
    }
    return run(f"0193f2c4-7a1b-7abc-8000-{number:012x}", **{**times, **changes})


def picture(out: str) -> tuple[str, str]:
    """The line of marks and the line of text."""
    lines = out.splitlines()
    at = next(index for index, line in enumerate(lines) if "oldest first" in line)
    return lines[at - 1], lines[at]


def test_each_run_is_a_mark_oldest_first_as_long_as_it_took(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """The glyph tells the outcome; the longest run is the longest mark."""
    daemon.jobs(job())
    daemon.runs(took(70, 3), took(10, 2, state="failed"), took(0, 1, state="skipped", started_at=None))

    marks, text = picture(schedctl("show", "nightly").out)

    skipped, failed, succeeded = marks.split()
    assert (skipped, failed, succeeded) == ("-", "✗━", "✓━━━━━━━")
    assert "1 skipped, 1 failed, 1 succeeded; half took at most 10 s, " in text
    assert "the longest 1 min" in text


def test_a_pipe_gets_no_colour_and_a_terminal_does(daemon: StubDaemon, environ: dict[str, str]) -> None:
    """With NO_COLOR the same marks without colour."""
    daemon.jobs(job())
    daemon.runs(took(70, 2), took(10, 1, state="failed"))

    shown = call_on_terminal("show", "nightly", env=environ, width=100)
    plain = call_on_terminal("show", "nightly", env={**environ, "NO_COLOR": "1"}, width=100)

    assert "\x1b[31m✗━" in shown.out
    assert picture(shown.plain)[0].strip() == picture(plain.plain)[0].strip() == "✗━ ✓━━━━━━━"
    assert "\x1b[31m" not in plain.out


def test_many_runs_fit_a_narrow_terminal(daemon: StubDaemon, environ: dict[str, str]) -> None:
    """Marks get shorter first; then the oldest are left out."""
    daemon.jobs(job())
    daemon.runs(*(took(30, number) for number in range(40, 0, -1)))

    marks = picture(call_on_terminal("show", "nightly", env=environ, width=90).plain)[0].split()
    few = picture(call_on_terminal("show", "nightly", env=environ, width=50).plain)[0].split()

    assert len(marks) == 40
    assert len(few) == 25
