"""Named SQL from files, and migrations of the SQLite file.

A database is opened only if it is ours, whole and not newer than this version; anything else is refused
and left untouched. A new one is made only where nothing is left of an old one, aside and renamed into place,
so that neither a crash nor a lost file leaves half a store or an empty one. Each migration is one
transaction, after a backup copy of the file.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import sqlite3
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Final
from urllib.parse import quote

from scheduler.errors import StoreRefused, StoreUnavailable
from scheduler.store.integrity import Unchecked, check, is_marked_open

APPLICATION_ID: Final = 0x53636844
"""`PRAGMA application_id` of our files ("SchD"), so that another program's database is not taken for ours."""

RESTORING: Final = ".restoring"
"""What the name of a copy ends in that `schedctl restore` is about to put in the place of the store."""

RESTORE: Final = (
    "restore a backup: `schedctl restore FILE` takes what `schedctl backup` made, or a"
    " schedulerd.db.backup-*; to start with an empty store, move schedulerd.db* away"
)
"""What to do about a store that is damaged or lost."""

_LOCK_SECONDS: Final = 5.0
_MINIMUM_SQLITE: Final = (3, 37, 0)  # STRICT tables
_NAME: Final = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def load_queries() -> Mapping[str, str]:
    """Name -> SQL of every named query in `store/sql/sqlite/*.sql`.

    A query opens with `-- name: <name>` and a one-line purpose, and ends where the next one opens.
    """
    queries: dict[str, str] = {}
    for path in sorted(_folder().iterdir(), key=lambda entry: entry.name):
        if not path.name.endswith(".sql"):
            continue
        parts = _NAME.split(path.read_text(encoding="utf-8"))
        for name, text in zip(parts[1::2], parts[2::2], strict=True):
            if name in queries:
                raise StoreRefused(f"the SQL name {name} stands twice")
            queries[name] = text.strip().rstrip(";")
    return queries


def prepare(path: Path, is_over: Callable[[], bool] = lambda: False) -> Unchecked | None:
    """The database at `path` exists and has the newest schema.

    Args:
        is_over: whether the time is up that a check of the file may take.

    Returns:
        How far the file was checked, where the daemon before had not closed it.

    Raises:
        StoreRefused: the file is not one that this version may open; it is left as it was.
        StoreUnavailable: it is locked, or the disk does not take it.
    """
    if sqlite3.sqlite_version_info < _MINIMUM_SQLITE:
        raise StoreRefused(
            f"SQLite {sqlite3.sqlite_version} is too old: schedulerd needs 3.37 or newer",
            hint="use a Python built against a newer SQLite",
        )
    try:
        _refuse_half_restored(path)
        if not path.exists():
            _refuse_to_replace(path)
            _create(path)
        elif not path.is_file():
            raise StoreRefused(f"{path} is not a file", hint="move away what stands there")
        return _upgrade(path, is_over)
    except sqlite3.DatabaseError as error:
        raise refusal(path, error) from error
    except OSError as error:
        raise refusal_of_place(path, error) from error


def refusal(path: Path, error: sqlite3.DatabaseError) -> StoreRefused | StoreUnavailable:
    """The error of ours that says what SQLite found."""
    code = getattr(error, "sqlite_errorname", "")
    if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_FULL", "SQLITE_IOERR")):
        return StoreUnavailable(f"{path} cannot be written now: {error}")
    if code.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        return StoreRefused(
            f"{path} cannot be opened for writing: {error}",
            hint="check owner and mode of the file and its directory",
        )
    return StoreRefused(f"{path} is damaged, or no schedulerd database: {error}", hint=RESTORE)


