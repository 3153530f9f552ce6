"""Guards of items that no sound daemon needs: each holds against a flaw elsewhere, and is needed then."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing, suppress
from pathlib import Path

import pytest

from scheduler.errors import Conflict
from scheduler.model.items import ItemCounts, ItemState
from scheduler.model.jobs import BatchPolicy
from scheduler.model.runs import Run
from scheduler.rules.batch import BatchEnd, batch_end
from scheduler.rules.reconcile import Ending
from scheduler.store.schema import load_queries
from scheduler.store.values import SettleItem
from tests.support.clock import FakeClock
from tests.support.desk import Desk
from tests.support.items import begin, end, follow_choice, two_items
from tests.support.stores import sqlite_store


async def _failed(desk: Desk) -> Run:
    """A run of two items that both failed, claimed again to have them again."""
    run = await two_items(desk)
    for item in await begin(desk, run, limit=2):
        await end(desk, run, item, ItemState.FAILED)
    await desk.finish(run, Ending.ITEMS)
    await desk.store.retry(run.id, desk.peer)
    (grant,) = await desk.claim()
    return grant.run


async def _what_failed_again_is_not_chosen_again_by_the_next_claim(desk: Desk) -> bool:
    run = await _failed(desk)
    await follow_choice(desk, run)
    for item in await begin(desk, run, limit=2):
        await end(desk, run, item, ItemState.FAILED)
    await desk.crash(run)
    (grant,) = await desk.claim()
    await follow_choice(desk, grant.run)
    return not await begin(desk, grant.run, limit=2)


async def _an_item_that_is_done_is_not_chosen_on_an_old_read(desk: Desk) -> bool:
    run = await two_items(desk)
    done, failed = await begin(desk, run, limit=2)
    await end(desk, run, done)
    await end(desk, run, failed, ItemState.FAILED)
    await desk.finish(run, Ending.ITEMS)
    with suppress(Conflict):
        await desk.store.retry(run.id, desk.peer, keys=[done.key])
    left = await desk.store.items(run.id, state="done", after=None, limit=9)
    return [item.key for item in left] == [done.key]


async def _a_look_finds_what_an_ended_run_left_begun(desk: Desk) -> bool:
    run = await two_items(desk)
    (item,) = await begin(desk, run)
    await desk.finish(run, Ending.CANCELLED)
    found = (await desk.store.look()).wedged
    settled = [key for run_id in found for key in await desk.store.settle_wedged(run_id)]
    return settled == [item.key] and (await desk.store.look()).wedged == ()


async def _a_look_finds_what_an_earlier_claim_left_begun(desk: Desk) -> bool:
    run = await two_items(desk)
    (item,) = await begin(desk, run)
    await desk.crash(run)
    (grant,) = await desk.claim()
    await begin(desk, grant.run, limit=2)
    found = (await desk.store.look()).wedged
    settled = [key for run_id in found for key in await desk.store.settle_wedged(run_id)]
    return settled == [item.key]


Scenario = Callable[[Desk], Awaitable[bool]]

_LEFT_BEGUN = ("settle_begun", "AND state = 'running'\n", "AND state = 'nothing'\n")
"""A FINISH that forgets the items at work: the look apart is for what nobody has foreseen."""

_READ_OF_OLD = ("item_of_key", "SELECT *", "SELECT 'failed' AS state")
"""An item that is read as it was when it had failed, although it was done since."""

FLAWED: list[tuple[Scenario, tuple[str, str, str], tuple[str, str, str]]] = [
    (
        _a_look_finds_what_an_ended_run_left_begun,
        _LEFT_BEGUN,
        ("wedged_runs", "runs.state NOT IN ('running', 'recovering') OR", ""),
    ),
    (
        _a_look_finds_what_an_earlier_claim_left_begun,
        _LEFT_BEGUN,
        ("wedged_runs", "OR items.claim < runs.claim", ""),
    ),
    (
        _an_item_that_is_done_is_not_chosen_on_an_old_read,
        _READ_OF_OLD,
        ("choose_keys", "AND state IN ('failed', 'pending')", ""),
    ),
    (
        _what_failed_again_is_not_chosen_again_by_the_next_claim,
        ("follow_choice", "items_chosen = :next", "items_chosen = :next"),
        ("follow_choice", "items_chosen = :next", "items_chosen = items_chosen + 0 * :next"),
    ),
]


def _changed(*changes: tuple[str, str, str]) -> Mapping[str, str]:
    queries = dict(load_queries())
    for name, clause, instead in changes:
        assert clause in queries[name], f"{name} has no {clause!r}: the proof would prove nothing"
        queries[name] = queries[name].replace(clause, instead)
    return queries


@pytest.mark.parametrize(("scenario", "flaw", "guard"), FLAWED, ids=[case[0].__name__[1:] for case in FLAWED])
async def test_the_guard_holds_against_a_flaw_elsewhere_and_is_needed(
    scenario: Scenario, flaw: tuple[str, str, str], guard: tuple[str, str, str], tmp_path: Path
) -> None:
    """I9: what no sound daemon leaves behind is found and refused all the same."""
    clock = FakeClock()
    async with sqlite_store(tmp_path / "sound.db", clock, queries=_changed(flaw)) as store:
        assert await scenario(Desk(store, clock))
    async with sqlite_store(tmp_path / "weak.db", clock, queries=_changed(flaw, guard)) as store:
        assert not await scenario(Desk(store, clock))


def _unlocked() -> dict[str, str]:
    """The named queries without any transaction: what others write comes in between."""
    locks = ("begin", "commit", "rollback", "savepoint", "release_savepoint", "rollback_to_savepoint")
    return {**load_queries(), **dict.fromkeys(locks, "SELECT 1")}


@pytest.mark.parametrize(
    ("meanwhile", "guard", "kept"),
    [
        ("UPDATE runs SET state = 'queued'", "\n  AND state = :seen_state", "queued"),
        ("UPDATE runs SET claim = claim + 1", "\n  AND claim = :seen_claim", "partial"),
    ],
)
async def test_a_settlement_does_not_judge_a_run_that_moved_on(
    path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: str, guard: str, kept: str
) -> None:
    """I3: without the transaction, what came in between stands; without its guard it is written over."""
    clock = FakeClock()

    def interrupted(policy: BatchPolicy | None, counts: ItemCounts) -> BatchEnd | None:
        with closing(sqlite3.connect(path)) as db, db:
            db.execute(meanwhile)
        return batch_end(policy, counts)

    async def settled(queries: Mapping[str, str]) -> str:
        async with sqlite_store(path, clock) as store:
            desk = Desk(store, clock)
            run = await two_items(desk)
            for item, state in zip(await begin(desk, run, 2), ("done", "unknown"), strict=True):
                await end(desk, run, item, ItemState(state))
            await desk.finish(run, Ending.ITEMS)
        monkeypatch.setattr("scheduler.store.settling.batch_end", interrupted)
        async with sqlite_store(path, clock, queries=queries) as store:
            desk = Desk(store, clock)
            request = SettleItem(run_id=run.id, key="b", state=ItemState.DONE, peer=desk.peer)
            await store.settle_item(request)
            state = (await desk.run(run)).state.value
        monkeypatch.undo()
        path.unlink()
        return state

    queries = _unlocked()
    assert await settled(queries) == kept
    assert guard in queries["settle_run"], "the proof would prove nothing"
    assert await settled({**queries, "settle_run": queries["settle_run"].replace(guard, "")}) == "succeeded"
