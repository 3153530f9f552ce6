"""Claims of queued and waiting runs: ranked, within limits, never past a pause."""

from __future__ import annotations

import asyncio

import pytest

from scheduler.clock import DAY, HOUR, MINUTE, SECOND
from scheduler.model.jobs import JobId, JobStatus, Overlap
from scheduler.model.runs import Run, RunState
from scheduler.rules.reconcile import Ending
from scheduler.store.values import Missed, Report
from tests.support.builders import JOB, make_definition
from tests.support.clock import START, FakeClock
from tests.support.desk import Desk, Told
from tests.support.stores import Opener

RETRY = {"attempts": 3, "delay": 10, "backoff": "constant"}


async def queued(desk: Desk, job: str = "job", number: int = 1) -> list[Run]:
    """Runs of `job` in the queue, made while the store had no room."""
    room, desk.who.max_running = desk.who.max_running, 0
    requests = [desk.start_request(JobId(job), overlap=Overlap.QUEUE) for _ in range(number)]
    await desk.store.start(desk.who, requests)
    desk.who.max_running = room
    return [run for run in await desk.runs(JobId(job)) if run.state is RunState.QUEUED]


async def test_a_waiting_run_is_claimed_at_its_moment(desk: Desk, clock: FakeClock) -> None:
    """A retry waits until ready_at, then runs under the next claim number as the next attempt."""
    await desk.add(make_definition(retry=RETRY))
    run = await desk.fired()
    await desk.finish(run, Ending.FAILED)
    clock.move(10 * SECOND - 1)
    assert await desk.claim() == []
    clock.move(1)

    (grant,) = await desk.claim()

    again = grant.run
    assert (again.id, again.claim, again.attempt, again.state) == (run.id, 2, 2, RunState.RUNNING)
    assert (again.reason, again.message, again.ready_at) == (None, None, None)
    assert again.started_at == run.started_at
    assert again.claimed_at == again.progress_at == clock.now()
    attempts = await desk.store.attempts(run.id)
    assert [(one.claim, one.attempt, one.state) for one in attempts] == [(1, 1, "failed"), (2, 2, None)]


async def test_a_worker_gets_the_row_that_its_claim_has_left(desk: Desk, clock: FakeClock) -> None:
    """What a claim hands out is the row as it stands, to the last digit: queued before, or tried again."""
    await desk.add(make_definition("again", manual=True, retry=RETRY))
    await desk.add(make_definition("first", manual=True))
    again = (await desk.start(JobId("again"))).run
    await desk.store.report([Report(run_id=again.id, claim=1, progress_at=clock.now(), cost=1 / 3)])
    await desk.finish(again, Ending.FAILED, message="no luck")
    await queued(desk, "first")
    clock.move(10 * SECOND)

    grants = await desk.claim()

    assert [grant.run.job for grant in grants] == ["again", "first"]
    assert [grant.run for grant in grants] == [await desk.run(grant.run) for grant in grants]


async def test_claims_are_ranked_within_their_batch(desk: Desk) -> None:
    """I2: many queued runs of one job in one batch give one claim."""
    await desk.add(make_definition(manual=True, queue_limit=50))
    runs = await queued(desk, number=20)
    assert len(runs) == 20

    grants = await desk.claim()

    assert [grant.run.id for grant in grants] == [runs[0].id]
    assert await desk.claim() == []


async def test_claims_of_allow_fill_max_running(desk: Desk) -> None:
    """I2: a batch claims as many queued runs as max_running has room for."""
    definition = make_definition(manual=True, overlap="allow", max_running=3, queue_limit=50)
    await desk.add(definition)
    await queued(desk, number=10)

    assert len(await desk.claim()) == 3
    assert len(await desk.live()) == 3


async def test_two_daemons_claim_a_queued_run_once(desk: Desk, opener: Opener, clock: FakeClock) -> None:
    """I2: a queued run that two daemons see is claimed by one of them."""
    await desk.add(make_definition(manual=True))
    await queued(desk)
    other = Desk(await opener(), clock)

    grants = await asyncio.gather(desk.claim(), other.claim())

    assert sorted(len(one) for one in grants) == [0, 1]


