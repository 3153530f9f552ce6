"""FIRE: one transaction moves the job on and makes its run, or does nothing."""

from __future__ import annotations

import asyncio

import pytest

from scheduler.clock import DAY, HOUR, MINUTE, SECOND
from scheduler.model.jobs import JobId, JobStatus
from scheduler.model.runs import RunState, RunTrigger
from scheduler.rules.reconcile import Ending
from tests.support.builders import JOB, make_claimant, make_definition, make_owner
from tests.support.clock import START, FakeClock
from tests.support.desk import Desk, Told
from tests.support.stores import Opener


async def test_a_due_job_gets_one_claimed_run(desk: Desk, clock: FakeClock) -> None:
    """A fire moves the job to its next slot and claims the run in the same transaction."""
    await desk.add(make_definition(every=MINUTE))

    fired = await desk.fire()

    (grant,) = fired.grants
    job = await desk.job()
    assert fired.fired
    assert (job.last_fire_at, job.next_fire_at, job.due_at) == (
        START + MINUTE,
        START + 2 * MINUTE,
        START + 2 * MINUTE,
    )
    assert grant.definition == job.definition
    run = grant.run
    assert run == await desk.run(run)
    assert (run.state, run.trigger, run.fire_time) == (RunState.RUNNING, RunTrigger.SCHEDULE, START + MINUTE)
    assert (run.claim, run.attempt, run.owner) == (1, 1, desk.who.owner.id)
    assert run.lease_until == clock.now() + desk.who.lease
    assert (run.queued_at, run.claimed_at, run.started_at, run.progress_at) == (clock.now(),) * 4
    assert run.definition_revision == job.definition_revision
    (attempt,) = await desk.store.attempts(run.id)
    assert (attempt.claim, attempt.attempt, attempt.owner, attempt.finished_at) == (1, 1, run.owner, None)


async def test_the_same_plan_fires_once(desk: Desk, clock: FakeClock) -> None:
    """I1: a plan that is written twice makes one run, and the second answer says that nothing was done."""
    await desk.add(make_definition())
    clock.move(MINUTE)
    plan = await desk.plan()
    assert plan is not None

    first, second = await desk.store.fire(desk.who, [plan, plan])
    third = (await desk.store.fire(desk.who, [plan]))[0]

    assert (first.fired, second.fired, third.fired) == (True, False, False)
    assert len(await desk.runs()) == 1


async def test_two_daemons_with_the_same_plan_fire_once(desk: Desk, opener: Opener, clock: FakeClock) -> None:
    """I1: of two daemons on one store that saw the same due job, one makes the run."""
    await desk.add(make_definition())
    other = Desk(await opener(), clock)
    clock.move(MINUTE)
    plans = await desk.plan(), await other.plan()
    assert plans[0] is not None
    assert plans[1] is not None

    answers = await asyncio.gather(
        desk.store.fire(desk.who, [plans[0]]), other.store.fire(other.who, [plans[1]])
    )

    assert sorted(answer[0].fired for answer in answers) == [False, True]
    assert len(await desk.runs()) == 1


async def test_a_restarted_daemon_does_not_repeat_a_fire(
    desk: Desk, opener: Opener, clock: FakeClock
) -> None:
    """I1: after a restart the fire time that made its run is not due again."""
    await desk.add(make_definition())
    run = await desk.fired()
    await desk.store.close()

    restarted = Desk(await opener(), clock)

    assert await restarted.tick() == []
    assert await restarted.runs() == [run]


async def test_a_fire_time_that_made_its_run_makes_no_other(desk: Desk, clock: FakeClock) -> None:
    """I1: even a job row that was set back to an old slot gets no second run for it."""
    await desk.add(make_definition(overlap="allow", max_running=3))
    run = await desk.fired()
    clock.step(-MINUTE)
    await desk.edit(make_definition(overlap="allow", max_running=2, at=START + MINUTE))
    assert (await desk.job()).next_fire_at is None, "the last fire counts, whatever the clock says"
    clock.step(MINUTE)

    assert await desk.tick() == []
    assert await desk.executed() == [run]


