"""Runs as rows of a table, for every verb that lists some."""

from __future__ import annotations

from scheduler.cli.screen import Cell, Column, run_cell
from scheduler.cli.wording import (
    Json,
    brief,
    duration,
    elapsed,
    escape,
    instant,
    outcome,
    progress,
    relative,
)

RUN_COLUMNS = (
    Column("RUN", whole=True),
    Column("STATE", whole=True),
    Column("FIRE TIME"),
    Column("TOOK", whole=True),
    Column("WHAT"),
)


def run_row(run: Json) -> list[Cell]:
    """A run as a row of a table with `RUN_COLUMNS`."""
    fired = instant(run.get("fire_time"))
    began = instant(run.get("started_at")) or instant(run.get("queued_at"))
    took = elapsed(run)
    due = brief(fired) if fired is not None else f"{escape(run.get('trigger', ''))}"
    when = f"{due} ({relative(fired or began or 0)})" if fired or began else due
    said = [progress(run) if run.get("state") in ("running", "waiting", "held") else "", outcome(run)]
    return [
        Cell(escape(run.get("id", "?"))),
        run_cell(escape(run.get("state", "?"))),
        Cell(when),
        Cell("-" if took is None else duration(took)),
        Cell(", ".join(part for part in said if part)),
    ]
