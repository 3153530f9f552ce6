"""FINISH: a verdict meets the live rows. Each rule of what a run's end may write."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.clock import DAY, HOUR, MINUTE, SECOND
from scheduler.errors import NotFound
from scheduler.model.jobs import JobId, JobStatus, Overlap, PauseMode, PauseReason
from scheduler.model.runs import RunId, RunState
from scheduler.rules.reconcile import Ending, Standing
from tests.support.builders import JOB, make_definition, make_verdict
from tests.support.clock import START, FakeClock
from tests.support.desk import Desk, Told

RETRY = {"attempts": 2, "delay": 10, "backoff": "constant"}


# --- the run ---
async def test_a_success_is_kept_whole(desk: Desk, clock: FakeClock) -> None:
    """The outcome stands in run and attempt, the child's identity is gone, and owner and claim stay."""
    await desk.add(make_definition())
    run = await desk.fired()
    clock.move(5 * SECOND)

    finished = await desk.finish(run, result='{"rows": 3}', cost=0.25)

    row = finished.run
    assert row == await desk.run(run)
    assert (row.state, row.reason, row.message, row.exit_code) == (RunState.SUCCEEDED, None, None, 0)
    assert (row.result, row.cost, row.finished_at) == ('{"rows": 3}', 0.25, clock.now())
    assert (row.owner, row.claim, row.pid) == (run.owner, 1, None)
    (attempt,) = await desk.store.attempts(run.id)
    assert (attempt.state, attempt.exit_code, attempt.finished_at) == (RunState.SUCCEEDED, 0, clock.now())


@pytest.mark.parametrize(
    ("ending", "state", "reason"),
    [
        (Ending.FAILED, RunState.FAILED, "exit_code"),
        (Ending.CANCELLED, RunState.CANCELLED, "cancelled"),
        (Ending.SHUTDOWN, RunState.INTERRUPTED, "shutdown"),
    ],
)
async def test_every_end_without_success_says_why(
    desk: Desk, ending: Ending, state: RunState, reason: str
) -> None:
    """A run that did not succeed carries a reason and a message."""
    await desk.add(make_definition())

    row = (await desk.finish(await desk.fired(), ending)).run

    assert (row.state, row.reason) == (state, reason)
    assert row.message


async def test_a_crash_is_recorded_by_recovery(desk: Desk) -> None:
    """on_crash record: a run whose owner died is crashed, with its reason."""
    await desk.add(make_definition())

    row = (await desk.crash(await desk.fired())).run

    assert (row.state, row.reason) == (RunState.CRASHED, "owner_died")


async def test_a_failure_with_a_retry_left_waits(desk: Desk, clock: FakeClock) -> None:
    """A try is charged, the run waits for its moment, and keeps why the last try failed."""
    await desk.add(make_definition(retry=RETRY))

    finished = await desk.finish(await desk.fired(), Ending.FAILED)

    row = finished.run
    assert (row.state, row.attempt, row.ready_at) == (RunState.WAITING, 2, clock.now() + 10 * SECOND)
    assert (row.reason, row.exit_code, row.finished_at) == ("exit_code", 1, None)
    assert finished.job is not None
    assert (finished.job.failures, finished.job.fires_done) == (0, 0)


async def test_tries_end(desk: Desk, clock: FakeClock) -> None:
    """After its last try the run has failed, and counts once as a failed run of its job."""
    await desk.add(make_definition(retry=RETRY))
    run = await desk.fired()
    for _ in range(2):
        await desk.finish(run, Ending.FAILED)
        clock.move(10 * SECOND)
        run = (await desk.claim())[0].run

    finished = await desk.finish(run, Ending.FAILED)

    assert (finished.run.state, finished.run.attempt, finished.run.claim) == (RunState.FAILED, 3, 3)
    assert finished.job is not None
    assert (finished.job.failures, finished.job.fires_done) == (1, 1)
    assert [one.state for one in await desk.store.attempts(run.id)] == [RunState.FAILED] * 3


