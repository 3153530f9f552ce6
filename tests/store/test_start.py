"""Manual starts: an operator's explicit wish, at most one live run per job."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from scheduler.clock import HOUR, MINUTE
from scheduler.errors import AlreadyRunning, Conflict, Draining, NotFound, SchedulerError
from scheduler.model.jobs import JobId, JobStatus, Overlap, PauseMode
from scheduler.model.runs import RunState, RunTrigger
from scheduler.rules.reconcile import Ending
from scheduler.store.values import Started
from tests.support.builders import JOB, make_definition
from tests.support.clock import START, FakeClock
from tests.support.desk import Desk
from tests.support.stores import Opener


def sorted_out(results: list[Started | SchedulerError]) -> tuple[list[Started], list[SchedulerError]]:
    started = [result for result in results if isinstance(result, Started)]
    return started, [result for result in results if isinstance(result, SchedulerError)]


async def test_a_manual_start_is_claimed_at_once(desk: Desk, clock: FakeClock) -> None:
    """A manual run has no fire time, its own arguments, and a grant with the live definition."""
    await desk.add(make_definition())
    before = await desk.job()

    started = await desk.start(args='{"region": "eu"}')

    assert started.grant is not None
    run = started.run
    assert run == started.grant.run == await desk.run(run)
    assert (run.state, run.trigger, run.fire_time, run.claim) == (
        RunState.RUNNING,
        RunTrigger.MANUAL,
        None,
        1,
    )
    assert run.args == '{"region": "eu"}'
    assert started.grant.definition == before.definition
    assert await desk.job() == before, "a manual run moves nothing of its job"
    (entry, _) = await desk.store.audit(JOB, before=None, limit=10)
    assert (entry.verb, entry.run, entry.peer) == ("run", run.id, desk.peer)


async def test_a_hundred_simultaneous_starts_give_one_run(desk: Desk) -> None:
    """I2: of a hundred starts at the same time one runs, and 99 answers name it."""
    await desk.add(make_definition(manual=True))

    results = await asyncio.gather(*(desk.start() for _ in range(100)), return_exceptions=True)

    started = [result for result in results if isinstance(result, Started)]
    refused = [result for result in results if isinstance(result, AlreadyRunning)]
    assert (len(started), len(refused)) == (1, 99)
    assert {error.run_id for error in refused} == {started[0].run.id}
    assert len(await desk.runs()) == 1


async def test_a_hundred_starts_in_one_batch_give_one_run(desk: Desk) -> None:
    """I2: starts are ranked within their batch, so a hundred in one call give one run and 99 refusals."""
    await desk.add(make_definition(manual=True))

    results = await desk.store.start(desk.who, [desk.start_request() for _ in range(100)])

    started, refused = sorted_out(results)
    assert (len(started), len(refused)) == (1, 99)
    assert isinstance(results[0], Started), "the first of the batch wins"
    assert {error.run_id for error in refused if isinstance(error, AlreadyRunning)} == {started[0].run.id}
    assert [run.state for run in await desk.runs()] == [RunState.RUNNING]


async def test_simultaneous_starts_at_two_daemons_give_one_run(
    desk: Desk, opener: Opener, clock: FakeClock
) -> None:
    """I2: the one run holds over two daemons on one store."""
    await desk.add(make_definition(manual=True))
    other = Desk(await opener(), clock)

    asking = asyncio.gather(
        *(side.start() for _ in range(25) for side in (desk, other)), return_exceptions=True
    )
    while not asking.done():
        await asyncio.sleep(0.002)
        if (wait := clock.nearest()) is not None:  # on a busy machine one finds the other's lock, and waits
            await clock.advance(wait)
    results = await asking

    assert sum(isinstance(result, Started) for result in results) == 1
    assert sum(isinstance(result, AlreadyRunning) for result in results) == 49


async def test_allow_gives_as_many_runs_as_it_says(desk: Desk) -> None:
    """I2: with overlap allow and max_running 3 a batch of starts gives three live runs, no more."""
    await desk.add(make_definition(manual=True, overlap="allow", max_running=3))

    requests = [desk.start_request(overlap=Overlap.ALLOW) for _ in range(10)]
    started, refused = sorted_out(await desk.store.start(desk.who, requests))

    assert (len(started), len(refused)) == (3, 7)
    assert all(isinstance(error, AlreadyRunning) for error in refused)


async def test_a_batch_over_several_jobs_ranks_each_job_by_itself(desk: Desk) -> None:
    """I2: starts of different jobs in one batch do not stand in each other's way."""
    for name in ("a", "b"):
        await desk.add(make_definition(name, manual=True))

    requests = [desk.start_request(JobId(name)) for name in "abab"]
    results = await desk.store.start(desk.who, requests)

    assert [type(result).__name__ for result in results] == [
        "Started",
        "Started",
        "AlreadyRunning",
        "AlreadyRunning",
    ]


