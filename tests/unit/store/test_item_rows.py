"""What each verb on items writes: these columns of these rows, while two batches beside it stay as they are.

The batches beside it have the very same keys and states, at other places of their lists.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from scheduler.clock import SECOND
from scheduler.errors import Conflict
from scheduler.model.items import BegunItem, Chosen, ItemCounts, ItemState, freeze
from scheduler.model.jobs import JobId
from scheduler.model.runs import Run
from scheduler.rules.reconcile import Ending
from scheduler.store.schema import load_queries
from scheduler.store.values import BeginItems, Begun, ItemOutcome, ItemSlice, NoBegin, SettleItem
from tests.support.builders import make_definition
from tests.support.clock import START, FakeClock
from tests.support.desk import Desk
from tests.support.stores import sqlite_store
from tests.support.tables import Key, changed, rows_of, write

JOBS = ("a", "b", "c")
RUN, SPEND = ("runs", "b"), ("spend", "b", "2027-01-01")
NOW = START + 6 * SECOND
DONE, FAILED, UNKNOWN, WAITS, WAITS_LONGER, RUNNING, FRESH, LAST = range(8)
"""Places in the list of `b`, and in what state its items are."""


LOST = "its worker was gone, or was stopped, before its outcome was known"


def item(place: int) -> Key:
    return ("items", "b", str(place))


class Mixed:
    """Three batches with an item in each state, and the worker of the middle one."""

    def __init__(self, desk: Desk, path: Path, run: Run, begun: tuple[BegunItem, ...]) -> None:
        self.desk, self.path, self.run, self.begun = desk, path, run, begun
        self.before = rows_of(path)

    def changes(self) -> dict[Key, dict[str, Any] | None]:
        """What is another since this was asked before."""
        before, self.before = self.before, rows_of(self.path)
        return changed(before, self.before)

    def put(self, place: int, column: str, value: object) -> None:
        """The item has this in its row."""
        statement = f"UPDATE items SET {column} = :value WHERE run = :run AND seq = :place"  # noqa: S608
        write(self.path, statement, run=self.run.id, place=place, value=value)

    async def counts(self) -> ItemCounts:
        counts = await self.desk.store.item_counts(self.run.id)
        assert counts is not None
        return counts

    async def end_all(self) -> None:
        """All three runs are cancelled."""
        for run in [run for job in JOBS for run in await self.desk.executed(JobId(job))]:
            await self.desk.finish(run, Ending.CANCELLED)

    async def claim_all(self) -> None:
        """The runs that are queued again are at work under their next claim."""
        self.run = next(grant.run for grant in await self.desk.claim() if grant.run.job == "b")
        self.changes()

    async def begin(self, limit: int) -> Begun:
        request = BeginItems(run_id=self.run.id, claim=self.run.claim, limit=limit)
        return (await self.desk.store.begin_items(self.desk.who, [request]))[0]

    async def end(self, place: int, state: ItemState, **said: Any) -> None:
        nonce = self.begun[place].nonce
        outcome = ItemOutcome(run_id=self.run.id, index=place, nonce=nonce, state=state, **said)
        assert await self.desk.store.end_items([outcome]) == [True]

    async def settle(self, key: str, state: ItemState) -> None:
        request = SettleItem(run_id=self.run.id, key=key, state=state, peer=self.desk.peer)
        await self.desk.store.settle_item(request)


async def make_batch(desk: Desk, job: str, unknown: str) -> tuple[Run, tuple[BegunItem, ...]]:
    batch = {"items": list(range(8)), "unknown": unknown}
    budget = {"per_day": 100.0, "cost_estimate": 0.5}
    await desk.add(make_definition(job, manual=True, on_crash="resume", batch=batch, budget=budget))
    run = (await desk.start(JobId(job))).run
    items = tuple(freeze(place, place) for place in range(8))
    await desk.store.put_items(ItemSlice(run_id=run.id, claim=run.claim, items=items))
    await desk.store.complete_items(run.id, run.claim, 8)
    request = BeginItems(run_id=run.id, claim=run.claim, limit=6)
    begun = (await desk.store.begin_items(desk.who, [request]))[0].items

    def told(place: int, state: ItemState, wait: int = 0) -> ItemOutcome:
        return ItemOutcome(run_id=run.id, index=place, nonce=begun[place].nonce, state=state, wait=wait)

    outcomes = [
        told(DONE, ItemState.DONE),
        told(FAILED, ItemState.FAILED),
        told(UNKNOWN, ItemState.UNKNOWN),
        told(WAITS, ItemState.PENDING, 5 * SECOND),
        told(WAITS_LONGER, ItemState.PENDING, 9 * SECOND),
    ]
    assert all(await desk.store.end_items(outcomes))
    return run, begun


BESIDE = (
    "UPDATE items SET seq = 107 - seq WHERE run = :run",
    "UPDATE items SET seq = seq - 100 WHERE run = :run",
    "UPDATE items SET ready_at = ready_at - 1000000 WHERE run = :run AND seq = 3",
    "UPDATE runs SET done = 90, items_in_a_row = 9, spent = 9 WHERE id = :run",
    "UPDATE spend SET amount = 99900000 WHERE job = :job",
)
"""The neighbours' lists stand the other way round, and their days have cost more."""

