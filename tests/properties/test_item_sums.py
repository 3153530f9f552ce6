"""Whatever happens to items in whatever order, the sums on the run and of the days are those of the items."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.errors import SchedulerError
from scheduler.model.items import BegunItem, ItemState, freeze
from scheduler.model.runs import Run, RunState
from scheduler.rules.reconcile import Ending
from scheduler.store.sqlite import FILE_NAME
from scheduler.store.values import BeginItems, ItemOutcome, ItemSlice, SettleItem
from tests.support.builders import make_definition
from tests.support.clock import FakeClock
from tests.support.desk import Desk
from tests.support.stores import dump, sqlite_store

ITEMS = 6
STEPS = st.one_of(
    st.tuples(st.just("begin"), st.integers(1, 4)),
    st.tuples(
        st.just("end"),
        st.integers(0, 20),
        st.sampled_from([ItemState.DONE, ItemState.FAILED, ItemState.UNKNOWN, ItemState.PENDING]),
        st.none() | st.integers(0, 500_000),
    ),
    st.tuples(st.just("follow")),
    st.tuples(st.just("crash")),
    st.tuples(st.just("finish")),
    st.tuples(st.just("retry"), st.booleans()),
    st.tuples(
        st.just("settle"),
        st.integers(0, ITEMS - 1),
        st.sampled_from([ItemState.DONE, ItemState.FAILED, ItemState.PENDING]),
    ),
    st.tuples(st.just("pass"), st.integers(1, 20)),
)


class _World:
    def __init__(self, desk: Desk, clock: FakeClock, run: Run) -> None:
        self.desk = desk
        self.clock = clock
        self.run = run
        self.begun: list[BegunItem] = []

    async def step(self, name: str, *values: Any) -> None:
        """One thing happens; what the store refuses changes nothing, which is the point."""
        live = await self.desk.run(self.run)
        if live.state in (RunState.QUEUED, RunState.WAITING):
            for grant in await self.desk.claim():
                self.run = grant.run
        try:
            await getattr(self, f"_{name}")(*values)
        except SchedulerError:
            return

    async def _follow(self) -> bool:
        """A slice of what was chosen to be begun again, of one item."""
        return await self.desk.store.follow_choice(self.run.id, self.run.claim, limit=1)

    async def _begin(self, limit: int) -> None:
        while not await self._follow():
            continue
        request = BeginItems(run_id=self.run.id, claim=self.run.claim, limit=limit)
        self.begun += (await self.desk.store.begin_items(self.desk.who, [request]))[0].items

    async def _end(self, which: int, state: ItemState, cost: int | None) -> None:
        if self.begun:
            item = self.begun[which % len(self.begun)]
            await self.desk.store.end_items(
                [ItemOutcome(run_id=self.run.id, index=item.index, nonce=item.nonce, state=state, cost=cost)]
            )

    async def _crash(self) -> None:
        if (await self.desk.run(self.run)).state is RunState.RUNNING:
            await self.desk.crash(self.run)

    async def _finish(self) -> None:
        await self.desk.finish(self.run, Ending.ITEMS)

    async def _retry(self, failed_only: bool) -> None:
        await self.desk.store.retry(self.run.id, self.desk.peer, failed_only=failed_only)

    async def _settle(self, index: int, state: ItemState) -> None:
        request = SettleItem(run_id=self.run.id, key=str(index), state=state, peer=self.desk.peer)
        await self.desk.store.settle_item(request)

    async def _pass(self, hours: int) -> None:
        self.clock.move(hours * 3_600_000_000)


@settings(max_examples=40)
@given(steps=st.lists(STEPS, max_size=25), unknown=st.sampled_from(["hold", "retry", "fail"]))
def test_the_sums_are_those_of_the_items(steps: list[tuple[Any, ...]], unknown: str) -> None:
    """Issue 4, points 6 and 8: counts and costs add up after any number of begins, ends and crashes."""
    asyncio.run(_play(steps, unknown))


async def _play(steps: list[tuple[Any, ...]], unknown: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, clock = Path(folder) / FILE_NAME, FakeClock()
        async with sqlite_store(path, clock) as store:
            desk = Desk(store, clock)
            world = _World(desk, clock, await _batch(desk, unknown))
            for step in steps:
                await world.step(*step)
                _judge(dump(path))


async def _batch(desk: Desk, unknown: str) -> Run:
    batch = {"items": list(range(ITEMS)), "unknown": unknown}
    budget = {"per_run": 100.0, "cost_estimate": 0.1}
    await desk.add(make_definition(manual=True, on_crash="resume", max_crashes=0, batch=batch, budget=budget))
    run = (await desk.start()).run
    frozen = tuple(freeze(index, index) for index in range(ITEMS))
    await desk.store.put_items(ItemSlice(run_id=run.id, claim=run.claim, items=frozen))
    await desk.store.complete_items(run.id, run.claim, ITEMS)
    return run


def _judge(tables: dict[str, list[dict[str, Any]]]) -> None:
    (run,) = tables["runs"]
    states = Counter(item["state"] for item in tables["items"])
    told = {state: run[state] for state in ("done", "failed", "unknown")}
    assert told == {state: states[state] for state in ("done", "failed", "unknown")}
    spent = sum(item["spent"] for item in tables["items"])
    assert run["spent"] == spent == sum(day["amount"] for day in tables["spend"])
    assert all(0 <= item["reserved"] <= item["spent"] for item in tables["items"])
    if run["state"] not in ("running", "recovering"):
        assert states["running"] == 0, "a run without a worker, and an item at work"
