"""Stories of pauses, edits and starts by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler.clock import HOUR, MINUTE, SECOND
from scheduler.errors import AlreadyRunning
from scheduler.model.jobs import JobStatus, Overlap
from scheduler.model.runs import RunState
from scheduler.rules.reconcile import Ending
from tests.support.builders import make_claimant, make_definition
from tests.support.clock import START, FakeClock
from tests.support.desk import Desk, Told
from tests.support.stores import sqlite_store


@pytest.mark.parametrize("ending", [Ending.SUCCEEDED, Ending.FAILED])
@pytest.mark.parametrize("again", [False, True], ids=["paused", "paused and resumed"])
async def test_b13_a_pause_during_a_run_stays(desk: Desk, ending: Ending, again: bool) -> None:
    """B13: the end of the run writes its own columns; pause and next fire are what the operator left."""
    await desk.add(make_definition(every=MINUTE, max_failures=3))
    run = await desk.fired()
    await desk.pause(note="an audit")
    if again:
        await desk.resume()
    before = await desk.job()

    await desk.finish(run, ending)

    job = await desk.job()
    assert job.status is (JobStatus.ACTIVE if again else JobStatus.PAUSED)
    assert (job.pause, job.next_fire_at, job.revision) == (before.pause, before.next_fire_at, before.revision)
    assert (job.fires_done, job.failures) == (1, 0 if ending is Ending.SUCCEEDED else 1)
    assert (await desk.run(run)).state is (
        RunState.SUCCEEDED if ending is Ending.SUCCEEDED else RunState.FAILED
    )


async def test_b13_a_job_that_ran_its_only_time_is_completed_in_spite_of_a_pause(desk: Desk) -> None:
    """B13: the run's own terminal verdict is kept."""
    await desk.add(make_definition(at=START + MINUTE))
    run = await desk.fired()
    await desk.pause()

    await desk.finish(run)

    assert (await desk.job()).status is JobStatus.COMPLETED


async def test_b16_a_pause_outlives_restarts_and_reloads(desk: Desk, path: Path, clock: FakeClock) -> None:
    """B16: another process, another schedule, another description, the same file: paused, until resumed."""
    await desk.add(make_definition(every=MINUTE))
    await desk.pause(note="until Monday")
    await desk.pause()  # twice is harmless
    async with sqlite_store(path, clock) as other:
        restarted = Desk(other, clock, make_claimant())
        for definition in (
            make_definition(every=HOUR),
            make_definition(every=HOUR, description="renamed"),
            make_definition(every=HOUR, description="renamed"),
        ):
            await restarted.edit(definition)
            job = await restarted.job()
            assert (job.status, job.next_fire_at) == (JobStatus.PAUSED, None)
            assert await restarted.tick() == []
        clock.move(2 * HOUR)
        assert await restarted.tick() == []
        await restarted.resume()
        assert (await restarted.job()).next_fire_at == START + 3 * HOUR
        before = await restarted.rows()
        await restarted.resume()  # nor does resuming what is not paused do harm
        assert await restarted.rows() == before


async def test_b17_resume_starts_nothing_that_the_pause_held_back(
    desk: Desk, path: Path, clock: FakeClock
) -> None:
    """B17: resumed after two hours and a restart, at half past a minute: the next regular slot fires."""
    await desk.add(make_definition(every=MINUTE))
    await desk.pause()
    clock.move(2 * HOUR + 30 * SECOND)
    async with sqlite_store(path, clock) as other:
        later = Desk(other, clock)
        await later.resume()
        assert await later.tick() == []
        assert (await later.fired()).fire_time == START + 2 * HOUR + MINUTE
        assert await later.skips() == [Told("paused", START + MINUTE, START + 2 * HOUR, 120)]


async def test_b46_a_start_by_hand_respects_overlap_and_moves_nothing(desk: Desk) -> None:
    """B46: one run at a time in both directions; the schedule stays; looking changes no row."""
    await desk.add(make_definition(every=MINUTE))
    planned = (await desk.job()).next_fire_at
    by_hand = await desk.start()
    assert (await desk.job()).next_fire_at == planned
    with pytest.raises(AlreadyRunning) as refused:
        await desk.start()
    assert refused.value.run_id == by_hand.run.id
    assert (await desk.fire()).grants == ()
    assert [told.reason for told in await desk.skips()] == ["overlap"]
    before = await desk.rows()
    for _ in range(20):
        await desk.job()
        await desk.store.jobs(after=None, limit=9)
    assert await desk.rows() == before

    assert by_hand.grant is not None
    await desk.finish(by_hand.grant.run)
    scheduled = await desk.fired()
    with pytest.raises(AlreadyRunning):
        await desk.start()
    queued = await desk.start(overlap=Overlap.QUEUE)  # a deliberate override
    assert queued.run.state is RunState.QUEUED
    await desk.finish(scheduled)
    await desk.pause()
    assert (await desk.job()).status is JobStatus.PAUSED


async def test_b50_a_queue_does_not_pile_up(desk: Desk, path: Path, clock: FakeClock) -> None:
    """B50: one waits, the others are told as dropped; pause holds it, restart keeps it, removal ends it."""
    await desk.add(make_definition(every=MINUTE, overlap="queue"))
    first = await desk.fired()
    for _ in range(20):
        await desk.fire()
    queued = [run for run in await desk.executed() if run.state is RunState.QUEUED]
    assert len(queued) == 1
    assert [(told.reason, told.count) for told in await desk.skips()] == [("queue_full", 19)]

    await desk.pause()
    await desk.finish(first)
    async with sqlite_store(path, clock) as other:
        restarted = Desk(other, clock)
        assert await restarted.claim() == []
        await restarted.resume()
        (grant,) = await restarted.claim()
        assert grant.run.id == queued[0].id
        await restarted.fire()
        await restarted.remove()
        await restarted.finish(grant.run)
        assert await restarted.claim() == []
    ended = {run.id: run.reason for run in await desk.executed() if run.state is RunState.CANCELLED}
    assert list(ended.values()) == ["removed"]


async def test_b59_a_removed_or_edited_job_follows_its_file(desk: Desk, clock: FakeClock) -> None:
    """B59: a removal lets the live run end and starts nothing else; an edit counts at once."""
    await desk.add(make_definition(every=MINUTE, overlap="queue"))
    live = await desk.fired()
    await desk.fire()
    await desk.pause(note="kept")
    await desk.remove()
    assert (await desk.finish(live)).run.state is RunState.SUCCEEDED
    assert await desk.claim() == []
    clock.move(7 * 24 * HOUR)
    assert await desk.tick() == []
    await desk.add(make_definition(every=MINUTE))
    job = await desk.job()
    assert job.status is JobStatus.PAUSED
    await desk.resume()
    assert await desk.tick() == []

    await desk.edit(make_definition(cron="0 0 1 1 *"))
    by_hand = await desk.start()
    assert by_hand.grant is not None
    await desk.edit(make_definition(cron="* * * * *"))
    soon = (await desk.job()).next_fire_at
    await desk.finish(by_hand.grant.run)
    assert (await desk.job()).next_fire_at == soon
    assert 0 < (soon or 0) - clock.now() <= MINUTE
