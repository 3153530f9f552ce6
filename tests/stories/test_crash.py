"""Stories of daemons that die, stop, or meet a store that says no."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from scheduler.clock import HOUR, MINUTE, SECOND
from scheduler.errors import SchedulerError, StoreRefused
from scheduler.model.jobs import JobId, JobStatus, Overlap, PauseReason
from scheduler.model.runs import RunReason, RunState
from scheduler.rules.reconcile import Ending
from scheduler.store.schema import load_queries, migrations, prepare
from scheduler.store.sqlite import SqliteStore
from tests.support.builders import JOB, make_claimant, make_definition, make_owner
from tests.support.clock import START, FakeClock
from tests.support.desk import Desk
from tests.support.stores import sqlite_store


@pytest.mark.parametrize("variant", ["at once", "after the lease", "without the owner's row"])
async def test_b18_a_killed_daemon_leaves_no_job_stuck(
    desk: Desk, path: Path, clock: FakeClock, variant: str
) -> None:
    """B18: the next process on the host is another owner; the run is told as crashed, the job is free."""
    await desk.store.register(desk.who.owner)
    await desk.add(make_definition(every=MINUTE))
    run = await desk.fired()
    if variant == "after the lease":
        clock.move(2 * MINUTE)
    if variant == "without the owner's row":
        with closing(sqlite3.connect(path)) as db:
            db.execute("DELETE FROM owners")
            db.commit()
    async with sqlite_store(path, clock) as other:
        restarted = Desk(other, clock, make_claimant(make_owner()))
        assert restarted.who.owner.id != desk.who.owner.id
        await restarted.store.register(restarted.who.owner)

        ended = (await restarted.crash(run)).run

        assert (ended.state, ended.reason) == (RunState.CRASHED, RunReason.OWNER_DIED)
        assert ended.finished_at == clock.now()
        assert (await restarted.fired()).state is RunState.RUNNING


async def test_b20_a_job_that_kills_its_daemon_is_parked(desk: Desk) -> None:
    """B20: crashes are counted without its help; at the limit it is paused, with the evidence; others run."""
    await desk.add(make_definition(manual=True, on_crash="retry", max_crashes=3))
    await desk.add(make_definition("healthy", every=MINUTE))
    run = (await desk.start()).run
    for _ in range(3):
        await desk.crash(run)
        grants = [grant for grant in await desk.claim() if grant.run.id == run.id]
        run = grants[0].run if grants else run

    job = await desk.job()

    assert job.status is JobStatus.PAUSED
    assert job.pause is not None
    assert job.pause.reason is PauseReason.CRASHES
    assert "3 crashes" in (job.pause.note or "")
    assert await desk.claim() == []
    assert (await desk.fired(JobId("healthy"))).state is RunState.RUNNING


async def test_b20_an_orderly_stop_is_no_crash(desk: Desk) -> None:
    """B20: what a shutdown cut costs neither an attempt nor a crash."""
    await desk.add(make_definition(manual=True, on_crash="retry"))
    run = (await desk.start()).run

    await desk.finish(run, Ending.SHUTDOWN)

    (again,) = await desk.claim()
    assert again.run.attempt == 1
    assert (await desk.job()).crashes == 0


@pytest.mark.parametrize("statement", ["move_job", "insert_run", "insert_attempt"])
async def test_b21_a_fire_happens_whole_or_not_at_all(path: Path, clock: FakeClock, statement: str) -> None:
    """B21: whichever statement of FIRE fails, the slot is still due and has no row; then it runs once."""
    queries = load_queries()
    broken = {**queries, statement: f"{queries[statement]} is nonsense"}
    async with sqlite_store(path, clock, queries=broken) as store:
        desk = Desk(store, clock)
        await desk.add(make_definition(every=MINUTE))
        slot = (await desk.job()).next_fire_at
        with pytest.raises(SchedulerError):
            await desk.fire()
        assert await desk.runs() == []
        assert (await desk.job()).next_fire_at == slot
    async with sqlite_store(path, clock) as store:
        desk = Desk(store, clock)
        assert (await desk.fired()).fire_time == slot
        assert len(await desk.runs()) == 1


async def test_b27_a_stop_writes_what_it_cut(desk: Desk, path: Path, clock: FakeClock) -> None:
    """B27: cut at the drain limit the run is interrupted, ended and free; an operator's cancel wins."""
    await desk.add(make_definition(manual=True))
    run = (await desk.start()).run
    cut = (await desk.finish(run, Ending.SHUTDOWN)).run
    assert (cut.state, cut.reason, cut.finished_at) == (
        RunState.INTERRUPTED,
        RunReason.SHUTDOWN,
        clock.now(),
    )

    second = (await desk.start()).run
    await desk.cancel(second)
    cancelled = (await desk.finish(second, Ending.SHUTDOWN)).run
    assert (cancelled.state, cancelled.reason) == (RunState.CANCELLED, RunReason.CANCELLED)
    async with sqlite_store(path, clock) as other:
        assert (await Desk(other, clock).start()).grant is not None


