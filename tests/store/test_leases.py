"""Claims as leases: renewed, reported under, looked at, taken over only while nobody touched them."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from scheduler.clock import HOUR, MINUTE, SECOND, Micros
from scheduler.model.jobs import JobId, JobStatus
from scheduler.model.runs import Progress, RunState, Wish
from scheduler.rules.reconcile import Ending, Standing
from scheduler.store.values import ClaimRef, Report
from tests.support.builders import make_claimant, make_definition, make_owner, make_verdict
from tests.support.clock import FakeClock
from tests.support.desk import Desk
from tests.support.stores import Opener


async def test_a_renewal_extends_the_lease_and_brings_the_wish(desk: Desk, clock: FakeClock) -> None:
    """One statement renews what is ours and answers what the operator wants of it."""
    await desk.add(make_definition("a"))
    await desk.add(make_definition("b"))
    first, second = await desk.fired(JobId("a")), await desk.fired(JobId("b"))
    await desk.cancel(second)
    clock.move(20 * SECOND)

    answer = await desk.store.renew(
        desk.who, [ClaimRef(run_id=run.id, claim=run.claim) for run in (first, second)]
    )

    assert answer == {first.id: Wish.RUN, second.id: Wish.CANCEL}
    assert (await desk.run(first)).lease_until == clock.now() + desk.who.lease


@pytest.mark.parametrize("case", ["old claim", "other owner", "recovering", "ended"])
async def test_a_renewal_of_what_is_not_ours_changes_nothing(desk: Desk, clock: FakeClock, case: str) -> None:
    """I3: a heartbeat under a claim that moved on renews nothing and is missing in the answer."""
    await desk.add(make_definition(on_crash="retry"))
    run = await desk.fired()
    ref, who = ClaimRef(run_id=run.id, claim=run.claim), desk.who
    match case:
        case "old claim":
            await desk.crash(run)
            assert len(await desk.claim()) == 1
        case "other owner":
            who = make_claimant()
        case "recovering":
            await desk.take(run)
        case _:
            await desk.finish(run)
    clock.move(SECOND)
    before = await desk.rows()

    assert await desk.store.renew(who, [ref]) == {}
    assert await desk.rows() == before


async def test_a_report_is_on_record(desk: Desk, clock: FakeClock) -> None:
    """Progress, cost and the child's identity stand in the run, its pid in the attempt too."""
    await desk.add(make_definition())
    run = await desk.fired()
    clock.move(SECOND)
    progress = Progress(done=3, total=10, message="third")

    await desk.store.report(
        [
            Report(run_id=run.id, claim=1, pid=77, pid_ticks=123),
            Report(run_id=run.id, claim=1, progress_at=clock.now(), progress=progress, cost=0.5),
        ]
    )

    row = await desk.run(run)
    assert (row.pid, row.pid_ticks, row.progress, row.cost) == (77, 123, progress, 0.5)
    assert row.progress_at == clock.now()
    assert (await desk.store.attempts(run.id))[0].pid == 77


async def test_a_report_without_numbers_keeps_the_last_ones(desk: Desk, clock: FakeClock) -> None:
    """A bare sign of life moves only its moment."""
    await desk.add(make_definition())
    run = await desk.fired()
    first = Progress(done=1, total=2, message="one")
    await desk.store.report(
        [Report(run_id=run.id, claim=1, progress_at=clock.now(), progress=first, cost=2.0)]
    )
    clock.move(MINUTE)

    await desk.store.report([Report(run_id=run.id, claim=1, progress_at=clock.now())])

    row = await desk.run(run)
    assert (row.progress, row.cost, row.progress_at) == (first, 2.0, clock.now())


@pytest.mark.parametrize("case", ["old claim", "recovering", "ended"])
async def test_a_report_under_a_lost_claim_changes_nothing(desk: Desk, clock: FakeClock, case: str) -> None:
    """I3: what a fenced worker tells of progress or of its child does not reach the row."""
    await desk.add(make_definition(on_crash="retry"))
    run = await desk.fired()
    match case:
        case "old claim":
            await desk.crash(run)
            assert len(await desk.claim()) == 1
        case "recovering":
            await desk.take(run)
        case _:
            await desk.finish(run)
    before = await desk.rows()

    await desk.store.report(
        [
            Report(
                run_id=run.id,
                claim=1,
                pid=7,
                pid_ticks=8,
                progress_at=clock.now() + SECOND,
                progress=Progress(done=9),
                cost=9.0,
            )
        ]
    )

    assert await desk.rows() == before


async def test_a_look_shows_claims_as_they_stand(desk: Desk, clock: FakeClock) -> None:
    """A look names each running row with owner, claim and lease, and each recovering row whole."""
    await desk.add(make_definition("a"))
    await desk.add(make_definition("b"))
    await desk.add(make_definition("c"))
    running, dying = await desk.fired(JobId("a")), await desk.fired(JobId("b"))
    await desk.finish(await desk.fired(JobId("c")))
    taken = await desk.take(dying)

    look = await desk.store.look()

    assert look.now == clock.now()
    (seen,) = look.running
    assert (seen.run_id, seen.claim, seen.owner) == (running.id, 1, desk.who.owner.id)
    assert seen.lease_until == running.lease_until
    assert look.recovering == (taken,)


