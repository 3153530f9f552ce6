"""The next wake-up, the remembered wall clock, and clocks that step back."""

from __future__ import annotations

import pytest

from scheduler.clock import DAY, HOUR, MINUTE, SECOND, Micros
from scheduler.model.jobs import JobId, Origin
from scheduler.rules.reconcile import Ending
from scheduler.store.values import ChangeKind, DefinitionChange
from tests.support.builders import make_definition
from tests.support.clock import START, FakeClock
from tests.support.desk import Desk
from tests.support.stores import Opener

RETRY = {"attempts": 2, "delay": 30, "backoff": "constant"}


async def test_nothing_to_do_is_no_wake_up(desk: Desk, clock: FakeClock) -> None:
    """An empty store, and one with manual jobs only, never wakes by itself."""
    await desk.add(make_definition(manual=True))

    assert await desk.store.next_wake(clock.now()) is None


async def test_the_wake_up_is_the_earliest_moment(desk: Desk, clock: FakeClock) -> None:
    """The minimum over due jobs and waiting runs."""
    await desk.add(make_definition("hourly", every=HOUR))
    await desk.add(make_definition("retried", manual=True, retry=RETRY))
    assert await desk.store.next_wake(clock.now()) == START + HOUR

    await desk.finish((await desk.start(JobId("retried"))).run, Ending.FAILED)

    assert await desk.store.next_wake(clock.now()) == START + 30 * SECOND


async def test_the_wake_up_is_the_due_moment_not_the_slot(desk: Desk, clock: FakeClock) -> None:
    """With jitter the daemon wakes when the run is to start."""
    await desk.add(make_definition(every=DAY, jitter=10 * HOUR))

    assert await desk.store.next_wake(clock.now()) == (await desk.job()).due_at


async def test_what_is_past_never_wakes_again(desk: Desk, clock: FakeClock) -> None:
    """A tick that changed nothing never re-arms in the past: only moments after `after` count."""
    await desk.add(make_definition("due", at=START + SECOND))
    await desk.add(make_definition("later", at=START + HOUR))
    clock.move(MINUTE)

    assert await desk.store.next_wake(clock.now()) == START + HOUR


@pytest.mark.parametrize("case", ["paused", "disabled", "removed"])
async def test_what_may_not_act_does_not_wake(desk: Desk, clock: FakeClock, case: str) -> None:
    """A paused, disabled or removed job wakes nobody; the verb that frees it does."""
    await desk.add(make_definition())
    match case:
        case "paused":
            await desk.pause()
        case "disabled":
            await desk.edit(make_definition(enabled=False))
        case _:
            await desk.remove()

    assert await desk.store.next_wake(clock.now()) is None


async def test_a_waiting_run_of_a_paused_job_does_not_wake(desk: Desk, clock: FakeClock) -> None:
    """A retry that the pause holds wakes nobody; one that was started under the pause does."""
    await desk.add(make_definition(retry=RETRY))
    run = await desk.fired()
    await desk.finish(run, Ending.FAILED)
    await desk.pause()
    assert await desk.store.next_wake(clock.now()) is None
    await desk.cancel(run)
    await desk.finish((await desk.start()).run, Ending.FAILED)

    assert await desk.store.next_wake(clock.now()) == clock.now() + 30 * SECOND


async def test_the_wall_time_is_remembered(desk: Desk, opener: Opener, clock: FakeClock) -> None:
    """What was seen last is answered at the next look, also after a restart."""
    assert await desk.store.see_wall() is None
    clock.move(HOUR)
    assert await desk.store.see_wall() == START
    await desk.store.close()
    clock.step(-2 * HOUR)

    assert await (await opener()).see_wall() == START + HOUR


# --- steps back ---
async def stepped(desk: Desk, by: Micros) -> None:
    """The wall clock was set back, and the daemon noticed."""
    desk.clock.step(-by)
    await desk.store.rearm(by)


async def test_every_is_not_silent_after_a_step_back(desk: Desk, clock: FakeClock) -> None:
    """A grid job follows the clock at once, in a new generation in which old fire times may come again."""
    await desk.add(make_definition())
    run = await desk.fired()
    await desk.finish(run)

    await stepped(desk, 2 * MINUTE)

    job = await desk.job()
    assert (job.next_fire_at, job.due_at, job.generation) == (START, START, 1) or (
        job.next_fire_at == clock.now() + MINUTE
    )
    again = await desk.fired()
    assert again.generation == 1
    assert again.fire_time is not None
    assert again.fire_time <= START + MINUTE


