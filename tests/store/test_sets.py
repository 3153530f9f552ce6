"""Many fires in one FIRE, and many ends in one transaction: each comes to what it would have alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from scheduler.clock import MINUTE, SECOND
from scheduler.errors import NotFound
from scheduler.model.jobs import JobId, JobStatus, Overlap
from scheduler.model.runs import Run, RunId, RunState
from scheduler.rules.planning import FirePlan
from scheduler.rules.reconcile import Ending, Standing
from scheduler.store.values import Report
from tests.support.builders import make_claimant, make_definition, make_verdict
from tests.support.clock import START, FakeClock
from tests.support.desk import Desk

MANY = 12


async def many(desk: Desk, clock: FakeClock, count: int = MANY, **definition: Any) -> list[FirePlan]:
    """Plans of as many jobs that are due together."""
    names = [JobId(f"job-{number:02}") for number in range(count)]
    for name in names:
        await desk.add(make_definition(name, **definition))
    clock.move(MINUTE)
    plans = [await desk.plan(name) for name in names]
    return [plan for plan in plans if plan is not None]


async def granted(desk: Desk, plans: list[FirePlan]) -> list[Run]:
    """The runs that these plans started."""
    return [grant.run for fired in await desk.store.fire(desk.who, plans) for grant in fired.grants]


async def test_a_set_of_fires_starts_a_run_of_each(desk: Desk, clock: FakeClock) -> None:
    """I10: what each grant says is the row as it stands, with an attempt of its own."""
    plans = await many(desk, clock)

    runs = await granted(desk, plans)

    assert [run.job for run in runs] == [plan.job_id for plan in plans]
    for run in runs:
        assert run == await desk.run(run)
        (attempt,) = await desk.store.attempts(run.id)
        assert (attempt.claim, attempt.owner) == (1, desk.who.owner.id)


async def test_one_stale_plan_does_not_keep_the_others(desk: Desk, clock: FakeClock) -> None:
    """I4: a job that was paused since the look does not fire; all others of the set do."""
    plans = await many(desk, clock)
    await desk.pause(plans[7].job_id)

    fired = await desk.store.fire(desk.who, plans)

    assert [one.fired for one in fired] == [place != 7 for place in range(MANY)]
    assert (await desk.job(plans[7].job_id)).status is JobStatus.PAUSED
    assert await desk.live(plans[7].job_id) == []


async def test_a_set_counts_its_own_claims(desk: Desk, clock: FakeClock) -> None:
    """I2: where three fit into the store three are claimed, in the order of the plans; the rest waits."""
    desk.who = make_claimant(max_running=3)
    plans = await many(desk, clock)

    fired = await desk.store.fire(desk.who, plans)

    assert [len(one.grants) for one in fired] == [1] * 3 + [0] * (MANY - 3)
    assert [len(one.queued) for one in fired] == [0] * 3 + [1] * (MANY - 3)


async def test_a_job_in_the_way_is_told_and_the_others_fire(desk: Desk, clock: FakeClock) -> None:
    """I2, I13: within a set, one whose run is still live is skipped with its reason."""
    plans = await many(desk, clock)
    (blocked, *_) = await granted(desk, plans[:1])
    clock.move(MINUTE)
    again = [plan for plan in [await desk.plan(plan.job_id) for plan in plans] if plan is not None]

    fired = await desk.store.fire(desk.who, again)

    assert fired[0].grants == ()
    assert [span.reason for span in fired[0].skips][-1:] == ["overlap"]
    assert all(one.grants for one in fired[1:])
    assert await desk.live(blocked.job) == [await desk.run(blocked)]


async def test_late_jobs_of_a_set_tell_what_they_missed(desk: Desk, clock: FakeClock) -> None:
    """I13: each has a row for the slots that it missed, extended by the next set, and its run."""
    plans = await many(desk, clock, count=4, every=MINUTE)
    clock.move(3 * MINUTE)
    for _ in range(2):
        late = [plan for plan in [await desk.plan(plan.job_id) for plan in plans] if plan is not None]
        for run in await granted(desk, late):
            await desk.finish(run)
        clock.move(3 * MINUTE)

    for plan in plans:
        kept = [(run.state, run.count) for run in await desk.runs(plan.job_id)]
        assert sorted(kept) == [("skipped", 2), ("skipped", 3), ("succeeded", 1), ("succeeded", 1)]


async def test_ends_that_come_together_are_each_kept(desk: Desk, clock: FakeClock) -> None:
    """I6: outcomes of one transaction keep their own words, and what is told of each is its row."""
    runs = await granted(desk, await many(desk, clock))
    endings = [Ending.SUCCEEDED, Ending.FAILED, Ending.CANCELLED, Ending.SHUTDOWN] * 3

    said = [{"cost": 1 / 3, "result": "1" * size} for size in (1, 20_000, 1) * 4]
    ends = [desk.finish(run, ending, **more) for run, ending, more in zip(runs, endings, said, strict=True)]
    finished = await asyncio.gather(*ends)

    for run, one in zip(runs, finished, strict=True):
        assert one.run == await desk.run(run)
        assert one.job == await desk.job(run.job)
    assert [one.run.state for one in finished[:4]] == ["succeeded", "failed", "cancelled", "interrupted"]
    assert [(await desk.job(run.job)).failures for run in runs[:3]] == [0, 1, 0]
    assert [(await desk.job(run.job)).fires_done for run in runs] == [1] * MANY


async def test_a_pause_in_mid_run_survives_an_end_among_others(desk: Desk, clock: FakeClock) -> None:
    """I4: ends that are written as one set meet each its own live row."""
    runs = await granted(desk, await many(desk, clock))
    await desk.pause(runs[5].job, note="hold it")

    finished = await asyncio.gather(*(desk.finish(run) for run in runs))

    assert [one.decision.met_pause for one in finished] == [place == 5 for place in range(MANY)]
    job = await desk.job(runs[5].job)
    assert (job.status, job.next_fire_at) == (JobStatus.PAUSED, None)


async def test_a_fenced_end_among_others_is_refused_alone(desk: Desk, clock: FakeClock) -> None:
    """I3: the claim moved on for one of them; it changes nothing, and the others are written."""
    runs = await granted(desk, await many(desk, clock, on_crash="retry"))
    await desk.crash(runs[2])

    finished = await asyncio.gather(*(desk.finish(run) for run in runs))

    standings = [one.decision.standing for one in finished]
    assert standings == [Standing.FENCED if place == 2 else Standing.WRITTEN for place in range(MANY)]
    assert (await desk.run(runs[2])).state is RunState.WAITING


async def test_an_end_that_fails_among_others_fails_alone(desk: Desk, clock: FakeClock) -> None:
    """A verdict on a run that does not exist is an error of its own caller only."""
    runs = await granted(desk, await many(desk, clock))
    ghost = make_verdict(runs[0]).__class__(
        run_id=RunId("00000000-0000-7000-8000-000000000000"),
        claim=1,
        expects=RunState.RUNNING,
        ending=Ending.SUCCEEDED,
    )

    outcomes = await asyncio.gather(
        desk.store.finish([ghost]), *(desk.finish(run) for run in runs), return_exceptions=True
    )

    assert isinstance(outcomes[0], NotFound)
    assert {(await desk.run(run)).state for run in runs} == {RunState.SUCCEEDED}


async def test_two_runs_of_a_job_that_end_together_count_twice(desk: Desk, clock: FakeClock) -> None:
    """The second of them is judged by the row that the first has left."""
    await desk.add(make_definition(overlap="allow", max_running=3))
    runs = [await desk.fired() for _ in range(3)]

    await asyncio.gather(*(desk.finish(run, Ending.FAILED) for run in runs))

    job = await desk.job()
    assert (job.failures, job.fires_done) == (3, 3)


async def test_the_last_run_of_a_job_among_others_completes_it(desk: Desk, clock: FakeClock) -> None:
    """An end that does more than count does it also in company."""
    plans = await many(desk, clock, count=3, max_runs=1)
    runs = await granted(desk, plans)

    await asyncio.gather(*(desk.finish(run) for run in runs))

    assert {(await desk.job(run.job)).status for run in runs} == {JobStatus.COMPLETED}


async def test_an_end_frees_its_slot_for_a_start_of_the_same_moment(desk: Desk, clock: FakeClock) -> None:
    """Outcomes go before the others in a transaction: who asks for the slot at the same time has it."""
    await desk.add(make_definition(manual=True))
    first = (await desk.start()).run

    started, _ = await asyncio.gather(desk.start(), desk.finish(first))

    assert started.run.state is RunState.RUNNING


@pytest.mark.parametrize("ending", [Ending.FAILED, Ending.SUCCEEDED])
async def test_no_character_of_an_outcome_breaks_a_set(desk: Desk, clock: FakeClock, ending: Ending) -> None:
    """A NUL in a message becomes a replacement character; whatever else was said is kept."""
    await desk.add(make_definition())
    run = await desk.fired()
    clock.move(SECOND)

    finished = await desk.finish(run, ending, message='a\0b "c" \u2028 \U0001f600', result='"x\\u0000y"')

    row = await desk.run(run)
    assert row.result == '"x\\u0000y"'
    assert row.message == (None if ending is Ending.SUCCEEDED else 'a\ufffdb "c" \u2028 \U0001f600')
    assert finished.run.state is row.state


async def test_one_shot_jobs_that_end_together_are_completed(desk: Desk, clock: FakeClock) -> None:
    """I5: a job with nothing left ends with its run; one with a try or a run by hand ahead does not."""
    plans = await many(desk, clock, count=4, at=START + MINUTE, retry={"attempts": 1})
    runs = await granted(desk, plans)
    await desk.pause(runs[1].job)
    queued = (await desk.start(runs[3].job, overlap=Overlap.QUEUE)).run

    endings = [Ending.SUCCEEDED, Ending.SUCCEEDED, Ending.FAILED, Ending.SUCCEEDED]
    finished = await asyncio.gather(
        *(desk.finish(run, ending) for run, ending in zip(runs, endings, strict=True))
    )

    jobs = [await desk.job(run.job) for run in runs]
    assert [job.status for job in jobs] == ["completed", "completed", "active", "completed"]
    assert [one.job for one in finished] == jobs
    assert [one.decision.ends_job for one in finished] == [True, True, False, True]
    assert finished[3].ended == (await desk.run(queued),)
    assert (await desk.run(queued)).reason == "job_ended"


async def test_what_a_run_has_cost_keeps_its_digits(desk: Desk, clock: FakeClock) -> None:
    """A cost that was told in mid-run is told again with the end, to the last digit."""
    runs = await granted(desk, await many(desk, clock, count=2))
    await desk.store.report(
        [Report(run_id=run.id, claim=run.claim, progress_at=clock.now(), cost=1 / 3) for run in runs]
    )

    finished = await asyncio.gather(*(desk.finish(run) for run in runs))

    assert [one.run.cost for one in finished] == [1 / 3, 1 / 3]
    assert [one.run for one in finished] == [await desk.run(run) for run in runs]
