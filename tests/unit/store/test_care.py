"""The file stays within bounds: free pages go back, and the write-ahead log shrinks when its readers end."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import partial
from itertools import count
from pathlib import Path

from scheduler.model.jobs import Retention
from scheduler.store import sqlite
from scheduler.store.schema import load_queries, prepare
from scheduler.store.sqlite import SqliteStore
from scheduler.store.transaction import Transaction
from tests.support.builders import make_definition
from tests.support.clock import FakeClock
from tests.support.desk import Desk
from tests.support.stores import sqlite_store

_fresh = count(1_000)


async def write(store: SqliteStore, times: int, size: int = 1_000_000) -> None:
    """So many commits, each of about `size` bytes."""
    for number in range(times):
        value = f"{next(_fresh):04}" * (size // 4)  # what is the same as before would not be written
        await store._verb(partial(_put, f"big-{number % 50}", value))  # noqa: SLF001


def _put(name: str, value: str, tx: Transaction) -> int:
    return tx.execute("write_meta", name=name, value=value)


async def test_a_new_file_can_give_pages_back(store: SqliteStore, path: Path) -> None:
    """The mode is fixed by the first table: it has to be there from the start."""
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA auto_vacuum").fetchone() == (2,)


async def test_room_that_was_freed_goes_back_in_steps(store: SqliteStore, path: Path) -> None:
    """A file that has lost most of its content shrinks by a bounded number of pages a step, then stops."""
    await write(store, 20)
    with closing(sqlite3.connect(path)) as db:
        pages = db.execute("PRAGMA page_count").fetchone()[0]
        await store._verb(  # noqa: SLF001
            lambda tx: [tx.execute("write_meta", name=f"big-{number}", value="") for number in range(20)]
        )
        steps = 0
        while await store.give_back():
            steps += 1
            now = db.execute("PRAGMA page_count").fetchone()[0]
            assert 200 <= pages - now <= 205, "and here and there a page of the map of pages"
            pages = now
        free = db.execute("PRAGMA freelist_count").fetchone()[0]

    assert steps > 0
    assert free <= 1_000, "some stay for what comes next"
    assert not await store.give_back()


async def test_the_log_is_bounded_while_nobody_reads(store: SqliteStore) -> None:
    """Ten times what a checkpoint waits for leaves a log of about one checkpoint."""
    await write(store, 40)

    assert 0 < store.log_size() < 12 << 20


async def test_the_log_levels_off_after_a_reader_ends(store: SqliteStore, path: Path) -> None:
    """A held snapshot makes the log grow; once it ends, the next commits bring it within its bound."""
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM meta").fetchone()
        await write(store, 25)
        grown = store.log_size()
        assert grown > sqlite._LOG_LIMIT  # noqa: SLF001 - or the test would prove nothing
        reader.execute("COMMIT")

        await write(store, 3)

        assert store.log_size() <= sqlite._LOG_LIMIT  # noqa: SLF001


async def test_reads_of_ours_hold_no_snapshot(path: Path, clock: FakeClock) -> None:
    """The walk by age stops early and lets go: afterwards a checkpoint reaches the end of the log."""
    async with sqlite_store(path, clock) as store:
        desk = Desk(store, clock)
        await desk.add(make_definition())
        for _ in range(3):
            await desk.finish(await desk.fired())
        await store.surplus(Retention(runs_per_job=None, before=clock.now()), after="", limit=1)
        await write(store, 3)

        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            busy, pages, written = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    assert (busy, pages) == (0, written)


def test_looks_for_old_history_read_no_further_than_they_must(path: Path) -> None:
    """I15: both walks go along an index, oldest first, without sorting the history of a job."""
    prepare(path)
    values = {"job": "job", "keep": 9, "limit": 9}
    with closing(sqlite3.connect(path)) as db:
        for name in ("surplus_runs", "rows_by_age"):
            plan = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {load_queries()[name]}", values)]
            assert any("runs_last" in step or "runs_history" in step for step in plan), plan
            assert not [step for step in plan if "TEMP B-TREE" in step or step.startswith("SCAN runs")], plan
