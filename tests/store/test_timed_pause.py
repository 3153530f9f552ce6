"""Pauses that lift themselves, as of their moment (design part 4)."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler.clock import DAY, HOUR, MINUTE, SECOND, Micros
from scheduler.errors import Conflict, Invalid
from scheduler.model.jobs import JobStatus, PauseMode
from scheduler.model.runs import RunState, RunTrigger, Wish
from scheduler.store.pausevalues import Expired
from scheduler.store.values import PauseRequest
from tests.support.builders import JOB, make_definition, make_peer
from tests.support.clock import START, FakeClock
from tests.support.desk import Desk, Told
from tests.support.stores import Opener, sqlite_store, weakened


async def pause_for(desk: Desk, length: Micros, *, mode: PauseMode = PauseMode.DRAIN) -> None:
    request = PauseRequest(job_id=JOB, mode=mode, peer=desk.peer, until=desk.clock.now() + length)
    (done,) = await desk.store.pause([request])
    if isinstance(done, Exception):
        raise done


async def expire(desk: Desk) -> Expired:
    return await desk.store.expire_pauses(make_peer(0))


async def test_it_lifts_itself_when_its_time_has_come(desk: Desk, clock: FakeClock) -> None:
    """The job is active again, the slots of the pause are told, the daemon is in the audit."""
    await desk.add(make_definition())
    await pause_for(desk, 10 * MINUTE + SECOND)
    clock.move(10 * MINUTE + SECOND)

    (found,) = (await expire(desk)).jobs

    job = await desk.job()
    assert (found.job_id, found.until) == (JOB, clock.now())
    assert (job.status, job.pause, job.next_fire_at) == (JobStatus.ACTIVE, None, START + 11 * MINUTE)
    assert await desk.skips() == [Told("paused", START + MINUTE, START + 10 * MINUTE, 10)]
    (entry, *_) = await desk.store.audit(JOB, before=None, limit=1)
    assert (entry.verb, entry.peer.uid) == ("resume", 0)
    assert entry.detail["until"] == "2027-01-01T12:10:01+00:00"


async def test_nothing_lifts_before(desk: Desk, clock: FakeClock) -> None:
    """A microsecond before its moment it holds."""
    await desk.add(make_definition())
    await pause_for(desk, HOUR)
    clock.move(HOUR - 1)

    assert (await expire(desk)).jobs == ()
    assert (await desk.job()).status is JobStatus.PAUSED


async def test_what_came_after_its_moment_is_late(desk: Desk, clock: FakeClock) -> None:
    """A daemon that was down then resumes as of it: later slots follow `catch_up`, none is `paused`."""
    await desk.add(make_definition())
    await pause_for(desk, 10 * MINUTE + SECOND)
    clock.move(30 * MINUTE + SECOND)

    await expire(desk)
    (fired,) = await desk.tick()

    assert [grant.run.trigger for grant in fired.grants] == [RunTrigger.SCHEDULE]
    assert [grant.run.fire_time for grant in fired.grants] == [START + 30 * MINUTE]
    assert await desk.skips() == [
        Told("paused", START + MINUTE, START + 10 * MINUTE, 10),
        Told("misfire", START + 11 * MINUTE, START + 29 * MINUTE, 19),
    ]


async def test_it_outlives_a_restart(desk: Desk, opener: Opener, clock: FakeClock) -> None:
    """The moment is data: another process finds it, and lifts the pause at it."""
    await desk.add(make_definition())
    await pause_for(desk, HOUR)
    await desk.store.close()
    clock.move(2 * HOUR)

    restarted = Desk(await opener(), clock)
    look = await restarted.store.due(limit=10, late_after=MINUTE, late_limit=10)
    await expire(restarted)

    assert look.pause_over
    assert (await restarted.job()).next_fire_at == START + HOUR + MINUTE


async def test_a_wall_clock_that_goes_back_puts_it_off(desk: Desk, clock: FakeClock) -> None:
    """It is a moment of the wall clock, whatever the clock did before it shows that."""
    await desk.add(make_definition())
    await pause_for(desk, HOUR)
    clock.move(50 * MINUTE)
    clock.step(-30 * MINUTE)
    clock.move(20 * MINUTE)
    assert (await expire(desk)).jobs == ()

    clock.step(HOUR)

    assert len((await expire(desk)).jobs) == 1


async def test_the_wake_up_knows_it(desk: Desk, clock: FakeClock) -> None:
    """The earliest moment of the store is the end of the pause, where nothing else comes before."""
    await desk.add(make_definition(every=DAY))
    await pause_for(desk, HOUR)

    assert await desk.store.next_wake(clock.now()) == START + HOUR
    assert await desk.store.next_wake(START + HOUR) is None


@pytest.mark.parametrize("later", ["pause", "pause_for", "resume", "resume+pause"])
async def test_it_lifts_only_the_pause_it_was_set_with(desk: Desk, clock: FakeClock, later: str) -> None:
    """I4: a pause that came later, or was put in its place, is not lifted by the time of the first one."""
    await desk.add(make_definition())
    await pause_for(desk, HOUR)
    clock.move(MINUTE)
    match later:
        case "pause":
            await desk.pause()
        case "pause_for":
            await pause_for(desk, 2 * HOUR)
        case "resume":
            await desk.resume()
        case _:
            await desk.resume()
            await desk.pause()
    before = await desk.job()
    clock.move(HOUR)

    assert (await expire(desk)).jobs == ()
    assert await desk.job() == before


async def test_crashes_take_the_end_of_a_pause_away(desk: Desk, clock: FakeClock) -> None:
    """I4: a job that crashes under a timed pause stays paused until somebody looks."""
    await desk.add(make_definition(max_crashes=1))
    run = await desk.fired()
    await pause_for(desk, HOUR)

    await desk.crash(run, counts_crash=True)

    job = await desk.job()
    assert job.pause is not None
    assert (job.pause.by, job.pause.until) == ("uid:1000", None)
    clock.move(2 * HOUR)
    assert (await expire(desk)).jobs == ()


async def test_no_pause_with_an_end_takes_the_place_of_one_for_crashes(desk: Desk) -> None:
    """It would lift that one too; without an end it may take its place."""
    await desk.add(make_definition(max_crashes=1))
    await desk.crash(await desk.fired(), counts_crash=True)

    with pytest.raises(Conflict, match="crashes"):
        await pause_for(desk, HOUR)

    assert (await desk.pause()).changed


async def test_an_end_that_has_passed_is_none(desk: Desk) -> None:
    """A pause that would be over at once is refused."""
    await desk.add(make_definition())

    with pytest.raises(Invalid, match="passed"):
        await pause_for(desk, -SECOND)

    assert (await desk.job()).status is JobStatus.ACTIVE


async def test_runs_that_were_held_go_on(desk: Desk, clock: FakeClock) -> None:
    """The end of a timed pause lifts the wishes that the pause set, in the same transaction."""
    await desk.add(make_definition())
    run = await desk.fired()
    await pause_for(desk, HOUR, mode=PauseMode.FREEZE)
    assert (await desk.run(run)).wish is Wish.FREEZE
    clock.move(HOUR)

    (found,) = (await expire(desk)).jobs

    assert found.done.wishes == ((run.id, Wish.RUN),)
    assert (await desk.run(run)).wish is Wish.RUN
    assert (await desk.run(run)).state is RunState.RUNNING


async def test_a_removed_job_is_not_resumed(desk: Desk, clock: FakeClock) -> None:
    """A tombstone keeps its pause; put back after its moment, it fires from then, and nothing twice."""
    definition = make_definition()
    await desk.add(definition)
    await pause_for(desk, HOUR)
    await desk.remove()
    clock.move(2 * HOUR + SECOND)
    assert (await expire(desk)).jobs == ()
    assert await desk.store.next_wake(START) is None

    await desk.add(definition)
    clock.move(MINUTE)
    await expire(desk)

    job = await desk.job()
    assert (job.status, job.next_fire_at) == (JobStatus.ACTIVE, START + 2 * HOUR + MINUTE)


async def test_without_its_guard_another_pause_is_lifted(tmp_path: Path) -> None:
    """The proof of the guard: the statement without its last clause lifts a pause that has no end."""
    clock = FakeClock()
    for clauses, status in (
        ((), JobStatus.PAUSED),
        (("AND (:over_by IS NULL OR pause_until <= :over_by)",), JobStatus.ACTIVE),
    ):
        queries = dict(weakened("resume_job", *clauses))
        queries["pauses_over"] = (  # a look that is older than the pause that came in between
            "SELECT id, 1 AS pause_until, revision FROM jobs WHERE :now AND :limit"
        )
        async with sqlite_store(tmp_path / f"{status}.db", clock, queries=queries) as store:
            desk = Desk(store, clock)
            await desk.add(make_definition())
            await desk.pause()

            await expire(desk)

            assert (await desk.job()).status is status
