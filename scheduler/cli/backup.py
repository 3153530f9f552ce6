"""`backup`: a whole copy of the store, with or without a daemon."""

from __future__ import annotations

from pathlib import Path

import click

from scheduler.cli.connection import NobodyListens
from scheduler.cli.examining import daemon_process
from scheduler.cli.offline import found_store
from scheduler.cli.session import Session, client_verb, stores_of
from scheduler.cli.shapes import Backup
from scheduler.cli.wording import escape
from scheduler.errors import DaemonUnreachable


@click.command("backup")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option(
    "--state", metavar="DIR", help="The state directory (default: that of the daemon that answers)."
)
@client_verb
def backup_verb(session: Session, file: Path, state: str | None) -> int:
    """Copy the store, as it is at one moment, into the new FILE; the daemon goes on working meanwhile.

    To restore: stop the daemon, move schedulerd.db, schedulerd.db-wal and schedulerd.db-shm out of the state
    directory, copy FILE there as schedulerd.db (owner: the daemon's user, mode 0600), start the daemon.
    """
    from scheduler.store.offline import back_up

    place = _state_of(session, state)
    size = back_up(place, file.absolute())
    if session.screen.json_wanted:
        session.screen.record(Backup(file=str(file.absolute()), bytes=size, state=str(place)).to_json())
    else:
        session.screen.line(escape(f"{file}: {size:,} bytes, a copy of the store in {place}"))
    return 0


def _state_of(session: Session, named: str | None) -> Path:
    """The directory of the store: the one named, that of the daemon, or without one the default.

    Raises:
        DaemonUnreachable: there is no store, or the daemon's is not known here.
    """
    if named is not None:
        nobody = NobodyListens(f"no store in {named}", hint="name the state directory of the daemon")
        return found_store([Path(named).absolute()], nobody)
    try:
        status = session.control.get("/v1/status").body
    except NobodyListens as down:
        return found_store(stores_of(None, None), down)
    state = daemon_process(int(status.get("pid", 0))).state
    if state is None:
        raise DaemonUnreachable(
            "where the daemon keeps its store cannot be told from here",
            hint="become root or the user of the daemon, or name the directory with --state",
        )
    return state
