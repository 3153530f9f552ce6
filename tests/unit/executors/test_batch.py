"""Batches on a real store, with time and calls in the test's hand: slow is not dead, and enough is enough."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scheduler.clock import HOUR, MINUTE, SECOND
from scheduler.engine.ports import Ended, EndKind, Liveness, ProgressReport
from scheduler.errors import HandlerBroken, StoreUnavailable
from scheduler.model.jobs import JobStatus, PauseMode
from scheduler.model.runs import Progress, RunState
from scheduler.store.values import Missed
from scheduler.telemetry import Event
from tests.support.batches import FAILED, at_work, batches, finish, items, started, states
from tests.support.builders import JOB
from tests.support.clock import FakeClock
from tests.support.engine import Bench

pytestmark = pytest.mark.asyncio


async def die(here: Bench) -> None:
    """The daemon is gone without a word: its tasks end, nothing is written."""
    for task in [*here.tasks, *here.runner._tasks.values()]:  # noqa: SLF001 - a death asks nobody
        task.cancel()
    for call in here.executor.live():
        call.ended.cancel()
    here.tasks.clear()


# --- slow is not dead ---
async def test_a_batch_of_hours_with_an_item_each_three_minutes_goes_on(tmp_path: Path) -> None:
    """I8: longer than stall_timeout (here the default, half an hour), and neither stalled nor recovered."""
    async with batches(tmp_path, heartbeat=MINUTE) as here:
        run = await started(here, items=list(range(13)))
        for key in range(13):
            await here.pass_time(3 * MINUTE)
            assert (await here.desk.run(run)).state is RunState.RUNNING
            await finish(here, str(key))
        assert (await here.desk.run(run)).state is RunState.SUCCEEDED
        assert here.undertaker.sent == []
        assert here.log.of(Event.RUN_RECOVERING) == []


async def test_a_batch_without_progress_for_stall_timeout_is_ended(tmp_path: Path) -> None:
    """What was at work is in doubt, what was not begun stays so, and the reason is `stalled`."""
    async with batches(tmp_path) as here:
        run = await started(here, {"stall_timeout": 60}, items=["a", "b", "c"], concurrency=2)
        await here.pass_time(50 * SECOND)
        await finish(here, "a")
        await here.pass_time(50 * SECOND)
        assert (await here.desk.run(run)).state is RunState.RUNNING
        await here.pass_time(11 * SECOND)
        row = await here.desk.run(run)
        assert (row.state, row.reason) == (RunState.FAILED, "stalled")
        assert await states(here, run) == ["done", "unknown", "unknown"]


async def test_words_and_output_of_one_item_keep_its_batch_alive(tmp_path: Path) -> None:
    """The latest sign of life counts, whichever item gave it."""
    async with batches(tmp_path) as here:
        run = await started(here, {"stall_timeout": 60}, items=["a", "b"], concurrency=2)
        for _ in range(3):
            await here.pass_time(50 * SECOND)
            at_work(here)["a"].hooks.output_seen(1)
            await here.pass_time(50 * SECOND)
            at_work(here)["b"].hooks.progressed(ProgressReport(progress=Progress(message="half of it")))
        assert (await here.desk.run(run)).state is RunState.RUNNING
        assert (await here.desk.run(run)).progress.message == "b: half of it"


async def test_to_wait_for_another_try_is_no_stall(tmp_path: Path) -> None:
    """An item may have a backoff that is longer than stall_timeout."""
    async with batches(tmp_path) as here:
        retry = {"attempts": 1, "delay": 600, "backoff": "constant"}
        run = await started(here, {"stall_timeout": 20}, items=["a"], retry=retry)
        await finish(here, "a", FAILED)
        await here.pass_time(599 * SECOND)
        assert at_work(here) == {}
        assert (await here.desk.run(run)).state is RunState.RUNNING
        await here.pass_time(2 * SECOND)
        await finish(here, "a")
        assert (await here.desk.run(run)).state is RunState.SUCCEEDED


async def test_an_item_has_its_own_time_and_a_freeze_stops_it(tmp_path: Path) -> None:
    """item_timeout counts working time; what it ends is in doubt, and the others go on."""
    async with batches(tmp_path) as here:
        run = await started(here, items=["a", "b", "c"], item_timeout=60)
        await here.pass_time(50 * SECOND)
        await here.operations.pause(JOB, PauseMode.FREEZE, "", here.desk.peer)
        await here.pass_time(HOUR)
        assert list(at_work(here)) == ["a"]
        await here.operations.resume(JOB, Missed.SKIP, here.desk.peer)
        await here.pass_time(9 * SECOND)
        assert list(at_work(here)) == ["a"]
        await here.pass_time(2 * SECOND)
        assert list(at_work(here)) == ["b"]
        await finish(here, "b")
        await finish(here, "c")
        row = await here.desk.run(run)
        assert (row.state, row.reason) == (RunState.PARTIAL, "unknown_items")
        assert await states(here, run) == ["unknown", "done", "done"]
        assert "item_timeout" in str((await items(here, run))["a"].error)


# --- the five cases of the crash wedge ---
async def test_a_wedged_batch_is_recovered_with_its_items(tmp_path: Path) -> None:
    """I7, I9: after a death the rest runs by itself; what was at work is in doubt, what is done is done."""
    clock = FakeClock()
    async with batches(tmp_path, clock=clock) as first:
        run = await started(first, items=list("abcd"), concurrency=2)
        await finish(first, "a")
        assert list(at_work(first)) == ["b", "c"]
        await die(first)
        async with batches(tmp_path, clock=clock) as here:
            assert await states(here, run) == ["done", "unknown", "unknown", "running"]
            await finish(here, "d")
            row = await here.desk.run(run)
            assert (row.state, row.reason) == (RunState.PARTIAL, "unknown_items")


async def test_another_daemon_leaves_a_batch_alone_that_lives(tmp_path: Path) -> None:
    """I8: neither a fresh one nor an old one whose items come; one whose owner is gone it takes."""
    clock = FakeClock()
    async with batches(tmp_path, clock=clock) as first:
        run = await started(first, items=list(range(4)))
        async with batches(tmp_path, clock=clock, started=False) as here:
            here.claims._liveness = lambda _: Liveness.UNKNOWN  # noqa: SLF001 - it only sees the lease
            await here.start()
            for key in range(3):
                await here.pass_time(3 * MINUTE)
                assert here.log.of(Event.RUN_RECOVERING) == []
                await finish(first, str(key))
                await here.settle()
            await die(first)
            await here.pass_time(2 * MINUTE)
            assert [told["run_id"] for told in here.log.of(Event.RUN_RECOVERING)] == [run.id]
            assert await states(here, run) == ["done", "done", "done", "unknown"]


async def test_a_recovery_that_loses_against_the_worker_changes_nothing(tmp_path: Path) -> None:
    """I8: between its look and its write the last item was done and the run ended."""
    async with batches(tmp_path) as here:
        run = await started(here, items=["a"])
        look = await here.store.look()
        await finish(here, "a")
        assert await here.store.recover(look.running) == []
        assert (await here.desk.run(run)).state is RunState.SUCCEEDED
        assert await states(here, run) == ["done"]


async def test_an_outcome_that_comes_during_a_recovery_is_kept(tmp_path: Path) -> None:
    """I9: the run is taken from its worker, the outcome of the call is not lost: the item stays done."""
    async with batches(tmp_path) as here:
        run = await started(here, items=["a", "b"], concurrency=2)
        (taken,) = await here.store.recover((await here.store.look()).running)
        assert taken.id == run.id
        await finish(here, "a")
        await here.pass_time(3 * here.heartbeat)
        assert (await states(here, run))[0] == "done"


# --- enough is enough ---
async def test_after_enough_failures_no_item_is_begun_and_those_at_work_end(tmp_path: Path) -> None:
    """The run is failed, and says which threshold it was."""
    async with batches(tmp_path) as here:
        run = await started(here, items=list("abcdef"), concurrency=3, max_failed=2)
        await finish(here, "a", FAILED)
        await finish(here, "b", FAILED)
        assert list(at_work(here)) == ["c", "d"]
        await finish(here, "c")
        assert list(at_work(here)) == ["d"]
        await finish(here, "d")
        row = await here.desk.run(run)
        assert (row.state, row.reason) == (RunState.FAILED, "items_failed")
        assert "max_failed = 2 is reached" in (row.message or "")
        assert await states(here, run) == ["failed", "failed", "done", "done", "pending", "pending"]


@pytest.mark.parametrize(
    ("threshold", "message"),
    [
        ({"max_failed_percent": 50.0}, "max_failed_percent = 50"),
        ({"max_consecutive_failed": 2}, "max_consecutive"),
    ],
)
async def test_the_other_thresholds_stop_a_batch_too(
    tmp_path: Path, threshold: dict[str, Any], message: str
) -> None:
    """A share of all items, and failures in a row; a retry starts the count anew."""
    async with batches(tmp_path) as here:
        run = await started(here, items=list("abcd"), **threshold)
        await finish(here, "a", FAILED)
        await finish(here, "b", FAILED)
        assert message in ((await here.desk.run(run)).message or "")
        await here.operations.retry(run.id, here.desk.peer, keys=None, failed_only=False)
        await here.settle()
        for key in "abcd":
            await finish(here, key)
        assert (await here.desk.run(run)).state is RunState.SUCCEEDED


# --- trouble ---
async def test_a_handler_that_is_gone_ends_the_batch_and_charges_no_item(tmp_path: Path) -> None:
    """The job is broken, not its items: they wait until it is mended."""
    async with batches(tmp_path) as here:

        async def gone(*_: object) -> object:
            raise HandlerBroken("no module named jobs")

        here.executor.start = gone  # type: ignore[method-assign, assignment]
        run = await started(here, items=["a", "b"])
        row = await here.desk.run(run)
        assert (row.state, row.reason) == (RunState.FAILED, "broken")
        assert await states(here, run) == ["pending", "pending"]


async def test_a_store_that_cannot_commit_makes_a_batch_wait(tmp_path: Path) -> None:
    """I14: no item is begun meanwhile, none is lost, and to wait for the store is no stall."""
    async with batches(tmp_path) as here:
        run = await started(here, {"stall_timeout": 60}, items=["a", "b"])
        here.store.fail["begin_items"] = StoreUnavailable("the disk is full")
        await finish(here, "a")
        await here.pass_time(2 * MINUTE)
        assert at_work(here) == {}
        here.store.fail.clear()
        await here.pass_time(2 * SECOND)
        await finish(here, "b")
        assert (await here.desk.run(run)).state is RunState.SUCCEEDED


async def test_failed_items_of_a_retry_are_taken_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many they are, no transaction takes them all; each of them runs again."""
    monkeypatch.setattr("scheduler.engine.itemdesk._CHOSEN_AT_ONCE", 3)
    async with batches(tmp_path) as here:
        run = await started(here, items=list("abcdefgh"), concurrency=8)
        for key in "abcdefg":
            await finish(here, key, FAILED)
        await finish(here, "h")
        await here.operations.retry(run.id, here.desk.peer, keys=None, failed_only=True)
        await here.settle()
        assert sorted(at_work(here)) == list("abcdefg")
        for key in "abcdefg":
            await finish(here, key, Ended(kind=EndKind.EXITED, exit_code=0))
        assert (await here.desk.run(run)).state is RunState.SUCCEEDED


