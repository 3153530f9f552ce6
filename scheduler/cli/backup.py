"""`backup`: a whole copy of the store, daemon or not; `restore`: such a copy put in its place."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from scheduler.cli.connection import NobodyListens
from scheduler.cli.examining import daemon_process
from scheduler.cli.offline import found_store
from scheduler.cli.session import Session, client_verb, stores_of
from scheduler.cli.shapes import Backup, Restored
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

    `schedctl restore` puts it back.
    """
    from scheduler.store.offline import back_up

    place = _state_of(session, state)
    size = back_up(place, file.absolute())
    if session.screen.json_wanted:
        session.screen.record(Backup(file=str(file.absolute()), bytes=size, state=str(place)).to_json())
    else:
        session.screen.line(escape(f"{file}: {size:,} bytes, a copy of the store in {place}"))
    return 0


@click.command("restore")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--state", metavar="DIR", help="The state directory (default: where schedctl finds a store).")
@client_verb
def restore_verb(session: Session, file: Path, state: str | None) -> int:
    """Put FILE, which `backup` made, in the place of the store, while the daemon is stopped.

    FILE is checked first. The store that was there stays beside it, as schedulerd.db.replaced-1 or a higher
    number, and can be restored in the same way. Under socket activation, stop the socket too: it would start
    the daemon.

    The daemon then knows only what the copy knows: runs since are not in its history, and fire times since
    are caught up or skipped as `catch_up` says.
    """
    from scheduler.store.restoring import restore

    place = _place_of(session, state)
    done = restore(file.absolute(), place)
    if session.screen.json_wanted:
        kept = None if done.kept is None else str(done.kept)
        told = Restored(file=str(file.absolute()), bytes=done.bytes, state=str(place), kept=kept)
        session.screen.record(told.to_json())
        return 0
    session.screen.line(escape(f"{file} is the store in {place} now ({done.bytes:,} bytes)"))
    if done.kept is not None:
        session.screen.line(escape(f"the one before is kept as {done.kept}"))
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
        return _served(session)
    except NobodyListens as down:
        return found_store(stores_of(None, session.socket), down)


def _place_of(session: Session, named: str | None) -> Path:
    """Where the store is to stand: the directory named, that of the daemon, or without one the one found.

    A daemon that answers has its store open: its lock then says what to do.

    Raises:
        DaemonUnreachable: it cannot be told which directory is meant.
    """
    if named is not None:
        return Path(named).absolute()
    try:
        return _served(session)
    except NobodyListens as down:
        return _place_of_lost(stores_of(None, session.socket), down)


def _served(session: Session) -> Path:
    """The state directory of the daemon that answers.

    Raises:
        NobodyListens: none does.
        DaemonUnreachable: this user may not see what it has open.
    """
    status = session.control.get("/v1/status").body
    state = daemon_process(int(status.get("pid", 0))).state
    if state is None:
        raise DaemonUnreachable(
            "where the daemon keeps its store cannot be told from here",
            hint="become root or the user of the daemon, or name the directory with --state",
        )
    return state


def _place_of_lost(places: Sequence[Path], down: NobodyListens) -> Path:
    """The state directory that has a store, or else the only one where something is left of one.

    Raises:
        DaemonUnreachable: there is none, or several.
    """
    from scheduler.store.offline import store_was

    try:
        return found_store(places, down)
    except DaemonUnreachable as none:
        lost = [place for place in places if store_was(place)]
        if len(lost) == 1:
            return lost[0]
        if isinstance(none.__cause__, PermissionError):
            raise
        raise DaemonUnreachable(none.message, hint="which store? name it with --state DIR") from none
