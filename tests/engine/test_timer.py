"""The one wake-up, on the real APScheduler: never early, never lost, and it follows a clock that was set."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from scheduler.clock import HOUR, MILLISECOND, SECOND, SystemClock
from scheduler.engine.timer import ApschedulerTimer

pytestmark = pytest.mark.asyncio


@dataclass
class Shifted(SystemClock):
    """The machine's clock, with a wall that a test can set."""

    shift: int = 0

    def now(self) -> int:
        return super().now() + self.shift


@dataclass
class Woken:
    """Counts wake-ups."""

    times: int = 0
    came: asyncio.Event = field(default_factory=asyncio.Event)

    def __call__(self) -> None:
        self.times += 1
        self.came.set()

    async def within(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self.came.wait(), seconds)
        except TimeoutError:
            return False
        return True


@pytest.fixture
async def made() -> AsyncIterator[tuple[ApschedulerTimer, Woken, Shifted]]:
    clock, woken = Shifted(), Woken()
    timer = ApschedulerTimer(clock, woken)
    timer.start()
    yield timer, woken, clock
    timer.stop()


async def test_it_wakes_at_its_moment_and_once(made: tuple[ApschedulerTimer, Woken, Shifted]) -> None:
    """Not before the moment, soon after it, and not again by itself."""
    timer, woken, clock = made
    at = clock.now() + 80 * MILLISECOND
    timer.arm(at)
    assert await woken.within(5)
    assert clock.now() >= at
    await asyncio.sleep(0.1)
    assert woken.times == 1


async def test_past_moment_wakes_at_once(made: tuple[ApschedulerTimer, Woken, Shifted]) -> None:
    """A moment that has gone by while the tick was at work is not lost."""
    timer, woken, clock = made
    timer.arm(clock.now() - HOUR)
    assert woken.times == 1


async def test_moment_that_comes_again_wakes_again(made: tuple[ApschedulerTimer, Woken, Shifted]) -> None:
    """A slew back by less than a step, after the wake-up and before the look, does not lose the moment."""
    timer, woken, clock = made
    at = clock.now() - MILLISECOND
    timer.arm(at)
    woken.came.clear()
    clock.shift -= 200 * MILLISECOND
    timer.arm(at)
    assert woken.times == 1
    assert await woken.within(30)


async def test_later_word_replaces_the_one_before(made: tuple[ApschedulerTimer, Woken, Shifted]) -> None:
    """There is one wake-up: an earlier moment takes the place of a later one, and None disarms."""
    timer, woken, clock = made
    timer.arm(clock.now() + HOUR)
    timer.arm(clock.now() + 20 * MILLISECOND)
    assert await woken.within(5)
    woken.came.clear()
    timer.arm(clock.now() + 50 * MILLISECOND)
    timer.arm(None)
    assert not await woken.within(0.15)


async def test_after_a_step_forward_it_wakes_at_once(made: tuple[ApschedulerTimer, Woken, Shifted]) -> None:
    """What has become due by the step does not sleep on for the length of it."""
    timer, woken, clock = made
    timer.arm(clock.now() + HOUR)
    clock.shift = 2 * HOUR
    timer.rearm()
    assert woken.times == 1


async def test_work_of_the_daemon_comes_again_and_again(
    made: tuple[ApschedulerTimer, Woken, Shifted],
) -> None:
    """Calendar work runs each period, and one that raises comes again."""
    timer, woken, _ = made

    async def work() -> None:
        woken()
        raise ZeroDivisionError

    timer.every("work", SECOND // 10, work)
    for _ in range(3):
        assert await woken.within(5)
        woken.came.clear()


async def test_nothing_wakes_after_the_stop(made: tuple[ApschedulerTimer, Woken, Shifted]) -> None:
    """I12: a stopped clockwork is silent, also where a last tick arms it."""
    timer, woken, clock = made
    timer.arm(clock.now() + 50 * MILLISECOND)
    timer.stop()
    timer.arm(clock.now() + 60 * MILLISECOND)
    assert not await woken.within(0.2)
