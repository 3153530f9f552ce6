"""The bell: one wait for many things, none of which is lost, and none of which stays behind."""

from __future__ import annotations

import asyncio

import pytest

from scheduler.clock import SECOND
from scheduler.engine.bell import Bell
from tests.support.clock import FakeClock, settle

pytestmark = pytest.mark.asyncio


async def test_who_waits_goes_on_at_a_ring_and_at_the_end_of_its_time() -> None:
    """A ring comes before the time is over, or the time rings."""
    clock = FakeClock()
    bell = Bell(clock)
    rung = asyncio.create_task(bell.rung(SECOND))
    await settle()
    assert not rung.done()

    bell.ring()
    bell.ring()
    await rung

    timed = asyncio.create_task(bell.rung(SECOND))
    await clock.advance(SECOND - 1)
    assert not timed.done()
    await clock.advance(1)
    assert timed.done()


@pytest.mark.parametrize("how", ["rung", "given up"])
async def test_wait_that_is_over_leaves_no_alarm(how: str) -> None:
    """Nothing waits for a time that nobody waits for any more, and a late ring hurts nobody."""
    clock = FakeClock()
    bell = Bell(clock)
    waiting = asyncio.create_task(bell.rung(SECOND))
    await settle()

    bell.ring() if how == "rung" else waiting.cancel()
    await asyncio.wait({waiting})
    bell.ring()

    assert clock.sleepers == 0
