"""Issue 3, point 4: a wall clock that is set, on the fake clock: no fire twice, none lost, no silence."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from scheduler.clock import HOUR, MILLISECOND, MINUTE, SECOND
from scheduler.engine.ports import Ended, EndKind
from scheduler.model.jobs import JobId
from scheduler.model.runs import RunState
from scheduler.telemetry import Event
from tests.support.builders import make_definition
from tests.support.clock import START, FakeClock
from tests.support.desk import Told
from tests.support.engine import Bench, bench

pytestmark = pytest.mark.asyncio

_DONE = Ended(kind=EndKind.EXITED, exit_code=0)
_LOOK = 15 * SECOND
_EVERY = JobId("every")


async def begun(here: Bench) -> None:
    """Jobs of each kind, five minutes of ordinary time, everything ends at once."""
    here.executor.script = lambda _: _DONE
    await here.desk.add(make_definition("every", every=MINUTE))
    await here.desk.add(make_definition("wildcard", cron="* * * * *"))
    await here.desk.add(make_definition("fixed", cron="2 12 * * *"))
    await here.desk.add(make_definition("delay", delay=MINUTE))
    here.engine.wake()
    await here.pass_time(5 * MINUTE)


def double(here: Bench) -> list[object]:
    """(job, fire time, generation) that started more than once."""
    seen = Counter(
        (grant.run.job, grant.run.fire_time, grant.run.generation)
        for grant in (execution.grant for execution in here.executor.started)
    )
    return [key for key, times in seen.items() if times > 1]


async def test_forward_one_hour_is_late_fires_once_each(tmp_path: Path) -> None:
    """After a suspend the step is noticed within a look, each job catches up once, the rest is told."""
    async with bench(tmp_path) as here:
        await begun(here)
        before = {job: len(here.starts(job)) for job in ("every", "wildcard", "delay")}
        here.clock.step(HOUR)
        await here.pass_time(_LOOK)
        assert {job: len(here.starts(job)) - count for job, count in before.items()} == {
            "every": 1,
            "wildcard": 1,
            "delay": 1,
        }
        assert await here.desk.skips(_EVERY) == [Told("misfire", START + 6 * MINUTE, START + 64 * MINUTE, 59)]
        (told,) = here.log.of(Event.CLOCK_STEPPED)
        assert told["seconds"] == 3600.0
        await here.pass_time(2 * MINUTE)
        assert len(here.starts("every")) - before["every"] == 3
        assert double(here) == []


async def test_back_one_hour_brings_no_silence_and_no_second_fixed_run(tmp_path: Path) -> None:
    """Regular jobs go on within a look of the step; the fixed time is not run again."""
    async with bench(tmp_path) as here:
        await begun(here)
        before = {job: len(here.starts(job)) for job in ("every", "wildcard", "fixed", "delay")}
        assert before["fixed"] == 1
        here.clock.step(-HOUR)
        await here.pass_time(_LOOK + 3 * MINUTE)
        gained = {job: len(here.starts(job)) - count for job, count in before.items()}
        assert gained["every"] >= 3
        assert gained["wildcard"] >= 3
        assert gained["delay"] >= 2
        await here.pass_time(HOUR)  # past 12:02 for the second time
        assert len(here.starts("fixed")) == 1
        assert len(here.starts("every")) - before["every"] >= 63
        assert double(here) == []
        assert all(
            (run.finished_at or 0) >= (run.started_at or 0) for run in await here.desk.executed(_EVERY)
        )


async def test_back_20_ms_between_wake_up_and_look_fires_once(tmp_path: Path) -> None:
    """I1: the wake-up finds the slot still to come, waits the 20 ms, and the slot runs exactly once."""
    async with bench(tmp_path) as here:
        await begun(here)
        here.clock.move(MINUTE)
        here.clock.step(-20 * MILLISECOND)
        here.timer.at = None
        here.engine.wake()
        await here.settle()
        assert START + 6 * MINUTE not in here.fire_times("every")
        assert here.wake_up_at() == START + 6 * MINUTE
        await here.pass_time(40 * MILLISECOND)
        assert here.fire_times("every").count(START + 6 * MINUTE) == 1
        assert here.log.of(Event.CLOCK_STEPPED) == []


async def test_slew_is_followed_without_a_step(tmp_path: Path) -> None:
    """A clock that runs 0.05 % fast or slow makes no step, no second run and no hole."""
    async with bench(tmp_path) as here:
        await begun(here)
        for turn in range(80):
            here.clock.step(-5 * MILLISECOND if turn % 2 else 5 * MILLISECOND)
            await here.pass_time(10 * SECOND)
        fired = here.fire_times("every")
        assert fired == [START + number * MINUTE for number in range(1, len(fired) + 1)]
        assert here.log.of(Event.CLOCK_STEPPED) == []


async def test_step_back_while_the_daemon_was_down_is_noticed_at_the_start(tmp_path: Path) -> None:
    """The last wall time seen is remembered, so a clock set back meanwhile brings no silence either."""
    clock = FakeClock()
    async with bench(tmp_path, clock=clock) as first:
        await begun(first)
    clock.step(-HOUR)
    async with bench(tmp_path, clock=clock) as here:
        here.executor.script = lambda _: _DONE
        await here.pass_time(3 * MINUTE)
        assert len(here.starts("every")) >= 2
        assert here.log.of(Event.CLOCK_STEPPED)[0]["seconds"] == -3600.0
        assert double(here) == []


@pytest.mark.parametrize("step", [HOUR, -HOUR])
async def test_live_run_is_neither_reaped_nor_timed_out_by_a_step(tmp_path: Path, step: int) -> None:
    """I8: leases neither run out nor stretch, timeouts go by monotonic time, durations are never negative."""
    async with bench(tmp_path) as here:
        await here.desk.add(make_definition(manual=True, timeout=600))
        run = await here.by_hand()
        await here.settle()
        await here.pass_time(5 * MINUTE)
        here.clock.step(step)
        await here.pass_time(4 * MINUTE)
        row = await here.desk.run(run)
        assert (row.state, row.claim) == (RunState.RUNNING, 1)
        lease = (row.lease_until or 0) - here.clock.now()
        assert 0 < lease <= here.desk.who.lease
        await here.pass_time(2 * MINUTE)
        row = await here.desk.run(run)
        assert (row.state, row.reason) == (RunState.FAILED, "timeout")
        (told,) = here.log.of(Event.RUN_FAILED)
        assert isinstance(told["seconds"], float)
        assert told["seconds"] >= 0
