"""Pause and resume: one contract (design part 4)."""

from __future__ import annotations

import pytest

from scheduler.clock import DAY, HOUR, MINUTE, SECOND
from scheduler.errors import Conflict, NotFound
from scheduler.model.jobs import JobId, JobStatus, Pause, PauseMode, PauseReason
from scheduler.model.runs import RunState, RunTrigger, Wish
from scheduler.rules.reconcile import Ending
from scheduler.store.values import Missed, Operated, PauseRequest
from tests.support.builders import JOB, make_claimant, make_definition, make_peer
from tests.support.clock import START, FakeClock
from tests.support.desk import Desk, Told
from tests.support.stores import Opener

RETRY = {"attempts": 2, "delay": 10, "backoff": "constant"}


async def test_a_pause_says_who_when_and_why(desk: Desk, clock: FakeClock) -> None:
    """A paused job has no next fire time and remembers the slot that it holds back."""
    await desk.add(make_definition())
    before = await desk.job()
    clock.move(SECOND)

    operated = await desk.pause(note="month end")

    job = await desk.job()
    assert operated.changed
    assert operated.job == job
    assert job.status is JobStatus.PAUSED
    assert job.pause == Pause(
        reason=PauseReason.OPERATOR,
        mode=PauseMode.DRAIN,
        by="uid:1000",
        note="month end",
        since=clock.now(),
    )
    assert (job.next_fire_at, job.due_at, job.held_from) == (None, None, START + MINUTE)
    assert job.revision > before.revision
    assert job.definition_revision == before.definition_revision, "a pause does not spoil an edit"
    (entry, *_) = await desk.store.audit(JOB, before=None, limit=1)
    assert (entry.verb, entry.peer, entry.at) == ("pause", desk.peer, clock.now())
    assert entry.detail["reason"] == "month end"


async def test_a_pause_holds_every_later_fire(desk: Desk, clock: FakeClock) -> None:
    """A paused job is not due, however long it waits."""
    await desk.add(make_definition())
    await desk.pause()
    clock.move(DAY)

    assert await desk.tick() == []
    assert await desk.runs() == []


async def test_a_pause_outlives_a_restart(desk: Desk, opener: Opener, clock: FakeClock) -> None:
    """I4: a pause is a row, so it is there after a restart with all that it says."""
    await desk.add(make_definition())
    await desk.pause(note="month end")
    before = await desk.job()
    await desk.store.close()

    restarted = Desk(await opener(), clock)

    assert await restarted.job() == before


async def test_a_pause_lists_the_runs_in_flight(desk: Desk) -> None:
    """It answers after its commit with live and queued runs; with drain they go on and keep their wish."""
    await desk.add(make_definition(overlap="queue"))
    run = await desk.fired()
    queued = (await desk.fire()).queued[0]

    operated = await desk.pause()

    assert [one.id for one in operated.in_flight] == [run.id, queued.id]
    assert (operated.wishes, operated.cancelled) == ((), ())
    assert await desk.run(run) == run


async def test_pause_again_is_no_change(desk: Desk, clock: FakeClock) -> None:
    """The same pause on a paused job changes nothing, not even its revision."""
    await desk.add(make_definition())
    await desk.pause(note="month end")
    before = await desk.rows()
    clock.move(SECOND)

    operated = await desk.pause()

    assert not operated.changed
    assert await desk.rows() == before


async def test_another_pause_on_a_paused_job_keeps_since_when(desk: Desk, clock: FakeClock) -> None:
    """Mode, words and peer are the newest, the moment and the held-back slot are the first's."""
    await desk.add(make_definition())
    await desk.pause(note="first")
    before = await desk.job()
    clock.move(HOUR)
    desk.peer = make_peer(1001)

    await desk.pause(mode=PauseMode.ITEM, note="second")

    after = await desk.job()
    assert after.pause is not None
    assert (after.pause.by, after.pause.note, after.pause.mode) == ("uid:1001", "second", PauseMode.ITEM)
    assert before.pause is not None
    assert after.pause.since == before.pause.since
    assert after.held_from == before.held_from
    assert after.revision > before.revision


@pytest.mark.parametrize("status", ["completed", "failed"])
async def test_an_ended_job_is_not_paused(desk: Desk, status: str) -> None:
    """A completed or failed job refuses a pause and stays as it is."""
    await desk.add(make_definition(max_failures=1))
    run = await desk.fired()
    if status == "completed":
        await desk.finish(run, completed=True)
    else:
        await desk.finish(run, Ending.FAILED)
    before = await desk.rows()

    with pytest.raises(Conflict, match=status):
        await desk.pause()

    assert await desk.rows() == before


