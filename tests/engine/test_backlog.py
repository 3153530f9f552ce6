"""What waits for a slot is claimed along with the end that frees it, and no slot is forgotten."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from scheduler.clock import SECOND
from scheduler.errors import StoreUnavailable
from scheduler.model.jobs import JobId, Overlap
from scheduler.model.runs import Grant, Run
from scheduler.store.values import Claimant
from scheduler.telemetry import Event
from tests.support.builders import make_definition
from tests.support.engine import Bench, bench

pytestmark = pytest.mark.asyncio

NO_LOOK = StoreUnavailable("no look in this test")


async def waiting(here: Bench, number: int) -> None:
    """So many runs were asked for by hand; those that find a slot have started, the others wait."""
    for name in [f"job-{place}" for place in range(number)]:
        await here.desk.add(make_definition(name, manual=True))
        await here.by_hand(name, overlap=Overlap.QUEUE)
    await here.settle()


class Held:
    """Claims that were carried out, and are answered when a test says so."""

    def __init__(self, here: Bench) -> None:
        self._claim, here.store.claim = here.store.claim, self
        self.answered = asyncio.Event()
        self.held = 0

    async def __call__(self, who: Claimant, *, limit: int) -> tuple[list[Grant], list[Run]]:
        claimed: tuple[list[Grant], list[Run]] = await self._claim(who, limit=limit)
        self.held += 1
        await self.answered.wait()
        return claimed


async def test_an_end_hands_its_slot_on_without_a_look(tmp_path: Path) -> None:
    """I13: what waits starts at the end before it, also while nobody can look at the store."""
    async with bench(tmp_path, max_running=1) as here:
        await waiting(here, 3)
        here.store.fail["due"] = NO_LOOK

        for name in ("job-0", "job-1", "job-2"):
            assert len(here.executor.live()) == 1
            await here.end(name)

        assert here.executor.live() == []


async def test_an_end_that_asks_for_no_claim_of_its_own_is_not_forgotten(tmp_path: Path) -> None:
    """I13: ends that come while claims are on their way have their slots filled by one that follows."""
    async with bench(tmp_path, max_running=4) as here:
        await waiting(here, 8)
        here.store.fail["due"] = NO_LOOK
        held = Held(here)

        for place in range(4):
            await here.end(f"job-{place}")
        assert (held.held, here.executor.live()) == (2, [])
        held.answered.set()
        await here.settle()

        assert len(here.executor.live()) == 4


@pytest.mark.parametrize("error", [StoreUnavailable("full"), ValueError("a bug")])
async def test_a_claim_that_fails_beside_an_end_comes_again(tmp_path: Path, error: Exception) -> None:
    """I13: the slot is filled a moment later; what is no trouble of the store is told."""
    async with bench(tmp_path, max_running=1) as here:
        await waiting(here, 2)
        here.store.fail["claim"] = error
        await here.end("job-0")
        assert here.executor.live() == []
        told = len(here.log.of(Event.LOOP_BLOCKED))
        del here.store.fail["claim"]

        await here.pass_time(2 * SECOND)

        assert [each.grant.run.job for each in here.executor.live()] == ["job-1"]
        assert told == (0 if isinstance(error, StoreUnavailable) else 1)


async def test_a_stop_waits_for_the_claim_that_is_on_its_way(tmp_path: Path) -> None:
    """I12: the engine has not ended before what it claimed is under way, where the drain can see it."""
    async with bench(tmp_path, max_running=1) as here:
        await waiting(here, 2)
        held = Held(here)
        await here.end("job-0")
        assert held.held == 1

        here.engine.stop()
        ended = asyncio.create_task(here.engine.ended())
        await here.settle()
        assert not ended.done()
        held.answered.set()
        await here.settle()

        assert ended.done()
        assert [each.grant.run.job for each in here.executor.live()] == ["job-1"]


async def test_a_drain_claims_nothing_beside_the_ends(tmp_path: Path) -> None:
    """I12: ends of a stopped daemon ask for no claim."""
    async with bench(tmp_path, max_running=1) as here:
        await waiting(here, 2)
        held = Held(here)
        here.engine.stop()

        await here.end("job-0")

        assert held.held == 0
        assert (await here.desk.runs(JobId("job-1")))[0].claim == 0


async def test_a_claim_beside_an_end_that_finds_nothing_leads_to_a_look(tmp_path: Path) -> None:
    """Once nothing waits any more, a look says so: no further end asks for a claim."""
    async with bench(tmp_path, max_running=1) as here:
        await waiting(here, 2)
        await here.end("job-0")
        await here.pass_time(2 * SECOND)
        looked_at = here.engine.last_tick

        await here.end("job-1")

        assert here.engine.last_tick > looked_at