OLD = (
    """UPDATE items SET error = 'old', result = '"old"', tries = 3, finished_at = 1""",
    "UPDATE runs SET progress_at = 1",
    "UPDATE jobs SET crashes = 1",
)


@pytest.fixture
def forgets() -> bool:
    """FINISH leaves items at work behind: the look for those is for what nobody has foreseen."""
    return False


@pytest.fixture
def unknown() -> str:
    return "hold"


@pytest.fixture
async def mixed(path: Path, unknown: str, forgets: bool) -> AsyncIterator[Mixed]:
    """At work for six seconds; no column is empty that a verb has to empty."""
    clock, queries = FakeClock(), dict(load_queries())
    if forgets:
        queries["settle_begun"] = "SELECT seq, key FROM items WHERE 0"
    async with sqlite_store(path, clock, queries=queries) as store:
        desk = Desk(store, clock)
        runs = {job: await make_batch(desk, job, unknown) for job in JOBS}
        for job in ("a", "c"):
            names = {"run": runs[job][0].id, "job": job}
            for statement in BESIDE:
                write(path, statement, **names)
        for statement in OLD:
            write(path, statement)
        clock.move(6 * SECOND)
        yield Mixed(desk, path, *runs["b"])


async def test_a_begin_writes_intents_and_reserves(mixed: Mixed) -> None:
    """The item that waits and is due, then a fresh one; their estimates are in every sum."""
    first, second = (await mixed.begin(2)).items

    begun = {"state": "running", "error": None, "reserved": 500_000, "started_at": NOW, "finished_at": None}
    key = f"{mixed.run.id}:{FRESH}"
    assert mixed.changes() == {
        item(WAITS): {**begun, "nonce": first.nonce, "attempts": 2, "ready_at": 0, "spent": 1_000_000},
        item(FRESH): {
            **begun,
            "nonce": second.nonce,
            "claim": 1,
            "effect_key": key,
            "attempts": 1,
            "spent": 500_000,
        },
        RUN: {"spent": 4_000_000, "cost": 4.0, "progress_at": NOW},
        SPEND: {"amount": 4_000_000},
    }


async def test_what_is_due_and_cannot_be_paid_does_not_tell_when_to_come_again(mixed: Mixed) -> None:
    """Only the item whose time is still to come does, of those that wait the first."""
    write(mixed.path, "UPDATE spend SET amount = 99500000 WHERE job = 'b'")
    for place, ready_at in ((FRESH, NOW), (LAST, NOW + 60 * SECOND)):
        mixed.put(place, "ready_at", ready_at)

    begun = await mixed.begin(5)

    assert [one.index for one in begun.items] == [WAITS]
    assert begun.next_ready_at == START + 9 * SECOND


