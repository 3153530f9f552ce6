"""A worker of a batch at one store, in the words of the protocol: for races between it and all others."""

from __future__ import annotations

from contextlib import suppress

from scheduler.errors import Conflict
from scheduler.model.items import BegunItem, ItemState, freeze
from scheduler.model.runs import Run
from scheduler.store.values import BeginItems, ItemOutcome, ItemSlice
from tests.support.builders import make_definition
from tests.support.desk import Desk


async def two_items(desk: Desk) -> Run:
    """A run of two frozen items whose doubtful ones are repeated."""
    batch = {"items": ["a", "b"], "unknown": "retry"}
    await desk.add(make_definition(manual=True, on_crash="resume", batch=batch))
    run = (await desk.start()).run
    items = (freeze(0, "a"), freeze(1, "b"))
    await desk.store.put_items(ItemSlice(run_id=run.id, claim=run.claim, items=items))
    await desk.store.complete_items(run.id, run.claim, 2)
    return run


async def begin(desk: Desk, run: Run, limit: int = 1) -> tuple[BegunItem, ...]:
    """Up to `limit` items, begun under the claim of `run`."""
    request = BeginItems(run_id=run.id, claim=run.claim, limit=limit)
    return (await desk.store.begin_items(desk.who, [request]))[0].items


async def end(desk: Desk, run: Run, item: BegunItem, state: ItemState = ItemState.DONE) -> bool:
    """Whether the outcome of this begin was kept."""
    outcome = ItemOutcome(run_id=run.id, index=item.index, nonce=item.nonce, state=state)
    return (await desk.store.end_items([outcome]))[0]


async def follow_choice(desk: Desk, run: Run) -> None:
    """The worker has turned the chosen items pending, as far as its claim lets it."""
    with suppress(Conflict):
        for _ in range(4):
            await desk.store.follow_choice(run.id, run.claim, limit=9)