async def test_a_try_that_the_handler_asked_for_is_not_charged(desk: Desk, clock: FakeClock) -> None:
    """`Retry(after)` waits as long as it says and charges no attempt, whatever the policy."""
    await desk.add(make_definition())

    row = (await desk.finish(await desk.fired(), Ending.RETRY_ASKED, retry_after=42 * SECOND)).run

    assert (row.state, row.attempt, row.ready_at) == (RunState.WAITING, 1, clock.now() + 42 * SECOND)


@pytest.mark.parametrize("on_crash", ["retry", "resume"])
async def test_a_planned_stop_is_no_failure(desk: Desk, clock: FakeClock, on_crash: str) -> None:
    """I12: what a shutdown cut waits for the next start where the policy says so, no try charged."""
    await desk.add(make_definition(on_crash=on_crash))

    row = (await desk.finish(await desk.fired(), Ending.SHUTDOWN)).run

    assert (row.state, row.attempt, row.ready_at) == (RunState.WAITING, 1, clock.now())


async def test_success_wins_over_a_cancel_that_came_too_late(desk: Desk) -> None:
    """Work that succeeded has succeeded, whatever was wished meanwhile."""
    await desk.add(make_definition())
    run = await desk.fired()
    await desk.cancel(run)

    assert (await desk.finish(run)).run.state is RunState.SUCCEEDED


@pytest.mark.parametrize("ending", [Ending.FAILED, Ending.RETRY_ASKED, Ending.SHUTDOWN])
async def test_a_failure_under_the_wish_cancel_is_cancelled(desk: Desk, ending: Ending) -> None:
    """No retry, no waiting: what an operator cancelled is cancelled."""
    await desk.add(make_definition(retry=RETRY, on_crash="retry"))
    run = await desk.fired()
    await desk.cancel(run)

    row = (await desk.finish(run, ending)).run

    assert (row.state, row.reason, row.ready_at) == (RunState.CANCELLED, "cancelled", None)


async def test_a_crash_under_the_wish_cancel_is_cancelled(desk: Desk) -> None:
    """A recovery respects the wish: no restart of what an operator cancelled."""
    await desk.add(make_definition(on_crash="retry"))
    run = await desk.fired()
    await desk.cancel(run)

    assert (await desk.crash(run)).run.state is RunState.CANCELLED


async def test_a_failure_under_a_hold_is_held(desk: Desk, clock: FakeClock) -> None:
    """A retryable failure of a run that is to be held waits for the operator, and then for its claim."""
    await desk.add(make_definition(retry=RETRY))
    run = await desk.fired()
    await desk.pause(mode=PauseMode.ITEM)

    row = (await desk.finish(run, Ending.FAILED)).run

    assert (row.state, row.attempt, row.ready_at) == (RunState.HELD, 2, None)
    clock.move(HOUR)
    assert await desk.claim() == []
    await desk.resume()
    assert [grant.run.id for grant in await desk.claim()] == [run.id]


# --- I3: fencing ---
async def refused(desk: Desk, verdict: Any, standing: Standing) -> None:
    """The verdict changes not one column of one row."""
    before = await desk.rows()

    (finished,) = await desk.store.finish([verdict])

    assert finished.decision.standing is standing
    assert (finished.decision.run, finished.decision.job, finished.ended) == (None, None, ())
    assert await desk.rows() == before


@pytest.mark.parametrize(
    "ending", [Ending.SUCCEEDED, Ending.FAILED, Ending.RETRY_ASKED, Ending.CANCELLED, Ending.SHUTDOWN]
)
async def test_an_old_claim_changes_nothing(desk: Desk, clock: FakeClock, ending: Ending) -> None:
    """I3: a write-back whose claim moved on is fenced, whatever it says."""
    await desk.add(make_definition(on_crash="retry", delay=MINUTE))
    run = await desk.fired()
    await desk.crash(run)
    clock.move(SECOND)
    (again,) = await desk.claim()
    assert again.run.claim == 2

    await refused(desk, make_verdict(run, ending, completed=ending is Ending.SUCCEEDED), Standing.FENCED)