@pytest.mark.parametrize(
    ("state", "said", "row", "sums", "money"),
    [
        (
            ItemState.DONE,
            {"result": '"new"', "cost": 500_001},
            {"error": None, "result": '"new"', "spent": 500_001, "reserved": 0},
            {"done": 2, "items_in_a_row": 0},
            1,
        ),
        (
            ItemState.FAILED,
            {"error": "new", "charged": True},
            {"error": "new", "result": None, "tries": 4, "reserved": 0},
            {"failed": 2, "items_in_a_row": 2},
            0,
        ),
        (
            ItemState.PENDING,
            {"error": "new", "charged": True, "wait": 7 * SECOND, "cost": 0},
            {
                "error": "new",
                "result": None,
                "tries": 4,
                "ready_at": NOW + 7 * SECOND,
                "spent": 0,
                "reserved": 0,
            },
            {},
            -500_000,
        ),
        (
            ItemState.UNKNOWN,
            {"error": "new", "cost": 600_000},
            {"error": "new", "result": None, "spent": 600_000, "reserved": 600_000},
            {"unknown": 2},
            100_000,
        ),
    ],
)
async def test_an_outcome_writes_its_item_and_the_sums(
    mixed: Mixed,
    state: ItemState,
    said: dict[str, Any],
    row: dict[str, Any],
    sums: dict[str, Any],
    money: int,
) -> None:
    """State, words, tries and cost of the item; of the run what follows; a done item forgives crashes."""
    await mixed.end(RUNNING, state, **said)

    expected: dict[Key, dict[str, Any]] = {
        item(RUNNING): {"state": state.value, "finished_at": NOW, **row},
        RUN: {"progress_at": NOW, **sums},
    }
    if money:
        spent = 3_000_000 + money
        expected[RUN] |= {"spent": spent, "cost": spent / 1_000_000}
        expected[SPEND] = {"amount": spent}
    if state is ItemState.DONE:
        expected["jobs", "b"] = {"crashes": 0}
    assert mixed.changes() == expected


async def test_a_late_proof_is_no_sign_of_life_and_forgives_no_paused_job(mixed: Mixed) -> None:
    """The run has ended, and the count of crashes stands beside the pause as its evidence."""
    await mixed.end_all()
    await mixed.desk.pause(JobId("b"))
    mixed.desk.clock.move(SECOND)
    mixed.changes()

    await mixed.end(UNKNOWN, ItemState.DONE, cost=500_000)

    told = mixed.changes()
    proved = {"state": "done", "error": None, "result": None, "reserved": 0, "finished_at": NOW + SECOND}
    assert told.pop(item(UNKNOWN)) == proved
    assert told == {RUN: {"done": 2, "unknown": 1, "items_in_a_row": 0, "message": await message(mixed)}}


async def message(mixed: Mixed) -> str | None:
    return (await mixed.desk.run(mixed.run)).message


@pytest.mark.parametrize(
    ("unknown", "row", "sums"),
    [
        ("hold", {"state": "unknown", "error": LOST}, {"unknown": 2}),
        ("fail", {"state": "failed", "error": LOST}, {"failed": 2}),
        ("retry", {"state": "pending", "error": None, "ready_at": 1}, {}),
    ],
)
async def test_a_recovery_settles_what_was_at_work(
    mixed: Mixed, row: dict[str, Any], sums: dict[str, Any]
) -> None:
    """By the job's rule; nothing else of the list is touched."""
    await mixed.desk.crash(mixed.run)

    told = mixed.changes()
    assert {key: columns for key, columns in told.items() if key[0] == "items"} == {
        item(RUNNING): {"finished_at": NOW, **row}
    }
    assert sums.items() <= (told[RUN] or {}).items()


