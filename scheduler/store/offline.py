"""The store without a daemon: read as it stands on disk, with nothing made, migrated or written beside it.

SQLite would write for a mere look: it makes the side files of a WAL database anew where a daemon that
stopped in order has left none, and brings the index of the WAL up to date where one died. So
- where both side files are there (a daemon lives, or was killed) they are opened read-only, and SQLite keeps
  an index of its own in memory;
- else the file is copied into a private place and read there; a copy during which a daemon began to write
  is thrown away. Opening the file itself as immutable would spare the copy, but would read torn pages
  beside a daemon that starts at that moment.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import quote

from scheduler.clock import Micros
from scheduler.errors import Conflict, Forbidden, NotFound, StoreRefused, StoreUnavailable
from scheduler.store.reading import SqliteReads
from scheduler.store.schema import APPLICATION_ID, RESTORE, load_queries, migrations
from scheduler.store.sqlite import FILE_NAME
from scheduler.store.statefiles import FILES
from scheduler.store.writer import ThreadConnection

_BUSY_TIMEOUT_MS: Final = 1_000
_TRIES: Final = 3
_SIDE_FILES: Final = ("-wal", "-shm")


class OfflineStore(SqliteReads):
    """`Reads` on a store that may have no daemon. Made by `open`, ended by `close`."""

    def __init__(self, reader: ThreadConnection, kept: contextlib.ExitStack, store_id: str) -> None:
        super().__init__(reader, load_queries())
        self._connection = reader
        self._kept = kept
        self.store_id = store_id

    @classmethod
    async def open(cls, state: Path) -> OfflineStore:
        """The store in the state directory, ready to be read.

        Raises:
            NotFound: there is none.
            Forbidden: this user may not read it.
            StoreRefused: it is not ours, damaged, or of another version.
            StoreUnavailable: a daemon is just starting or stopping.
        """
        with contextlib.ExitStack() as stack:
            uri = stack.enter_context(_readable(state))
            with _told(state):
                reader = await ThreadConnection.connected(partial(_connect, uri))
                try:
                    store_id = await reader.run(partial(_checked_id, state))
                except BaseException:
                    await reader.close()
                    raise
            return cls(reader, stack.pop_all(), store_id)

    async def close(self) -> None:
        """The connection is closed and a copy gone."""
        await self._connection.close()
        self._kept.close()


def store_exists(state: Path) -> bool:
    """The directory holds a store.

    Raises:
        PermissionError: this user may not look.
    """
    try:
        (state / FILE_NAME).lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def store_was(state: Path) -> bool:
    """A daemon has had a store in the directory, which may be lost; any other folder may be anybody's."""
    return any(os.path.lexists(state / name) for name in FILES)


def store_faults(state: Path) -> list[str]:
    """What SQLite's own check finds wrong with the store, and nothing where it is whole.

    Raises:
        SchedulerError: as `OfflineStore.open`.
    """
    with _reading(state) as db:
        found = [str(row[0]) for row in db.execute("PRAGMA quick_check(20)")]
    return [text for text in found if text != "ok"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFacts:
    """What the store tells about itself.

    Attributes:
        store_id: its random id, which the processes of its runs carry in their environment.
        unfinished: run id -> state of every run that has not ended.
        wall_seen: the latest wall time that a daemon has remembered, or None.
    """

    store_id: str
    unfinished: Mapping[str, str]
    wall_seen: Micros | None


def store_facts(state: Path) -> StoreFacts:
    """The facts, as they are on disk now.

    Raises:
        SchedulerError: as `OfflineStore.open`.
    """
    queries = load_queries()
    with _reading(state) as db:
        seen = db.execute(queries["read_meta"], {"name": "wall_seen"}).fetchone()
        return StoreFacts(
            store_id=_checked_id(state, db),
            unfinished={row["id"]: row["state"] for row in db.execute(queries["unfinished_states"])},
            wall_seen=None if seen is None else int(seen[0]),
        )


def back_up(state: Path, target: Path) -> int:
    """A whole copy of the store as it was at one moment stands at `target`; its size in bytes.

    It is one file (0600) without side files, checked, and durable; a daemon may go on writing meanwhile.

    Raises:
        Conflict: something stands at `target` already.
        StoreUnavailable: it cannot be written there.
        SchedulerError: as `OfflineStore.open`.
    """
    if os.path.lexists(target):
        raise Conflict(f"{target} exists already", hint="name a file that is not there yet")
    fresh = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        with _reading(state, any_version=True) as db:
            os.close(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW, 0o600))
            _copy_into(fresh, db)
        _sync(fresh)
        os.link(fresh, target)  # unlike a rename it never replaces what has come there meanwhile
        fresh.unlink()
        _sync(target.parent)
    except FileExistsError as taken:
        raise Conflict(f"{target} exists already", hint="name a file that is not there yet") from taken
    except (OSError, sqlite3.Error) as bad:
        raise StoreUnavailable(f"the backup cannot be written to {target}: {bad}") from bad
    finally:
        for suffix in ("", "-journal", *_SIDE_FILES):
            with contextlib.suppress(OSError):
                fresh.with_name(fresh.name + suffix).unlink()
    return target.stat().st_size