@pytest.mark.parametrize("verb", ["pause", "edit", "disable", "remove"])
async def test_a_plan_from_before_an_operators_word_does_nothing(
    desk: Desk, clock: FakeClock, verb: str
) -> None:
    """I4: a pause, edit or removal that committed before FIRE is respected by it."""
    await desk.add(make_definition())
    clock.move(MINUTE)
    plan = await desk.plan()
    assert plan is not None
    match verb:
        case "pause":
            await desk.pause()
        case "edit":
            await desk.edit(make_definition(timeout=5))
        case "disable":
            await desk.edit(make_definition(enabled=False))
        case _:
            await desk.remove()

    fired = (await desk.store.fire(desk.who, [plan]))[0]

    assert not fired.fired
    assert await desk.executed() == []


async def test_a_plan_from_before_a_pause_and_its_resume_does_nothing(desk: Desk, clock: FakeClock) -> None:
    """I4: pause and resume leave the job active, and yet what was planned before them is void."""
    await desk.add(make_definition())
    clock.move(MINUTE)
    plan = await desk.plan()
    assert plan is not None
    await desk.pause()
    await desk.resume()

    assert not (await desk.store.fire(desk.who, [plan]))[0].fired
    assert await desk.skips() == [Told("paused", START + MINUTE, START + MINUTE, 1)]


async def test_a_draining_daemon_fires_nothing(desk: Desk, clock: FakeClock) -> None:
    """I12: once it drains no claim commits, and what is due stays due for the next start."""
    await desk.add(make_definition())
    clock.move(MINUTE)
    before = await desk.job()
    desk.who.draining = True

    fired = await desk.tick()

    assert [one.fired for one in fired] == [False]
    assert await desk.job() == before
    assert await desk.runs() == []


async def test_a_fire_that_meets_a_live_run_is_told_as_overlap(desk: Desk, clock: FakeClock) -> None:
    """I2, I13: with overlap skip a second run does not start, and the row says which run stood in the way."""
    await desk.add(make_definition())
    run = await desk.fired()

    fired = await desk.fire()

    assert fired.fired
    assert (fired.grants, fired.queued) == ((), ())
    assert await desk.skips() == [Told("overlap", START + 2 * MINUTE, START + 2 * MINUTE, 1)]
    (skip,) = [row for row in await desk.runs() if row.state is RunState.SKIPPED]
    assert run.id in (skip.message or "")
    assert (await desk.job()).next_fire_at == START + 3 * MINUTE


@pytest.mark.parametrize("state", [RunState.QUEUED, RunState.RUNNING, RunState.WAITING])
async def test_queued_and_waiting_runs_overlap_too(desk: Desk, clock: FakeClock, state: RunState) -> None:
    """I2: a run that waits for its retry, or in the queue, stands in the way as a running one does."""
    await desk.add(make_definition(retry={"attempts": 1, "delay": 3600, "backoff": "constant"}))
    desk.who.max_running = 0 if state is RunState.QUEUED else 32
    fired = await desk.fire()
    if state is RunState.WAITING:
        await desk.finish(fired.grants[0].run, Ending.FAILED)
    assert [run.state for run in await desk.runs()] == [state]

    await desk.fire()

    assert [told.reason for told in await desk.skips()] == ["overlap"]


async def test_a_fire_that_meets_only_a_recovering_run_is_queued(desk: Desk) -> None:
    """I2: while the processes of a dead run are being ended its slot is taken, but the fire is kept."""
    await desk.add(make_definition())
    dead = await desk.take(await desk.fired())

    fired = await desk.fire()

    assert [run.state for run in fired.queued] == [RunState.QUEUED]
    assert await desk.claim() == []
    await desk.finish(dead, Ending.CRASHED)
    assert [grant.run.id for grant in await desk.claim()] == [fired.queued[0].id]


async def test_a_full_store_queues_a_fire(desk: Desk) -> None:
    """A fire that finds the global limit reached is queued, and is claimed when there is room."""
    await desk.add(make_definition("a"))
    await desk.add(make_definition("b"))
    desk.who.max_running = 1
    desk.clock.move(MINUTE)

    fired = await desk.tick()

    assert sum(len(one.grants) for one in fired) == 1
    assert sum(len(one.queued) for one in fired) == 1
    assert await desk.claim() == []
    await desk.finish(next(one.grants[0].run for one in fired if one.grants))
    assert len(await desk.claim()) == 1


