"""A backup put in the place of the store, while no daemon has it.

The backup is copied beside the store and checked there as a whole; only then the old files move aside, under
a name that is free, and the copy takes their place. From the first move to the last the copy's name keeps a
daemon from starting (`schema.RESTORING`), so that a crash in between leaves neither half a store nor an empty
one: the same command again ends what was begun. Root acts with the rights of the directory's owner.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from scheduler.errors import AlreadyServed, Conflict, NotFound, StoreRefused, StoreUnavailable
from scheduler.store.integrity import mark_closed, sync
from scheduler.store.schema import RESTORING, migrations, refusal, version_of
from scheduler.store.sqlite import FILE_NAME
from scheduler.store.statelock import StateLock
from scheduler.trust import foreign_hands

_SIDE_FILES: Final = ("-wal", "-shm", "-journal")


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What was done: the size of the store now, and where the one before is, if there was one."""

    bytes: int
    kept: Path | None


def restore(source: Path, state: Path) -> Restored:
    """The store in the state directory is what `source` holds; the one before lies beside it.

    Args:
        source: what `back_up` made, or a kept store with its write-ahead log beside it.

    Raises:
        NotFound: there is no such file, or no such directory.
        Conflict: a daemon has the directory.
        StoreRefused: the file is damaged, newer than this version, no store, or others could have written
            it; nothing was changed.
        StoreUnavailable: the disk does not take it.
    """
    if not state.is_dir():
        raise NotFound(f"there is no state directory {state}", hint="name it with --state")
    try:
        with _opened(source) as files, _acting_as_owner(state), _locked(state):
            _refuse_foreign(source, files)
            return _put_in_place(source, files, state / FILE_NAME)
    except OSError as bad:
        raise StoreUnavailable(f"the store in {state} cannot be restored: {bad}") from bad


@contextlib.contextmanager
def _opened(source: Path) -> Iterator[Mapping[str, BinaryIO]]:
    """The file and, where it has one, its write-ahead log, opened with the rights of whoever called."""
    with contextlib.ExitStack() as stack:
        try:
            files = {"": stack.enter_context(source.open("rb"))}
        except (FileNotFoundError, IsADirectoryError) as missing:
            raise NotFound(f"there is no file {source}") from missing
        with contextlib.suppress(FileNotFoundError):
            files["-wal"] = stack.enter_context(source.with_name(f"{source.name}-wal").open("rb"))
        yield files


@contextlib.contextmanager
def _acting_as_owner(state: Path) -> Iterator[None]:
    """Root has the rights of the daemon's user: the files are to be that user's, and no link leads far."""
    owner = state.stat()
    if os.geteuid() != 0 or owner.st_uid == 0:
        yield
        return
    group = os.getegid()
    os.setegid(owner.st_gid)
    os.seteuid(owner.st_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)


def _refuse_foreign(source: Path, files: Mapping[str, BinaryIO]) -> None:
    """Nobody but root and the daemon's user could have written it: it says what the daemon runs.

    Raises:
        StoreRefused: somebody else could.
    """
    for opened in files.values():
        why = foreign_hands(source, os.fstat(opened.fileno()))
        if why is not None:
            raise StoreRefused(f"the backup {why}")


@contextlib.contextmanager
def _locked(state: Path) -> Iterator[None]:
    try:
        lock = StateLock.take(state)
    except AlreadyServed as served:
        raise Conflict(served.message, hint="stop the daemon first, and start it afterwards") from served
    try:
        yield
    finally:
        lock.release()


def _put_in_place(source: Path, files: Mapping[str, BinaryIO], path: Path) -> Restored:
    fresh = path.with_name(f".{path.name}.restore")
    _remove(fresh)  # of a call that was killed: the lock is ours
    try:
        for suffix, opened in files.items():
            _copy(opened, fresh.with_name(fresh.name + suffix))
        _check(source, fresh)
        sync(fresh)
        copy = fresh.rename(path.with_name(path.name + RESTORING))
    finally:
        _remove(fresh)
    sync(path.parent)
    kept = _move_aside(path)
    copy.rename(path)
    mark_closed(path)
    sync(path.parent)
    return Restored(bytes=path.stat().st_size, kept=kept)


def _remove(path: Path) -> None:
    for suffix in ("", *_SIDE_FILES):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _copy(source: BinaryIO, target: Path) -> None:
    descriptor = os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as copy:
        shutil.copyfileobj(source, copy, 1 << 20)


def _check(source: Path, copy: Path) -> None:
    """The copy is a whole store that this version can open, in one file.

    Raises:
        StoreRefused: it is not.
    """
    try:
        with contextlib.closing(sqlite3.connect(copy, isolation_level=None)) as db:
            version, newest = version_of(source, db), len(migrations())
            if version > newest:
                raise StoreRefused(
                    f"{source} has schema {version}, this schedctl knows schemas up to {newest}",
                    hint="use the newer version that made it",
                )
            db.execute("PRAGMA journal_mode = DELETE")  # what a log beside it holds goes into the file
            found = [str(row[0]) for row in db.execute("PRAGMA integrity_check(1)")]
    except sqlite3.DatabaseError as error:
        told = refusal(source, error)
        raise (told if isinstance(told, StoreUnavailable) else _damaged(source, str(error))) from error
    if found != ["ok"]:
        raise _damaged(source, found[0])


def _damaged(source: Path, why: str) -> StoreRefused:
    return StoreRefused(f"{source} is damaged, or no store: {why}", hint="take another backup")


def _move_aside(path: Path) -> Path | None:
    """The store that was there has another name, with its log; the main file goes last.

    A call that was cut short goes on under the same name, for it is taken once the main file bears it.
    """
    number = 1
    while os.path.lexists(kept := path.with_name(f"{path.name}.replaced-{number}")):
        number += 1
    found = os.path.lexists(path)
    for suffix in (*_SIDE_FILES, ""):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(kept.with_name(kept.name + suffix))
    return kept if found else None
