"""Each guard of an item's begin and end holds, and its scenario goes wrong without it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from scheduler.clock import MINUTE
from scheduler.errors import Conflict
from scheduler.model.items import MONEY, BegunItem, ItemState, freeze
from scheduler.model.jobs import PauseMode
from scheduler.model.runs import Run, RunState
from scheduler.rules.reconcile import Ending
from scheduler.store.schema import load_queries
from scheduler.store.values import ItemOutcome, ItemSlice, SettleItem
from tests.support.builders import make_definition
from tests.support.clock import FakeClock
from tests.support.desk import Desk
from tests.support.items import begin, end, follow_choice, two_items
from tests.support.stores import sqlite_store


async def _nothing_begins_after_a_pause(desk: Desk) -> bool:
    run = await two_items(desk)
    await desk.pause(mode=PauseMode.ITEM)
    return not await begin(desk, run)


async def _nothing_begins_under_an_old_claim(desk: Desk) -> bool:
    run = await two_items(desk)
    await desk.crash(run)
    await desk.claim()
    return not await begin(desk, run)


async def _nothing_begins_in_a_run_that_waits(desk: Desk) -> bool:
    run = await two_items(desk)
    await desk.pause(mode=PauseMode.ITEM)
    await desk.finish(run, Ending.ITEMS)
    await desk.resume()
    return not await begin(desk, run)


async def _a_done_item_is_not_begun(desk: Desk) -> bool:
    run = await two_items(desk)
    (item,) = await begin(desk, run)
    await end(desk, run, item)
    return all(other.key != item.key for other in await begin(desk, run))


async def _a_done_item_stays_done(desk: Desk) -> bool:
    run = await two_items(desk)
    (item,) = await begin(desk, run)
    await end(desk, run, item)
    await end(desk, run, item, ItemState.FAILED)
    return (await desk.store.item(run.id, item.key)).state is ItemState.DONE


async def _an_old_worker_ends_no_new_begin(desk: Desk) -> bool:
    run = await two_items(desk)
    (old,) = await begin(desk, run)
    await desk.crash(run)
    (grant,) = await desk.claim()
    (new,) = await begin(desk, grant.run)
    assert new.key == old.key
    await end(desk, run, old, ItemState.FAILED)
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


async def _a_whole_list_takes_nothing_more(desk: Desk) -> bool:
    run = await two_items(desk)
    with suppress(Conflict):
        await desk.store.put_items(ItemSlice(run_id=run.id, claim=run.claim, items=(freeze(2, "c"),)))
    return len(await desk.store.items(run.id, state=None, after=None, limit=9)) == 2


async def _a_whole_list_is_not_cleared(desk: Desk) -> bool:
    run = await two_items(desk)
    await desk.store.clear_items(run.id, run.claim, limit=9)
    return len(await desk.store.items(run.id, state=None, after=None, limit=9)) == 2


async def _an_item_is_not_tried_again_before_its_time(desk: Desk) -> bool:
    run = await two_items(desk)
    (item,) = await begin(desk, run)
    outcome = ItemOutcome(
        run_id=run.id, index=item.index, nonce=item.nonce, state=ItemState.PENDING, wait=MINUTE
    )
    await desk.store.end_items([outcome])
    return all(other.key != item.key for other in await begin(desk, run, limit=2))


async def _a_late_finish_leaves_the_items_of_the_next_claim_alone(desk: Desk) -> bool:
    run = await two_items(desk)
    await desk.crash(run)
    (grant,) = await desk.claim()
    (item,) = await begin(desk, grant.run)
    await desk.finish(run, Ending.ITEMS)
    return (await desk.store.item(run.id, item.key)).state is ItemState.RUNNING


async def _a_finish_of_a_recovery_leaves_a_run_at_work_alone(desk: Desk) -> bool:
    run = await two_items(desk)
    (item,) = await begin(desk, run)
    await desk.finish(run, Ending.CRASHED, expects=RunState.RECOVERING)
    return (await desk.store.item(run.id, item.key)).state is ItemState.RUNNING


async def _an_item_at_work_is_not_wedged(desk: Desk) -> bool:
    run = await two_items(desk)
    (item,) = await begin(desk, run)
    await desk.store.settle_wedged(run.id)
    return (await desk.store.item(run.id, item.key)).state is ItemState.RUNNING


async def _an_operator_does_not_undo_a_done_item(desk: Desk) -> bool:
    run = await two_items(desk)
    (item,) = await begin(desk, run)
    await end(desk, run, item)
    return await _stays(desk, run, item, ItemState.DONE)


async def _an_operator_does_not_settle_an_item_at_work(desk: Desk) -> bool:
    run = await two_items(desk)
    (item,) = await begin(desk, run)
    return await _stays(desk, run, item, ItemState.RUNNING)


async def _stays(desk: Desk, run: Run, item: BegunItem, state: ItemState) -> bool:
    """An operator says "run it again"; the item is as before."""
    request = SettleItem(run_id=run.id, key=item.key, state=ItemState.PENDING, peer=desk.peer)
    with suppress(Conflict):
        await desk.store.settle_item(request)
    return (await desk.store.item(run.id, item.key)).state is state


async def _a_retry_of_what_failed_leaves_done_and_unknown_items_alone(desk: Desk) -> bool:
    run = await two_items(desk)
    (done,) = await begin(desk, run)
    await end(desk, run, done)
    (failed,) = await begin(desk, run)
    await end(desk, run, failed, ItemState.FAILED)
    await desk.finish(run, Ending.ITEMS)
    await desk.store.retry(run.id, desk.peer)
    (grant,) = await desk.claim()
    await follow_choice(desk, grant.run)
    return (await desk.store.item(run.id, done.key)).state is ItemState.DONE


async def _a_look_finds_no_item_at_work(desk: Desk) -> bool:
    run = await two_items(desk)
    await begin(desk, run)
    return (await desk.store.look()).wedged == ()


async def _a_look_finds_no_item_that_ended(desk: Desk) -> bool:
    run = await two_items(desk)
    for item in await begin(desk, run, limit=2):
        await end(desk, run, item)
    await desk.finish(run, Ending.ITEMS)
    return (await desk.store.look()).wedged == ()


Scenario = Callable[[Desk], Awaitable[bool]]
CASES: list[tuple[Scenario, list[tuple[str, str]]]] = [
    (_nothing_begins_after_a_pause, [("begin_items", " AND wish = 'run'")]),
    (_nothing_begins_under_an_old_claim, [("begin_items", " AND claim = :claim")]),
    (_nothing_begins_in_a_run_that_waits, [("begin_items", " AND state = 'running'")]),
    (
        _a_done_item_is_not_begun,
        [("begin_items", "AND +state = 'pending'"), ("fresh_items", "AND state = 'pending'")],
    ),
    (
        _a_done_item_stays_done,
        [
            ("begun_items", "AND state IN ('running', 'unknown')"),
            ("end_item", "AND state IN ('running', 'unknown')"),
        ],
    ),
    (
        _an_old_worker_ends_no_new_begin,
        [
            ("end_item", "AND nonce = :nonce"),
            ("begun_items", "\n  AND nonce = json_extract(told.value, '$[1]')"),
        ],
    ),
    (_a_whole_list_takes_nothing_more, [("put_items", " AND items_total IS NULL")]),
    (_a_whole_list_is_not_cleared, [("clear_items", " AND items_total IS NULL")]),
    (_an_item_is_not_tried_again_before_its_time, [("due_items", "AND ready_at BETWEEN 1 AND :now")]),
    (
        _a_late_finish_leaves_the_items_of_the_next_claim_alone,
        [("settle_begun", " AND claim = :claim")],
    ),
    (
        _a_finish_of_a_recovery_leaves_a_run_at_work_alone,
        [("settle_begun", " AND state = :expects")],
    ),
    (
        _an_item_at_work_is_not_wedged,
        [("settle_wedged", " AND (state NOT IN ('running', 'recovering') OR items.claim < claim)")],
    ),
    (
        _an_operator_does_not_undo_a_done_item,
        [("settle_item", "AND state IN ('pending', 'failed', 'unknown', 'skipped')")],
    ),
    (
        _an_operator_does_not_settle_an_item_at_work,
        [("settle_item", "AND state IN ('pending', 'failed', 'unknown', 'skipped')")],
    ),
    (
        _a_retry_of_what_failed_leaves_done_and_unknown_items_alone,
        [("choose_failed", " AND state = 'failed'")],
    ),
    (
        _a_look_finds_no_item_at_work,
        [("wedged_runs", "AND (runs.state NOT IN ('running', 'recovering') OR items.claim < runs.claim)")],
    ),
    (_a_look_finds_no_item_that_ended, [("wedged_runs", "items.state = 'running'\n  AND")]),
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


async def _spent_of(desk: Desk) -> int:
    """What a batch has spent that may spend one unit, begun one item after another."""
    batch = {"items": ["a", "b"], "unknown": "retry"}
    budget = {"per_run": 1.0, "cost_estimate": 1.0}
    await desk.add(make_definition(manual=True, on_crash="resume", batch=batch, budget=budget))
    run = (await desk.start()).run
    items = (freeze(0, "a"), freeze(1, "b"))
    await desk.store.put_items(ItemSlice(run_id=run.id, claim=run.claim, items=items))
    await desk.store.complete_items(run.id, run.claim, 2)
    for _ in range(2):
        for item in await begin(desk, run):
            await end(desk, run, item)
    return sum(item.cost for item in await desk.store.items(run.id, state=None, after=None, limit=9))


async def test_the_cap_holds_and_its_rule_is_needed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The item that would pass the cap is not begun; with a rule that allows everything it is."""
    clock = FakeClock()
    async with sqlite_store(path, clock) as store:
        assert await _spent_of(Desk(store, clock)) == MONEY
    monkeypatch.setattr("scheduler.store.beginning.affordable", lambda _, wanted, **__: wanted)
    async with sqlite_store(path.with_name("weak.db"), clock) as store:
        assert await _spent_of(Desk(store, clock)) == 2 * MONEY


async def test_a_draining_daemon_is_stopped_by_its_own_word(tmp_path: Path) -> None:
    """I12: the same begin that a draining daemon is refused is granted to one that does not drain."""
    clock = FakeClock()
    async with sqlite_store(tmp_path / "store.db", clock) as store:
        desk = Desk(store, clock)
        run = await two_items(desk)
        desk.who.draining = True
        assert not await begin(desk, run)
        desk.who.draining = False
        assert await begin(desk, run)
