"""I13: every fire time that did not run is explained by a row with a reason; long gaps are one row."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from scheduler.clock import DAY, HOUR, MINUTE, SECOND
from scheduler.model.runs import RunState, SkipReason
from scheduler.store.values import Missed
from tests.support.builders import JOB, make_definition
from tests.support.clock import START, FakeClock
from tests.support.desk import Desk, Told

SLOT = START + MINUTE


async def overlap(desk: Desk) -> None:
    await desk.add(make_definition())
    await desk.start()
    await desk.fire()


async def queue_full(desk: Desk) -> None:
    await desk.add(make_definition(overlap="queue", queue_limit=0))
    await desk.start()
    await desk.fire()


async def misfire(desk: Desk) -> None:
    await desk.add(make_definition(at=SLOT, catch_up="skip"))
    desk.clock.move(HOUR)
    await desk.tick()


async def expired(desk: Desk) -> None:
    await desk.add(make_definition(at=SLOT, catch_up_window=60))
    desk.who.max_running = 0
    await desk.fire()
    desk.who.max_running = 1
    desk.clock.move(HOUR)
    await desk.claim()


async def paused(desk: Desk) -> None:
    await desk.add(make_definition())
    await desk.pause()
    desk.clock.move(MINUTE)
    await desk.resume()


async def disabled(desk: Desk) -> None:
    await desk.add(make_definition(enabled=False))
    desk.clock.move(MINUTE)
    await desk.edit(make_definition())


async def edited(desk: Desk) -> None:
    await desk.add(make_definition())
    desk.clock.move(MINUTE)
    await desk.edit(make_definition(every=HOUR))


async def broken(desk: Desk) -> None:
    await desk.add(make_definition())
    await desk.store.set_problem(JOB, "broken", "no module named demo")
    await desk.fire()


CASES: dict[SkipReason, Callable[[Desk], Awaitable[None]]] = {
    SkipReason.OVERLAP: overlap,
    SkipReason.QUEUE_FULL: queue_full,
    SkipReason.MISFIRE: misfire,
    SkipReason.EXPIRED: expired,
    SkipReason.PAUSED: paused,
    SkipReason.DISABLED: disabled,
    SkipReason.EDITED: edited,
    SkipReason.BROKEN: broken,
}


@pytest.mark.parametrize("reason", CASES)
async def test_a_fire_time_that_did_not_run_has_a_row_that_says_why(desk: Desk, reason: SkipReason) -> None:
    """I13: whatever kept a fire time from running, its row is found by the fire time, with that reason."""
    await CASES[reason](desk)

    row = await desk.store.run_at(JOB, SLOT)

    assert row is not None
    assert (row.state, row.reason, row.count) == (RunState.SKIPPED, reason, 1)
    assert row.finished_at is not None
    assert (row.claim, row.owner) == (0, None)


async def test_excluded_fire_times_are_told_at_the_next_fire(desk: Desk) -> None:
    """I13: fires that `except` took out between two runs are one row with their count."""
    await desk.add(make_definition(every=HOUR, exclude=("2027-01-02",)))
    for _ in range(11):
        await desk.finish(await desk.fired())

    run = await desk.fired()

    assert run.fire_time == START + 36 * HOUR
    (told,) = await desk.skips()
    assert (told.reason, told.count) == ("excluded", 24)


async def test_consecutive_skips_of_one_reason_are_one_row(desk: Desk) -> None:
    """I13: a run that blocks a hundred fires makes one row that counts them."""
    await desk.add(make_definition())
    await desk.fired()
    for _ in range(100):
        await desk.fire()

    assert await desk.skips() == [Told("overlap", START + 2 * MINUTE, START + 101 * MINUTE, 100)]
    (_, row) = await desk.runs()
    assert row.finished_at == desk.clock.now()


async def test_a_run_between_skips_starts_a_new_row(desk: Desk) -> None:
    """I13: rows stay in the order of what happened: a skip after a run is a row of its own."""
    await desk.add(make_definition())
    run = await desk.fired()
    await desk.fire()
    await desk.finish(run)
    await desk.fired()
    await desk.fire()
    await desk.fire()

    assert [told.count for told in await desk.skips()] == [1, 2]


async def test_another_reason_starts_a_new_row(desk: Desk) -> None:
    """I13: each row has one reason."""
    await desk.add(make_definition())
    await desk.fired()
    await desk.fire()
    await desk.pause()
    desk.clock.move(MINUTE)
    await desk.resume()

    assert [told.reason for told in await desk.skips()] == ["overlap", "paused"]


async def test_skips_of_two_jobs_do_not_mix(desk: Desk, clock: FakeClock) -> None:
    """I13: a row is extended only by its own job."""
    for name in ("a", "b"):
        await desk.add(make_definition(name))
    clock.move(MINUTE)
    await desk.tick()
    for _ in range(3):
        clock.move(MINUTE)
        await desk.tick()

    skips = [run for run in await desk.runs(None) if run.state is RunState.SKIPPED]
    assert sorted((run.job, run.count) for run in skips) == [("a", 3), ("b", 3)]


async def test_a_year_of_absence_is_one_row(desk: Desk, clock: FakeClock) -> None:
    """I13: what is too much to count exactly is told as a lower bound, which says so."""
    await desk.add(make_definition(every=SECOND))
    clock.move(365 * DAY)
    await desk.tick()

    (row, run) = await desk.runs()
    assert run.state is RunState.RUNNING
    assert (row.reason, row.count) == ("misfire", 10_000)
    assert "at least 10000" in (row.message or "")
    assert (row.fire_time, row.fire_time_last) == (START + SECOND, START + 365 * DAY - SECOND)


async def test_a_long_pause_is_one_row_and_cheap(desk: Desk, clock: FakeClock) -> None:
    """I13: a job that fires every second and was paused for a year resumes at once, with one row."""
    await desk.add(make_definition(every=SECOND))
    await desk.pause()
    clock.move(365 * DAY)

    await desk.resume(missed=Missed.LATEST)

    (told,) = await desk.skips()
    assert (told.reason, told.first, told.count) == ("paused", START + SECOND, 10_000)
    assert [run.fire_time for run in await desk.executed()] == [START + 365 * DAY]


async def test_a_skip_does_not_reach_over_runs_that_a_resume_asked_for(desk: Desk, clock: FakeClock) -> None:
    """I13: what a later pause held back is a row of its own behind the runs, not a longer row around them."""
    await desk.add(make_definition(catch_up_limit=2))
    await desk.pause()
    clock.move(5 * MINUTE)
    await desk.resume(missed=Missed.ALL)
    await desk.pause()
    clock.move(2 * MINUTE)

    await desk.resume()

    assert [(told.first, told.last, told.count) for told in await desk.skips()] == [
        (START + MINUTE, START + 3 * MINUTE, 3),
        (START + 6 * MINUTE, START + 7 * MINUTE, 2),
    ]