async def test_a_dead_claim_becomes_recovering_and_keeps_all_else(desk: Desk) -> None:
    """I7: the first step of recovery changes the state and nothing else: slot, owner and claim stay."""
    await desk.add(make_definition())
    run = await desk.fired()

    taken = await desk.take(run)

    assert taken == replace(run, state=RunState.RECOVERING) == await desk.run(run)


async def test_a_wedged_run_is_recovered_and_the_job_runs_again(
    desk: Desk, opener: Opener, clock: FakeClock
) -> None:
    """I7: after the daemon's death the next one releases the claim, and the job can be started at once."""
    await desk.add(make_definition())
    run = await desk.fired()
    await desk.store.close()
    restarted = Desk(await opener(), clock, make_claimant(make_owner()))

    finished = await restarted.crash(run)
    started = await restarted.start()

    assert finished.run.state is RunState.CRASHED
    assert started.grant is not None


async def test_on_crash_retry_is_a_new_claim_without_a_charged_attempt(desk: Desk) -> None:
    """on_crash retry: the run waits, and its next claim is the next fencing token of the same attempt."""
    await desk.add(make_definition(on_crash="retry"))
    run = await desk.fired()

    finished = await desk.crash(run)
    (grant,) = await desk.claim()

    assert (finished.run.state, finished.run.reason) == (RunState.WAITING, "owner_died")
    assert (grant.run.id, grant.run.claim, grant.run.attempt) == (run.id, 2, 1)


async def test_recovery_backs_off_when_the_worker_finished(desk: Desk) -> None:
    """I8: a success that landed between look and write stands, untouched by the recovery."""
    await desk.add(make_definition())
    run = await desk.fired()
    look = await desk.store.look()
    await desk.finish(run)
    before = await desk.rows()

    assert await desk.store.recover(look.running) == []
    assert await desk.rows() == before
    assert (await desk.run(run)).state is RunState.SUCCEEDED


async def test_recovery_backs_off_when_the_owner_renewed(desk: Desk, clock: FakeClock) -> None:
    """I8: a heartbeat that landed between look and write proves the owner alive."""
    await desk.add(make_definition())
    run = await desk.fired()
    look = await desk.store.look()
    clock.move(SECOND)
    await desk.store.renew(desk.who, [ClaimRef(run_id=run.id, claim=run.claim)])

    assert await desk.store.recover(look.running) == []
    assert (await desk.run(run)).state is RunState.RUNNING


async def test_recovery_backs_off_when_the_claim_moved_on(desk: Desk) -> None:
    """I8: what was looked at is another claim's run now."""
    await desk.add(make_definition(on_crash="retry"))
    run = await desk.fired()
    look = await desk.store.look()
    await desk.crash(run)
    (again,) = await desk.claim()

    assert await desk.store.recover(look.running) == []
    assert await desk.run(run) == again.run


async def test_two_recoveries_take_a_claim_once(desk: Desk, opener: Opener, clock: FakeClock) -> None:
    """I8: of two daemons that saw the same dead claim one takes it."""
    await desk.add(make_definition())
    await desk.fired()
    other = Desk(await opener(), clock)
    look = await desk.store.look()

    taken = [await desk.store.recover(look.running), await other.store.recover(look.running)]

    assert [len(one) for one in taken] == [1, 0]


async def test_the_old_worker_of_a_recovering_run_is_fenced(desk: Desk) -> None:
    """I3, I8: once its claim was taken the owner's late outcome changes nothing; recovery's word stands."""
    await desk.add(make_definition())
    run = await desk.fired()
    taken = await desk.take(run)

    late = await desk.finish(run)
    finished = await desk.finish(taken, Ending.CRASHED)

    assert late.decision.standing is Standing.FENCED
    assert finished.decision.standing is Standing.WRITTEN
    assert (await desk.run(run)).state is RunState.CRASHED


async def test_a_second_recovery_of_one_run_is_fenced(desk: Desk, clock: FakeClock) -> None:
    """I3: a recoverer that comes when the run was already released and claimed again changes nothing."""
    await desk.add(make_definition(on_crash="retry"))
    taken = await desk.take(await desk.fired())
    await desk.finish(taken, Ending.CRASHED)
    (again,) = await desk.claim()

    (late,) = await desk.store.finish([make_verdict(taken, Ending.CRASHED)])

    assert late.decision.standing is Standing.FENCED
    assert await desk.run(again.run) == again.run


async def test_an_old_run_that_beats_stays(desk: Desk, clock: FakeClock) -> None:
    """I8: a run is never taken for its age: a hundred hours of heartbeats keep its claim as it was."""
    await desk.add(make_definition(every=1_000 * HOUR))
    run = await desk.fired()
    for _ in range(100):
        clock.move(HOUR)
        await desk.store.renew(desk.who, [ClaimRef(run_id=run.id, claim=run.claim)])

    (seen,) = (await desk.store.look()).running
    assert (seen.claim, seen.lease_until) == (1, clock.now() + desk.who.lease)