async def test_a_full_group_queues_a_fire_of_its_jobs_only(desk: Desk) -> None:
    """I2: the limit of a group holds over all its jobs, and leaves other jobs alone."""
    for name in ("a", "b"):
        await desk.add(make_definition(name, group="exports"))
    await desk.add(make_definition("c"))
    desk.who.groups = {"exports": 1}
    desk.clock.move(MINUTE)

    fired = await desk.tick()

    granted = [grant.run.job for one in fired for grant in one.grants]
    assert len(granted) == 2
    assert "c" in granted
    assert sum(len(one.queued) for one in fired) == 1


async def test_a_broken_job_is_told_at_every_fire(desk: Desk) -> None:
    """I13: a job whose handler cannot be loaded makes no runs, and says so with reason and count."""
    await desk.add(make_definition())
    await desk.store.set_problem(JOB, "broken", "no module named demo")

    await desk.fire()
    await desk.fire()

    assert await desk.skips() == [Told("broken", START + MINUTE, START + 2 * MINUTE, 2)]
    assert (await desk.runs())[0].message == "no module named demo"
    await desk.store.set_problem(JOB, None, None)
    assert len((await desk.fire()).grants) == 1


async def test_queue_keeps_fires_up_to_its_limit(desk: Desk) -> None:
    """Overlap queue: fires wait behind the live run, and one more than queue_limit is told as queue_full."""
    await desk.add(make_definition(overlap="queue", queue_limit=2))
    run = await desk.fired()

    fired = [await desk.fire() for _ in range(3)]

    assert [len(one.queued) for one in fired] == [1, 1, 0]
    assert [told.reason for told in await desk.skips()] == ["queue_full"]
    assert await desk.claim() == []
    await desk.finish(run)
    (grant,) = await desk.claim()
    assert grant.run.fire_time == START + 2 * MINUTE


async def test_cancel_running_replaces_the_queued_run_and_asks_the_live_one_to_end(desk: Desk) -> None:
    """Overlap cancel_running: the newest fire is what will run."""
    await desk.add(make_definition(overlap="cancel_running"))
    run = await desk.fired()

    first, second = await desk.fire(), await desk.fire()

    assert first.cancel == (run.id,)
    assert second.cancel == ()
    assert [ended.id for ended in second.cancelled] == [first.queued[0].id]
    assert (await desk.run(run)).wish == "cancel"
    await desk.finish(run, Ending.CANCELLED)
    (grant,) = await desk.claim()
    assert grant.run.id == second.queued[0].id


async def test_cancel_running_at_the_last_fire_time_still_runs_it(desk: Desk) -> None:
    """Replacing the queued run at the trigger's last fire does not end the job before that fire has run."""
    await desk.add(make_definition(overlap="cancel_running", end_at=START + 3 * MINUTE))
    run = await desk.fired()
    await desk.fire()

    last = await desk.fire()

    assert (await desk.job()).status is JobStatus.ACTIVE
    await desk.finish(run, Ending.CANCELLED)
    (grant,) = await desk.claim()
    assert grant.run.id == last.queued[0].id
    await desk.finish(grant.run)
    assert (await desk.job()).status is JobStatus.COMPLETED


async def test_allow_runs_side_by_side_up_to_its_limit(desk: Desk) -> None:
    """I2: overlap allow starts further runs up to max_running, the next fire is told as overlap."""
    await desk.add(make_definition(overlap="allow", max_running=2))

    fired = [await desk.fire() for _ in range(3)]

    assert [len(one.grants) for one in fired] == [1, 1, 0]
    assert [told.reason for told in await desk.skips()] == ["overlap"]


async def test_a_missed_stretch_runs_its_newest_and_tells_the_rest(desk: Desk, clock: FakeClock) -> None:
    """I13: after an hour of absence the newest fire time runs as catch-up, the others are one row."""
    await desk.add(make_definition(every=MINUTE))
    clock.move(HOUR + 30 * SECOND)

    (fired,) = await desk.tick()

    (grant,) = fired.grants
    assert (grant.run.fire_time, grant.run.trigger) == (START + HOUR, RunTrigger.SCHEDULE)
    assert await desk.skips() == [Told("misfire", START + MINUTE, START + 59 * MINUTE, 59)]
    assert (await desk.job()).next_fire_at == START + HOUR + MINUTE


