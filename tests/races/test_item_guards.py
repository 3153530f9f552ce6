"""Each guard of an item's begin and end holds, and its scenario goes wrong without it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import pytest

from scheduler.model.items import BegunItem, ItemState, freeze
from scheduler.model.jobs import PauseMode
from scheduler.model.runs import Run
from scheduler.rules.reconcile import Ending
from scheduler.store.schema import load_queries
from scheduler.store.values import BeginItems, ItemOutcome, ItemSlice
from tests.support.builders import make_definition
from tests.support.clock import FakeClock
from tests.support.desk import Desk
from tests.support.stores import sqlite_store


async def _batch(desk: Desk) -> Run:
    """A run of two frozen items whose doubtful ones are repeated."""
    batch = {"items": ["a", "b"], "unknown": "retry"}
    await desk.add(make_definition(manual=True, on_crash="resume", batch=batch))
    run = (await desk.start()).run
    items = (freeze(0, "a"), freeze(1, "b"))
    await desk.store.put_items(ItemSlice(run_id=run.id, claim=run.claim, items=items))
    await desk.store.complete_items(run.id, run.claim, 2)
    return run


async def _begin(desk: Desk, run: Run) -> tuple[BegunItem, ...]:
    request = BeginItems(run_id=run.id, claim=run.claim, limit=1)
    return (await desk.store.begin_items(desk.who, [request]))[0].items


async def _end(desk: Desk, run: Run, item: BegunItem, state: ItemState = ItemState.DONE) -> bool:
    outcome = ItemOutcome(run_id=run.id, index=item.index, nonce=item.nonce, state=state)
    return (await desk.store.end_items([outcome]))[0]


async def _nothing_begins_after_a_pause(desk: Desk) -> bool:
    run = await _batch(desk)
    await desk.pause(mode=PauseMode.ITEM)
    return not await _begin(desk, run)


async def _nothing_begins_under_an_old_claim(desk: Desk) -> bool:
    run = await _batch(desk)
    await desk.crash(run)
    await desk.claim()
    return not await _begin(desk, run)


async def _nothing_begins_in_a_run_that_waits(desk: Desk) -> bool:
    run = await _batch(desk)
    await desk.pause(mode=PauseMode.ITEM)
    await desk.finish(run, Ending.ITEMS)
    await desk.resume()
    return not await _begin(desk, run)


async def _a_done_item_is_not_begun(desk: Desk) -> bool:
    run = await _batch(desk)
    (item,) = await _begin(desk, run)
    await _end(desk, run, item)
    return all(other.key != item.key for other in await _begin(desk, run))


async def _a_done_item_stays_done(desk: Desk) -> bool:
    run = await _batch(desk)
    (item,) = await _begin(desk, run)
    await _end(desk, run, item)
    await _end(desk, run, item, ItemState.FAILED)
    return (await desk.store.item(run.id, item.key)).state is ItemState.DONE


async def _an_old_worker_ends_no_new_begin(desk: Desk) -> bool:
    run = await _batch(desk)
    (old,) = await _begin(desk, run)
    await desk.crash(run)
    (grant,) = await desk.claim()
    (new,) = await _begin(desk, grant.run)
    assert new.key == old.key
    await _end(desk, run, old, ItemState.FAILED)
    return (await desk.store.item(run.id, new.key)).state is ItemState.RUNNING


async def _a_list_with_a_hole_is_not_whole(desk: Desk) -> bool:
    await desk.add(make_definition(manual=True, on_crash="resume", batch={"items": ["a", "b"]}))
    run = (await desk.start()).run
    await desk.store.put_items(ItemSlice(run_id=run.id, claim=run.claim, items=(freeze(0, "a"),)))
    try:
        await desk.store.complete_items(run.id, run.claim, 2)
    except Exception:  # noqa: BLE001 - refused, however
        return True
    return False


Scenario = Callable[[Desk], Awaitable[bool]]
CASES: list[tuple[Scenario, list[tuple[str, str]]]] = [
    (_nothing_begins_after_a_pause, [("begin_items", " AND wish = 'run'")]),
    (_nothing_begins_under_an_old_claim, [("begin_items", " AND claim = :claim")]),
    (_nothing_begins_in_a_run_that_waits, [("begin_items", " AND state = 'running'")]),
    (
        _a_done_item_is_not_begun,
        [("begin_items", "AND +state = 'pending'"), ("fresh_items", "AND state = 'pending'")],
    ),
    (_a_done_item_stays_done, [("begun_items", "AND state IN ('running', 'unknown')"), ("end_item", "AND state IN ('running', 'unknown')")]),
    (
        _an_old_worker_ends_no_new_begin,
        [("end_item", "AND nonce = :nonce"), ("begun_items", "\n  AND nonce = json_extract(told.value, '$[1]')")],
    ),
    (
        _a_list_with_a_hole_is_not_whole,
        [("complete_items", "AND :total = (SELECT count(*) FROM items WHERE run = :run)")],
    ),
]


def _without(parts: list[tuple[str, str]]) -> Mapping[str, str]:
    queries = dict(load_queries())
    for name, clause in parts:
        assert clause in queries[name], f"{name} has no {clause!r}: the proof would prove nothing"
        queries[name] = queries[name].replace(clause, "")
    return queries


@pytest.mark.parametrize(("scenario", "guards"), CASES, ids=[case[0].__name__[1:] for case in CASES])
async def test_the_guard_holds_and_is_needed(
    scenario: Scenario, guards: list[tuple[str, str]], tmp_path: Path
) -> None:
    """I3, I9: sound with the package's own SQL, broken with the guard taken out."""
    clock = FakeClock()
    async with sqlite_store(tmp_path / "sound.db", clock) as store:
        assert await scenario(Desk(store, clock))
    async with sqlite_store(tmp_path / "weak.db", clock, queries=_without(guards)) as store:
        assert not await scenario(Desk(store, clock))
