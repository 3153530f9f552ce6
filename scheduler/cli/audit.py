"""`audit`: who did what to a job, when, and from which process."""

from __future__ import annotations

import json
import re
from typing import Final

import click

from scheduler.cli.connection import segment
from scheduler.cli.screen import Cell, Column
from scheduler.cli.selection import complete_job, explained
from scheduler.cli.session import Session, client_verb
from scheduler.cli.wording import Json, escape, moment
from scheduler.errors import NotFound

_COLUMNS = (Column("WHEN"), Column("VERB", whole=True), Column("BY"), Column("DETAIL"))
_PYTHON: Final = re.compile(r"(?:.*/)?python[0-9.]*")


@click.command("audit")
@click.argument("job", shell_complete=complete_job)
@click.option("--limit", type=click.IntRange(min=1), default=50, help="At most so many entries (default 50).")
@client_verb
def audit_verb(session: Session, job: str, limit: int) -> int:
    """List what operators, and the daemon in their place, did to JOB; newest first."""
    try:
        entries = list(session.control.pages(f"/v1/jobs/{segment(job)}/audit", limit=limit))
    except NotFound as unknown:
        raise explained(session.control, job, unknown) from unknown
    if session.screen.json_wanted:
        for entry in entries:
            session.screen.record(entry)
    elif not entries:
        session.screen.line("nothing was done to it")
    else:
        session.screen.table(_COLUMNS, [_row(entry) for entry in entries])
    return 0


def _row(entry: Json) -> list[Cell]:
    return [
        Cell(moment(entry.get("at"))),
        Cell(escape(entry.get("verb", "?"))),
        Cell(_by(entry.get("by"))),
        Cell(_detail(entry)),
    ]


def _by(by: object) -> str:
    """`uid 1000, pid 4711: schedctl pause x`; a daemon's own deed names the daemon."""
    if not isinstance(by, dict):
        return escape(by or "?")
    numbers = ", ".join(f"{key} {by[key]}" for key in ("uid", "gid", "pid") if by.get(key) is not None)
    return escape(f"{numbers}: {_called(str(by['command']))}" if by.get("command") else numbers)


def _called(command: str) -> str:
    """The command line as somebody typed it: the program's name alone, without the interpreter before it."""
    program, _, rest = command.partition(" ")
    if _PYTHON.fullmatch(program) and rest and not rest.startswith("-"):
        program, _, rest = rest.partition(" ")
    return " ".join(part for part in (program.rpartition("/")[2], rest) if part)


def _detail(entry: Json) -> str:
    detail = entry.get("detail")
    run = f"run {entry['run']}" if entry.get("run") else ""
    if isinstance(detail, dict):
        said = ", ".join(
            f"{key} {value if isinstance(value, str) else json.dumps(value)}"
            for key, value in detail.items()
            if value not in (None, "")
        )
    else:
        said = str(detail or "")
    return escape(", ".join(part for part in (run, said) if part))
