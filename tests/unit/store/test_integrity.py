"""A store that was not closed in order is looked at before it is used, and a lost one is not made anew."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
import textwrap
from contextlib import closing
from pathlib import Path

import pytest

from scheduler.errors import StoreRefused
from scheduler.store import integrity
from scheduler.store.integrity import Unchecked, check, is_marked_open, mark_open
from scheduler.store.schema import load_queries, prepare
from scheduler.store.sqlite import SqliteStore
from tests.support.builders import make_definition
from tests.support.clock import FakeClock
from tests.support.desk import Desk
from tests.support.stores import sqlite_store


async def filled(path: Path) -> None:
    """A store with jobs enough for many pages, closed in order."""
    async with sqlite_store(path, FakeClock()) as store:
        desk = Desk(store, FakeClock())
        for number in range(100):
            await desk.add(make_definition(f"job-{number}"))


def spoil(path: Path, table: str) -> None:
    """A page of the table's tree is overwritten, as a torn write or a bad sector leaves it."""
    with closing(sqlite3.connect(path)) as db:
        query = "SELECT rootpage FROM sqlite_schema WHERE name = ?"
        page = db.execute(query, [table]).fetchone()[0]
        size = db.execute("PRAGMA page_size").fetchone()[0]
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(os.urandom(size))


async def reopened(path: Path) -> list[Unchecked]:
    """What the check told at the next start."""
    told: list[Unchecked] = []
    store = await SqliteStore.open(path, FakeClock(), on_checked=told.append)
    await store.close()
    return told


async def test_an_orderly_close_leaves_nothing_to_check(path: Path) -> None:
    """The marker stands while the store is open and is gone afterwards; the next start checks nothing."""
    async with sqlite_store(path, FakeClock()):
        assert is_marked_open(path)

    assert not is_marked_open(path)
    assert await reopened(path) == []


async def test_after_a_kill_the_file_is_checked(path: Path) -> None:
    """A process that dies leaves its marker, and the next start looks at every table and finds nothing."""
    script = textwrap.dedent("""
        import asyncio, os, signal, sys
        from pathlib import Path
        from scheduler.clock import SystemClock
        from scheduler.store.sqlite import SqliteStore
        async def die():
            await SqliteStore.open(Path(sys.argv[1]), SystemClock())
            os.kill(os.getpid(), signal.SIGKILL)
        asyncio.run(die())
    """)
    died = await asyncio.create_subprocess_exec(sys.executable, "-c", script, path)
    assert await died.wait() == -signal.SIGKILL

    assert await reopened(path) == [()]
    assert await reopened(path) == []


@pytest.mark.parametrize("table", ["jobs", "runs", "runs_history"])
async def test_damage_after_an_unclean_stop_is_refused(path: Path, table: str) -> None:
    """I14: the start ends with what is wrong and how to restore, and not a byte of the file is changed."""
    await filled(path)
    spoil(path, table)
    mark_open(path)
    before = path.read_bytes()

    with pytest.raises(StoreRefused, match="damaged") as refused:
        await SqliteStore.open(path, FakeClock())

    assert str(path) in refused.value.message
    assert "schedctl restore FILE" in (refused.value.hint or "")
    assert path.read_bytes() == before
    assert is_marked_open(path)


async def test_damaged_history_is_found_by_the_mark_alone(path: Path) -> None:
    """The check does it, not chance: without the marker the same file opens."""
    await filled(path)
    spoil(path, "attempts")

    assert await reopened(path) == []
    mark_open(path)
    with pytest.raises(StoreRefused):
        await reopened(path)


async def test_a_check_that_takes_too_long_says_what_it_left_out(path: Path) -> None:
    """The time is bounded: state is looked at before history, and what was left out is named."""
    await filled(path)
    looks = iter(range(1_000))

    with closing(sqlite3.connect(path)) as db:
        left = check(db, load_queries(), lambda: next(looks) >= 3)
        assert check(db, load_queries(), lambda: True)[-5:] == integrity._HISTORY  # noqa: SLF001 - the order

    assert left
    assert "meta" not in left
    assert set(integrity._HISTORY) <= set(left)  # noqa: SLF001


async def test_the_history_of_a_very_large_file_is_left_out(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pages alone would take longer to read than a start may; the state is looked at all the same."""
    await filled(path)
    monkeypatch.setattr(integrity, "LARGE", 4_096)

    with closing(sqlite3.connect(path)) as db:
        assert set(check(db, load_queries(), lambda: False)) == set(integrity._HISTORY)  # noqa: SLF001
    spoil(path, "jobs")
    mark_open(path)
    with pytest.raises(StoreRefused):
        await reopened(path)


async def test_a_check_is_cut_in_the_middle_of_a_table(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table with very many rows does not hold up the start: SQLite is interrupted."""
    await filled(path)
    monkeypatch.setattr(integrity, "_STEPS", 10)
    asked = iter([False, True])

    with closing(sqlite3.connect(path)) as db:
        left = check(db, load_queries(), lambda: next(asked, True))

    assert len(left) == len({*left})
    assert "meta" in left


@pytest.mark.parametrize("left", ["-open", "-wal", ".backup-1", ".replaced-1"])
def test_a_lost_store_is_not_replaced_by_an_empty_one(path: Path, left: str) -> None:
    """I14: where anything of an earlier store lies, its missing file is told, and none is made."""
    other = path.with_name(path.name + left)
    other.write_bytes(b"something")

    with pytest.raises(StoreRefused, match="is gone") as refused:
        prepare(path)

    assert other.name in refused.value.message
    assert "schedctl restore" in (refused.value.hint or "")
    assert not path.exists()


def test_a_link_in_place_of_the_marker_is_not_followed(path: Path, tmp_path: Path) -> None:
    """Nobody's file is made or opened through it."""
    path.with_name(f"{path.name}-open").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(OSError, match="symbolic"):
        mark_open(path)
    assert not (tmp_path / "elsewhere").exists()