@pytest.mark.parametrize("state", ["recovering", "waiting", "held", "crashed", "cancelled"])
async def test_a_wrong_state_changes_nothing(desk: Desk, state: str) -> None:
    """I3: a worker writes a running row only; whatever else the row is, its word is fenced."""
    await desk.add(
        make_definition(retry=RETRY, on_crash="retry" if state in ("waiting", "held") else "record")
    )
    run = await desk.fired()
    match state:
        case "recovering":
            await desk.take(run)
        case "waiting":
            await desk.crash(run)
        case "held":
            await desk.pause(mode=PauseMode.ITEM)
            await desk.finish(run, Ending.FAILED)
        case "crashed":
            await desk.crash(run)
        case _:
            await desk.store.release(run.id, desk.peer)
    assert (await desk.run(run)).state == state

    await refused(desk, make_verdict(run), Standing.FENCED)


async def test_a_recovery_of_a_running_row_changes_nothing(desk: Desk) -> None:
    """I3: recovery writes a recovering row only, so a verdict without the step before it is fenced."""
    await desk.add(make_definition())
    run = await desk.fired()

    verdict = make_verdict(run, Ending.CRASHED, expects=RunState.RECOVERING)
    await refused(desk, verdict, Standing.FENCED)


@pytest.mark.parametrize("ending", [Ending.SUCCEEDED, Ending.FAILED, Ending.CANCELLED, Ending.SHUTDOWN])
async def test_a_verdict_written_before_is_known_again(desk: Desk, ending: Ending) -> None:
    """I3: a writer whose answer was lost asks again, is told that its word stands, and writes nothing."""
    await desk.add(make_definition())
    run = await desk.fired()
    await desk.finish(run, ending)

    await refused(desk, make_verdict(run, ending), Standing.ALREADY_WRITTEN)


async def test_a_crash_written_before_is_known_again(desk: Desk) -> None:
    """I3: the same holds for recovery."""
    await desk.add(make_definition())
    taken = await desk.take(await desk.fired())
    await desk.finish(taken, Ending.CRASHED)

    await refused(desk, make_verdict(taken, Ending.CRASHED), Standing.ALREADY_WRITTEN)


async def test_another_verdict_than_the_written_one_is_fenced(desk: Desk) -> None:
    """I3: the first word stands; a second, different one is refused as fenced."""
    await desk.add(make_definition())
    run = await desk.fired()
    await desk.finish(run, Ending.FAILED)

    await refused(desk, make_verdict(run), Standing.FENCED)


async def test_a_lease_that_ran_out_fences_nothing(desk: Desk, clock: FakeClock) -> None:
    """I3: slow is not dead: a claim that nobody took is its owner's, however late it writes."""
    await desk.add(make_definition())
    run = await desk.fired()
    clock.move(30 * DAY)

    finished = await desk.finish(run)

    assert finished.decision.standing is Standing.WRITTEN
    assert finished.run.state is RunState.SUCCEEDED


async def test_a_verdict_of_no_run_is_told(desk: Desk) -> None:
    """A verdict on a run that the store does not have is an error of its own."""
    await desk.add(make_definition())
    run = await desk.fired()

    with pytest.raises(NotFound):
        await desk.store.finish([make_verdict(run, run_id=RunId("nothing"))])


async def test_verdicts_of_one_batch_each_have_their_answer(desk: Desk) -> None:
    """A fenced verdict does not keep the others of its batch from being written."""
    await desk.add(make_definition(overlap="allow", max_running=3))
    runs = [await desk.fired() for _ in range(3)]
    verdicts = [
        make_verdict(runs[0]),
        make_verdict(runs[1], claim=7),
        make_verdict(runs[2], Ending.FAILED),
    ]

    finished = await desk.store.finish(verdicts)

    assert [one.decision.standing for one in finished] == [
        Standing.WRITTEN,
        Standing.FENCED,
        Standing.WRITTEN,
    ]
    assert [run.state for run in await desk.runs()] == [
        RunState.SUCCEEDED,
        RunState.RUNNING,
        RunState.FAILED,
    ]


# --- the job ---
async def test_max_failures_fails_the_job(desk: Desk) -> None:
    """Consecutive failed runs fail the job: no next fire, and what waited for it is cancelled."""
    await desk.add(make_definition(max_failures=2, overlap="queue"))
    await desk.finish(await desk.fired(), Ending.FAILED)
    run = await desk.fired()
    queued = (await desk.fire()).queued[0]

    finished = await desk.finish(run, Ending.FAILED)

    job = await desk.job()
    assert finished.job == job
    assert (job.status, job.failures, job.next_fire_at) == (JobStatus.FAILED, 2, None)
    assert [(one.id, one.state, one.reason) for one in finished.ended] == [
        (queued.id, RunState.CANCELLED, "job_ended")
    ]


