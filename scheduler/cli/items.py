"""`items` and `item`: what became of each unit of a batch, and an operator's word on those nobody knows."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

import click

from scheduler.cli.connection import segment
from scheduler.cli.screen import Cell, Column, run_cell
from scheduler.cli.selection import complete_run, run_of
from scheduler.cli.session import Session, client_verb
from scheduler.cli.wording import Json, duration, elapsed, escape, outcome

_STATES: Final = ("pending", "running", "done", "failed", "unknown", "skipped")
_STYLES: Final[Mapping[str, str]] = {
    "running": "green",
    "done": "green",
    "failed": "red",
    "unknown": "bold yellow",
    "skipped": "dim",
}
_GLYPHS: Final[Mapping[str, str]] = {
    "pending": "◌",
    "running": "▶",
    "done": "✓",
    "failed": "✗",
    "unknown": "?",
    "skipped": "-",
}
_COLUMNS: Final = (
    Column("ITEM"),
    Column("STATE", whole=True),
    Column("TRIES", whole=True),
    Column("TOOK", whole=True),
    Column("COST", whole=True),
    Column("WHAT"),
)


@click.command("items")
@click.argument("run", metavar="RUN", shell_complete=complete_run)
@click.option("--state", type=click.Choice(_STATES), help="Only items in this state.")
@click.option("--limit", type=click.IntRange(min=1), default=1_000, help="At most so many (default 1000).")
@client_verb
def items_verb(session: Session, run: str, state: str | None, limit: int) -> int:
    """List the items of a batch run in the order of its list."""
    id = str(run_of(session, run)["id"])
    found = list(session.control.pages(f"/v1/runs/{segment(id)}/items", limit=limit, state=state))
    if session.screen.json_wanted:
        for item in found:
            session.screen.record(item)
    elif session.quiet:
        for item in found:
            session.screen.raw(f"{escape(item['key'])}\n")
    elif not found:
        session.screen.line("no items" if state is None else f"no items that are {state}")
    else:
        session.screen.table(_COLUMNS, [_row(item) for item in found])
    return 0


@click.command("item")
@click.argument("run", metavar="RUN", shell_complete=complete_run)
@click.argument("key", metavar="KEY")
@click.option("--done", "state", flag_value="done", help="Its call had its effect: it is never run again.")
@click.option(
    "--retry", "state", flag_value="pending", help="It had none: `schedctl retry RUN` runs it again."
)
@click.option(
    "--fail",
    "state",
    flag_value="failed",
    help="It is given up: it counts as failed. `schedctl retry RUN` calls failed items again, too;"
    " `--items KEY,...` only those named.",
)
@client_verb
def item_verb(session: Session, run: str, key: str, state: str | None) -> int:
    """Say what became of an item whose outcome is unknown."""
    if state is None:
        raise click.UsageError("say what became of it: --done, --retry or --fail")
    id = str(run_of(session, run)["id"])
    path = f"/v1/runs/{segment(id)}/items/{quote(key, safe='')}"
    answer = session.control.post(path, {"state": state}).body
    if session.screen.json_wanted:
        session.screen.record(answer)
        return 0
    item, after = answer.get("item") or {}, answer.get("run") or {}
    session.screen.line(escape(item.get("key", key)), _state(item))
    session.screen.line(
        f"run {escape(after.get('id', id))}", run_cell(escape(after.get("state", "?")), outcome(after))
    )
    if item.get("state") == "pending" and after.get("state") not in ("queued", "running", "waiting", "held"):
        named = shlex.quote(str(item.get("key", key)))
        session.screen.line(f"`schedctl retry {escape(id)} --items {escape(named)}` runs it again, no other")
    return 0


def _row(item: Json) -> list[Cell]:
    took, cost = elapsed(item), item.get("cost")
    return [
        Cell(escape(item.get("key", "?"))),
        _state(item),
        Cell(escape(item.get("attempts", "?"))),
        Cell("-" if took is None else duration(took)),
        Cell("-" if cost is None else f"{cost:g}"),
        Cell(escape(item.get("error") or "")),
    ]


def _state(item: Json) -> Cell:
    state = escape(item.get("state", "?"))
    return Cell(state, _STYLES.get(state, ""), _GLYPHS.get(state, "?"))
