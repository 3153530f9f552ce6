"""The pause of all jobs: a row of its own, which rewrites no job (design part 4)."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler.clock import HOUR, MINUTE, SECOND, Micros
from scheduler.errors import Conflict, Invalid
from scheduler.model.jobs import JobId, JobStatus, PauseMode
from scheduler.model.runs import RunState, RunTrigger, Wish
from scheduler.rules.planning import PauseSpan, plan_fire
from scheduler.rules.reconcile import Ending
from scheduler.store.pausevalues import AllOperated, PauseAllRequest, ResumeAllRequest
from tests.support.builders import JOB, make_definition, make_peer
from tests.support.clock import START, FakeClock
from tests.support.desk import Desk, Told
from tests.support.stores import Opener, sqlite_store, weakened

OTHER = JobId("other")


async def pause_all(
    desk: Desk, *, mode: PauseMode = PauseMode.DRAIN, note: str = "", until: Micros | None = None
) -> AllOperated:
    return await desk.store.pause_all(PauseAllRequest(mode=mode, peer=desk.peer, note=note, until=until))


async def resume_all(desk: Desk) -> AllOperated:
    return await desk.store.resume_all(ResumeAllRequest(peer=desk.peer))


async def look_and_fire(desk: Desk) -> list[int]:
    """What is due fires as the engine does it; the minutes of the slots that started."""
    look = await desk.store.due(limit=100, late_after=MINUTE, late_limit=100)
    plans = [plan_fire(job, look.now, desk.clock.run_id, look.paused) for job in look.jobs]
    fired = await desk.store.fire(desk.who, [plan for plan in plans if plan is not None])
    return [((grant.run.fire_time or 0) - START) // MINUTE for one in fired for grant in one.grants]


async def test_nothing_fires_and_no_job_is_touched(desk: Desk, clock: FakeClock) -> None:
    """The rows of the jobs are as they were, and none is due while it holds."""
    await desk.add(make_definition())
    before = await desk.rows()

    done = await pause_all(desk, note="power cut")

    clock.move(HOUR)
    assert await look_and_fire(desk) == []
    assert await desk.rows() == before
    assert done.changed
    assert done.pause == await desk.store.global_pause()
    assert done.pause is not None
    assert (done.pause.by, done.pause.note, done.pause.since) == ("uid:1000", "power cut", START)


async def test_fire_times_inside_are_told_as_paused(desk: Desk, clock: FakeClock) -> None:
    """I13: slots of the span are one row with the reason `global_pause`; the next one fires as ever."""
    await desk.add(make_definition())
    await pause_all(desk)
    clock.move(10 * MINUTE + SECOND)
    await resume_all(desk)

    assert await look_and_fire(desk) == []
    assert await desk.skips() == [Told("global_pause", START + MINUTE, START + 10 * MINUTE, 10)]
    clock.move(MINUTE)
    assert await look_and_fire(desk) == [11]


async def test_what_several_pauses_held_is_told_in_its_order(desk: Desk, clock: FakeClock) -> None:
    """I13: one that began and ended at a very slot, one that is over, and one that still holds."""
    await desk.add(make_definition())
    for since, until in ((1, 1), (3, 4)):
        clock.move(START + since * MINUTE - clock.now())
        await pause_all(desk)
        clock.move((until - since) * MINUTE)
        await resume_all(desk)
    clock.move(MINUTE)
    look = await desk.store.due(limit=9, late_after=MINUTE, late_limit=9)
    clock.move(MINUTE)
    await pause_all(desk)
    clock.move(MINUTE)

    await desk.edit(make_definition(every=HOUR))

    spans = [((span.since - START) // MINUTE, (span.until - START) // MINUTE) for span in look.paused]
    assert spans == [(1, 1), (3, 4)]
    told = [(skip.reason, (skip.first - START) // MINUTE, skip.count) for skip in await desk.skips()]
    assert told == [
        ("global_pause", 1, 1),
        ("edited", 2, 1),
        ("global_pause", 3, 2),
        ("edited", 5, 1),
        ("global_pause", 6, 2),
    ]


async def test_it_outlives_a_restart(desk: Desk, opener: Opener, clock: FakeClock) -> None:
    """Another process finds it, with who and why, and fires nothing."""
    await desk.add(make_definition())
    await pause_all(desk, note="power cut")
    before = await desk.store.global_pause()
    await desk.store.close()

    restarted = Desk(await opener(), clock)
    clock.move(HOUR)

    assert await restarted.store.global_pause() == before
    assert await look_and_fire(restarted) == []


async def test_a_plan_made_before_it_fires_nothing_after_it(desk: Desk, clock: FakeClock) -> None:
    """I4: FIRE reads the pause in its own transaction."""
    await desk.add(make_definition())
    clock.move(MINUTE)
    plan = await desk.plan()
    assert plan is not None

    await pause_all(desk)

    (fired,) = await desk.store.fire(desk.who, [plan])
    assert not fired.fired


async def test_without_its_guard_a_plan_fires_into_it(tmp_path: Path) -> None:
    """The proof of the guard in FIRE."""
    clock = FakeClock()
    guard = "AND NOT EXISTS (SELECT 1 FROM global_pauses WHERE lifted_at IS NULL)"
    async with sqlite_store(tmp_path / "s.db", clock, queries=weakened("move_job", guard)) as store:
        desk = Desk(store, clock)
        await desk.add(make_definition())
        clock.move(MINUTE)
        plan = await desk.plan()
        assert plan is not None
        await pause_all(desk)

        (fired,) = await store.fire(desk.who, [plan])

        assert fired.fired


async def test_no_run_starts_under_it(desk: Desk) -> None:
    """Neither by hand nor from the queue; it says what to do."""
    await desk.add(make_definition(overlap="queue"))
    run = await desk.fired()
    await desk.fire()
    await pause_all(desk)
    await desk.finish(run)

    assert await desk.claim() == []
    with pytest.raises(Conflict, match="all jobs are paused"):
        await desk.start()
    await resume_all(desk)
    assert len(await desk.claim()) == 1


async def test_it_lists_runs_in_flight_and_says_it_once(desk: Desk) -> None:
    """Said again with the same words it changes nothing, not even the audit."""
    await desk.add(make_definition())
    run = await desk.fired()

    first = await pause_all(desk)
    again = await pause_all(desk)

    assert [one.id for one in first.in_flight] == [run.id]
    assert (first.changed, again.changed) == (True, False)
    verbs = [entry.verb for entry in await desk.store.audit(JOB, before=None, limit=10)]
    assert verbs == ["pause-all", "add"]
    assert (await resume_all(desk)).changed
    assert not (await resume_all(desk)).changed


async def test_other_words_keep_since_when(desk: Desk, clock: FakeClock) -> None:
    """Mode, reason and end are the newest, the span is one."""
    await pause_all(desk, note="first")
    clock.move(MINUTE)

    done = await pause_all(desk, mode=PauseMode.ITEM, until=START + HOUR)

    assert done.changed
    assert done.pause is not None
    assert (done.pause.since, done.pause.mode, done.pause.note) == (START, PauseMode.ITEM, "first")
    assert done.pause.until == START + HOUR


@pytest.mark.parametrize(
    ("mode", "wish"),
    [
        (PauseMode.DRAIN, Wish.RUN),
        (PauseMode.ITEM, Wish.HOLD),
        (PauseMode.FREEZE, Wish.FREEZE),
        (PauseMode.CANCEL, Wish.CANCEL),
    ],
)
async def test_the_runs_in_flight_get_the_wish_of_its_mode(desk: Desk, mode: PauseMode, wish: Wish) -> None:
    """In the same transaction; its end takes hold and freeze back, and never a cancel."""
    await desk.add(make_definition())
    run = await desk.fired()

    await pause_all(desk, mode=mode)
    assert (await desk.run(run)).wish is wish

    await resume_all(desk)
    assert (await desk.run(run)).wish is (Wish.CANCEL if wish is Wish.CANCEL else Wish.RUN)


async def test_a_freeze_of_all_drains_what_cannot_freeze(desk: Desk) -> None:
    """Python handlers go on to their end, commands stop where they stand."""
    await desk.add(make_definition())
    await desk.add(make_definition("other", python="jobs:work"))
    command, handler = await desk.fired(), await desk.fired(OTHER)

    await pause_all(desk, mode=PauseMode.FREEZE)

    assert (await desk.run(command)).wish is Wish.FREEZE
    assert (await desk.run(handler)).wish is Wish.RUN


async def test_the_pause_of_a_job_outlives_that_of_all(desk: Desk) -> None:
    """I4: a job that was paused by itself stays so, and so does what its pause wants of its run."""
    await desk.add(make_definition())
    await desk.add(make_definition("other"))
    frozen, other = await desk.fired(), await desk.fired(OTHER)
    await desk.pause(mode=PauseMode.FREEZE)
    await pause_all(desk, mode=PauseMode.ITEM)
    assert (await desk.run(frozen)).wish is Wish.FREEZE

    done = await resume_all(desk)

    assert (await desk.job()).status is JobStatus.PAUSED
    assert ((await desk.run(frozen)).wish, (await desk.run(other)).wish) == (Wish.FREEZE, Wish.RUN)
    assert dict(done.wishes)[frozen.id] is Wish.FREEZE


async def test_a_job_resumed_under_it_waits_for_its_end(desk: Desk, clock: FakeClock) -> None:
    """Its own pause is over, its run stays frozen by the pause of all, and it fires after that."""
    await desk.add(make_definition())
    run = await desk.fired()
    await desk.pause(mode=PauseMode.FREEZE)
    await pause_all(desk, mode=PauseMode.FREEZE)

    await desk.resume()

    assert (await desk.job()).status is JobStatus.ACTIVE
    assert (await desk.run(run)).wish is Wish.FREEZE
    clock.move(5 * MINUTE)
    assert await look_and_fire(desk) == []
    await resume_all(desk)
    assert (await desk.run(run)).wish is Wish.RUN


async def test_a_drain_of_one_job_does_not_thaw_it(desk: Desk) -> None:
    """Where two pauses hold a run the stronger one is in force."""
    await desk.add(make_definition())
    run = await desk.fired()
    await pause_all(desk, mode=PauseMode.FREEZE)

    await desk.pause(mode=PauseMode.DRAIN)

    assert (await desk.run(run)).wish is Wish.FREEZE


async def test_held_runs_of_free_jobs_go_on(desk: Desk) -> None:
    """A run that was held waits for its next claim, unless its job is paused by itself."""
    retry = {"attempts": 2, "delay": 10}
    for name in ("job", "other"):
        await desk.add(make_definition(name, retry=retry))
    runs = [await desk.fired(), await desk.fired(OTHER)]
    await desk.pause(OTHER, mode=PauseMode.ITEM)
    await pause_all(desk, mode=PauseMode.ITEM)
    for run in runs:
        await desk.finish(run, Ending.FAILED)
    assert [(await desk.run(run)).state for run in runs] == [RunState.HELD, RunState.HELD]

    await resume_all(desk)

    assert [(await desk.run(run)).state for run in runs] == [RunState.WAITING, RunState.HELD]


async def test_a_timed_one_ends_as_of_its_moment(desk: Desk, clock: FakeClock) -> None:
    """What came after it is late, not held, although the daemon was down."""
    await desk.add(make_definition())
    await pause_all(desk, until=START + 10 * MINUTE + SECOND)
    assert await desk.store.next_wake(START) == START + 10 * MINUTE + SECOND
    clock.move(30 * MINUTE + SECOND)

    look = await desk.store.due(limit=10, late_after=MINUTE, late_limit=10)
    expired = await desk.store.expire_pauses(make_peer(0))

    assert (look.jobs, look.pause_over) == ((), True)
    assert expired.all is not None
    assert expired.all.lifted_at == START + 10 * MINUTE + SECOND
    assert await look_and_fire(desk) == [30]
    assert await desk.skips() == [
        Told("global_pause", START + MINUTE, START + 10 * MINUTE, 10),
        Told("misfire", START + 11 * MINUTE, START + 29 * MINUTE, 19),
    ]
    (entry, *_) = await desk.store.audit(JOB, before=None, limit=1)
    assert (entry.verb, entry.peer.uid) == ("resume-all", 0)


async def test_an_end_that_has_passed_is_none(desk: Desk) -> None:
    """It is refused, and nothing is paused."""
    with pytest.raises(Invalid, match="passed"):
        await pause_all(desk, until=START)

    assert await desk.store.global_pause() is None


async def test_the_look_knows_only_pauses_that_matter(desk: Desk, clock: FakeClock) -> None:
    """Spans that ended before the oldest due slot are left out."""
    await desk.add(make_definition())
    for _ in range(2):
        await pause_all(desk)
        clock.move(10 * SECOND)
        await resume_all(desk)
    clock.move(MINUTE)
    assert await look_and_fire(desk) == [1]
    await pause_all(desk)
    began = clock.now()
    clock.move(3 * MINUTE)
    await resume_all(desk)

    look = await desk.store.due(limit=10, late_after=MINUTE, late_limit=10)

    words = f"paused by {desk.peer} (reason operator)"
    assert look.paused == (PauseSpan(since=began, until=clock.now(), words=words),)


@pytest.mark.parametrize("verb", ["edit", "remove"])
async def test_slots_that_it_holds_stay_its_own_when_the_job_is_edited_or_removed(
    desk: Desk, clock: FakeClock, verb: str
) -> None:
    """I13: what was due before it is told as edited, what it holds as held by it, with who and why."""
    await desk.add(make_definition())
    clock.move(MINUTE + SECOND)
    await pause_all(desk, note="moving house")
    clock.move(2 * MINUTE)

    if verb == "edit":
        await desk.edit(make_definition(every=HOUR))
    else:
        await desk.remove()

    told = [
        (run.reason, run.count, run.message)
        for run in reversed(await desk.store.runs(before=None, limit=10, job=JOB))
    ]
    assert [(reason, count) for reason, count, _ in told] == [("edited", 1), ("global_pause", 2)]
    assert told[1][2] == f"all jobs were paused by {desk.peer} (reason operator): moving house"


async def test_the_skip_row_of_a_pause_says_who_and_why(desk: Desk, clock: FakeClock) -> None:
    """Whoever reads it months later learns the operator's words; the pause itself is long gone."""
    await desk.add(make_definition())
    await desk.pause(note="quota used up")
    clock.move(2 * MINUTE)

    await desk.resume()

    [told] = await desk.store.runs(before=None, limit=10, job=JOB)
    assert told.message == f"paused by {desk.peer} (reason operator): quota used up"


async def test_its_own_trigger_is_none_of_a_catch_up(desk: Desk, clock: FakeClock) -> None:
    """Even `catch_up = "all"` runs nothing of what it held."""
    await desk.add(make_definition(catch_up="all"))
    await pause_all(desk)
    clock.move(5 * MINUTE + SECOND)
    await resume_all(desk)

    await look_and_fire(desk)

    assert [run for run in await desk.runs() if run.trigger is RunTrigger.CATCH_UP] == []