@pytest.mark.parametrize("forgets", [True])
@pytest.mark.parametrize(
    ("unknown", "later", "row", "sums"),
    [
        ("hold", "ended", {"state": "unknown", "error": LOST}, {"unknown": 2}),
        ("fail", "claimed", {"state": "failed", "error": LOST}, {"failed": 2}),
        ("retry", "ended", {"state": "pending", "error": None, "ready_at": 1}, {}),
    ],
)
async def test_what_an_earlier_claim_left_at_work_is_settled(
    mixed: Mixed, later: str, row: dict[str, Any], sums: dict[str, Any]
) -> None:
    """In a run that has ended, and in one that goes on under another claim; in that one alone."""
    if later == "ended":
        await mixed.desk.finish(mixed.run, Ending.CANCELLED)
    else:
        await mixed.desk.crash(mixed.run)
        await mixed.desk.claim()
    mixed.changes()
    assert (await mixed.desk.store.look()).wedged == (mixed.run.id,)

    assert await mixed.desk.store.settle_wedged(mixed.run.id) == [str(RUNNING)]

    told = mixed.changes()
    run = told.pop(RUN, None) or {}
    assert told == {item(RUNNING): {"finished_at": NOW, **row}}
    assert sums.items() <= run.items()
    assert (await mixed.desk.store.look()).wedged == ()


async def test_an_item_at_work_is_left_to_its_worker(mixed: Mixed) -> None:
    """Also while its run is being recovered, and whatever has become of the runs beside it."""
    for job in ("a", "c"):
        (run,) = await mixed.desk.executed(JobId(job))
        await mixed.desk.finish(run, Ending.CANCELLED)
    await mixed.desk.take(mixed.run)
    mixed.changes()

    assert (await mixed.desk.store.look()).wedged == ()
    assert await mixed.desk.store.settle_wedged(mixed.run.id) == []
    assert mixed.changes() == {}


@pytest.mark.parametrize(
    ("place", "state", "row", "sums"),
    [
        (FRESH, ItemState.DONE, {"error": None}, {"done": 2}),
        (WAITS, ItemState.FAILED, {"error": "settled by uid:1000", "ready_at": 0}, {"failed": 2}),
        (FAILED, ItemState.PENDING, {"error": None, "ready_at": 1}, {"failed": 0}),
        (UNKNOWN, ItemState.DONE, {"error": None}, {"unknown": 0, "done": 2}),
        (LAST, ItemState.PENDING, {"error": None, "ready_at": 1}, {}),
    ],
)
async def test_an_operators_word_writes_its_item_and_the_sums(
    mixed: Mixed, place: int, state: ItemState, row: dict[str, Any], sums: dict[str, int]
) -> None:
    """Whatever it was, but done or at work: its tries count anew; the last one of the list was skipped."""
    mixed.put(LAST, "state", "skipped")
    mixed.changes()

    await mixed.settle(str(place), state)

    assert mixed.changes() == {
        item(place): {"state": state.value, "tries": 0, "finished_at": NOW, **row},
        RUN: {"progress_at": NOW, **sums},
    }


async def test_named_items_are_chosen_and_what_waited_is_not(mixed: Mixed) -> None:
    """A failed one, a fresh one and one that waited are marked; all other marks go."""
    await mixed.end_all()
    await mixed.settle(str(UNKNOWN), ItemState.PENDING)
    mixed.changes()

    await mixed.desk.store.retry(mixed.run.id, mixed.desk.peer, keys=[str(FAILED), str(WAITS), str(FRESH)])

    told = mixed.changes()
    run = told.pop(RUN) or {}
    assert told == {
        item(FAILED): {"state": "pending", "ready_at": 1, "tries": 0},
        item(WAITS): {"ready_at": 1, "tries": 0},
        item(FRESH): {"ready_at": 1, "tries": 0},
        item(UNKNOWN): {"ready_at": 0},
        item(WAITS_LONGER): {"ready_at": 0},
    }
    assert (run["failed"], run["items_chosen"], run["items_in_a_row"]) == (0, Chosen.MARKED, 0)
    counts = await mixed.counts()
    assert (counts.failed, counts.chosen, counts.pending) == (0, 3, 6)