# --- owners ---
async def test_another_boot_resets_the_crash_counters(desk: Desk, clock: FakeClock) -> None:
    """Crashes of another boot of the machine say nothing about a job."""
    await desk.store.register(make_owner(boot_id="boot-1"))
    await desk.add(make_definition())
    await desk.crash(await desk.fired())
    clock.move(HOUR)
    await desk.store.register(make_owner(boot_id="boot-1"))
    assert (await desk.job()).crashes == 1
    clock.move(HOUR)

    await desk.store.register(make_owner(boot_id="boot-2"))

    assert (await desk.job()).crashes == 0


async def test_an_orderly_stop_resets_the_crash_counters(desk: Desk, clock: FakeClock) -> None:
    """A daemon that signed off did not die of its jobs."""
    owner = make_owner()
    await desk.store.register(owner)
    await desk.add(make_definition())
    await desk.crash(await desk.fired())
    clock.move(HOUR)
    await desk.store.sign_off(owner.id)

    await desk.store.register(make_owner())

    assert (await desk.job()).crashes == 0


async def test_only_the_daemon_before_says_whether_crashes_count(desk: Desk, clock: FakeClock) -> None:
    """One that died long ago is over where its successor stopped in order."""
    await desk.store.register(make_owner())
    await desk.add(make_definition())
    await desk.crash(await desk.fired())
    clock.move(HOUR)
    owner = make_owner()
    await desk.store.register(owner)
    assert (await desk.job()).crashes == 1
    await desk.store.sign_off(owner.id)
    clock.move(HOUR)

    await desk.store.register(make_owner())

    assert (await desk.job()).crashes == 0


async def test_a_crash_pause_outlives_another_boot(desk: Desk, clock: FakeClock) -> None:
    """I4: what crashes paused stays paused, with its evidence, until somebody resumes it."""
    await desk.store.register(make_owner(boot_id="boot-1"))
    await desk.add(make_definition(max_crashes=1))
    await desk.crash(await desk.fired())
    before = await desk.job()
    clock.move(HOUR)

    await desk.store.register(make_owner(boot_id="boot-2"))

    assert before.status is JobStatus.PAUSED
    assert await desk.job() == before


async def test_recent_deaths_are_counted(desk: Desk, clock: FakeClock) -> None:
    """A start says how many daemons died without a word within the last ten minutes."""
    first, second, third = make_owner(), make_owner(), make_owner()
    assert await desk.store.register(first) == 0
    clock.move(MINUTE)
    assert await desk.store.register(second) == 1
    clock.move(MINUTE)
    assert await desk.store.register(third) == 2
    await desk.store.sign_off(third.id)
    clock.move(30 * MINUTE)

    assert await desk.store.register(make_owner()) == 0


@pytest.mark.parametrize(("later", "deaths"), [(10 * MINUTE, 1), (10 * MINUTE - 1, 2)])
async def test_a_death_is_recent_for_ten_minutes(
    desk: Desk, clock: FakeClock, later: Micros, deaths: int
) -> None:
    """To the microsecond, from the start of the successor on; the one that died last counts in any case."""
    await desk.store.register(make_owner())
    clock.move(MINUTE)
    await desk.store.register(make_owner())
    clock.move(later)

    assert await desk.store.register(make_owner()) == deaths


async def test_runs_cut_by_a_dying_daemon_restart_one_at_a_time_on_wish(desk: Desk, clock: FakeClock) -> None:
    """After repeated deaths recovered runs are claimed serially, so that a poison job harms no bystander."""
    for name in ("a", "b"):
        await desk.add(make_definition(name, on_crash="retry"))
    runs = [await desk.fired(JobId(name)) for name in ("a", "b")]
    for run in runs:
        await desk.crash(run)
    desk.who.serial = True

    (first,) = await desk.claim()

    assert first.run.serial
    assert await desk.claim() == []
    await desk.finish(first.run)
    (second,) = await desk.claim()
    assert {first.run.id, second.run.id} == {run.id for run in runs}


async def test_what_a_run_told_last_is_on_record_though_its_end_waits_beside_it(
    desk: Desk, clock: FakeClock
) -> None:
    """Ends of one transaction are a set and come first, but no end overtakes the last word of its own run."""
    for name in ("a", "b"):
        await desk.add(make_definition(name))
    first, second = await desk.fired(JobId("a")), await desk.fired(JobId("b"))
    told = Report(
        run_id=first.id, claim=1, progress_at=clock.now(), progress=Progress(done=7, total=7), cost=1.5
    )

    await asyncio.gather(
        desk.store.report([told]),
        desk.store.finish([make_verdict(first)]),
        desk.store.finish([make_verdict(second)]),
    )

    run = await desk.run(first)
    assert (run.state, run.progress, run.cost) == (RunState.SUCCEEDED, told.progress, 1.5)
