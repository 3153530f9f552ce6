"""One transaction as the verbs see it: named statements, the store's `now`, savepoints.

Statements of the hot path work on sets: rows go in as one JSON array (`packed`) and come out as one
(`gathered`). It is not the statements that cost, it is that each step of SQLite lets the interpreter's lock
go, and beside a busy loop it takes up to five milliseconds to get it back.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import orjson

from scheduler.clock import Micros
from scheduler.errors import SchedulerError
from scheduler.model.jobs import JobId
from scheduler.model.runs import RunId
from scheduler.store.rows import Definitions, Row
from scheduler.store.values import Peer

T = TypeVar("T")

_WHOLE_TRANSACTION = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_NOMEM")


@dataclass(slots=True)
class Savepoint:
    """What one request came to: its result, or the error after which nothing of it is left."""

    result: Any = None
    error: Exception | None = None


class Transaction:
    """Named statements against the raw connection, in the store's thread, inside one transaction.

    Attributes:
        now: the store's clock, read once: one moment for everything that commits together.
        definitions: what is decoded already; not to be taught from inside a transaction.
    """

    def __init__(
        self,
        db: sqlite3.Connection,
        queries: Mapping[str, str],
        now: Micros,
        definitions: Definitions,
    ) -> None:
        self._db = db
        self._queries = queries
        self.now = now
        self.definitions = definitions

    def execute(self, name: str, /, **values: object) -> int:
        """How many rows the statement changed; every caller of a conditional write looks at it."""
        return self._db.execute(self._queries[name], values).rowcount

    def execute_many(self, name: str, rows: Iterable[Mapping[str, object]], /) -> int:
        """How many rows the statement changed, executed once for each of these."""
        return self._db.executemany(self._queries[name], rows).rowcount

    def all(self, name: str, /, **values: object) -> list[Row]:
        """All rows."""
        return self._db.execute(self._queries[name], values).fetchall()

    def one(self, name: str, /, **values: object) -> Row | None:
        """The first row, or None."""
        row: Row | None = self._db.execute(self._queries[name], values).fetchone()
        return row

    def gathered(self, name: str, /, **values: object) -> list[list[Any]]:
        """All rows of a query that gathers them into one JSON array."""
        rows: list[list[Any]] = orjson.loads(self.value(name, **values))
        return rows

    def value(self, name: str, /, **values: object) -> Any:
        """The first column of the first row, or None."""
        row = self._db.execute(self._queries[name], values).fetchone()
        return None if row is None else row[0]

    @contextmanager
    def savepoint(self) -> Iterator[Savepoint]:
        """What is written inside stands or falls alone.

        An error is caught and kept in the savepoint's `error`, whatever it is, so that one request never
        takes others with it; only an error of the file as a whole (full, locked, I/O) goes on, since it
        ends the transaction.
        """
        outcome = Savepoint()
        self._db.execute(self._queries["savepoint"])
        try:
            yield outcome
        except Exception as error:
            if getattr(error, "sqlite_errorname", "").startswith(_WHOLE_TRANSACTION):
                raise
            outcome.error = error
            self._db.execute(self._queries["rollback_to_savepoint"])
        self._db.execute(self._queries["release_savepoint"])

    def alone(self, work: Callable[[], T]) -> T | SchedulerError:
        """The result of `work`, or the error of ours that it raised, with nothing of it written."""
        with self.savepoint() as attempt:
            attempt.result = work()
        if attempt.error is None:
            result: T = attempt.result
            return result
        return as_ours(attempt.error)

    def next_revision(self, count: int = 1) -> int:
        """A number from the store-wide counter, never used before; of several, the last."""
        return int(self.value("next_revision", count=count))

    def record(
        self, verb: str, peer: Peer, *, job: JobId | None = None, run: RunId | None = None, detail: str = "{}"
    ) -> None:
        """The mutation stands in the audit and in the sequence of changes."""
        self.record_all(verb, [(job, run, peer, detail)])

    def record_all(
        self, verb: str, mutations: Sequence[tuple[JobId | None, RunId | None, Peer, str]]
    ) -> None:
        """As `record`, for several at once."""
        entries = [
            (job, run, peer.uid, peer.gid, peer.pid, peer.command, detail)
            for job, run, peer, detail in mutations
        ]
        self.execute("record_audit", at=self.now, verb=verb, entries=packed(entries))
        changes = [
            ("run" if run else "job" if job else "all", run or job or "") for job, run, _, _ in mutations
        ]
        self.execute("record_change", changes=packed(changes))


def packed(rows: Sequence[object]) -> str:
    """The rows as the JSON array that a statement on a set takes.

    A NUL would end a text inside SQLite's JSON, so it becomes the replacement character.
    """
    text = orjson.dumps(rows).decode()
    return text if "\\u0000" not in text else orjson.dumps(_without_nul(rows)).decode()


def _without_nul(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("\0", "\N{REPLACEMENT CHARACTER}")
    return [_without_nul(part) for part in value] if isinstance(value, list | tuple) else value


def as_ours(error: Exception) -> SchedulerError:
    """The error as callers of the store know it; a fault of our own carries its cause with it."""
    if isinstance(error, SchedulerError):
        return error
    ours = SchedulerError(f"a fault in the store, nothing was written: {type(error).__name__}: {error}")
    ours.__cause__ = error
    return ours
