"""`status`: how the daemon is."""

from __future__ import annotations

import click

from scheduler.cli.problems import faults_of
from scheduler.cli.screen import Cell, Screen
from scheduler.cli.session import Session, client_verb
from scheduler.cli.wording import Json, duration, escape, moment, pause_text
from scheduler.clock import SECOND


@click.command("status")
@client_verb
def status_verb(session: Session) -> int:
    """Tell how the daemon is: version, uptime, jobs and runs, health, and faults of its job files."""
    status = session.control.get("/v1/status").body
    if session.screen.json_wanted:
        session.screen.record(status)
    else:
        _show(session.screen, status)
    return 0


def _show(screen: Screen, status: Json) -> None:
    health, paused = status.get("health") or {}, status.get("paused")
    screen.line(
        Cell("schedulerd", "bold"),
        escape(status.get("version", "?")),
        Cell("healthy", "green") if health.get("ok") else Cell("not healthy", "bold red"),
    )
    counts = status.get("counts") or {}
    screen.facts(
        [
            (
                "draining",
                Cell("it starts nothing new", "yellow") if status.get("draining") else "",
            ),
            ("paused", Cell(pause_text(paused), "yellow") if isinstance(paused, dict) else ""),
            ("process", escape(f"pid {status.get('pid', '?')}, instance {status.get('instance', '?')}")),
            ("started", moment(status.get("started_at"))),
            ("jobs", _counted(counts.get("jobs"))),
            ("runs", _counted(counts.get("runs"))),
            ("store", "" if health.get("store_ok", True) else Cell("cannot be written", "bold red")),
            ("last tick", _ago(health.get("last_tick_age"))),
            ("leases renewed", _ago(health.get("last_renewal_age"))),
            ("loop lag", _length(health.get("loop_lag"))),
        ]
    )
    for fault in faults_of(status.get("faults")):
        screen.line(Cell("fault", "red"), escape(fault))


def _counted(counts: object) -> str:
    """`3 active, 1 paused`, `none`; `?` where the daemon could not count."""
    if not isinstance(counts, dict):
        return "?"
    return escape(", ".join(f"{count} {word}" for word, count in counts.items() if count)) or "none"


def _ago(age: object) -> str:
    said = _length(age)
    return f"{said} ago" if said else "never"


def _length(seconds: object) -> str:
    return duration(round(seconds * SECOND)) if isinstance(seconds, int | float) else ""