# --- what followers are told ---
async def test_progress_tells_how_the_items_stand(tmp_path: Path) -> None:
    """Job, counts, rate, time left and cost, in the words of the log and of /v1/events."""
    budget = {"per_run": 5.0, "cost_estimate": 0.5}
    async with batches(tmp_path) as here:
        await started(here, {"budget": budget}, items=list("abcd"))
        for key in "abc":
            await here.pass_time(10 * SECOND)
            at_work(here)[key].hooks.progressed(ProgressReport(cost=0.25))
            await finish(here, key)
        await here.pass_time(2 * SECOND)
        told = here.log.of(Event.RUN_PROGRESSED)[-1]
        assert told["job"] == JOB
        assert (told["done"], told["failed"], told["unknown"], told["total"]) == (3, 0, 0, 4)
        assert told["rate"] == 0.1
        assert told["seconds_left"] == 10
        assert told["cost"] == 0.75
        assert here.log.of(Event.ITEM_DONE)[-1]["cost"] == 0.25


# --- pauses ---
async def test_a_pause_that_drains_lets_every_item_run(tmp_path: Path) -> None:
    """The run in flight goes on to its end, also with items that were not begun; the job stays paused."""
    async with batches(tmp_path) as here:
        run = await started(here, items=["a", "b"])
        await here.operations.pause(JOB, PauseMode.DRAIN, "", here.desk.peer)
        await finish(here, "a")
        await finish(here, "b")
        assert (await here.desk.run(run)).state is RunState.SUCCEEDED
        assert (await here.desk.job()).status is JobStatus.PAUSED


async def test_a_pause_that_cancels_leaves_what_was_at_work_in_doubt(tmp_path: Path) -> None:
    """What was not begun stays so, and a retry runs that alone."""
    async with batches(tmp_path) as here:
        run = await started(here, items=["a", "b", "c"])
        await finish(here, "a")
        await here.operations.pause(JOB, PauseMode.CANCEL, "", here.desk.peer)
        await here.settle()
        assert (await here.desk.run(run)).state is RunState.CANCELLED
        assert await states(here, run) == ["done", "unknown", "pending"]
        await here.operations.resume(JOB, Missed.SKIP, here.desk.peer)
        await here.operations.retry(run.id, here.desk.peer, keys=None, failed_only=False)
        await here.settle()
        assert list(at_work(here)) == ["c"]