async def test_a_named_choice_tells_what_else_has_failed(mixed: Mixed) -> None:
    """Those were not chosen, so they stay failed and are not to be begun."""
    await mixed.end_all()

    await mixed.desk.store.retry(mixed.run.id, mixed.desk.peer, keys=[str(FRESH)])

    counts = await mixed.counts()
    assert (counts.failed, counts.chosen) == (1, 1)


@pytest.mark.parametrize("jobs", [JOBS, ("b",)])
async def test_the_choice_of_all_that_failed_is_followed_slice_by_slice(
    mixed: Mixed, jobs: tuple[str, ...]
) -> None:
    """Marks go first, one at a time, then the failed items get theirs; the counts tell it all the time."""
    await mixed.end_all()
    await mixed.settle(str(UNKNOWN), ItemState.FAILED)
    mixed.put(LAST, "ready_at", 1)
    runs = [run for job in jobs for run in await mixed.desk.executed(JobId(job))]
    for run in runs:
        await mixed.desk.store.retry(run.id, mixed.desk.peer, failed_only=True)
    await mixed.claim_all()
    counts = await mixed.counts()
    assert (counts.failed, counts.chosen, counts.pending) == (0, 2, 6)

    steps = []
    for _ in range(8):
        followed = await mixed.desk.store.follow_choice(mixed.run.id, mixed.run.claim, limit=1)
        steps.append((followed, mixed.changes()))
        counts = await mixed.counts()
        assert (counts.failed, counts.chosen, counts.pending) == (0, 2, 6)

    assert steps == [
        (False, {item(LAST): {"ready_at": 0}}),
        (False, {item(WAITS): {"ready_at": 0}}),
        (False, {item(WAITS_LONGER): {"ready_at": 0}}),
        (False, {RUN: {"items_chosen": Chosen.MARKING}}),
        (
            False,
            {item(FAILED): {"state": "pending", "ready_at": 1, "tries": 0}, RUN: {"failed": 1}},
        ),
        (False, {item(UNKNOWN): {"state": "pending", "ready_at": 1}, RUN: {"failed": 0}}),
        (False, {RUN: {"items_chosen": Chosen.MARKED}}),
        (True, {}),
    ]


async def test_a_choice_that_is_cancelled_in_the_queue_chooses_nothing(mixed: Mixed) -> None:
    """Its failed items are failed again, and none of them is to be begun."""
    await mixed.end_all()
    await mixed.desk.store.retry(mixed.run.id, mixed.desk.peer, failed_only=True)

    await mixed.desk.cancel(mixed.run)

    counts = await mixed.counts()
    assert (counts.failed, counts.chosen) == (1, 0)


async def test_a_run_that_its_items_end_well_is_the_only_one(desk: Desk, path: Path) -> None:
    """Runs beside it that stand as it did stay in doubt."""
    runs = []
    for job in JOBS:
        await desk.add(make_definition(job, manual=True, batch={"items": [0]}, on_crash="resume"))
        run = (await desk.start(JobId(job))).run
        await desk.store.put_items(ItemSlice(run_id=run.id, claim=run.claim, items=(freeze(0, 0),)))
        await desk.store.complete_items(run.id, run.claim, 1)
        begun = await desk.store.begin_items(desk.who, [BeginItems(run_id=run.id, claim=1, limit=1)])
        nonce = begun[0].items[0].nonce
        outcome = ItemOutcome(run_id=run.id, index=0, nonce=nonce, state=ItemState.UNKNOWN)
        await desk.store.end_items([outcome])
        runs.append((await desk.finish(run, Ending.ITEMS, reason=None)).run)
    before = rows_of(path)

    request = SettleItem(run_id=runs[1].id, key="0", state=ItemState.DONE, peer=desk.peer)
    await desk.store.settle_item(request)

    told = changed(before, rows_of(path))
    assert told.pop(item(0)) == {"state": "done"}
    assert told == {RUN: {"state": "succeeded", "reason": None, "message": None, "done": 1, "unknown": 0}}


