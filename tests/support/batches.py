"""A bench whose attempts are real batches; only the call of each item is the test's.

async with batches(tmp_path) as here:
    run = await started(here, items=["a", "b"])
    await finish(here, "a")
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from scheduler.engine.itemdesk import StoreDesk
from scheduler.engine.ports import Ended, EndKind, Executor
from scheduler.executors.batch import BatchExecutor
from scheduler.model.items import Item
from scheduler.model.runs import Grant, Run
from tests.support.builders import make_definition
from tests.support.engine import Bench, ScriptedExecution, ScriptedExecutor, bench
from tests.support.executors import surroundings

FAILED = Ended(kind=EndKind.EXITED, exit_code=1)


class ScriptedItems:
    """What a batch asks of `Executors`, answered with calls that end when a test says so."""

    def __init__(self, calls: ScriptedExecutor, folder: Path) -> None:
        self._calls = calls
        self.around = surroundings(folder)

    def with_output(self, _: object) -> ScriptedItems:
        """Scripted calls say nothing."""
        return self

    async def prepared(self, _: Grant) -> Executor:
        """The calls."""
        return self._calls


@asynccontextmanager
async def batches(folder: Path, *, started: bool = True, **options: Any) -> AsyncIterator[Bench]:
    """A bench that runs batches."""
    async with bench(folder, started=False, **options) as here:
        executors: Any = ScriptedItems(here.executor, folder)
        desk = StoreDesk(here.store, here.desk.who, here.log)
        here.runner._executor = BatchExecutor(executors, desk, here.clock)  # noqa: SLF001 - the bench's own is scripted
        if started:
            await here.start()
        yield here


async def started(here: Bench, definition: dict[str, Any] | None = None, **batch: Any) -> Run:
    """A run of a fresh batch job, its first items begun."""
    await here.desk.add(make_definition(manual=True, on_crash="resume", batch=batch, **(definition or {})))
    run = await here.by_hand()
    await here.settle()
    return run


def at_work(here: Bench) -> dict[str, ScriptedExecution]:
    """The calls under way, by the key of their item."""
    live = here.executor.live()
    return {call.grant.item.key: call for call in live if call.grant.item is not None}


async def finish(here: Bench, key: str, ended: Ended | None = None) -> None:
    """The call of this item has ended, by default well."""
    here.executor.finish(at_work(here)[key], ended)
    await here.settle()


async def items(here: Bench, run: Run) -> dict[str, Item]:
    """All items of the run, by key."""
    return {item.key: item for item in await here.store.items(run.id, state=None, after=None, limit=1_000)}


async def states(here: Bench, run: Run) -> list[str]:
    """Their states, in the order of the list."""
    return [item.state.value for item in (await items(here, run)).values()]