async def test_claims_stop_at_the_global_limit(desk: Desk) -> None:
    """I2: max_running of the store is counted within the batch; waiting and held runs do not fill it."""
    for number in range(5):
        await desk.add(make_definition(f"job-{number}", manual=True, retry=RETRY))
    desk.who.max_running = 2
    first = await desk.start(JobId("job-0"))
    await desk.finish(first.run, Ending.FAILED)
    for number in range(1, 5):
        await queued(desk, f"job-{number}")

    assert len(await desk.claim()) == 2
    assert await desk.claim() == []


async def test_claims_stop_at_a_groups_limit(desk: Desk) -> None:
    """I2: a full group keeps its runs queued, whatever their priority; others pass by."""
    for name in ("a", "b", "c"):
        await desk.add(make_definition(name, manual=True, group="exports", priority=9))
    await desk.add(make_definition("d", manual=True))
    for name in ("a", "b", "c", "d"):
        await queued(desk, name)
    desk.who.groups = {"exports": 2}

    assert sorted(grant.run.job for grant in await desk.claim()) == ["a", "b", "d"]
    assert await desk.claim(limit=1) == []


async def test_higher_priority_goes_first_then_the_older(desk: Desk, clock: FakeClock) -> None:
    """Claims follow priority, then the older fire time or start."""
    for name, priority in (("old", 0), ("new", 0), ("urgent", 5)):
        await desk.add(make_definition(name, manual=True, priority=priority))
        await queued(desk, name)
        clock.move(SECOND)

    assert [(await desk.claim(limit=1))[0].run.job for _ in range(3)] == ["urgent", "old", "new"]


async def test_an_edit_moves_what_waits_already(desk: Desk) -> None:
    """Priority and group are those of the job as it is now, also for runs that were queued before."""
    for name in ("plain", "raised", "grouped"):
        await desk.add(make_definition(name, manual=True))
        await queued(desk, name)
    desk.who.groups = {"none-left": 0}
    await desk.edit(make_definition("raised", manual=True, priority=9))
    await desk.edit(make_definition("grouped", manual=True, priority=10, group="none-left"))

    grants = await desk.claim()

    assert [grant.run.job for grant in grants] == ["raised", "plain"]
    await desk.edit(make_definition("grouped", manual=True))
    assert [grant.run.job for grant in await desk.claim()] == ["grouped"]


async def test_what_cannot_start_at_the_front_hides_nothing_behind_it(desk: Desk) -> None:
    """Where candidates in front have no slot of their own, the free slots go to those behind them."""
    await desk.add(make_definition("front", manual=True, queue_limit=50, priority=1))
    await desk.add(make_definition("behind", manual=True))
    await queued(desk, "front", number=20)
    await queued(desk, "behind")
    desk.who.max_running = 2

    assert [grant.run.job for grant in await desk.claim()] == ["front", "behind"]


async def test_a_paused_jobs_runs_stay(desk: Desk, clock: FakeClock) -> None:
    """Queued runs and retries of a paused job stay and do not start until the resume."""
    await desk.add(make_definition(retry=RETRY, overlap="queue"))
    run = await desk.fired()
    await desk.fire()
    await desk.finish(run, Ending.FAILED)
    await desk.pause()
    clock.move(HOUR)
    assert await desk.claim() == []
    assert [one.state for one in await desk.executed()] == [RunState.WAITING, RunState.QUEUED]

    await desk.resume()

    assert [grant.run.id for grant in await desk.claim()] == [run.id]


async def test_a_disabled_jobs_scheduled_runs_stay_and_its_manual_ones_run(
    desk: Desk, clock: FakeClock
) -> None:
    """`enabled = false` holds what the trigger made, not what an operator started."""
    await desk.add(make_definition("a", retry=RETRY))
    await desk.add(make_definition("b", retry=RETRY))
    scheduled = await desk.fired(JobId("a"))
    manual = (await desk.start(JobId("b"))).run
    await desk.finish(scheduled, Ending.FAILED)
    await desk.finish(manual, Ending.FAILED)
    for name in ("a", "b"):
        await desk.edit(make_definition(name, retry=RETRY, enabled=False))
    clock.move(MINUTE)

    assert [grant.run.job for grant in await desk.claim()] == ["b"]
    await desk.edit(make_definition("a", retry=RETRY))
    assert [grant.run.job for grant in await desk.claim()] == ["a"]


