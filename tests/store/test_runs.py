"""Verbs on single runs: cancel, force, retry, retry-now; and skip-next of a job."""

from __future__ import annotations

import pytest

from scheduler.clock import DAY, HOUR, MINUTE, SECOND
from scheduler.errors import Conflict, Invalid, NotFound
from scheduler.model.jobs import JobStatus, Overlap, PauseMode
from scheduler.model.runs import Run, RunId, RunState, Wish
from scheduler.rules.reconcile import Ending, Standing
from tests.support.builders import JOB, make_definition
from tests.support.clock import START, FakeClock
from tests.support.desk import Desk, Told

RETRY = {"attempts": 2, "delay": 600, "backoff": "constant"}


async def run_in(desk: Desk, state: RunState) -> Run:
    """A run of a fresh job in the given state."""
    await desk.add(make_definition(retry=RETRY, on_crash="retry", overlap="queue"))
    if state is RunState.QUEUED:
        desk.who.max_running = 0
        queued = (await desk.fire()).queued[0]
        desk.who.max_running = 32
        return queued
    run = await desk.fired()
    match state:
        case RunState.RECOVERING:
            await desk.take(run)
        case RunState.WAITING:
            await desk.finish(run, Ending.FAILED)
        case RunState.HELD:
            await desk.pause(mode=PauseMode.ITEM)
            await desk.finish(run, Ending.FAILED)
        case RunState.SUCCEEDED:
            await desk.finish(run)
        case RunState.FAILED:
            await desk.finish(run, Ending.FAILED, retryable=False)
        case RunState.CANCELLED:
            await desk.finish(run, Ending.CANCELLED)
        case RunState.CRASHED | RunState.INTERRUPTED:
            await desk.edit(make_definition(overlap="queue"))
            if state is RunState.CRASHED:
                await desk.crash(run)
            else:
                await desk.finish(run, Ending.SHUTDOWN)
        case _:
            assert state is RunState.RUNNING
    row = await desk.run(run)
    assert row.state is state
    return row


# --- cancel ---
@pytest.mark.parametrize("state", [RunState.RUNNING, RunState.RECOVERING])
async def test_a_cancel_of_a_run_with_a_worker_is_a_wish(desk: Desk, state: RunState) -> None:
    """The worker is to be told; the row changes in its wish and in nothing else."""
    run = await run_in(desk, state)

    cancelled = await desk.cancel(run)

    assert cancelled.tell_worker
    assert cancelled.run == await desk.run(run)
    assert (cancelled.run.state, cancelled.run.wish) == (state, Wish.CANCEL)


@pytest.mark.parametrize("state", [RunState.QUEUED, RunState.WAITING, RunState.HELD])
async def test_a_cancel_of_a_run_without_a_worker_ends_it(
    desk: Desk, clock: FakeClock, state: RunState
) -> None:
    """It goes through FINISH, so it counts as an end of its job's run, and its slot is free at once."""
    run = await run_in(desk, state)

    cancelled = await desk.cancel(run)

    assert not cancelled.tell_worker
    assert (cancelled.run.state, cancelled.run.reason) == (RunState.CANCELLED, "cancelled")
    assert "uid:1000" in (cancelled.run.message or "")
    assert cancelled.run.finished_at == clock.now()
    assert cancelled.finished is not None
    assert cancelled.finished.decision.standing is Standing.WRITTEN
    assert (await desk.job()).fires_done == 1
    assert await desk.live() == []


@pytest.mark.parametrize(
    "state", [RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED, RunState.CRASHED, RunState.INTERRUPTED]
)
async def test_a_cancel_of_a_run_that_has_ended_is_refused(desk: Desk, state: RunState) -> None:
    """A terminal row never changes by a cancel."""
    run = await run_in(desk, state)
    before = await desk.rows()

    with pytest.raises(Conflict, match=state):
        await desk.cancel(run)

    assert await desk.rows() == before


