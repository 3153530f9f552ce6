"""Whether the store was left in order, and whether the file is whole if it was not.

A marker beside the file stands there while a daemon has the store open, and is taken away by an orderly
close. Where a start finds it, the daemon before died, or the machine did: then SQLite's `quick_check` looks
at the file before anything is written to it. The check is bounded in time, tables of state before tables of
history, so that a big store does not hold up the start; what it did not come to is told, and is looked at
by `schedctl doctor` without a bound. SQLite before 3.42 does not let itself be interrupted while it walks
the pages of one table, so the history of a very large file is left out at once. Without the marker nothing
is checked.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias

_SUFFIX: Final = "-open"
_HISTORY: Final = ("runs", "items", "attempts", "changes", "audit")
LARGE: Final = 2 << 30
"""Bytes of a file whose history is not looked at: its pages take longer to read than a start may."""

_STEPS: Final = 20_000
"""Instructions of SQLite between two looks at the time."""


Unchecked: TypeAlias = tuple[str, ...]
"""The tables that a check did not come to; it found nothing in the others."""


class Damaged(sqlite3.DatabaseError):
    """The check found a fault in the file."""


def is_marked_open(path: Path) -> bool:
    """A daemon had the store at `path` open and has not closed it."""
    return os.path.lexists(_marker(path))


def mark_open(path: Path) -> None:
    """The marker stands beside the file, and a power cut does not take it away."""
    os.close(os.open(_marker(path), os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    sync(path.parent)


def mark_closed(path: Path) -> None:
    """The store was closed in order."""
    _marker(path).unlink(missing_ok=True)


def check(db: sqlite3.Connection, queries: Mapping[str, str], is_over: Callable[[], bool]) -> Unchecked:
    """The file is whole, as far as the check came before `is_over` said so.

    Raises:
        Damaged: it is not.
        sqlite3.DatabaseError: it is not even readable.
    """
    names = [str(row[0]) for row in db.execute(queries["table_names"])]
    left = sorted(names, key=lambda name: (name in _HISTORY, _HISTORY.index(name) if name in _HISTORY else 0))
    db.set_progress_handler(is_over, _STEPS)
    too_large = _size_of(db) > LARGE
    try:
        while left and not is_over() and not (too_large and left[0] in _HISTORY):
            _check_table(db, left[0])
            del left[0]
    except sqlite3.OperationalError as error:
        if error.sqlite_errorname != "SQLITE_INTERRUPT":
            raise
    finally:
        db.set_progress_handler(None, 0)
    return tuple(left)


def _size_of(db: sqlite3.Connection) -> int:
    pages, size = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
    return int(pages * size)


def _check_table(db: sqlite3.Connection, table: str) -> None:
    found = [str(row[0]) for row in db.execute(f"PRAGMA quick_check([{table}])")]
    if found != ["ok"]:
        raise Damaged(f"table {table}: {found[0]}")


def sync(path: Path) -> None:
    """What was written to this file or directory survives a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # a file system that cannot sync a directory has nothing to add
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _marker(path: Path) -> Path:
    return path.with_name(path.name + _SUFFIX)