async def test_retries_of_a_run_started_under_a_pause_ignore_that_pause(desk: Desk, clock: FakeClock) -> None:
    """An operator started it although the job was paused, so its retries need no resume."""
    await desk.add(make_definition(retry=RETRY))
    await desk.pause()
    run = (await desk.start()).run
    assert run.under_pause
    await desk.finish(run, Ending.FAILED)
    clock.move(MINUTE)

    assert [grant.run.id for grant in await desk.claim()] == [run.id]
    assert (await desk.job()).status is JobStatus.PAUSED


async def test_retries_of_a_run_started_under_a_pause_respect_the_next_pause(
    desk: Desk, clock: FakeClock
) -> None:
    """A pause set after the start holds its retries, as it holds every other."""
    await desk.add(make_definition(retry=RETRY))
    await desk.pause()
    run = (await desk.start()).run
    await desk.resume()
    await desk.pause()
    await desk.finish(run, Ending.FAILED)
    clock.move(MINUTE)

    assert await desk.claim() == []
    await desk.resume()
    assert len(await desk.claim()) == 1


async def test_a_run_started_on_an_ended_job_respects_a_pause_of_the_revived_one(
    desk: Desk, clock: FakeClock
) -> None:
    """A start on a completed job is no licence against a pause that comes after the job was revived."""
    await desk.add(make_definition(at=START + MINUTE))
    await desk.finish(await desk.fired())
    run = (await desk.start()).run
    await desk.edit(make_definition(at=START + DAY, retry=RETRY))
    await desk.pause()
    await desk.finish(run, Ending.FAILED)
    clock.move(MINUTE)

    assert (await desk.run(run)).state is RunState.WAITING
    assert await desk.claim() == []


async def test_a_removed_jobs_runs_are_not_claimed(desk: Desk, clock: FakeClock) -> None:
    """What waited when the job was removed has been cancelled."""
    await desk.add(make_definition(retry=RETRY))
    run = await desk.fired()
    await desk.finish(run, Ending.FAILED)
    await desk.remove()
    clock.move(MINUTE)

    assert await desk.claim() == []
    row = await desk.run(run)
    assert (row.state, row.reason) == (RunState.CANCELLED, "removed")


async def test_a_draining_daemon_claims_nothing(desk: Desk) -> None:
    """I12: once it drains, queued runs stay queued for the next start."""
    await desk.add(make_definition(manual=True))
    await queued(desk)
    desk.who.draining = True

    assert await desk.claim() == []


async def test_a_fire_that_waited_too_long_is_skipped_as_expired(desk: Desk, clock: FakeClock) -> None:
    """I13: a queued fire older than catch_up_window at its claim does not run, and its row says so."""
    await desk.add(make_definition(every=DAY, catch_up_window=3600))
    desk.who.max_running = 0
    await desk.fire()
    desk.who.max_running = 1
    clock.move(HOUR + 1)

    grants, expired = await desk.store.claim(desk.who, limit=10)

    assert grants == []
    assert [(run.state, run.reason) for run in expired] == [(RunState.SKIPPED, "expired")]
    assert await desk.skips() == [Told("expired", START + 12 * HOUR, START + 12 * HOUR, 1)]


async def test_a_queued_fire_within_its_window_runs(desk: Desk, clock: FakeClock) -> None:
    """A queued fire exactly as old as the window still runs."""
    await desk.add(make_definition(every=DAY, catch_up_window=3600))
    desk.who.max_running = 0
    await desk.fire()
    desk.who.max_running = 1
    clock.move(HOUR)

    assert len(await desk.claim()) == 1


async def test_a_manual_start_in_the_queue_never_expires(desk: Desk, clock: FakeClock) -> None:
    """A queued manual start is an operator's wish, not a fire time: it waits however long it takes."""
    await desk.add(make_definition(manual=True, catch_up_window=60))
    await queued(desk)
    clock.move(30 * DAY)

    assert len(await desk.claim()) == 1


