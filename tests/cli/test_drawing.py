"""The live screen on a narrow terminal: what an operator must see is not what gives way."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from scheduler.cli.drawing import Picture, draw
from scheduler.cli.looking import Look
from tests.cli.support.builders import RUN, job, run


def shown(width: int) -> list[str]:
    """The screen of a daemon with a long failure and a long progress, line by line."""
    failure = run(RUN, job="nightly-export-of-orders", state="failed", message="no luck " * 20)
    live = run(job="words", state="running", finished_at=None, progress={"done": 1, "message": "page " * 30})
    look = Look(
        status={"health": {"ok": True}},
        jobs=[job("nightly-export-of-orders", last_run=failure)],
        live=[live],
        failures=[failure],
        is_cut=False,
    )
    console = Console(file=io.StringIO(), width=width, height=30)
    console.print(draw(Picture(look=look, chosen=None, message="", style="", trouble=""), 30))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [60, 80])
def test_a_failure_says_which_job_failed_and_when(width: int) -> None:
    """Only the reason is cut; each row stays one line, and the last key is not lost."""
    lines = shown(width)

    [failure] = [line for line in lines if "no luck" in line]
    assert failure.split()[:3] == ["nightly-export-of-orders", "✗", "failed"]
    assert "d ago" in failure
    assert failure.rstrip().endswith("…")
    assert sum("page" in line for line in lines) == 1
    assert lines[-1].rstrip().endswith("q quit")