async def test_pausing_many_jobs_is_one_transaction_with_a_result_each(desk: Desk) -> None:
    """An unknown job in the list is refused in its place, and the others are paused."""
    for name in ("a", "b"):
        await desk.add(make_definition(name))

    results = await desk.store.pause(
        [
            PauseRequest(job_id=JobId(name), mode=PauseMode.DRAIN, peer=desk.peer)
            for name in ("a", "nothing", "b")
        ]
    )

    assert [type(result).__name__ for result in results] == ["Operated", "NotFound", "Operated"]
    assert {(await desk.job(JobId(name))).status for name in ("a", "b")} == {JobStatus.PAUSED}


# --- modes ---
async def test_mode_cancel_asks_the_live_run_to_end_and_ends_what_has_no_worker(desk: Desk) -> None:
    """Runs in flight get the wish in the same transaction; queued ones stay for the resume."""
    await desk.add(make_definition(overlap="queue", queue_limit=3))
    run = await desk.fired()
    queued = (await desk.fire()).queued[0]

    operated = await desk.pause(mode=PauseMode.CANCEL)

    assert operated.wishes == ((run.id, Wish.CANCEL),)
    assert (await desk.run(run)).wish is Wish.CANCEL
    assert (await desk.run(queued)).state is RunState.QUEUED


@pytest.mark.parametrize("state", [RunState.WAITING, RunState.HELD])
async def test_mode_cancel_ends_runs_that_wait(desk: Desk, state: RunState) -> None:
    """A waiting or held run has no worker, so it ends in the pause's own transaction."""
    await desk.add(make_definition(retry=RETRY))
    run = await desk.fired()
    if state is RunState.HELD:
        await desk.pause(mode=PauseMode.ITEM)
    await desk.finish(run, Ending.FAILED)
    assert (await desk.run(run)).state is state

    operated = await desk.pause(mode=PauseMode.CANCEL)

    assert [(one.id, one.state) for one in operated.cancelled] == [(run.id, RunState.CANCELLED)]
    assert await desk.live() == []


@pytest.mark.parametrize(("mode", "wish"), [(PauseMode.ITEM, Wish.HOLD), (PauseMode.FREEZE, Wish.FREEZE)])
async def test_a_hold_is_lifted_by_the_resume(desk: Desk, mode: PauseMode, wish: Wish) -> None:
    """I4: item and freeze are wishes of the runs in flight; a resume takes them back in its transaction."""
    await desk.add(make_definition())
    run = await desk.fired()

    paused = await desk.pause(mode=mode)
    resumed = await desk.resume()

    assert paused.wishes == ((run.id, wish),)
    assert resumed.wishes == ((run.id, Wish.RUN),)
    assert (await desk.run(run)).wish is Wish.RUN


async def test_a_gentler_pause_takes_back_a_hold(desk: Desk) -> None:
    """A pause with drain after one with freeze or item lets the runs in flight go on."""
    await desk.add(make_definition())
    run = await desk.fired()
    await desk.pause(mode=PauseMode.FREEZE)

    operated = await desk.pause(mode=PauseMode.DRAIN)

    assert operated.wishes == ((run.id, Wish.RUN),)
    assert (await desk.run(run)).wish is Wish.RUN


async def test_a_cancel_is_never_taken_back(desk: Desk) -> None:
    """Neither a resume nor a gentler pause turns the wish cancel into another."""
    await desk.add(make_definition())
    run = await desk.fired()
    await desk.pause(mode=PauseMode.CANCEL)

    for mode in (PauseMode.DRAIN, PauseMode.ITEM, PauseMode.FREEZE):
        await desk.pause(mode=mode)
    resumed = await desk.resume()

    assert resumed.wishes == ()
    assert (await desk.run(run)).wish is Wish.CANCEL


async def test_a_resume_leaves_nothing_held(desk: Desk, clock: FakeClock) -> None:
    """I4: a held run waits for its claim from the moment of the resume."""
    await desk.add(make_definition(retry=RETRY))
    run = await desk.fired()
    await desk.pause(mode=PauseMode.ITEM)
    await desk.finish(run, Ending.FAILED)
    clock.move(HOUR)

    operated = await desk.resume()

    (row,) = operated.in_flight
    assert (row.id, row.state, row.wish, row.ready_at) == (run.id, RunState.WAITING, Wish.RUN, clock.now())


