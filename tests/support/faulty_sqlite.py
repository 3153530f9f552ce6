"""Connections to SQLite that fail or die at a chosen statement: the seam between the store and its file.

Every statement of the store has a name (`scheduler/store/sql`), and so has every point here:

    before:claim_run     the statement is about to be executed
    commit:claim_run     it was executed, and its transaction is about to commit
    committed:claim_run  its transaction is durable, and nobody was told yet

What happens at a point is the `Trap`'s business: nothing, an error of SQLite, or the end of the process.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol
from unittest.mock import patch

from scheduler.store.schema import load_queries

_NAMES: Final = {text: name for name, text in load_queries().items()}
_CODES: Final = {"SQLITE_BUSY": 5, "SQLITE_IOERR": 10, "SQLITE_FULL": 13}
_WORDS: Final = {
    "SQLITE_BUSY": "database is locked",
    "SQLITE_IOERR": "disk I/O error",
    "SQLITE_FULL": "database or disk is full",
}
ERRORS: Final = tuple(_CODES)


def _writes(text: str) -> bool:
    """The statement changes rows."""
    bare = "\n".join(line for line in text.splitlines() if not line.startswith("--"))
    return re.search(r"\b(INSERT|UPDATE|DELETE|REPLACE)\b", bare) is not None


WRITES: Final = frozenset(name for name, text in load_queries().items() if _writes(text))
"""The names of all statements that change rows."""


class Trap(Protocol):
    """What happens at a point."""

    def __call__(self, point: str) -> None:
        """The point was reached; returns, raises, or does not come back."""
        ...


class FaultyConnection(sqlite3.Connection):
    """A connection whose writes and commits pass through the trap."""

    trap: Trap

    def __init__(self, *args: Any, **values: Any) -> None:
        super().__init__(*args, **values)
        self._written: list[str] = []

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        name = _NAMES.get(sql, "")
        if name == "commit":
            return self._commit(sql)
        if name == "begin":
            self._reach("before:begin")
            self._written = []
        elif name in WRITES:
            self._reach(f"before:{name}")
            self._written.append(name)
        return super().execute(sql, parameters)

    def executemany(self, sql: str, parameters: Any, /) -> sqlite3.Cursor:
        name = _NAMES.get(sql, "")
        self._reach(f"before:{name}")
        self._written.append(name)
        return super().executemany(sql, parameters)

    def executescript(self, script: str, /) -> sqlite3.Cursor:
        """Migrations: each is one transaction in one script."""
        self._reach("before:migration")
        head, _, _ = script.rpartition("COMMIT;")
        super().executescript(head)
        self._reach("commit:migration")
        cursor = super().execute("COMMIT")
        self._reach("committed:migration")
        return cursor

    def _commit(self, sql: str) -> sqlite3.Cursor:
        names, self._written = list(dict.fromkeys(self._written)), []
        self._reach("before:commit")
        for name in names:
            self._reach(f"commit:{name}")
        cursor = super().execute(sql)
        for name in names:
            self._reach(f"committed:{name}")
        self._reach("after:commit")
        return cursor

    def _reach(self, point: str) -> None:
        try:
            self.trap(point)
        except sqlite3.OperationalError as error:
            # Such an error may end the transaction by itself: SQLite leaves that open.
            if error.sqlite_errorname == "SQLITE_FULL" and self.in_transaction:
                super().execute("ROLLBACK")
            raise


def sqlite_error(name: str) -> sqlite3.OperationalError:
    """The error as SQLite raises it."""
    error = sqlite3.OperationalError(_WORDS[name])
    error.sqlite_errorname = name
    error.sqlite_errorcode = _CODES[name]
    return error


@contextmanager
def faulty_connections(trap: Trap) -> Iterator[None]:
    """Connections that are opened inside pass through the trap, for as long as they live."""
    made = type("TrappedConnection", (FaultyConnection,), {"trap": staticmethod(trap)})
    connect: Callable[..., sqlite3.Connection] = sqlite3.connect

    def connect_faulty(*args: Any, **values: Any) -> sqlite3.Connection:
        return connect(*args, factory=made, **values)

    with patch("sqlite3.connect", connect_faulty):
        yield