def refusal_of_place(path: Path, error: OSError) -> StoreRefused | StoreUnavailable:
    """The error of ours that says what the file system found."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
        return StoreUnavailable(f"{path} cannot be written now: {error.strerror}")
    return StoreRefused(
        f"{path} cannot be opened for writing: {error.strerror}",
        hint="check that its directory exists and who may write there, or name another one with --state",
    )


def migrations() -> list[str]:
    """The SQL of every migration, in order; number n stands at index n - 1."""
    folder = _folder() / "migrations"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [(folder / name).read_text(encoding="utf-8") for name in names]


def _folder() -> Path:
    return Path(str(files("scheduler.store"))) / "sql" / "sqlite"


def _refuse_half_restored(path: Path) -> None:
    """Nobody is in the middle of putting another file in the place of this one.

    Raises:
        StoreRefused: somebody was, and did not come to the end.
    """
    copy = path.with_name(path.name + RESTORING)
    if os.path.lexists(copy):
        raise StoreRefused(
            f"a restore of {path} was begun and did not end", hint="run `schedctl restore FILE` again"
        )


def _refuse_to_replace(path: Path) -> None:
    """No part of an earlier store lies where a new one is to be made.

    Raises:
        StoreRefused: its main file was lost or moved.
    """
    left = sorted(entry.name for entry in os.scandir(path.parent) if entry.name.startswith(path.name))
    if left:
        raise StoreRefused(f"{path} is gone, and {left[0]} of an earlier store is left", hint=RESTORE)


def _create(path: Path) -> None:
    """A new, whole database stands at `path`, readable by its owner only."""
    _clear_half_made(path)
    fresh = path.with_name(f".{path.name}.new-{secrets.token_hex(4)}")
    os.close(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW, 0o600))
    try:
        with _Connected(fresh) as db:
            db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # only before the first table
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            _migrate(db, 0)
            db.execute(load_queries()["write_meta"], {"name": "store_id", "value": secrets.token_hex(8)})
        fresh.rename(path)
    finally:
        fresh.unlink(missing_ok=True)


def _clear_half_made(path: Path) -> None:
    """Nothing is left of a store that was being made when its maker died; the state lock allows one maker."""
    for left in path.parent.glob(f".{path.name}.new-*"):
        left.unlink(missing_ok=True)


class _Connected:
    """A plain connection that is closed at the end; autocommit, transactions are written out."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        address = f"file:{quote(str(path))}?mode={'ro' if read_only else 'rw'}"
        self._db = sqlite3.connect(address, isolation_level=None, timeout=_LOCK_SECONDS, uri=True)

    def __enter__(self) -> sqlite3.Connection:
        return self._db

    def __exit__(self, *_: object) -> None:
        self._db.close()


def _upgrade(path: Path, is_over: Callable[[], bool]) -> Unchecked | None:
    (version, checked), newest = _look(path, is_over), len(migrations())
    if version > newest:
        raise StoreRefused(
            f"{path} has schema {version}, this schedulerd knows schemas up to {newest}",
            hint="use the newer schedulerd that wrote it, or restore a backup from before the upgrade:"
            " `schedctl restore FILE`",
        )
    if version < newest:
        with _Connected(path) as db:
            _back_up(path, db, version)
            _migrate(db, version)
    return checked


def _look(path: Path, is_over: Callable[[], bool]) -> tuple[int, Unchecked | None]:
    """The schema version of a file of ours, which was checked if it was not closed in order.

    Read where possible through a connection that cannot write: the last one to close a database writes
    its log into it, and a file that is refused is to be left untouched.
    """
    try:
        with _Connected(path, read_only=True) as db:
            return _look_at(path, db, is_over)
    except sqlite3.OperationalError as error:
        if not error.sqlite_errorname.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN")):
            raise
    with _Connected(path) as db:  # a transaction that died half-way is to be rolled back first
        return _look_at(path, db, is_over)


def _look_at(path: Path, db: sqlite3.Connection, is_over: Callable[[], bool]) -> tuple[int, Unchecked | None]:
    version = version_of(path, db)
    if version > len(migrations()) or not is_marked_open(path):
        return version, None
    return version, check(db, load_queries(), is_over)


def version_of(path: Path, db: sqlite3.Connection) -> int:
    """The schema version of a database that is ours.

    Raises:
        StoreRefused: it is not.
    """
    application = db.execute("PRAGMA application_id").fetchone()[0]
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    if application != APPLICATION_ID or version < 1:
        raise StoreRefused(
            f"{path} is no schedulerd database (application id {application:#x}, schema {version})",
            hint=RESTORE,
        )
    return version


def _back_up(path: Path, db: sqlite3.Connection, version: int) -> None:
    """A copy of the file as it was before the upgrade stands beside it."""
    copy = path.with_name(f"{path.name}.backup-{version}")
    os.close(os.open(copy, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600))
    with _Connected(copy) as target:
        db.backup(target)


def _migrate(db: sqlite3.Connection, version: int) -> None:
    """Every migration after `version` is applied, each in one transaction with its version number."""
    for number, script in enumerate(migrations()[version:], start=version + 1):
        db.executescript(f"BEGIN IMMEDIATE;\n{script}\nPRAGMA user_version = {number};\nCOMMIT;")
