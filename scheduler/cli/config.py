"""`reload` and `check`: job files, as the daemon reads them and as they stand."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import click

from scheduler.cli.problems import fault_json, faults_of
from scheduler.cli.screen import Cell, warn
from scheduler.cli.session import Session, client_verb, daemon_user, own_user
from scheduler.cli.wording import escape
from scheduler.errors import Fault


@click.command("reload")
@client_verb
def reload_verb(session: Session) -> int:
    """Let the daemon read its job files again; a file with faults keeps its old jobs, exit code 1."""
    answer = session.control.post("/v1/reload").body
    faults = faults_of(answer.get("faults"))
    if session.screen.json_wanted:
        session.screen.record(answer)
        return 1 if faults else 0
    for change in ("added", "changed", "removed"):
        for id in answer.get(change) or []:
            session.screen.line(change, escape(id))
    kept = answer.get("kept") or []
    session.screen.line("unchanged", str(int(answer.get("unchanged") or 0) - len(kept)))
    if kept:
        session.screen.line("kept as it was ", escape(", ".join(kept)))
    for fault in faults:
        warn(escape(fault))
    return 1 if faults else 0


@click.command("check")
@click.option(
    "--config", metavar="FILE", type=click.Path(path_type=Path), help="The daemon's scheduler.toml."
)
@click.option(
    "--jobs",
    metavar="DIR",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A folder of job files instead of the configured ones; may be repeated.",
)
@click.argument("files", nargs=-1, metavar="", type=click.Path(path_type=Path))
@client_verb
def check_verb(session: Session, config: Path | None, jobs: tuple[Path, ...], files: tuple[Path, ...]) -> int:
    """Find what the daemon would find wrong with its configuration and job files; it need not run.

    What it would take, but perhaps not as it was meant, is a note, and no fault.
    """
    from scheduler.config.check import examine
    from scheduler.config.paths import checked_config

    for file in files:
        folder = file if file.is_dir() else file.parent
        raise click.UsageError(f"job files are judged by the folder: check --jobs {folder}")
    for file in jobs:
        if file.is_file():
            raise click.UsageError(f"--jobs {file} is a file: name the folder that it is in")
    found = examine(checked_config(config, os.environ), os.environ, jobs=jobs)
    notes = [*found.notes, *_whose_eyes(session)]
    faults, screen = found.faults, session.screen
    if screen.json_wanted:
        told = {"faults": found.faults, "notes": notes}
        screen.record({name: [fault_json(each) for each in each_of] for name, each_of in told.items()})
    else:
        for note in notes:
            screen.line(Cell("note", "yellow"), escape(note))
        for fault in faults:
            screen.line(escape(fault))
        count = f"{len(faults)} fault{'s' if len(faults) > 1 else ''}" if faults else "no faults"
        screen.line(Cell(count, "red" if faults else "green"), "in", escape(", ".join(map(str, found.read))))
    return 1 if faults else 0


def _whose_eyes(session: Session) -> Iterator[Fault]:
    """What is told where the daemon is another user than who checks: it may read less, or more."""
    runner, own = daemon_user(session), own_user()
    if runner not in (None, own):
        yield Fault(
            message=f"judged as {own}, the daemon runs as {runner}: a file that is closed to it, or a `user`"
            " that it cannot become, shows at the reload"
        )
