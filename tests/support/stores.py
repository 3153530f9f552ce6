"""Stores for tests: the same suite, whatever lies below."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from scheduler.clock import Clock
from scheduler.errors import StoreUnavailable
from scheduler.rules.reconcile import reconcile
from scheduler.store.finishing import Decide
from scheduler.store.protocol import Store
from scheduler.store.schema import load_queries
from scheduler.store.sqlite import FILE_NAME, SqliteStore


class Opener(Protocol):
    """Opens handles on one and the same data; what is still open at the end of the test is closed."""

    async def __call__(self) -> Store:
        """A further handle, as a second daemon or a restarted one has it."""
        ...


@asynccontextmanager
async def sqlite_opener(folder: Path, clock: Clock) -> AsyncIterator[Opener]:
    """Handles on one SQLite file in `folder`."""
    opened: list[SqliteStore] = []

    async def open_one() -> Store:
        opened.append(await SqliteStore.open(folder / FILE_NAME, clock))
        return opened[-1]

    try:
        yield open_one
    finally:
        for store in opened:
            await store.close()


OPENERS: Mapping[str, Callable[[Path, Clock], Any]] = {"sqlite": sqlite_opener}
"""Every kind of store that the conformance suite runs on; a second one is one more line here."""


@dataclass(slots=True)
class Trouble:
    """What a store told of its commits: errors, and None when they worked again."""

    told: list[StoreUnavailable | None] = field(default_factory=list)

    def __call__(self, error: StoreUnavailable | None) -> None:
        self.told.append(error)


@asynccontextmanager
async def sqlite_store(
    path: Path,
    clock: Clock,
    *,
    trouble: Trouble | None = None,
    queries: Mapping[str, str] | None = None,
    decide: Decide = reconcile,
    busy_timeout_ms: int | None = None,
) -> AsyncIterator[SqliteStore]:
    """A SQLite store at `path`, with whatever a test weakens or holds."""
    store = await SqliteStore.open(
        path, clock, on_trouble=trouble or Trouble(), queries=queries, decide=decide
    )
    try:
        if busy_timeout_ms is not None:
            await pragma(store, f"busy_timeout = {busy_timeout_ms}")
        yield store
    finally:
        await store.close()


async def pragma(store: SqliteStore, setting: str) -> None:
    """A PRAGMA on the connection that writes: how a test makes a disk full or a lock impatient."""
    writer, *_ = store._connections  # noqa: SLF001 - a knob that the product has no use for
    await writer.run(lambda db: db.execute(f"PRAGMA {setting}").fetchall())


def weakened(name: str, *clauses: str) -> Mapping[str, str]:
    """The package's queries, with these parts of one statement taken out."""
    queries = dict(load_queries())
    for clause in clauses:
        assert clause in queries[name], f"{name} has no {clause!r}: the proof would prove nothing"
        queries[name] = queries[name].replace(clause, "")
    return queries


def dump(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Every row of every table as another process sees it: what has committed, and nothing else."""
    with sqlite3.connect(path, isolation_level=None) as db:
        db.row_factory = sqlite3.Row
        names = [
            row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
        ]
        tables = {name: [dict(row) for row in db.execute(f"SELECT * FROM {name}")] for name in names}  # noqa: S608
    db.close()
    return tables