async def test_a_second_cancel_changes_nothing(desk: Desk) -> None:
    """A cancel that was asked for twice is one, with one audit record."""
    run = await run_in(desk, RunState.RUNNING)
    await desk.cancel(run)

    assert (await desk.cancel(run)).tell_worker
    entries = await desk.store.audit(JOB, before=None, limit=10)
    assert [entry.verb for entry in entries].count("cancel") == 1


@pytest.mark.parametrize("verb", ["cancel", "release", "retry", "retry_now"])
async def test_a_verb_on_no_run_is_told(desk: Desk, verb: str) -> None:
    """An unknown run is not found, by every verb."""
    with pytest.raises(NotFound):
        await getattr(desk.store, verb)(RunId("nothing"), desk.peer)


# --- release by force ---
@pytest.mark.parametrize("state", [RunState.RUNNING, RunState.RECOVERING])
async def test_force_gives_the_slot_back(desk: Desk, state: RunState) -> None:
    """What cannot be ended is released by the operator's word: recorded, audited, its worker fenced."""
    run = await run_in(desk, state)

    finished = await desk.store.release(run.id, desk.peer)

    assert (finished.run.state, finished.run.wish) == (RunState.CANCELLED, Wish.CANCEL)
    assert "force" in (finished.run.message or "")
    late = await desk.finish(run)
    assert late.decision.standing is Standing.FENCED
    entries = await desk.store.audit(JOB, before=None, limit=1)
    assert [(entry.verb, entry.run) for entry in entries] == [("cancel-force", run.id)]
    assert (await desk.start()).grant is not None


@pytest.mark.parametrize("state", [RunState.QUEUED, RunState.WAITING, RunState.HELD, RunState.SUCCEEDED])
async def test_force_is_for_live_work_only(desk: Desk, state: RunState) -> None:
    """A run without a worker needs no force."""
    run = await run_in(desk, state)
    before = await desk.rows()

    with pytest.raises(Conflict):
        await desk.store.release(run.id, desk.peer)

    assert await desk.rows() == before


# --- retry ---
@pytest.mark.parametrize(
    "state", [RunState.FAILED, RunState.CANCELLED, RunState.CRASHED, RunState.INTERRUPTED]
)
async def test_a_run_that_did_not_succeed_is_queued_again(
    desk: Desk, clock: FakeClock, state: RunState
) -> None:
    """`retry` starts the same run over at attempt 1; its claim numbers go on."""
    run = await run_in(desk, state)
    clock.move(SECOND)

    again = await desk.store.retry(run.id, desk.peer)

    assert (again.state, again.attempt, again.claim, again.wish) == (RunState.QUEUED, 1, run.claim, Wish.RUN)
    assert (again.reason, again.message, again.exit_code, again.finished_at) == (None,) * 4
    assert again.queued_at == clock.now()
    (grant,) = await desk.claim()
    assert (grant.run.id, grant.run.claim, grant.run.started_at) == (run.id, run.claim + 1, run.started_at)
    finished = await desk.finish(grant.run)
    assert finished.run.state is RunState.SUCCEEDED


@pytest.mark.parametrize(
    "state",
    [
        RunState.SUCCEEDED,
        RunState.QUEUED,
        RunState.RUNNING,
        RunState.RECOVERING,
        RunState.WAITING,
        RunState.HELD,
    ],
)
async def test_other_runs_are_not_retried(desk: Desk, state: RunState) -> None:
    """Success is success, and what has not ended needs no retry."""
    run = await run_in(desk, state)
    before = await desk.rows()

    with pytest.raises(Conflict, match=state):
        await desk.store.retry(run.id, desk.peer)

    assert await desk.rows() == before


async def test_a_skip_is_not_retried(desk: Desk) -> None:
    """A fire time that was skipped has nothing to repeat: the job is started by hand instead."""
    await desk.add(make_definition())
    await desk.fired()
    await desk.fire()
    skip = (await desk.runs())[-1]

    with pytest.raises(Conflict, match="skipped"):
        await desk.store.retry(skip.id, desk.peer)