async def test_a_success_resets_the_failures(desk: Desk) -> None:
    """Only consecutive failures count."""
    await desk.add(make_definition(max_failures=2))
    for ending in (Ending.FAILED, Ending.SUCCEEDED, Ending.FAILED):
        await desk.finish(await desk.fired(), ending)

    job = await desk.job()
    assert (job.status, job.failures) == (JobStatus.ACTIVE, 1)


@pytest.mark.parametrize("ending", [Ending.CANCELLED, Ending.SHUTDOWN, Ending.CRASHED])
async def test_what_is_no_failure_does_not_count(desk: Desk, ending: Ending) -> None:
    """Cancelled, interrupted and crashed runs neither count as failures nor reset them."""
    await desk.add(make_definition(max_failures=2))
    await desk.finish(await desk.fired(), Ending.FAILED)
    run = await desk.fired()
    await (desk.crash(run) if ending is Ending.CRASHED else desk.finish(run, ending))

    assert (await desk.job()).failures == 1


async def test_failures_of_manual_runs_count(desk: Desk) -> None:
    """A failed run is a failed run, whoever started it."""
    await desk.add(make_definition(max_failures=1))

    await desk.finish((await desk.start()).run, Ending.FAILED)

    assert (await desk.job()).status is JobStatus.FAILED


async def test_crashes_pause_the_job_with_the_evidence(desk: Desk, clock: FakeClock) -> None:
    """max_crashes consecutive crashes pause the job in the daemon's name, and say what happened."""
    await desk.add(make_definition(max_crashes=2))
    await desk.crash(await desk.fired())
    before = await desk.job()
    assert (before.status, before.crashes) == (JobStatus.ACTIVE, 1)

    finished = await desk.crash(await desk.fired(), message="killed by signal 9")

    job = await desk.job()
    assert finished.job == job
    assert (job.status, job.crashes, job.next_fire_at) == (JobStatus.PAUSED, 2, None)
    assert job.pause is not None
    assert (job.pause.reason, job.pause.by, job.pause.since) == (
        PauseReason.CRASHES,
        "schedulerd",
        clock.now(),
    )
    assert "2 crashes" in job.pause.note
    assert "killed by signal 9" in job.pause.note
    assert job.held_from == START + 3 * MINUTE
    assert job.revision > before.revision


async def test_crashes_of_a_paused_job_add_their_evidence(desk: Desk) -> None:
    """On a paused job the operator's pause stays, who and since when; the evidence is added to it."""
    await desk.add(make_definition(max_crashes=1))
    run = await desk.fired()
    await desk.pause(note="month end")
    pause = (await desk.job()).pause
    assert pause is not None

    finished = await desk.crash(run)

    after = (await desk.job()).pause
    assert after is not None
    assert (after.reason, after.by, after.since, after.mode) == (
        pause.reason,
        pause.by,
        pause.since,
        pause.mode,
    )
    assert after.note.startswith("month end; ")
    assert "crashes" in after.note
    assert finished.decision.met_pause


async def test_a_crash_loop_under_a_pause_ends(desk: Desk, clock: FakeClock) -> None:
    """A run started under a pause that crashes max_crashes times is held by the pause it ignored before."""
    await desk.add(make_definition(max_crashes=2, on_crash="retry"))
    await desk.pause()
    run = (await desk.start()).run
    await desk.crash(run)
    (again,) = await desk.claim()

    await desk.crash(again.run)

    clock.move(HOUR)
    assert await desk.claim() == []
    assert (await desk.run(run)).state is RunState.WAITING


async def test_a_crash_loop_of_a_manual_run_ends(desk: Desk, clock: FakeClock) -> None:
    """A manual run whose crashes pause its job waits for the resume, as every run of it does."""
    await desk.add(make_definition(max_crashes=1, on_crash="retry", retry=RETRY))
    run = (await desk.start()).run

    await desk.crash(run)

    clock.move(HOUR)
    assert await desk.claim() == []
    await desk.resume()
    assert len(await desk.claim()) == 1