# --- resume ---
async def test_a_resume_starts_from_now(desk: Desk, clock: FakeClock) -> None:
    """The schedule is computed from now; what was held back is told as paused, and does not run."""
    await desk.add(make_definition())
    await desk.pause()
    clock.move(10 * MINUTE + 30 * SECOND)

    operated = await desk.resume()

    job = await desk.job()
    assert operated.changed
    assert operated.job == job
    assert (job.status, job.pause, job.held_from) == (JobStatus.ACTIVE, None, None)
    assert (job.next_fire_at, job.due_at) == (START + 11 * MINUTE, START + 11 * MINUTE)
    assert await desk.skips() == [Told("paused", START + MINUTE, START + 10 * MINUTE, 10)]
    assert [(span.first, span.last, span.count) for span in operated.spans] == [
        (START + MINUTE, START + 10 * MINUTE, 10)
    ]
    assert await desk.executed() == []


async def test_a_short_pause_leaves_no_record(desk: Desk, clock: FakeClock) -> None:
    """A pause that held back no fire time tells of none."""
    await desk.add(make_definition())
    await desk.pause()
    clock.move(30 * SECOND)

    operated = await desk.resume()

    assert operated.spans == ()
    assert await desk.runs() == []
    assert (await desk.job()).next_fire_at == START + MINUTE


async def test_missed_latest_runs_the_newest(desk: Desk, clock: FakeClock) -> None:
    """`--missed=latest`: the newest held-back fire time is queued as catch-up, the rest is told."""
    await desk.add(make_definition())
    await desk.pause()
    clock.move(10 * MINUTE)

    await desk.resume(missed=Missed.LATEST)

    (run,) = await desk.executed()
    assert (run.state, run.trigger, run.fire_time) == (
        RunState.QUEUED,
        RunTrigger.CATCH_UP,
        START + 10 * MINUTE,
    )
    assert await desk.skips() == [Told("paused", START + MINUTE, START + 9 * MINUTE, 9)]
    assert len(await desk.claim()) == 1


async def test_missed_all_runs_up_to_the_limit_one_after_another(desk: Desk, clock: FakeClock) -> None:
    """`--missed=all`: the newest `catch_up_limit` held-back fire times run oldest first, the rest is told."""
    await desk.add(make_definition(catch_up_limit=3))
    await desk.pause()
    clock.move(5 * MINUTE)

    await desk.resume(missed=Missed.ALL)

    assert [run.fire_time for run in await desk.executed()] == [START + n * MINUTE for n in (3, 4, 5)]
    assert await desk.skips() == [Told("paused", START + MINUTE, START + 2 * MINUTE, 2)]
    for number in (3, 4, 5):
        (grant,) = await desk.claim()
        assert grant.run.fire_time == START + number * MINUTE
        await desk.finish(grant.run)


async def test_missed_all_that_covers_everything_tells_nothing(desk: Desk, clock: FakeClock) -> None:
    """Where every held-back fire time runs there is nothing to tell as skipped."""
    await desk.add(make_definition())
    await desk.pause()
    clock.move(3 * MINUTE)

    operated = await desk.resume(missed=Missed.ALL)

    assert operated.spans == ()
    assert await desk.skips() == []
    assert len(await desk.executed()) == 3


async def test_a_resume_of_an_active_job_is_no_change(desk: Desk) -> None:
    """Resuming what is not paused changes nothing."""
    await desk.add(make_definition())
    before = await desk.rows()

    assert not (await desk.resume()).changed
    assert await desk.rows() == before


async def test_a_resume_makes_a_failed_job_active_from_now(desk: Desk, clock: FakeClock) -> None:
    """A failed job starts anew: counters at 0, the next fire from now."""
    await desk.add(make_definition(max_failures=1))
    await desk.finish(await desk.fired(), Ending.FAILED)
    clock.move(HOUR)

    await desk.resume()

    job = await desk.job()
    assert (job.status, job.failures, job.crashes) == (JobStatus.ACTIVE, 0, 0)
    assert job.next_fire_at == clock.now() + MINUTE


async def test_a_completed_job_is_not_resumed(desk: Desk) -> None:
    """A job without a further fire time needs an edit, and the answer says so."""
    await desk.add(make_definition(at=START + MINUTE))
    await desk.finish(await desk.fired())

    with pytest.raises(Conflict, match="completed"):
        await desk.resume()


async def test_a_resume_of_no_job_is_told(desk: Desk) -> None:
    """Nothing is there to be resumed."""
    with pytest.raises(NotFound):
        await desk.resume()


