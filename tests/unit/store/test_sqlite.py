"""The store as a whole in trouble: what verbs, outcomes and reads do when the file says no."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from scheduler.clock import HOUR, MINUTE, SECOND
from scheduler.errors import SchedulerError, StoreRefused, StoreUnavailable
from scheduler.model.jobs import JobStatus
from scheduler.model.runs import RunState
from scheduler.rules.reconcile import Ending
from scheduler.store.sqlite import PATIENCE, SqliteStore
from tests.support.builders import make_definition
from tests.support.clock import FakeClock
from tests.support.desk import Desk
from tests.support.gates import Gate, held_decide
from tests.support.stores import Trouble, dump, pragma, sqlite_store


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another process holds the writing lock."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        db.execute("ROLLBACK")
        db.close()


async def run_out(clock: FakeClock, task: asyncio.Task[Any]) -> None:
    """Time passes until the task has its answer."""
    while not task.done():
        if not clock.sleepers:
            await asyncio.sleep(0.002)
        await clock.advance(SECOND)


async def pages(store: SqliteStore, *, full: bool) -> None:
    """The file may not grow, or may again."""
    writer, *_ = store._connections  # noqa: SLF001
    number = await writer.run(lambda db: db.execute("PRAGMA page_count").fetchone()[0])
    await pragma(store, f"max_page_count = {number if full else 1_000_000}")


# --- I14 ---
async def test_a_verb_under_a_lock_is_refused_and_changes_nothing(
    desk: Desk, path: Path, clock: FakeClock
) -> None:
    """I14: a pause that could not commit says so; it was not made, and nobody is told that it was."""
    await desk.add(make_definition())
    before = await desk.rows()
    with locked(path):
        task: asyncio.Task[Any] = asyncio.create_task(desk.pause())
        await run_out(clock, task)
        with pytest.raises(StoreUnavailable):
            await task

    assert await desk.rows() == before
    assert clock.monotonic() >= PATIENCE


async def test_no_claim_is_granted_that_is_not_durable(desk: Desk, path: Path, clock: FakeClock) -> None:
    """I10, I14: under a lock a start and a fire grant nothing; the fire stays due."""
    await desk.add(make_definition())
    clock.move(MINUTE)
    plan = await desk.plan()
    assert plan is not None
    with locked(path):
        start: asyncio.Task[Any] = asyncio.create_task(desk.start())
        fire: asyncio.Task[Any] = asyncio.create_task(desk.store.fire(desk.who, [plan]))
        for task in (start, fire):
            await run_out(clock, task)
            with pytest.raises(StoreUnavailable):
                await task

    assert await desk.runs() == []
    assert (await desk.job()).next_fire_at == plan.seen_fire_at


async def test_an_outcome_under_a_lock_is_written_when_it_works_again(
    desk: Desk, path: Path, clock: FakeClock, trouble: Trouble
) -> None:
    """I14: FINISH waits for the store without end, and the outcome stands as it was said."""
    await desk.add(make_definition())
    run = await desk.fired()
    with locked(path):
        task = asyncio.create_task(desk.finish(run, result='"kept"'))
        await clock.asleep()
        for _ in range(5):
            await clock.advance(HOUR)
            await clock.asleep()
        assert not task.done()
        assert (await desk.run(run)).state is RunState.RUNNING
    await run_out(clock, task)

    assert (await task).run.result == '"kept"'
    assert (await desk.run(run)).state is RunState.SUCCEEDED
    assert [error is None for error in trouble.told] == [False, True]


async def test_a_full_disk_takes_no_claim_and_keeps_the_outcome(
    desk: Desk, store: SqliteStore, clock: FakeClock, trouble: Trouble
) -> None:
    """I14: SQLITE_FULL: a start is refused, a big outcome is kept, both work when there is room again."""
    await desk.add(make_definition(overlap="allow", max_running=2))
    run = await desk.fired()
    await pages(store, full=True)
    outcome = asyncio.create_task(desk.finish(run, result=f'"{"x" * 60_000}"'))
    await clock.asleep()
    start: asyncio.Task[Any] = asyncio.create_task(desk.start())
    await run_out(clock, start)
    with pytest.raises(StoreUnavailable, match="full"):
        await start
    assert not outcome.done()
    await pages(store, full=False)
    await run_out(clock, outcome)

    assert (await outcome).run.state is RunState.SUCCEEDED
    assert [one.id for one in await desk.executed()] == [run.id]
    assert [error is None for error in trouble.told] == [False, True]
    assert (await desk.start()).grant is not None


async def test_reads_go_on_while_nothing_can_be_written(desk: Desk, path: Path) -> None:
    """I15: a lock on the file delays no read."""
    await desk.add(make_definition())
    with locked(path):
        assert (await desk.job()).status is JobStatus.ACTIVE
        assert len(await desk.store.jobs(after=None, limit=5)) == 1


async def test_reads_go_on_during_a_commit(path: Path, clock: FakeClock) -> None:
    """I15: a read waits for no transaction; it sees the rows of before until the commit."""
    gate = Gate()
    async with sqlite_store(path, clock, decide=held_decide(gate)) as store:
        desk = Desk(store, clock)
        await desk.add(make_definition())
        run = await desk.fired()
        task = asyncio.create_task(desk.finish(run))
        await gate.reached()
        assert (await desk.run(run)).state is RunState.RUNNING
        gate.open()
        await task

        assert (await desk.run(run)).state is RunState.SUCCEEDED


async def test_an_answered_outcome_is_there_for_another_process(desk: Desk, path: Path) -> None:
    """I10: what FINISH answered is committed, whoever looks at the file."""
    await desk.add(make_definition())
    run = await desk.fired()

    await desk.finish(run)

    (row,) = dump(path)["runs"]
    assert (row["id"], row["state"]) == (run.id, "succeeded")


async def test_commits_are_on_the_disk(store: SqliteStore) -> None:
    """I10: WAL with `synchronous = FULL`: a commit survives a power cut."""
    writer, reader, _ = store._connections  # noqa: SLF001

    def settings(db: sqlite3.Connection) -> tuple[str, int]:
        mode = db.execute("PRAGMA journal_mode").fetchone()[0]
        return mode, db.execute("PRAGMA synchronous").fetchone()[0]

    assert await writer.run(settings) == ("wal", 2)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        await reader.run(lambda db: db.execute("DELETE FROM meta"))


async def test_a_tick_does_not_wait_behind_what_people_read(desk: Desk, store: SqliteStore) -> None:
    """I15: a look at what is due has its answer while a long read is under way."""
    await desk.add(make_definition())
    _, reader, _ = store._connections  # noqa: SLF001
    over = threading.Event()
    reading = asyncio.create_task(reader.run(lambda _: over.wait(60)))
    try:
        await asyncio.sleep(0)
        async with asyncio.timeout(30):
            look = await store.due(limit=1, late_after=MINUTE, late_limit=1)
        assert look.next_wake is not None
        assert not reading.done()
    finally:
        over.set()
        await reading


# --- open and close ---
@pytest.mark.parametrize("spoil", [lambda path: path.touch(), lambda path: path.write_bytes(b"x" * 4_096)])
async def test_a_file_that_is_no_store_is_refused(
    path: Path, clock: FakeClock, spoil: Callable[[Path], None]
) -> None:
    """I14: it is never replaced, and no thread is left behind."""
    spoil(path)
    before, threads = path.read_bytes(), threading.active_count()

    with pytest.raises(StoreRefused):
        await SqliteStore.open(path, clock)

    assert path.read_bytes() == before
    assert threading.active_count() <= threads + 1  # a worker of the loop itself


async def test_a_store_without_its_id_is_refused(path: Path, clock: FakeClock) -> None:
    """A file that has our marks but not our rows is told as damaged, and its connections are closed."""
    async with sqlite_store(path, clock):
        pass
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM meta")
    db.close()

    with pytest.raises(StoreRefused, match=str(path)):
        await SqliteStore.open(path, clock)


async def test_a_closed_store_says_so(path: Path, clock: FakeClock) -> None:
    """Verbs and reads after the close are refused with an error of ours."""
    async with sqlite_store(path, clock) as store:
        desk = Desk(store, clock)
        await desk.add(make_definition())

    with pytest.raises(StoreUnavailable):
        await desk.pause()
    with pytest.raises(StoreUnavailable):
        await desk.job()


async def test_a_close_ends_its_threads_and_tidies_its_log(path: Path, clock: FakeClock) -> None:
    """After an orderly close the file stands alone, its log written into it."""
    async with sqlite_store(path, clock) as store:
        await Desk(store, clock).add(make_definition())

    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


async def test_a_finish_that_cannot_be_written_is_told_at_the_close(
    path: Path, clock: FakeClock, trouble: Trouble
) -> None:
    """I12: a stop under a foreign lock ends, and the outcome that it could not write is no success."""
    async with sqlite_store(path, clock, trouble=trouble, busy_timeout_ms=0) as store:
        desk = Desk(store, clock)
        await desk.add(make_definition())
        run = await desk.fired()
        with locked(path):
            outcome = asyncio.create_task(desk.finish(run, Ending.FAILED))
            await clock.asleep()
            closing: asyncio.Task[Any] = asyncio.create_task(store.close())
            await run_out(clock, closing)
        with pytest.raises(StoreUnavailable):
            await outcome


async def test_errors_of_sqlite_do_not_leave_the_store(
    desk: Desk, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A foreign error is translated at the edge where it came in, in verbs and in reads."""
    await desk.add(make_definition())
    writer, reader, _ = store._connections  # noqa: SLF001

    def forbid(db: sqlite3.Connection) -> None:
        db.set_authorizer(lambda *_: sqlite3.SQLITE_DENY)

    await reader.run(forbid)
    with pytest.raises(StoreUnavailable):
        await desk.job()
    await writer.run(forbid)
    with pytest.raises(SchedulerError):
        await desk.pause()
    for connection in (writer, reader):
        await connection.run(lambda db: db.set_authorizer(None))