@pytest.mark.parametrize("reset", ["success", "shutdown", "resume"])
async def test_crashes_are_reset(desk: Desk, reset: str) -> None:
    """A success, an orderly stop and a resume each end the row of crashes."""
    await desk.add(make_definition(max_crashes=2))
    await desk.crash(await desk.fired())
    match reset:
        case "success":
            await desk.finish(await desk.fired())
        case "shutdown":
            await desk.finish(await desk.fired(), Ending.SHUTDOWN)
        case _:
            await desk.pause()
            await desk.resume()

    assert (await desk.job()).crashes == 0


async def test_a_bystanders_crash_is_not_charged(desk: Desk) -> None:
    """A crash beside other live runs says nothing about this job."""
    await desk.add(make_definition(max_crashes=1))

    await desk.crash(await desk.fired(), counts_crash=False)

    job = await desk.job()
    assert (job.status, job.crashes) == (JobStatus.ACTIVE, 0)


async def test_a_crash_pause_without_limit_never_comes(desk: Desk) -> None:
    """max_crashes 0 means never."""
    await desk.add(make_definition(max_crashes=0))
    for _ in range(5):
        await desk.crash(await desk.fired())

    assert (await desk.job()).status is JobStatus.ACTIVE


async def test_completed_ends_the_job(desk: Desk) -> None:
    """A run that says "done for good" completes its job: no next fire, the waiting runs cancelled."""
    await desk.add(make_definition(overlap="queue"))
    run = await desk.fired()
    await desk.fire()

    finished = await desk.finish(run, completed=True)

    job = await desk.job()
    assert (job.status, job.next_fire_at, job.pause) == (JobStatus.COMPLETED, None, None)
    assert [one.reason for one in finished.ended] == ["job_ended"]
    assert finished.decision.ends_job


async def test_completed_of_an_older_definition_is_ignored(desk: Desk) -> None:
    """The definition was changed during the run, so what it says of the job is of another job."""
    await desk.add(make_definition())
    run = await desk.fired()
    await desk.edit(make_definition(timeout=9))

    finished = await desk.finish(run, completed=True)

    assert (await desk.job()).status is JobStatus.ACTIVE
    assert finished.decision.completion_ignored
    assert finished.run.state is RunState.SUCCEEDED


async def test_a_job_that_ended_leaves_running_runs_alone(desk: Desk) -> None:
    """Only queued and waiting runs are cancelled with their job; a running one keeps its outcome."""
    await desk.add(make_definition(overlap="allow", max_running=2))
    first, second = await desk.fired(), await desk.fired()
    await desk.finish(first, completed=True)
    assert (await desk.run(second)).state is RunState.RUNNING

    finished = await desk.finish(second, Ending.FAILED)

    assert finished.run.state is RunState.FAILED
    assert (await desk.job()).status is JobStatus.COMPLETED


async def test_an_at_moved_to_tomorrow_during_its_run_is_not_exhausted(desk: Desk) -> None:
    """Exhaustion is judged from the live definition."""
    await desk.add(make_definition(at=START + MINUTE))
    run = await desk.fired()
    await desk.edit(make_definition(at=START + DAY))

    await desk.finish(run)

    job = await desk.job()
    assert (job.status, job.next_fire_at) == (JobStatus.ACTIVE, START + DAY)


async def test_a_manual_job_never_exhausts(desk: Desk) -> None:
    """A job without a schedule stays active, however often it ran."""
    await desk.add(make_definition(manual=True))
    await desk.finish((await desk.start()).run)

    assert (await desk.job()).status is JobStatus.ACTIVE


async def test_a_manual_run_does_not_exhaust_an_at_job(desk: Desk) -> None:
    """A manual run's end does not stand for the fire time that is still to come."""
    await desk.add(make_definition(at=START + HOUR))
    await desk.finish((await desk.start()).run)

    job = await desk.job()
    assert (job.status, job.next_fire_at) == (JobStatus.ACTIVE, START + HOUR)