@pytest.mark.parametrize("state", [RunState.RUNNING, RunState.RECOVERING, RunState.WAITING, RunState.HELD])
async def test_every_live_state_takes_the_slot(desk: Desk, state: RunState) -> None:
    """I2: running, recovering, waiting and held rows all count until their release has committed."""
    await desk.add(make_definition(manual=True, retry={"attempts": 3}))
    run = (await desk.start()).run
    if state is RunState.RECOVERING:
        await desk.take(run)
    elif state is RunState.WAITING:
        await desk.finish(run, Ending.FAILED)
    elif state is RunState.HELD:
        await desk.pause(mode=PauseMode.ITEM)
        await desk.finish(run, Ending.FAILED)
    assert (await desk.run(run)).state is state

    if state is RunState.RECOVERING:
        started = await desk.start()
        assert (started.run.state, started.grant) == (RunState.QUEUED, None)
        with pytest.raises(AlreadyRunning):
            await desk.start()
    else:
        with pytest.raises(AlreadyRunning) as refused:
            await desk.start()
        assert refused.value.run_id == run.id


async def test_overlap_queue_waits_its_turn(desk: Desk) -> None:
    """A start that may queue is answered with a queued run, and one beyond the limit is refused."""
    await desk.add(make_definition(manual=True, queue_limit=1))
    first = (await desk.start()).run

    second = await desk.start(overlap=Overlap.QUEUE)
    with pytest.raises(AlreadyRunning, match="queue is full"):
        await desk.start(overlap=Overlap.QUEUE)

    assert (second.grant, second.run.state) == (None, RunState.QUEUED)
    assert await desk.claim() == []
    await desk.finish(first)
    assert [grant.run.id for grant in await desk.claim()] == [second.run.id]


async def test_overlap_cancel_running_makes_way(desk: Desk) -> None:
    """A start may ask the live run to end and take its place."""
    await desk.add(make_definition(manual=True))
    first = (await desk.start()).run

    second = await desk.start(overlap=Overlap.CANCEL_RUNNING)

    assert second.cancel == (first.id,)
    await desk.finish(first, Ending.CANCELLED)
    assert [grant.run.id for grant in await desk.claim()] == [second.run.id]


async def test_a_start_that_replaces_the_last_scheduled_run_runs_all_the_same(desk: Desk) -> None:
    """Where the replaced run was the job's last, the job is completed, and the start is still carried out."""
    await desk.add(make_definition(at=START + MINUTE))
    desk.who.max_running = 0
    await desk.fire()

    started = await desk.start(overlap=Overlap.CANCEL_RUNNING)

    assert (await desk.job()).status is JobStatus.COMPLETED
    desk.who.max_running = 1
    assert [grant.run.id for grant in await desk.claim()] == [started.run.id]


async def test_allow_is_the_jobs_to_say(desk: Desk) -> None:
    """A start cannot allow what its job does not."""
    await desk.add(make_definition(manual=True))

    with pytest.raises(Conflict, match="does not allow"):
        await desk.start(overlap=Overlap.ALLOW)


async def test_a_start_of_no_job_is_told(desk: Desk) -> None:
    """An unknown and a removed job are not found."""
    await desk.add(make_definition())
    await desk.remove()

    for name in ("job", "nothing"):
        with pytest.raises(NotFound):
            await desk.start(JobId(name))


