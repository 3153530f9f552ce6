"""Stories of batches: killed in the middle, counted, partly failed, retried."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from scheduler.errors import SchedulerError
from scheduler.model.items import Item, ItemState
from scheduler.model.runs import RunState
from scheduler.rules.reconcile import Ending
from tests.store.test_items import Batch, make_batch
from tests.support.desk import Desk
from tests.support.stores import dump


async def test_b64_a_batch_that_was_killed_goes_on_where_it_was(desk: Desk) -> None:
    """B64: what is done is not touched again, what was in flight is in doubt, the rest runs once."""
    batch = await make_batch(desk, 10)
    await batch.work(*[ItemState.DONE] * 4)
    in_flight = await batch.begin_one()
    await desk.crash(batch.run)
    await batch.reclaim()

    begun = [(await batch.begin_one()).key for _ in range(2)]
    assert in_flight.key not in begun
    counts = await batch.counts()
    assert (counts.done, counts.unknown, counts.running) == (4, 1, 2)

    await desk.cancel(batch.run)
    await desk.finish(batch.run, Ending.CANCELLED)
    counts = await batch.counts()
    assert (counts.done, counts.failed, counts.pending) == (4, 0, 3), (
        "the rest is not started, and not failed"
    )
    await desk.store.retry(batch.run.id, desk.peer)
    await batch.reclaim()
    left = []
    while (begun_now := await batch.begin()).items:
        left.append(begun_now.items[0].key)
        await batch.end(begun_now.items[0])
    assert len(left) == len(set(left)) == 3
    assert not {in_flight.key, *begun} & set(left)
    await batch.finish()
    for key in (in_flight.key, *begun):
        await batch.settle(key, ItemState.DONE)
    assert (await batch.live()).state is RunState.SUCCEEDED
    with pytest.raises(SchedulerError, match="nothing to retry: 10 of 10 done"):
        await desk.store.retry(batch.run.id, desk.peer)


async def test_b66_the_sums_always_add_up(desk: Desk) -> None:
    """B66: with failures, retries and a kill, the states make up the total, and done only grows."""
    dice = random.Random(66)  # noqa: S311 - chance of a test, always the same
    batch = await make_batch(desk, 60)
    done = 0
    killed = False
    while True:
        begun = await batch.begin(8)
        if not begun.items:
            break
        for item in begun.items:
            if not killed and done > 30:
                killed = True
                await desk.crash(batch.run)
                await batch.reclaim()
                break
            again = item.attempts < 3
            failed = ItemState.PENDING if again else ItemState.FAILED
            await batch.end(item, failed if dice.random() < 0.1 else ItemState.DONE)
            counts = await batch.counts()
            parts = (
                counts.done,
                counts.failed,
                counts.unknown,
                counts.running,
                counts.pending,
                counts.skipped,
            )
            assert sum(parts) == counts.total == 60
            assert counts.done >= done
            done = counts.done
    assert killed
    ended = await batch.finish()
    assert (ended.progress.total, ended.progress.done) == (60, done)


@pytest.mark.parametrize(
    ("states", "state", "reason"),
    [
        ("dddfddfddf", "partial", "items_failed"),
        ("", "succeeded", None),
        ("fff", "failed", "items_failed"),
        ("ddd", "succeeded", None),
    ],
)
async def test_b67_a_batch_that_failed_in_part_says_so(
    desk: Desk, states: str, state: str, reason: str | None
) -> None:
    """B67: partly failed is a state with the count; no items are a success; failures have errors."""
    batch = await make_batch(desk, len(states))
    for letter in states:
        item = await batch.begin_one()
        if letter == "d":
            await batch.end(item)
        else:
            await batch.end(item, ItemState.FAILED, error="no")

    run = await batch.finish()

    assert (run.state, run.reason) == (state, reason)
    failed = await desk.store.items(run.id, state="failed", after=None, limit=99)
    assert [item.error for item in failed] == ["no"] * states.count("f")
    if state == "partial":
        assert "7 of 10 done, 3 failed" in (run.message or "")


async def test_b67_a_list_that_cannot_be_made_fails_before_any_item(desk: Desk) -> None:
    """B67: the run fails, and no item was begun."""
    await make_batch(desk, 0)
    started = await desk.start() if not await desk.live() else None
    run = started.run if started is not None else (await desk.live())[0]
    failed = (await desk.finish(run, Ending.FAILED, message="items_command exited with code 1")).run

    assert failed.state is RunState.FAILED
    assert await desk.store.items(run.id, state=None, after=None, limit=9) == []


def _keys(path: Path) -> dict[str, str]:
    """What the paid service is given for each item."""
    return {row["key"]: row["effect_key"] for row in dump(path)["items"] if row["effect_key"]}


async def test_b68_a_retry_runs_exactly_the_failed_items(desk: Desk, path: Path) -> None:
    """B68: with the keys that they had; the good ones stay counted; a second retry meanwhile is refused."""
    batch = await make_batch(desk, 10)
    for number in range(10):
        item = await batch.begin_one()
        await batch.end(item, ItemState.FAILED if number in (1, 4, 8) else ItemState.DONE)
    await batch.finish()
    keys = _keys(path)
    assert len(set(keys.values())) == 10
    wanted = [item.key for item in await _failed(batch)]

    await desk.store.retry(batch.run.id, desk.peer, failed_only=True)
    with pytest.raises(SchedulerError):
        await desk.store.retry(batch.run.id, desk.peer, failed_only=True)
    await batch.reclaim()
    again = []
    for number in range(3):
        item = await batch.begin_one()
        assert item.attempts == 2
        again.append(item.key)
        await batch.end(item, ItemState.FAILED if number == 0 else ItemState.DONE)

    assert again == wanted
    assert _keys(path) == keys
    assert (await batch.begin()).items == ()
    run = await batch.finish()
    assert (run.state, (await batch.counts()).done) == ("partial", 9)


async def _failed(batch: Batch) -> list[Item]:
    return await batch.store.items(batch.run.id, state="failed", after=None, limit=99)
