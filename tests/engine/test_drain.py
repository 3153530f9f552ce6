"""The stop of the engine: what was on its way is not forgotten, and no wait is without end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from scheduler.clock import MINUTE, SECOND
from scheduler.errors import Draining, StoreUnavailable
from tests.support.builders import make_definition
from tests.support.clock import START
from tests.support.engine import Bench, bench
from tests.support.executors import until

pytestmark = pytest.mark.asyncio


def hold_back(here: Bench, verb: str) -> tuple[asyncio.Event, asyncio.Event]:
    """(committed, let go): the verb's answer is kept back after its commit until it is let go."""
    committed, let_go = asyncio.Event(), asyncio.Event()
    real = getattr(here.store, verb)

    async def late(*args: Any, **values: Any) -> Any:
        answer = await real(*args, **values)
        committed.set()
        await let_go.wait()
        return answer

    here.store.__dict__[verb] = late
    return committed, let_go


@pytest.mark.parametrize("verb", ["fire", "claim"])
async def test_claim_that_committed_just_before_the_stop_is_part_of_the_drain(
    tmp_path: Path, verb: str
) -> None:
    """I12: the drain waits for the tick under way, so a run whose claim is on disk runs and is recorded."""
    async with bench(tmp_path) as here:
        await here.desk.add(make_definition(every=MINUTE))
        if verb == "claim":
            here.desk.who.max_running = 0
        here.engine.wake()
        await here.pass_time(MINUTE - SECOND)
        if verb == "claim":
            await here.pass_time(SECOND)
            here.desk.who.max_running = 1
        committed, let_go = hold_back(here, verb)
        if verb == "claim":
            here.engine.wake()
        await here.clock.advance(SECOND)
        here.timer.at = None
        here.engine.wake()
        await committed.wait()
        draining = asyncio.create_task(here.drain.run())
        for _ in range(50):
            await asyncio.sleep(0)
        assert not draining.done()
        let_go.set()
        del here.store.__dict__[verb]
        await until(here.executor.live)
        here.executor.finish(here.executor.live()[0])
        await draining
        (run,) = await here.desk.executed()
        assert (run.state, run.fire_time) == ("succeeded", START + MINUTE)


async def test_manual_start_that_committed_just_before_the_stop_is_part_of_the_drain(tmp_path: Path) -> None:
    """I12: so does a start by hand whose answer is still on its way."""
    async with bench(tmp_path) as here:
        await here.desk.add(make_definition(manual=True))
        committed, let_go = hold_back(here, "start")
        asking = asyncio.create_task(here.by_hand())
        await committed.wait()
        draining = asyncio.create_task(here.drain.run())
        for _ in range(50):
            await asyncio.sleep(0)
        assert not draining.done()
        let_go.set()
        run = await asking
        await until(here.executor.live)
        here.executor.finish(here.executor.live()[0])
        await draining
        assert (await here.desk.run(run)).state == "succeeded"


async def test_run_that_starts_after_the_cut_is_cut_too(tmp_path: Path) -> None:
    """I12: with no time to drain, a claim that was on its way is ended like the others and recorded."""
    async with bench(tmp_path, drain_timeout=0) as here:
        await here.desk.add(make_definition(manual=True))
        committed, let_go = hold_back(here, "start")
        asking = asyncio.create_task(here.by_hand())
        await committed.wait()
        draining = asyncio.create_task(here.drain.run())
        for _ in range(50):
            await asyncio.sleep(0)
        let_go.set()
        run = await asking
        await draining
        assert (await here.desk.run(run)).state == "interrupted"


async def test_nothing_starts_once_the_stop_has_begun(tmp_path: Path) -> None:
    """I12: a fire time that passes stays due, and a start by hand is refused."""
    async with bench(tmp_path) as here:
        await here.desk.add(make_definition(every=MINUTE))
        here.engine.wake()
        await here.settle()
        await here.drain.run()
        await here.pass_time(2 * MINUTE)
        with pytest.raises(Draining):
            await here.by_hand()
        assert await here.desk.runs() == []
        assert (await here.desk.job()).next_fire_at == START + MINUTE


async def test_handler_that_cannot_be_ended_is_recorded_when_the_process_exits(tmp_path: Path) -> None:
    """I12: what swallows its cancellation is told as stuck, recorded as cut, and holds nothing up."""
    async with bench(tmp_path) as here:
        await here.desk.add(make_definition(manual=True))
        run = await here.by_hand()
        await here.settle()
        here.executor.live()[0].stubborn = True
        draining = asyncio.create_task(here.drain.run())
        await here.pass_time(MINUTE)
        await draining
        assert (await here.desk.run(run)).state == "interrupted"


async def test_outcome_that_cannot_be_written_holds_the_stop_up_for_seconds_only(tmp_path: Path) -> None:
    """I12, I14: with a store that never answers the drain ends all the same, in bounded time."""
    async with bench(tmp_path, drain_timeout=10 * SECOND) as here:
        await here.desk.add(make_definition(manual=True, kill_grace=1))
        await here.by_hand()
        await here.settle()
        never = asyncio.Event()

        async def hangs(_: object) -> Any:
            await never.wait()
            raise StoreUnavailable("closed")

        here.store.__dict__["finish"] = hangs
        here.executor.finish(here.executor.live()[0])
        draining = asyncio.create_task(here.drain.run())
        await here.pass_time(10 * SECOND)
        assert not draining.done()
        await here.pass_time(12 * SECOND)
        assert draining.done()
        never.set()