# --- lists that are not whole ---
@pytest.fixture
async def lists(desk: Desk) -> list[Run]:
    """Three runs with three items each, of which the middle one's stand behind the others'."""
    runs = []
    for job, first in zip(JOBS, (0, 10, 0), strict=True):
        await desk.add(make_definition(job, manual=True, batch={"items": [0]}, on_crash="resume"))
        run = (await desk.start(JobId(job))).run
        items = tuple(freeze(place, place) for place in range(first, first + 3))
        await desk.store.put_items(ItemSlice(run_id=run.id, claim=run.claim, items=items))
        runs.append(run)
    (last,) = [run for run in runs if run.job == "c"]
    items = tuple(freeze(place, place) for place in range(10, 13))
    await desk.store.put_items(ItemSlice(run_id=last.id, claim=last.claim, items=items))
    return runs


async def test_a_list_is_cleared_in_slices(desk: Desk, path: Path, lists: list[Run]) -> None:
    """Of this run alone, so many at a time, until it says that nothing is left."""
    before, run = rows_of(path), lists[1]

    assert not await desk.store.clear_items(run.id, run.claim, limit=2)
    assert changed(before, rows_of(path)) == {item(10): None, item(11): None}
    assert await desk.store.clear_items(run.id, run.claim, limit=2)

    assert changed(before, rows_of(path)) == {item(place): None for place in (10, 11, 12)}


async def test_a_whole_list_is_this_runs_alone(desk: Desk, path: Path, lists: list[Run]) -> None:
    """Its sums begin at nothing; the lists beside it are not whole, and do not count."""
    before, run = rows_of(path), lists[1]

    await desk.store.complete_items(run.id, run.claim, 3)

    sums = {"items_total": 3, "total": 3, "done": 0, "failed": 0, "unknown": 0}
    assert changed(before, rows_of(path)) == {RUN: sums}


async def test_a_list_that_was_worked_at_is_not_completed_again(mixed: Mixed) -> None:
    """It is whole, and its sums stay."""
    with pytest.raises(Conflict):
        await mixed.desk.store.complete_items(mixed.run.id, mixed.run.claim, 8)

    assert mixed.changes() == {}


@pytest.mark.parametrize("later", ["waits", "is claimed again"])
async def test_a_worker_that_lost_its_claim_does_not_write_the_list(
    desk: Desk, path: Path, lists: list[Run], later: str
) -> None:
    """I3: it clears nothing, adds nothing, and completes nothing; keys elsewhere are not held against it."""
    run = lists[1]
    await desk.crash(run)
    if later == "is claimed again":
        await desk.claim()
    before = rows_of(path)
    items = (freeze(0, 1), freeze(13, 13))

    assert await desk.store.clear_items(run.id, run.claim, limit=9), "there is nothing left for it to clear"
    with pytest.raises(Conflict):
        await desk.store.put_items(ItemSlice(run_id=run.id, claim=run.claim, items=items))
    with pytest.raises(Conflict):
        await desk.store.complete_items(run.id, run.claim, 3)
    assert changed(before, rows_of(path)) == {}


async def test_a_worker_that_lost_its_claim_begins_nothing(mixed: Mixed) -> None:
    """I3: runs beside it that go on under the same number are not its own."""
    await mixed.desk.crash(mixed.run)
    mixed.changes()

    begun = await mixed.begin(2)

    assert (begun.items, begun.stop) == ((), NoBegin.FENCED)
    assert mixed.changes() == {}
