"""`status`: how the daemon is."""

from __future__ import annotations

import click

from scheduler.cli.screen import Cell
from scheduler.cli.session import Session, client_verb
from scheduler.cli.wording import Json, duration, escape
from scheduler.clock import SECOND


@click.command("status")
@client_verb
def status_verb(session: Session) -> int:
    """Tell how the daemon is: version, uptime, counts, and the health of its store and loop."""
    status = session.control.get("/v1/status").body
    if session.screen.json_wanted:
        session.screen.record(status)
        return 0
    if status.get("draining"):
        session.screen.line(Cell("draining: it starts nothing new and will stop", "yellow"))
    if status.get("paused"):
        session.screen.line(Cell("paused: no job fires", "yellow"))
    session.screen.facts([(escape(key.replace("_", " ")), _said(key, status[key])) for key in status])
    return 0


def _said(key: str, value: object) -> str:
    if key == "uptime" and isinstance(value, int | float):
        return duration(round(value * SECOND))
    if isinstance(value, dict):
        return ", ".join(f"{escape(name)} {_plain(part)}" for name, part in value.items()) or "-"
    return _plain(value)


def _plain(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case dict():
            inner: Json = value
            return "(" + ", ".join(f"{escape(name)} {_plain(part)}" for name, part in inner.items()) + ")"
        case _:
            return escape(value)