async def test_an_at_that_passed_under_a_pause_ends_its_job_at_the_resume(
    desk: Desk, clock: FakeClock
) -> None:
    """Resume judges exhaustion: the only fire time passed, is told as paused, and the job is completed."""
    await desk.add(make_definition(at=START + MINUTE))
    await desk.pause()
    clock.move(HOUR)

    operated = await desk.resume()

    assert operated.completed
    assert (await desk.job()).status is JobStatus.COMPLETED
    assert await desk.skips() == [Told("paused", START + MINUTE, START + MINUTE, 1)]


async def test_an_at_that_passed_under_a_pause_can_still_run(desk: Desk, clock: FakeClock) -> None:
    """`--missed=latest` runs the only fire time of an `at`; its end completes the job."""
    await desk.add(make_definition(at=START + MINUTE))
    await desk.pause()
    clock.move(HOUR)

    operated = await desk.resume(missed=Missed.LATEST)

    assert not operated.completed
    (grant,) = await desk.claim()
    assert grant.run.fire_time == START + MINUTE
    await desk.finish(grant.run)
    assert (await desk.job()).status is JobStatus.COMPLETED


async def test_an_at_edited_into_the_past_under_a_pause_is_told_at_the_resume(
    desk: Desk, clock: FakeClock
) -> None:
    """I13: a fire time that lay in the past when the paused job was edited has its row when the job ends."""
    await desk.add(make_definition(at=START + DAY))
    await desk.pause()
    clock.move(HOUR)
    await desk.edit(make_definition(at=START + MINUTE))

    operated = await desk.resume()

    assert operated.completed
    assert [(told.first, told.count) for told in await desk.skips()] == [(START + MINUTE, 1)]


async def test_a_resume_of_a_delay_job_with_a_run_in_flight_waits_for_it(
    desk: Desk, clock: FakeClock
) -> None:
    """While the scheduled run of a `delay` job is live resume leaves the next fire to its end."""
    await desk.add(make_definition(delay=HOUR))
    run = await desk.fired()
    await desk.pause()
    await desk.resume()
    assert (await desk.job()).next_fire_at is None

    await desk.finish(run)

    assert (await desk.job()).next_fire_at == clock.now() + HOUR


async def test_a_delay_job_held_by_a_pause_counts_anew(desk: Desk, clock: FakeClock) -> None:
    """The held-back fire of a `delay` is told, and the next one comes a delay after the resume."""
    await desk.add(make_definition(delay=HOUR))
    await desk.pause()
    clock.move(5 * HOUR)

    await desk.resume()

    assert await desk.skips() == [Told("paused", START + HOUR, START + HOUR, 1)]
    assert (await desk.job()).next_fire_at == clock.now() + HOUR


async def test_pause_and_resume_of_a_disabled_job(desk: Desk, clock: FakeClock) -> None:
    """`enabled` is another column: a resumed job that is disabled does not fire, and its gap goes on."""
    await desk.add(make_definition())
    await desk.edit(make_definition(enabled=False))
    await desk.pause()
    clock.move(2 * MINUTE + SECOND)

    await desk.resume()

    job = await desk.job()
    assert (job.status, job.enabled, job.next_fire_at) == (JobStatus.ACTIVE, False, None)
    clock.move(2 * MINUTE)
    await desk.edit(make_definition())
    assert await desk.skips() == [
        Told("paused", START + MINUTE, START + 2 * MINUTE, 2),
        Told("disabled", START + 3 * MINUTE, START + 4 * MINUTE, 2),
    ]
    assert (await desk.job()).next_fire_at == START + 5 * MINUTE


async def test_resume_lifts_a_crash_pause(desk: Desk) -> None:
    """A crash pause is lifted like any other, and the crashes count anew."""
    await desk.add(make_definition(max_crashes=1))
    await desk.crash(await desk.fired())
    assert (await desk.job()).status is JobStatus.PAUSED

    await desk.resume()

    job = await desk.job()
    assert (job.status, job.crashes) == (JobStatus.ACTIVE, 0)


async def test_a_pause_seen_by_another_daemon(desk: Desk, opener: Opener, clock: FakeClock) -> None:
    """A pause that one daemon committed holds the claims of the other."""
    await desk.add(make_definition(overlap="queue"))
    await desk.fired()
    await desk.fire()
    other = Desk(await opener(), clock, make_claimant())

    operated: Operated = await other.pause()

    assert operated.changed
    assert (await desk.job()).pause == operated.job.pause
    assert await desk.claim() == []