@pytest.mark.parametrize("status", ["paused", "disabled", "completed"])
async def test_a_retry_by_hand_ignores_the_jobs_status(desk: Desk, clock: FakeClock, status: str) -> None:
    """An operator who asks for a run again gets it, although the job is paused, disabled or ended."""
    await desk.add(make_definition())
    run = await desk.fired()
    await desk.finish(run, Ending.FAILED)
    match status:
        case "paused":
            await desk.pause()
        case "disabled":
            await desk.edit(make_definition(enabled=False))
        case _:
            await desk.finish(await desk.fired(), completed=True)

    await desk.store.retry(run.id, desk.peer)

    assert [grant.run.id for grant in await desk.claim()] == [run.id]


async def test_a_retry_under_way_respects_a_later_pause(desk: Desk) -> None:
    """The pause that comes after the retry holds it."""
    await desk.add(make_definition())
    run = await desk.fired()
    await desk.finish(run, Ending.FAILED)
    await desk.edit(make_definition(enabled=False))
    await desk.store.retry(run.id, desk.peer)
    await desk.pause()

    assert await desk.claim() == []


async def test_a_retry_waits_for_the_slot(desk: Desk) -> None:
    """I2: a run that is queued again starts when no other run of its job is live."""
    await desk.add(make_definition(overlap="queue"))
    run = await desk.fired()
    await desk.finish(run, Ending.FAILED)
    other = await desk.start(overlap=Overlap.QUEUE)

    await desk.store.retry(run.id, desk.peer)

    assert await desk.claim() == []
    await desk.finish(other.run)
    assert [grant.run.id for grant in await desk.claim()] == [run.id]


async def test_a_retry_of_a_fire_that_is_long_past_does_not_expire(desk: Desk, clock: FakeClock) -> None:
    """What an operator asks for runs, however old its fire time."""
    await desk.add(make_definition(every=DAY, catch_up_window=60))
    run = await desk.fired()
    await desk.finish(run, Ending.FAILED)
    clock.move(10 * HOUR)

    await desk.store.retry(run.id, desk.peer)

    assert [grant.run.id for grant in await desk.claim()] == [run.id]


# --- retry-now ---
async def test_a_waiting_run_can_be_hurried(desk: Desk, clock: FakeClock) -> None:
    """`retry-now` ends the backoff and charges nothing."""
    run = await run_in(desk, RunState.WAITING)
    assert await desk.claim() == []

    hurried = await desk.store.retry_now(run.id, desk.peer)

    assert (hurried.ready_at, hurried.attempt) == (clock.now(), run.attempt)
    assert [grant.run.id for grant in await desk.claim()] == [run.id]


@pytest.mark.parametrize("state", [RunState.QUEUED, RunState.RUNNING, RunState.HELD, RunState.FAILED])
async def test_only_a_waiting_run_can_be_hurried(desk: Desk, state: RunState) -> None:
    """Every other state is refused, with the state in the answer."""
    run = await run_in(desk, state)
    before = await desk.rows()

    with pytest.raises(Conflict, match=state):
        await desk.store.retry_now(run.id, desk.peer)

    assert await desk.rows() == before


# --- skip-next ---
async def test_skip_next_passes_over_fire_times(desk: Desk, clock: FakeClock) -> None:
    """The next `n` fire times are told as skipped by the operator, and the job fires after them."""
    await desk.add(make_definition())

    operated = await desk.store.skip_next(JOB, 3, desk.peer)

    assert (await desk.job()).next_fire_at == START + 4 * MINUTE
    assert operated.job == await desk.job()
    assert await desk.skips() == [Told("paused", START + MINUTE, START + 3 * MINUTE, 3)]
    assert "uid:1000" in ((await desk.runs())[0].message or "")
    assert (await desk.fire()).grants[0].run.fire_time == START + 4 * MINUTE