async def test_an_old_fire_that_an_operator_asked_for_runs(desk: Desk, clock: FakeClock) -> None:
    """`resume --missed=latest` runs the newest missed fire, also one older than catch_up_window."""
    await desk.add(make_definition(cron="0 0 1 * *", catch_up_window=3600))
    await desk.pause()
    clock.move(45 * DAY)
    await desk.resume(missed=Missed.LATEST)

    (grant,) = await desk.claim()

    assert grant.run.trigger == "catch_up"


@pytest.mark.parametrize("policy", [{"delay": DAY}, {"every": DAY, "max_runs": 1}])
async def test_a_job_whose_queued_fire_expired_fires_again(
    desk: Desk, clock: FakeClock, policy: dict[str, int]
) -> None:
    """I7: an expired fire never runs, so the job does not wait for its end: it has a next fire time."""
    await desk.add(make_definition(catch_up_window=3600, **policy))  # type: ignore[arg-type]
    desk.who.max_running = 0
    await desk.fire()
    assert (await desk.job()).next_fire_at is None
    desk.who.max_running = 1
    clock.move(2 * HOUR)

    await desk.claim()

    job = await desk.job()
    assert job.status is JobStatus.ACTIVE
    assert job.next_fire_at is not None
    assert job.next_fire_at > clock.now()


async def test_the_last_fire_that_expires_completes_its_job(desk: Desk, clock: FakeClock) -> None:
    """A trigger without a further fire ends with its last one, also where that expired in the queue."""
    await desk.add(make_definition(at=START + HOUR, catch_up_window=60))
    desk.who.max_running = 0
    await desk.fire()
    desk.who.max_running = 1
    clock.move(HOUR)

    await desk.claim()

    assert (await desk.job()).status is JobStatus.COMPLETED


async def test_a_claim_takes_the_definition_that_is_live_then(desk: Desk, clock: FakeClock) -> None:
    """An attempt uses the definition live at its claim, and the row says which that was."""
    await desk.add(make_definition(retry=RETRY))
    run = await desk.fired()
    await desk.finish(run, Ending.FAILED)
    changed = make_definition(retry=RETRY, timeout=99)
    await desk.edit(changed)
    clock.move(10 * SECOND)

    (grant,) = await desk.claim()

    assert grant.definition == changed
    assert grant.run.definition_revision == (await desk.job()).definition_revision


async def test_runs_from_before_an_edit_to_one_at_a_time_do_not_wedge_the_claims(
    desk: Desk, clock: FakeClock
) -> None:
    """I2, I7: two runs that `allow` made retry one after another once the job allows one, blocking nobody."""
    await desk.add(make_definition(manual=True, overlap="allow", max_running=2, retry=RETRY))
    runs = [(await desk.start(overlap=Overlap.ALLOW)).run for _ in range(2)]
    for run in runs:
        await desk.finish(run, Ending.FAILED)
    await desk.edit(make_definition(manual=True, retry=RETRY))
    await desk.add(make_definition("other", manual=True))
    await queued(desk, "other")
    clock.move(10 * SECOND)

    first = await desk.claim()

    assert sorted(grant.run.job for grant in first) == ["job", "other"]
    assert await desk.claim() == []
    mine = next(grant.run for grant in first if grant.run.job == JOB)
    await desk.finish(mine)
    (second,) = await desk.claim()
    assert {mine.id, second.run.id} == {run.id for run in runs}


async def test_a_waiting_run_needs_room_too(desk: Desk, clock: FakeClock) -> None:
    """A retry keeps its job's slot, but the store's limit holds for it as for every claim."""
    await desk.add(make_definition("a", manual=True, retry=RETRY))
    await desk.add(make_definition("b", manual=True))
    run = (await desk.start(JobId("a"))).run
    await desk.finish(run, Ending.FAILED)
    desk.who.max_running = 1
    other = (await desk.start(JobId("b"))).run
    clock.move(MINUTE)

    assert await desk.claim() == []
    await desk.finish(other)
    assert [grant.run.id for grant in await desk.claim()] == [run.id]