async def test_catch_up_all_runs_one_after_another(desk: Desk, clock: FakeClock) -> None:
    """catch_up all: missed fires run oldest first, in turn, although overlap is skip; the rest is told."""
    await desk.add(make_definition(every=MINUTE, catch_up="all", catch_up_limit=3))
    clock.move(5 * MINUTE)

    (fired,) = await desk.tick()

    assert [grant.run.fire_time for grant in fired.grants] == [START + 3 * MINUTE]
    assert [run.fire_time for run in fired.queued] == [START + 4 * MINUTE, START + 5 * MINUTE]
    assert await desk.skips() == [Told("misfire", START + MINUTE, START + 2 * MINUTE, 2)]
    await desk.finish(fired.grants[0].run)
    (second,) = await desk.claim()
    await desk.finish(second.run)
    (third,) = await desk.claim()
    assert [second.run.id, third.run.id] == [run.id for run in fired.queued]


async def test_catch_up_all_behind_a_live_run_queues_every_one(desk: Desk, clock: FakeClock) -> None:
    """catch_up all: a live run stands in the way of all of them, so none is dropped while later ones run."""
    await desk.add(make_definition(every=MINUTE, catch_up="all"))
    await desk.start()
    clock.move(3 * MINUTE)

    (fired,) = await desk.tick()

    assert [run.fire_time for run in fired.queued] == [START + n * MINUTE for n in (1, 2, 3)]
    assert await desk.skips() == []


async def test_the_last_fire_of_a_job_that_is_skipped_ends_it(desk: Desk) -> None:
    """An `at` whose only fire meets a live run has no further one: the job is completed in FIRE."""
    await desk.add(make_definition(at=START + MINUTE))
    await desk.start()

    fired = await desk.fire()

    assert fired.completed
    assert (await desk.job()).status is JobStatus.COMPLETED
    assert await desk.skips() == [Told("overlap", START + MINUTE, START + MINUTE, 1)]


async def test_an_at_job_stays_active_until_its_run_has_ended(desk: Desk) -> None:
    """While the run of the only fire time is live the job is not completed; its end completes it."""
    await desk.add(make_definition(at=START + MINUTE))

    fired = await desk.fire()

    assert not fired.completed
    job = await desk.job()
    assert (job.status, job.next_fire_at) == (JobStatus.ACTIVE, None)
    await desk.finish(fired.grants[0].run)
    assert (await desk.job()).status is JobStatus.COMPLETED


async def test_a_delay_job_has_no_next_fire_while_its_run_is_live(desk: Desk) -> None:
    """`delay` counts from the end of a run, so FIRE leaves no next slot and FINISH sets it."""
    await desk.add(make_definition(delay=MINUTE))
    assert (await desk.job()).next_fire_at == START + MINUTE
    run = await desk.fired()
    assert (await desk.job()).next_fire_at is None
    desk.clock.move(10 * SECOND)

    await desk.finish(run)

    assert (await desk.job()).next_fire_at == START + 2 * MINUTE + 10 * SECOND


async def test_a_skipped_delay_fire_sets_the_next_one(desk: Desk) -> None:
    """A `delay` fire that meets a manual run is skipped, and the job fires again one delay later."""
    await desk.add(make_definition(delay=MINUTE))
    await desk.start()

    await desk.fire()

    assert [told.reason for told in await desk.skips()] == ["overlap"]
    assert (await desk.job()).next_fire_at == START + 2 * MINUTE


async def test_max_runs_stops_firing_while_the_last_run_is_live(desk: Desk) -> None:
    """`max_runs` counts ended, live and queued runs: no more fires, and the last end completes the job."""
    await desk.add(make_definition(max_runs=2, overlap="allow", max_running=5))
    runs = [await desk.fired(), await desk.fired()]
    assert (await desk.job()).next_fire_at is None

    await desk.finish(runs[0])
    assert (await desk.job()).status is JobStatus.ACTIVE
    finished = await desk.finish(runs[1])

    assert finished.job is not None
    assert finished.job.status is JobStatus.COMPLETED
    assert await desk.skips() == []