async def test_b28_a_start_that_fails_leaves_no_thread(path: Path, clock: FakeClock) -> None:
    """B28: where the store cannot be opened, also after a connection was made, nothing holds the exit."""
    prepare(path)
    with closing(sqlite3.connect(path)) as db:
        db.execute("DELETE FROM meta")
        db.commit()
    before = {thread for thread in threading.enumerate() if not thread.name.startswith("asyncio")}

    with pytest.raises(StoreRefused):
        await SqliteStore.open(path, clock)

    left = {thread for thread in threading.enumerate() if not thread.name.startswith("asyncio")} - before
    for thread in left:
        thread.join(20)
    assert not any(thread.is_alive() for thread in left)


async def test_b35_a_lock_delays_and_loses_nothing(path: Path, clock: FakeClock) -> None:
    """B35: claims and ends under another writer are neither lost nor doubled; busy is not empty."""
    async with sqlite_store(path, clock, busy_timeout_ms=0) as store:
        desk = Desk(store, clock, make_claimant(max_running=100))
        await desk.add(make_definition(manual=True, overlap="allow", max_running=50))
        runs = [(await desk.start(overlap=Overlap.ALLOW)).run for _ in range(25)]
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            starts = [asyncio.create_task(desk.start(overlap=Overlap.ALLOW)) for _ in range(25)]
            ends = [asyncio.create_task(desk.finish(run)) for run in runs]
            await clock.asleep()
            assert not any(task.done() for task in (*starts, *ends))
            assert len(await desk.store.jobs(after=None, limit=9)) == 1
            other.execute("ROLLBACK")
        while not all(task.done() for task in (*starts, *ends)):
            await clock.advance(SECOND // 10)
            await asyncio.sleep(0.005)
        assert all(task.result().grant is not None for task in starts)
        states = [run.state for run in await desk.executed()]

    assert (states.count(RunState.SUCCEEDED), states.count(RunState.RUNNING)) == (25, 25)


async def test_b37_a_job_whose_code_is_gone_is_kept(desk: Desk) -> None:
    """B37: broken is a mark on the row, which keeps pause and history; repaired, it goes on."""
    await desk.add(make_definition(every=MINUTE, python="gone:handler"))
    await desk.finish(await desk.fired())
    await desk.pause(note="kept")
    await desk.store.set_problem(JOB, "broken", "No module named 'gone'")
    job = await desk.job()
    assert (job.problem_code, job.pause is not None) == ("broken", True)
    assert len(await desk.executed()) == 1
    await desk.resume()
    with pytest.raises(SchedulerError, match="gone"):
        await desk.start()

    await desk.store.set_problem(JOB, None, None)

    assert (await desk.fired()).state is RunState.RUNNING


def _damaged(path: Path) -> None:
    path.write_bytes(b"\xde\xad" * 50 + path.read_bytes()[100:])


def _newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {len(migrations()) + 1}")


@pytest.mark.parametrize("spoil", [_damaged, lambda path: path.write_bytes(b""), _newer])
def test_b39_a_store_that_is_no_store_is_not_taken_for_an_empty_one(path: Path, spoil: object) -> None:
    """B39: refused with the file and the remedy, and not a byte of it changes."""
    prepare(path)
    assert callable(spoil)
    spoil(path)
    before = path.read_bytes()

    with pytest.raises(StoreRefused, match=str(path)) as refused:
        prepare(path)

    assert "schedctl restore" in (refused.value.hint or "")
    assert path.read_bytes() == before


async def test_b40_what_a_tick_costs_does_not_grow_with_the_jobs(desk: Desk, path: Path) -> None:
    """B40: due jobs, waiting runs and the next wake-up are found by an index; no look scans jobs or runs."""
    await desk.add(make_definition())
    values = {"now": 1, "late_before": 1, "limit": 9, "after": 1}
    with closing(sqlite3.connect(path)) as db:
        for name in ("due_on_time", "due_late", "next_wake"):
            plan = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {load_queries()[name]}", values)]
            assert plan
            scans = [step for step in plan if step.startswith("SCAN") and not re.search(r"INDEX|\(sub", step)]
            assert not scans, plan


async def test_b47_a_hung_run_is_seen(desk: Desk, clock: FakeClock) -> None:
    """B47: each slot that it costs is counted in a row that names it; cancel frees the job."""
    await desk.add(make_definition(every=MINUTE))
    hung = await desk.fired()
    for _ in range(5):
        await desk.fire()
    (skip,) = [run for run in await desk.runs() if run.state is RunState.SKIPPED]
    assert (skip.reason, skip.count) == ("overlap", 5)
    assert hung.id in (skip.message or "")
    clock.move(HOUR)

    await desk.cancel(hung)
    await desk.store.release(hung.id, desk.peer)  # it catches the cancellation and goes on

    assert (await desk.run(hung)).state is RunState.CANCELLED
    assert (await desk.job()).next_fire_at == START + 7 * MINUTE
    assert (await desk.start()).grant is not None
