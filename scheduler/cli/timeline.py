"""The last runs of a job as a small picture: a mark for each, oldest first, the longer the longer it took.

The glyph tells the outcome, a terminal's colour says it again, and a line of text beside it counts and
measures, so nothing is told by colour or shape alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median_low
from typing import Final

from scheduler.cli.screen import Cell, Screen
from scheduler.cli.wording import RUN_GLYPHS, STYLES, Json, duration, elapsed, escape

_LONGEST: Final = 8
"""Columns of the run that took longest; others take their share of it, at least one."""

_LINE: Final = "━"


def draw_timeline(screen: Screen, newest_first: Sequence[Json]) -> None:
    """The picture and its text stand on the screen; nothing where there are no runs."""
    runs = list(reversed(newest_first))
    if not runs:
        return
    marks = _marks(runs, _LONGEST)
    if screen.width is not None:
        marks = _fitting(runs, screen.width)
    screen.line(*marks)
    screen.line(Cell(summary(runs[-len(marks) :]), "dim"))


def summary(runs: Sequence[Json]) -> str:
    """`12 runs, oldest first: 10 succeeded, 2 failed; half took under 3 s, the longest 1 min`."""
    counts = Counter(str(run.get("state", "?")) for run in runs)
    said = ", ".join(f"{number} {state}" for state, number in counts.most_common())
    noun = "run" if len(runs) == 1 else "runs, oldest first"
    took = [length for run in runs if run.get("finished_at") and (length := elapsed(run)) is not None]
    if len(took) < 2:
        return escape(f"{len(runs)} {noun}: {said}")
    times = f"half took at most {duration(median_low(took))}, the longest {duration(max(took))}"
    return escape(f"{len(runs)} {noun}: {said}; {times}")


def _marks(runs: Sequence[Json], columns: int) -> list[Cell]:
    """The glyph of each outcome, drawn out to the run's share of the longest, which takes `columns`."""
    longest = max((elapsed(run) or 0 for run in runs), default=0)
    return [_mark(run, (elapsed(run) or 0) / longest if longest else 0, columns) for run in runs]


def _mark(run: Json, share: float, columns: int) -> Cell:
    state = str(run.get("state", "?"))
    return Cell(RUN_GLYPHS.get(state, "?") + _LINE * round(share * (columns - 1)), STYLES.get(state, ""))


def _fitting(runs: Sequence[Json], width: int) -> list[Cell]:
    """The marks on one line: shorter where there are many, and only the newest where that is not enough."""
    for columns in range(_LONGEST, 0, -1):
        marks = _marks(runs, columns)
        if sum(len(mark.text) + 1 for mark in marks) <= width:
            return marks
    return _marks(runs, 1)[-max(width // 2, 1) :]