async def test_fires_beyond_max_runs_are_told(desk: Desk, clock: FakeClock) -> None:
    """I13: of several caught-up fires those that max_runs leaves no place for are told as skipped."""
    await desk.add(make_definition(max_runs=2, catch_up="all"))
    clock.move(4 * MINUTE)

    (fired,) = await desk.tick()

    assert len(fired.grants) + len(fired.queued) == 2
    assert await desk.skips() == [Told("misfire", START + 3 * MINUTE, START + 4 * MINUTE, 2)]


async def test_due_lists_on_time_and_late_jobs_apart(desk: Desk, clock: FakeClock) -> None:
    """A long downtime does not push regular jobs out of a slice: late ones have a limit of their own."""
    for number in range(4):
        await desk.add(make_definition(f"late-{number}", at=START + MINUTE))
        await desk.add(make_definition(f"soon-{number}", at=START + HOUR))
    clock.move(HOUR)

    look = await desk.store.due(limit=2, late_after=MINUTE, late_limit=1)

    assert look.now == clock.now()
    assert [job.id[:4] for job in look.jobs] == ["late", "soon", "soon"]


async def test_due_comes_earliest_first_and_only_what_may_fire(desk: Desk, clock: FakeClock) -> None:
    """The look gives jobs in order of their due moment, and no paused, disabled, removed or future one."""
    await desk.add(make_definition("b", at=START + 2 * SECOND))
    await desk.add(make_definition("a", at=START + 3 * SECOND))
    await desk.add(make_definition("future", at=START + HOUR))
    for name in ("paused", "disabled", "removed"):
        await desk.add(make_definition(name, at=START + SECOND))
    await desk.pause(JobId("paused"))
    await desk.edit(make_definition("disabled", at=START + SECOND, enabled=False))
    await desk.remove(JobId("removed"))
    clock.move(10 * SECOND)

    look = await desk.store.due(limit=10, late_after=MINUTE, late_limit=10)

    assert [job.id for job in look.jobs] == ["b", "a"]


async def test_one_faulty_plan_does_not_stop_the_others(desk: Desk, clock: FakeClock) -> None:
    """A plan for a job that is gone is refused in its place; the plans beside it are carried out."""
    for name in ("a", "b", "c"):
        await desk.add(make_definition(name))
    clock.move(MINUTE)
    plans = [await desk.plan(JobId(name)) for name in ("a", "b", "c")]
    await desk.remove(JobId("b"))

    fired = await desk.store.fire(desk.who, [plan for plan in plans if plan is not None])

    assert [one.fired for one in fired] == [True, False, True]


async def test_jitter_puts_the_start_off_and_keeps_the_slot(desk: Desk) -> None:
    """The fire time is the slot, the start is the due moment; a start that jitter put off is not late."""
    await desk.add(make_definition(every=DAY, jitter=10 * HOUR, catch_up="skip"))
    job = await desk.job()
    assert job.next_fire_at is not None
    assert job.due_at is not None
    assert job.next_fire_at < job.due_at

    run = await desk.fired()

    assert (run.fire_time, run.trigger) == (job.next_fire_at, RunTrigger.SCHEDULE)


async def test_two_daemons_share_the_global_limit(desk: Desk, opener: Opener, clock: FakeClock) -> None:
    """I2: max_running is counted from rows, so the claims of another daemon fill it too."""
    await desk.add(make_definition("a"))
    await desk.add(make_definition("b"))
    other = Desk(await opener(), clock, make_claimant(make_owner(), max_running=1))
    await desk.fired(JobId("a"))

    fired = await other.fire(JobId("b"))

    assert (len(fired.grants), len(fired.queued)) == (0, 1)


async def test_firing_many_jobs_is_one_verb(desk: Desk, clock: FakeClock) -> None:
    """A batch of plans answers one result per plan, in order."""
    for number in range(30):
        await desk.add(make_definition(f"job-{number:02}"))
    clock.move(MINUTE)

    fired = await desk.tick()

    assert [grant.run.job for one in fired for grant in one.grants] == [f"job-{n:02}" for n in range(30)]