async def test_max_runs_counts_a_run_once(desk: Desk, clock: FakeClock) -> None:
    """A retried run counts once, a run queued again by an operator too, a manual one not at all."""
    await desk.add(make_definition(max_runs=2, retry={"attempts": 1, "delay": 10, "backoff": "constant"}))
    await desk.finish((await desk.start()).run)
    run = await desk.fired()
    await desk.finish(run, Ending.FAILED)
    clock.move(10 * SECOND)
    await desk.finish((await desk.claim())[0].run, Ending.FAILED)
    assert (await desk.job()).fires_done == 1
    await desk.store.retry(run.id, desk.peer)
    await desk.finish((await desk.claim())[0].run)

    assert (await desk.job()).fires_done == 1
    await desk.finish(await desk.fired())
    assert (await desk.job()).status is JobStatus.COMPLETED


async def test_a_broken_handler_is_told_on_the_job(desk: Desk) -> None:
    """A handler that cannot be loaded fails its run without retry and makes the job broken."""
    await desk.add(make_definition(retry=RETRY))

    finished = await desk.finish(
        await desk.fired(), Ending.FAILED, retryable=False, broken="no module named demo"
    )

    assert finished.run.state is RunState.FAILED
    job = await desk.job()
    assert (job.problem_code, job.problem_message) == ("broken", "no module named demo")
    assert job.status is JobStatus.ACTIVE


# --- delay ---
async def test_only_the_end_of_a_scheduled_run_moves_a_delay_job(desk: Desk, clock: FakeClock) -> None:
    """A manual run never moves it."""
    await desk.add(make_definition(delay=HOUR))
    run = (await desk.start()).run
    clock.move(MINUTE)

    await desk.finish(run)

    assert (await desk.job()).next_fire_at == START + HOUR


async def test_a_retry_does_not_move_a_delay_job(desk: Desk, clock: FakeClock) -> None:
    """The delay counts from the end of the run, not of a try."""
    await desk.add(make_definition(delay=HOUR, retry={"attempts": 1, "delay": 10, "backoff": "constant"}))
    await desk.finish(await desk.fired(), Ending.FAILED)
    assert (await desk.job()).next_fire_at is None
    clock.move(10 * SECOND)

    await desk.finish((await desk.claim())[0].run, Ending.FAILED)

    assert (await desk.job()).next_fire_at == clock.now() + HOUR


async def test_a_delay_job_whose_run_died_fires_again(desk: Desk, clock: FakeClock) -> None:
    """I7: recovery goes through FINISH, so the delay counts from it."""
    await desk.add(make_definition(delay=HOUR))
    run = await desk.fired()
    clock.move(DAY)

    await desk.crash(run)

    assert (await desk.job()).next_fire_at == clock.now() + HOUR


async def test_a_delay_job_whose_queued_run_was_cancelled_fires_again(desk: Desk, clock: FakeClock) -> None:
    """I7: the cancel of a queued run is an end like every other."""
    await desk.add(make_definition(delay=HOUR))
    desk.who.max_running = 0
    (queued,) = (await desk.fire()).queued

    await desk.cancel(queued)

    assert (await desk.job()).next_fire_at == clock.now() + HOUR


async def test_a_delay_counts_from_the_live_definition(desk: Desk, clock: FakeClock) -> None:
    """A delay that was changed during the run counts as it is now."""
    await desk.add(make_definition(delay=HOUR))
    run = await desk.fired()
    await desk.edit(make_definition(delay=MINUTE))
    assert (await desk.job()).next_fire_at is None

    await desk.finish(run)

    assert (await desk.job()).next_fire_at == clock.now() + MINUTE


async def test_a_paused_delay_job_gets_no_next_fire_from_its_run(desk: Desk, clock: FakeClock) -> None:
    """I4: the end of the run meets the pause, says so, and leaves the job without a next fire."""
    await desk.add(make_definition(delay=HOUR))
    run = await desk.fired()
    await desk.pause()

    finished = await desk.finish(run)

    assert finished.decision.met_pause
    assert (await desk.job()).next_fire_at is None
    await desk.resume()
    assert (await desk.job()).next_fire_at == clock.now() + HOUR