async def test_a_plan_from_before_a_skip_next_does_nothing(desk: Desk, clock: FakeClock) -> None:
    """I4: a fire time that was passed over after a look planned it does not run."""
    await desk.add(make_definition())
    clock.move(MINUTE)
    plan = await desk.plan()
    assert plan is not None
    await desk.store.skip_next(JOB, 1, desk.peer)

    assert not (await desk.store.fire(desk.who, [plan]))[0].fired


async def test_skip_next_over_the_last_fire_time_completes_the_job(desk: Desk) -> None:
    """A job whose remaining fire times are all passed over has none left."""
    await desk.add(make_definition(at=START + HOUR))

    operated = await desk.store.skip_next(JOB, 5, desk.peer)

    assert operated.completed
    assert (await desk.job()).status is JobStatus.COMPLETED
    assert await desk.skips() == [Told("paused", START + HOUR, START + HOUR, 1)]


@pytest.mark.parametrize("case", ["paused", "disabled", "manual"])
async def test_skip_next_needs_a_next_fire_time(desk: Desk, case: str) -> None:
    """A job that has no next fire time has none to skip."""
    await desk.add(make_definition(manual=case == "manual", enabled=case != "disabled"))
    if case == "paused":
        await desk.pause()

    with pytest.raises(Conflict):
        await desk.store.skip_next(JOB, 1, desk.peer)


@pytest.mark.parametrize("count", [0, -1, 1_001])
async def test_skip_next_takes_a_sane_number(desk: Desk, count: int) -> None:
    """I15: the number is checked before anything walks over that many fire times."""
    await desk.add(make_definition())
    before = await desk.rows()

    with pytest.raises(Invalid):
        await desk.store.skip_next(JOB, count, desk.peer)

    assert await desk.rows() == before


async def test_passed_over_fire_times_stay_passed_over_after_a_pause(desk: Desk, clock: FakeClock) -> None:
    """I13: what skip-next told as skipped does not fire after a pause and resume either."""
    await desk.add(make_definition())
    await desk.store.skip_next(JOB, 3, desk.peer)
    await desk.pause()
    clock.move(90 * SECOND)

    await desk.resume()

    assert (await desk.job()).next_fire_at == START + 4 * MINUTE
    assert await desk.skips() == [Told("paused", START + MINUTE, START + 3 * MINUTE, 3)]


async def test_skip_next_over_the_last_fire_time_while_a_run_is_live(desk: Desk) -> None:
    """I7: the job is completed by the end of the live run, for no fire time is left after it."""
    await desk.add(make_definition(end_at=START + 2 * MINUTE))
    run = await desk.fired()
    await desk.store.skip_next(JOB, 1, desk.peer)
    assert (await desk.job()).status is JobStatus.ACTIVE

    await desk.finish(run)

    assert (await desk.job()).status is JobStatus.COMPLETED


async def test_fire_times_passed_over_in_several_steps_stay_passed_over(desk: Desk) -> None:
    """I13: also where a run stands between the two records of what was passed over."""
    await desk.add(make_definition())
    await desk.store.skip_next(JOB, 1, desk.peer)
    await desk.start()
    await desk.store.skip_next(JOB, 2, desk.peer)
    await desk.pause()

    await desk.resume()

    assert (await desk.job()).next_fire_at == START + 4 * MINUTE


async def test_fire_times_passed_over_stay_passed_over_when_a_job_is_put_back(desk: Desk) -> None:
    """I4: a file that was gone for a moment undoes no word of an operator."""
    await desk.add(make_definition())
    await desk.store.skip_next(JOB, 3, desk.peer)
    await desk.remove()

    await desk.add(make_definition())

    assert (await desk.job()).next_fire_at == START + 4 * MINUTE


async def test_fire_times_passed_over_stay_passed_over_when_a_job_is_enabled_again(desk: Desk) -> None:
    """I13: `enabled` off and on again brings nothing back that was told as skipped."""
    await desk.add(make_definition())
    await desk.store.skip_next(JOB, 3, desk.peer)
    await desk.edit(make_definition(enabled=False))

    await desk.edit(make_definition())

    assert (await desk.job()).next_fire_at == START + 4 * MINUTE