def _copy_into(fresh: Path, db: sqlite3.Connection) -> None:
    with contextlib.closing(sqlite3.connect(fresh, isolation_level=None)) as copy:
        db.backup(copy)  # all pages in one read transaction: one moment, and no writer waits for it
        copy.execute("PRAGMA journal_mode = DELETE")
        found = [row[0] for row in copy.execute("PRAGMA quick_check(1)")]
    if found != ["ok"]:
        raise StoreRefused(
            f"the copy is not whole: {found[0]}", hint="`schedctl doctor` looks at the store itself"
        )


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _reading(state: Path, *, any_version: bool = False) -> Iterator[sqlite3.Connection]:
    """A plain connection to the store, checked to be ours and of this version, unless any will do."""
    with (
        _readable(state) as uri,
        _told(state),
        contextlib.closing(_connect(uri)) as db,
    ):
        _checked_id(state, db, any_version=any_version)
        yield db


@contextlib.contextmanager
def _readable(state: Path) -> Iterator[str]:
    """An address under which SQLite reads the store and writes nothing in the state directory."""
    path = state / FILE_NAME
    with contextlib.ExitStack() as stack:
        try:
            if path.is_symlink():
                raise StoreRefused(
                    f"{path} is a symbolic link, and no store",
                    hint="put the file itself there, or name its directory with --state",
                )
            if not store_exists(state):
                raise NotFound(f"there is no store in {state}")
            with path.open("rb"):  # says plainly what SQLite would only call unable to open
                pass
            if all(_beside(path, suffix).exists() for suffix in _SIDE_FILES):
                uri = f"file:{quote(str(path))}?mode=ro&readonly_shm=1"
            else:
                place = stack.enter_context(tempfile.TemporaryDirectory(prefix="schedctl-"))
                uri = f"file:{quote(str(_copied(path, Path(place))))}?mode=ro"
        except PermissionError as bad:
            raise Forbidden(
                f"you may not read the store in {state}", hint="become root or the user of the daemon"
            ) from bad
        except OSError as bad:
            raise StoreUnavailable(f"the store in {state} cannot be read: {bad}") from bad
        yield uri


def _copied(path: Path, place: Path) -> Path:
    """A copy of the database, with its WAL where there is one, from a moment when nobody wrote."""
    for _ in range(_TRIES):
        seen = _signature(path)
        for suffix in ("", "-wal"):
            source = _beside(path, suffix)
            (place / source.name).unlink(missing_ok=True)
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(source, place / source.name)
        if _signature(path) == seen:
            return place / path.name
    raise StoreUnavailable(
        f"the store in {path.parent} was changed while it was read: a daemon is starting or stopping",
        hint="ask again",
    )


def _signature(path: Path) -> list[tuple[int, int, int] | None]:
    """What tells whether the files have changed: inode, size and time of each."""
    signature: list[tuple[int, int, int] | None] = []
    for suffix in ("", "-wal"):
        try:
            found = _beside(path, suffix).stat()
        except FileNotFoundError:
            signature.append(None)
        else:
            signature.append((found.st_ino, found.st_size, found.st_mtime_ns))
    return signature


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _connect(uri: str) -> sqlite3.Connection:
    db = sqlite3.connect(uri, uri=True, isolation_level=None)
    db.row_factory = sqlite3.Row
    db.execute(f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_MS}")
    db.execute("PRAGMA query_only = ON")
    return db


def _checked_id(state: Path, db: sqlite3.Connection, *, any_version: bool = False) -> str:
    """The store's id.

    Raises:
        StoreRefused: it is not ours, or of another version.
    """
    application = db.execute("PRAGMA application_id").fetchone()[0]
    version, newest = int(db.execute("PRAGMA user_version").fetchone()[0]), len(migrations())
    place = state / FILE_NAME
    if application != APPLICATION_ID or version < 1:
        raise StoreRefused(f"{place} is no schedulerd database", hint="name the right directory with --state")
    if version > newest and not any_version:
        raise StoreRefused(
            f"{place} has schema {version}, this schedctl knows schemas up to {newest}",
            hint="use the schedctl of the newer version",
        )
    if version < newest and not any_version:
        raise StoreRefused(
            f"{place} has schema {version}, this schedctl reads {newest}",
            hint="start the daemon once: it upgrades its store",
        )
    return str(db.execute(load_queries()["read_meta"], {"name": "store_id"}).fetchone()[0])


@contextlib.contextmanager
def _told(state: Path) -> Iterator[None]:
    """What SQLite says is told as an error of ours."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            raise StoreUnavailable(f"the store in {state} is locked: {error}", hint="ask again") from error
        raise StoreRefused(
            f"{state / FILE_NAME} is not a usable schedulerd database: {error}",
            hint=RESTORE,
        ) from error