# --- I13 at an end ---
async def test_fires_held_back_when_the_job_ends_are_told(desk: Desk, clock: FakeClock) -> None:
    """I5, I13: an end wins over the pause, and the fire times that the pause held back are not forgotten."""
    await desk.add(make_definition(end_at=START + 5 * MINUTE))
    run = await desk.fired()
    clock.move(30 * SECOND)
    await desk.pause()
    clock.move(10 * MINUTE)

    await desk.finish(run)

    assert (await desk.job()).status is JobStatus.COMPLETED
    assert await desk.skips() == [Told("paused", START + 2 * MINUTE, START + 5 * MINUTE, 4)]


async def test_a_fire_that_was_due_when_the_job_failed_is_told(desk: Desk, clock: FakeClock) -> None:
    """I13: a fire time that passed before the job's end, and that no look had found yet, has its row."""
    await desk.add(make_definition(max_failures=1))
    run = await desk.fired()
    clock.move(90 * SECOND)

    await desk.finish(run, Ending.FAILED)

    assert (await desk.job()).status is JobStatus.FAILED
    assert await desk.skips() == [Told("misfire", START + 2 * MINUTE, START + 2 * MINUTE, 1)]


async def test_removed_during_the_run_keeps_its_result(desk: Desk) -> None:
    """I6: the job stays removed, the result of its run is kept, and there is no retry."""
    await desk.add(make_definition(retry=RETRY))
    run = await desk.fired()
    await desk.remove()

    finished = await desk.finish(run, Ending.FAILED, result='"partial"')

    assert finished.decision.job is None
    row = await desk.run(run)
    assert (row.state, row.result) == (RunState.FAILED, '"partial"')
    assert "removed" in (row.message or "")
    with pytest.raises(NotFound):
        await desk.job()


async def test_a_job_added_again_is_not_touched_by_an_old_run(desk: Desk) -> None:
    """I6: the result is kept, the counters, status and next fire of the new incarnation are its own."""
    await desk.add(make_definition(max_failures=1, max_crashes=1, max_runs=1, delay=HOUR))
    run = await desk.fired()
    await desk.remove()
    await desk.add(make_definition(max_failures=1, max_crashes=1, max_runs=1, delay=HOUR))
    before = await desk.job()

    finished = await desk.finish(run, Ending.FAILED, completed=True)

    assert await desk.job() == before
    assert finished.run.state is RunState.FAILED


async def test_the_end_of_a_scheduled_run_sees_others_on_their_way(desk: Desk) -> None:
    """A job is completed when the last of its scheduled runs has ended, not the first."""
    await desk.add(make_definition(end_at=START + 2 * MINUTE, overlap="allow", max_running=2))
    first, last = await desk.fired(), await desk.fired()

    await desk.finish(last)
    assert (await desk.job()).status is JobStatus.ACTIVE
    await desk.finish(first)

    assert (await desk.job()).status is JobStatus.COMPLETED


async def test_a_manual_run_beside_does_not_keep_an_exhausted_job_open(desk: Desk) -> None:
    """Only the trigger's own runs are waited for."""
    definition = make_definition(at=START + MINUTE, overlap="allow", max_running=2)
    await desk.add(definition)
    run = await desk.fired()
    manual = (await desk.start(overlap=Overlap.ALLOW)).run

    await desk.finish(run)

    assert (await desk.job()).status is JobStatus.COMPLETED
    assert (await desk.run(manual)).state is RunState.RUNNING
    assert (await desk.store.job(JOB)).last_run is not None


async def test_a_try_that_ends_its_job_among_other_ends_is_not_left_waiting(desk: Desk) -> None:
    """I13: a run that wants another try, and whose word ends its job, is cancelled with it, as alone."""
    for name in ("done", "other"):
        await desk.add(make_definition(name, manual=True))
    done, other = [(await desk.start(JobId(name))).run for name in ("done", "other")]

    first, _ = await desk.store.finish(
        [make_verdict(done, Ending.RETRY_ASKED, completed=True), make_verdict(other)]
    )

    assert first.decision.ends_job
    assert (await desk.job(JobId("done"))).status is JobStatus.COMPLETED
    assert (await desk.run(done)).state is RunState.CANCELLED