async def test_a_fire_time_that_comes_again_after_a_step_back_runs_again(desk: Desk) -> None:
    """I1: unique is (job, fire time, clock generation): a slot of a new generation is another fire."""
    await desk.add(make_definition())
    first = await desk.fired()
    await desk.finish(first)
    await stepped(desk, MINUTE)

    second = await desk.fired()

    assert second.fire_time == first.fire_time
    assert second.id != first.id


async def test_wildcard_cron_follows_the_clock_back(desk: Desk, clock: FakeClock) -> None:
    """A frequent cron job keeps its rhythm in real time."""
    await desk.add(make_definition(cron="*/5 * * * *"))
    await desk.finish(await desk.fired())

    await stepped(desk, HOUR)

    job = await desk.job()
    assert job.generation == 1
    assert job.next_fire_at == START + 5 * MINUTE - HOUR + 5 * MINUTE


async def test_fixed_cron_does_not_run_twice_for_a_small_step(desk: Desk, clock: FakeClock) -> None:
    """A job at a fixed time that has run today does not run again when the clock is set back by an hour."""
    await desk.add(make_definition(cron="30 12 * * *"))
    await desk.finish(await desk.fired())
    before = await desk.job()

    await stepped(desk, HOUR)

    assert await desk.job() == before


async def test_fixed_cron_follows_a_correction_of_the_clock(desk: Desk) -> None:
    """A step of three hours or more is a correction: the job follows the clock as it is now (cron(8))."""
    await desk.add(make_definition(cron="30 12 * * *"))
    await desk.finish(await desk.fired())

    await stepped(desk, 3 * HOUR)

    job = await desk.job()
    assert (job.next_fire_at, job.generation) == (START + 30 * MINUTE, 1)


async def test_a_delay_counts_from_the_clock_as_it_is_now(desk: Desk, clock: FakeClock) -> None:
    """A `delay` is never silent for longer than its delay; its times need no generation."""
    await desk.add(make_definition(delay=10 * MINUTE))

    await stepped(desk, HOUR)

    job = await desk.job()
    assert (job.next_fire_at, job.generation) == (clock.now() + 10 * MINUTE, 0)


async def test_an_at_waits_for_its_instant(desk: Desk) -> None:
    """The instant of an `at` is what it is, whatever the clock did."""
    await desk.add(make_definition(at=START + HOUR))
    before = await desk.job()

    await stepped(desk, 5 * HOUR)

    assert await desk.job() == before


async def test_a_step_back_leaves_pauses_alone(desk: Desk) -> None:
    """I4: a paused or disabled job has no slot to follow the clock with."""
    await desk.add(make_definition("paused"))
    await desk.add(make_definition("disabled", enabled=False))
    await desk.pause(JobId("paused"))
    before = await desk.rows()

    await stepped(desk, HOUR)

    assert await desk.rows() == before


async def test_a_plan_from_before_the_step_does_nothing(desk: Desk, clock: FakeClock) -> None:
    """What was planned from the old slot is void once the job was re-armed."""
    await desk.add(make_definition())
    clock.move(2 * MINUTE)
    plan = await desk.plan()
    assert plan is not None
    await stepped(desk, HOUR)

    assert not (await desk.store.fire(desk.who, [plan]))[0].fired


async def test_a_step_back_reaches_every_job(desk: Desk, clock: FakeClock) -> None:
    """Slices of the re-arming leave no job out."""
    names = [JobId(f"job-{number:04}") for number in range(1_203)]
    await desk.store.apply(
        [
            DefinitionChange(
                kind=ChangeKind.ADD,
                job_id=name,
                definition=make_definition(name),
                origin=Origin.FILE,
                peer=desk.peer,
            )
            for name in names
        ]
    )

    await stepped(desk, HOUR)

    jobs = await desk.store.jobs(after=None, limit=2_000)
    assert {job.next_fire_at for job in jobs} == {clock.now() + MINUTE}