async def test_a_start_of_a_broken_job_is_told(desk: Desk) -> None:
    """A job that cannot run says why at once instead of failing later."""
    await desk.add(make_definition())
    await desk.store.set_problem(JOB, "broken", "no module named demo")

    with pytest.raises(Conflict, match="no module named demo"):
        await desk.start()


async def test_a_draining_daemon_starts_nothing(desk: Desk) -> None:
    """I12: a start that arrives while the daemon stops is refused with its own error, and makes no row."""
    await desk.add(make_definition())
    desk.who.draining = True

    with pytest.raises(Draining):
        await desk.start()

    assert await desk.runs() == []


@pytest.mark.parametrize("status", ["paused", "disabled", "failed", "completed"])
async def test_a_start_runs_whatever_the_jobs_status(desk: Desk, status: str) -> None:
    """A manual start is allowed on a paused, disabled, failed or completed job, and leaves it as it is."""
    await desk.add(make_definition(max_failures=1))
    match status:
        case "paused":
            await desk.pause()
        case "disabled":
            await desk.edit(make_definition(max_failures=1, enabled=False))
        case "failed":
            await desk.finish(await desk.fired(), Ending.FAILED)
        case _:
            await desk.finish(await desk.fired(), completed=True)
    before = await desk.job()

    started = await desk.start()
    await desk.finish(started.run)

    after = await desk.job()
    assert (after.status, after.pause, after.enabled) == (before.status, before.pause, before.enabled)
    assert after.next_fire_at is None


async def test_starts_without_room_are_queued(desk: Desk) -> None:
    """A full store queues a manual start instead of refusing it."""
    await desk.add(make_definition(manual=True))
    desk.who.max_running = 0

    started = await desk.start()

    assert (started.run.state, started.grant) == (RunState.QUEUED, None)


async def test_a_batch_of_starts_fills_the_room_and_queues_the_rest(desk: Desk) -> None:
    """I2: the global limit holds within one batch, too."""
    for number in range(5):
        await desk.add(make_definition(f"job-{number}", manual=True))
    desk.who.max_running = 2

    requests = [desk.start_request(JobId(f"job-{number}")) for number in range(5)]
    started, _ = sorted_out(await desk.store.start(desk.who, requests))

    assert Counter(one.run.state for one in started) == {RunState.RUNNING: 2, RunState.QUEUED: 3}


async def test_a_run_id_that_is_taken_is_refused_alone(desk: Desk) -> None:
    """A caller that gives an id twice gets an error for the second; the rest of its batch is carried out."""
    for name in ("a", "b"):
        await desk.add(make_definition(name, manual=True, overlap="allow", max_running=2))
    first = desk.start_request(JobId("a"), overlap=Overlap.ALLOW)

    results = await desk.store.start(desk.who, [first, first, desk.start_request(JobId("b"))])

    assert [isinstance(result, Started) for result in results] == [True, False, True]


async def test_the_audit_says_who_started_what(desk: Desk, clock: FakeClock) -> None:
    """A refused start leaves no audit record, an accepted one leaves its peer and moment."""
    await desk.add(make_definition(manual=True))
    clock.move(HOUR)
    run = (await desk.start()).run
    with pytest.raises(AlreadyRunning):
        await desk.start()

    entries = [entry for entry in await desk.store.audit(JOB, before=None, limit=10) if entry.verb == "run"]

    assert [(entry.run, entry.at, entry.peer.uid) for entry in entries] == [(run.id, START + HOUR, 1000)]


async def test_a_run_id_that_waits_already_is_refused(desk: Desk) -> None:
    """I1: the row that bears the id is another start's; this one is not told that it was queued."""
    await desk.add(make_definition("a", manual=True, overlap="queue", queue_limit=3))
    await desk.start(JobId("a"))
    waits = desk.start_request(JobId("a"), overlap=Overlap.QUEUE)

    results = await desk.store.start(desk.who, [waits, waits])

    assert [isinstance(result, Started) for result in results] == [True, False]
    assert isinstance(results[1], Conflict)
