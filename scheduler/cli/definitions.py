"""`add`, `edit`, `remove`: definitions of jobs that live in the daemon, not in its files.

A definition is written as in a job file: the table of one job, as TOML or JSON, or a job file with just it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

import click

from scheduler.cli.connection import Reply, segment
from scheduler.cli.screen import Cell, Screen, job_cell
from scheduler.cli.selection import complete_job, explained, for_each
from scheduler.cli.session import Session, client_verb
from scheduler.cli.wording import Json, escape, job_state, moment
from scheduler.errors import Invalid, NotFound, Stale

P = ParamSpec("P")
R = TypeVar("R")


def _file(text: str, *, required: bool) -> Callable[[Callable[P, R]], Callable[P, R]]:
    kind = click.Path(dir_okay=False, allow_dash=True)
    return click.option("--file", "file", required=required, metavar="FILE", type=kind, help=text)


_TABLE: Final = "The table of the job, as TOML or JSON; - is stdin"


@click.command("add")
@click.argument("id")
@_file(f"{_TABLE}.", required=True)
@client_verb
def add_verb(session: Session, id: str, file: str) -> int:
    """Create job ID from the table in FILE."""
    body = {"id": id, "definition": _table(id, file)}
    _show(session.screen, id, session.control.post("/v1/jobs", body).body, "added")
    return 0


@click.command("edit")
@click.argument("id", shell_complete=complete_job)
@_file(f"{_TABLE}; without it $EDITOR is opened.", required=False)
@click.option(
    "--if-match",
    "seen",
    type=int,
    metavar="REVISION",
    help="Only if the definition is still this revision (definition_revision of `show --json`).",
)
@client_verb
def edit_verb(session: Session, id: str, file: str | None, seen: int | None) -> int:
    """Replace the definition of job ID by the table in FILE, or edit it in $EDITOR.

    Its pause and its history stay. What is left as it was in the editor changes nothing, and an edit made
    meanwhile by somebody else is never overwritten.
    """
    definition = None if file is None else _table(id, file)
    path = f"/v1/jobs/{segment(id)}"
    try:
        live = session.control.get(path) if seen is None or definition is None else Reply(body={})
        etag = _etag_of(live) if seen is None else f'"{seen}"'

        def apply(table: Json) -> Json:
            return session.control.put(path, table, etag=etag).body

        answer = _edited(live.body, apply) if definition is None else apply(definition)
    except NotFound as unknown:
        raise explained(session.control, id, unknown) from unknown
    except Stale as stale:
        raise Stale(
            stale.message, hint=stale.hint or f"look at `schedctl show {id}`, change that, edit again"
        ) from stale
    if answer is None:
        session.screen.line(escape(id), "left as it was")
    else:
        _show(session.screen, id, answer, "edited")
    return 0


@click.command("remove")
@click.argument("ids", metavar="JOB...", nargs=-1, required=True, shell_complete=complete_job)
@client_verb
def remove_verb(session: Session, ids: Sequence[str]) -> int:
    """Remove jobs, by their exact ids; a live run finishes, its history stays."""

    def remove(id: str) -> int:
        answer = session.control.delete(f"/v1/jobs/{segment(id)}").body
        _show(session.screen, id, answer, "removed")
        return 0

    return for_each(session, ids, remove)


def _etag_of(live: Reply) -> str:
    return live.etag or f'"{live.body.get("definition_revision")}"'


def _edited(job: Json, apply: Callable[[Json], Json]) -> Json | None:
    from scheduler.cli.editing import edit_in_editor

    return edit_in_editor(job, apply)


def _show(screen: Screen, id: str, answer: Json, done: str) -> None:
    if screen.json_wanted:
        screen.record(answer or {"id": id, "removed": True})
        return
    job = answer["job"] if isinstance(answer.get("job"), dict) else answer
    cells: list[Cell | str] = [escape(id), done]
    if job.get("status") and done != "removed":
        cells.append(job_cell(escape(job_state(job))))
    if job.get("next_fire_at") and done != "removed":
        cells.append(f"next fire {moment(job['next_fire_at'])}")
    screen.line(*cells)


def _table(id: str, file: str) -> Json:
    """The definition in the file, in JSON's values: times are RFC 3339 text.

    Raises:
        Invalid: the file cannot be read, or holds no table of one job.
    """
    name = "stdin" if file == "-" else file
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as bad:
        raise Invalid(f"cannot read {name}: {bad}") from bad
    return parse_table(id, text, name)


def parse_table(id: str, text: str, name: str) -> Json:
    """The definition in the text, in JSON's values.

    Args:
        name: what the text is called in a message.

    Raises:
        Invalid: it holds no table of one job.
    """
    table = _parse(text, name)
    jobs = table.get("jobs")
    if isinstance(jobs, dict):
        if list(jobs) != [id] or len(table) > 1 or not isinstance(jobs[id], dict):
            raise Invalid(f"{name} must hold job {id} alone, it holds: {', '.join(map(str, jobs)) or 'none'}")
        table = jobs[id]
    return table


def _parse(text: str, name: str) -> Json:
    import tomllib

    if text.lstrip().startswith("{"):
        try:
            value = json.loads(text)
        except ValueError as bad:
            raise Invalid(f"{name} is no JSON: {bad}") from bad
    else:
        try:
            value = tomllib.loads(text)
        except tomllib.TOMLDecodeError as bad:
            raise Invalid(f"{name} is no TOML: {bad}") from bad
    table: Json = _plain(value)
    if not table:
        raise Invalid(f"{name} is empty: write the table of one job, as in a job file")
    return table


def _plain(value: Any) -> Any:
    """The value as JSON has it."""
    match value:
        case dict():
            return {key: _plain(part) for key, part in value.items()}
        case list():
            return [_plain(part) for part in value]
        case datetime() | date():
            return value.isoformat()
        case _:
            return value
