"""Definitions come, change and go; what an operator said stays."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from scheduler.clock import DAY, HOUR, MINUTE, SECOND
from scheduler.errors import Conflict, NotFound, Stale
from scheduler.model.jobs import JobId, JobStatus, Origin, PauseMode
from scheduler.model.runs import RunState
from scheduler.rules.reconcile import Ending
from scheduler.store.values import ChangeKind, DefinitionChange, Missed
from tests.support.builders import JOB, make_definition, make_peer
from tests.support.clock import START, FakeClock
from tests.support.desk import Desk, Told

RETRY = {"attempts": 2, "delay": 10, "backoff": "constant"}


# --- add ---
async def test_a_new_job_is_active_from_now(desk: Desk) -> None:
    """A job that is added fires at the next time of its schedule, and knows where it came from."""
    definition = make_definition(group="exports", labels=["billing"])

    operated = await desk.add(definition, file="billing.toml")

    job = await desk.job()
    assert operated.changed
    assert operated.job == job
    assert (job.definition, job.status, job.enabled) == (definition, JobStatus.ACTIVE, True)
    assert (job.origin, job.origin_file) == (Origin.FILE, "billing.toml")
    assert (job.next_fire_at, job.due_at) == (START + MINUTE, START + MINUTE)
    assert job.revision == job.definition_revision == job.added_revision
    (entry,) = await desk.store.audit(JOB, before=None, limit=5)
    assert (entry.verb, entry.peer) == ("add", desk.peer)


async def test_an_id_is_taken_once(desk: Desk) -> None:
    """An id that a file or the API has is refused, with where it is."""
    await desk.add(make_definition("a"), file="billing.toml")
    await desk.add(make_definition("b"), origin=Origin.API, file=None)
    before = await desk.rows()

    with pytest.raises(Conflict, match=r"billing\.toml"):
        await desk.add(make_definition("a"), origin=Origin.API, file=None)
    with pytest.raises(Conflict, match="API"):
        await desk.add(make_definition("b"))

    assert await desk.rows() == before


async def test_a_job_added_disabled_does_not_fire(desk: Desk, clock: FakeClock) -> None:
    """`enabled = false` from the start: no next fire; enabling computes from now and tells the gap."""
    await desk.add(make_definition(enabled=False))
    job = await desk.job()
    assert (job.status, job.enabled, job.next_fire_at) == (JobStatus.ACTIVE, False, None)
    clock.move(3 * MINUTE)

    await desk.edit(make_definition())

    assert (await desk.job()).next_fire_at == START + 4 * MINUTE
    assert await desk.skips() == [Told("disabled", START + MINUTE, START + 3 * MINUTE, 3)]


async def test_an_at_in_the_past_is_completed_and_told(desk: Desk) -> None:
    """A fire time that lay in the past when the job came has its row, and the job is completed."""
    operated = await desk.add(make_definition(at=START - HOUR))

    assert operated.completed
    assert operated.job.status is JobStatus.COMPLETED
    assert await desk.skips() == [Told("misfire", START - HOUR, START - HOUR, 1)]


async def test_a_reload_is_one_transaction_with_a_result_each(desk: Desk) -> None:
    """A refused change in a reload does not keep the others from being applied."""
    await desk.add(make_definition("b"), origin=Origin.API, file=None)
    changes = [
        DefinitionChange(
            kind=ChangeKind.ADD,
            job_id=JobId(name),
            definition=make_definition(name),
            origin=Origin.FILE,
            origin_file="jobs.toml",
            peer=desk.peer,
        )
        for name in ("a", "b", "c")
    ]

    results = await desk.store.apply(changes)

    assert [type(result).__name__ for result in results] == ["Operated", "Conflict", "Operated"]
    in_force = await desk.store.file_definitions()
    assert in_force == {JobId(name): ("jobs.toml", make_definition(name).source) for name in ("a", "c")}
    assert await desk.store.api_ids([JobId(name) for name in ("a", "b", "c")]) == {"b"}


# --- change ---
async def test_an_unchanged_job_is_not_touched(desk: Desk) -> None:
    """A reload that brings the same definition changes no row."""
    await desk.add(make_definition())
    before = await desk.rows()

    operated = await desk.edit(make_definition())

    assert not operated.changed
    assert await desk.rows() == before


async def test_an_edit_counts_from_now(desk: Desk, clock: FakeClock) -> None:
    """A changed schedule is computed from now, under a new revision and a new ETag."""
    await desk.add(make_definition())
    before = await desk.job()
    clock.move(10 * SECOND)

    operated = await desk.edit(make_definition(every=45 * SECOND))

    job = await desk.job()
    assert operated.job == job
    assert job.next_fire_at == START + 45 * SECOND
    assert job.revision == job.definition_revision > before.definition_revision
    assert job.added_revision == before.added_revision


async def test_an_edit_beside_the_schedule_keeps_the_due_fire(desk: Desk, clock: FakeClock) -> None:
    """I13: an edit of a due job that leaves its schedule alone loses no fire time."""
    await desk.add(make_definition())
    clock.move(MINUTE + SECOND)

    await desk.edit(make_definition(timeout=30))

    assert (await desk.job()).next_fire_at == START + MINUTE
    (fired,) = await desk.tick()
    assert fired.grants[0].run.fire_time == START + MINUTE
    assert await desk.skips() == []


async def test_an_edit_of_the_schedule_of_a_due_job_tells_the_fire_that_goes(
    desk: Desk, clock: FakeClock
) -> None:
    """I13: the due fire time of the old schedule is told as edited."""
    await desk.add(make_definition())
    clock.move(2 * MINUTE + SECOND)

    await desk.edit(make_definition(every=HOUR))

    assert await desk.skips() == [Told("edited", START + MINUTE, START + 2 * MINUTE, 2)]
    assert (await desk.job()).next_fire_at == START + HOUR


async def test_an_edit_does_not_fire_a_time_twice(desk: Desk, clock: FakeClock) -> None:
    """I1: after an edit the next fire comes after the last one, however the new schedule lies."""
    await desk.add(make_definition(every=HOUR))
    await desk.finish(await desk.fired())

    await desk.edit(make_definition(every=30 * MINUTE))

    assert (await desk.job()).next_fire_at == START + HOUR + 30 * MINUTE


async def test_an_edit_between_a_slot_and_its_jittered_start_explains_the_slot_once(
    desk: Desk, clock: FakeClock
) -> None:
    """I13: a slot whose start jitter still puts off either runs after the edit or is told, never both."""
    await desk.add(make_definition(every=DAY, jitter=20 * HOUR))
    job = await desk.job()
    assert job.next_fire_at is not None
    assert job.due_at is not None
    clock.move(job.next_fire_at - clock.now() + SECOND)
    assert clock.now() < job.due_at

    await desk.edit(make_definition(every=DAY, jitter=19 * HOUR))

    assert (await desk.job()).next_fire_at == job.next_fire_at
    assert await desk.skips() == []


async def test_if_match_guards_an_edit(desk: Desk) -> None:
    """An edit of a copy that is older than the live definition is refused and changes nothing."""
    await desk.add(make_definition(), origin=Origin.API, file=None)
    seen = (await desk.job()).definition_revision
    await desk.edit(make_definition(timeout=1), origin=Origin.API, file=None, expects=seen)
    before = await desk.rows()

    with pytest.raises(Stale):
        await desk.edit(make_definition(timeout=2), origin=Origin.API, file=None, expects=seen)

    assert await desk.rows() == before


async def test_a_pause_does_not_spoil_an_edit(desk: Desk) -> None:
    """The ETag is that of the definition, so a pause in between leaves it valid."""
    await desk.add(make_definition(), origin=Origin.API, file=None)
    seen = (await desk.job()).definition_revision
    await desk.pause()

    operated = await desk.edit(make_definition(timeout=1), origin=Origin.API, file=None, expects=seen)

    assert operated.changed
    assert operated.job.status is JobStatus.PAUSED


async def test_a_files_job_is_the_files_to_change(desk: Desk) -> None:
    """The API neither changes nor removes a file's job, nor a file one of the API."""
    await desk.add(make_definition("a"), file="billing.toml")
    await desk.add(make_definition("b"), origin=Origin.API, file=None)

    with pytest.raises(Conflict, match=r"billing\.toml"):
        await desk.edit(make_definition("a", timeout=1), origin=Origin.API, file=None)
    with pytest.raises(Conflict, match=r"billing\.toml"):
        await desk.remove(JobId("a"), origin=Origin.API)
    with pytest.raises(Conflict, match="API"):
        await desk.remove(JobId("b"))


async def test_an_edit_leaves_the_pause_and_the_counters(desk: Desk) -> None:
    """I4: an edit, also one by a reload, never lifts a pause."""
    await desk.add(make_definition(max_failures=9))
    await desk.finish(await desk.fired(), Ending.FAILED)
    await desk.pause(note="month end")
    before = await desk.job()
    desk.peer = make_peer(0)

    await desk.edit(make_definition(max_failures=8, every=HOUR))

    after = await desk.job()
    assert (after.status, after.pause) == (JobStatus.PAUSED, before.pause)
    assert (after.failures, after.crashes, after.fires_done) == (1, 0, 1)
    assert (after.next_fire_at, after.due_at) == (None, None)


async def test_an_edit_beside_the_schedule_keeps_what_a_pause_holds_back(
    desk: Desk, clock: FakeClock
) -> None:
    """A reload that changes a timeout leaves the held-back fire times to the resume."""
    await desk.add(make_definition())
    await desk.pause()
    clock.move(3 * MINUTE)
    await desk.edit(make_definition(timeout=30))
    assert await desk.runs() == []
    clock.move(2 * MINUTE)

    await desk.resume(missed=Missed.ALL)

    assert [run.fire_time for run in await desk.executed()] == [START + n * MINUTE for n in (1, 2, 3, 4, 5)]


async def test_an_edit_of_the_schedule_tells_what_a_pause_held_back(desk: Desk, clock: FakeClock) -> None:
    """I13: fire times of a schedule that goes are told under the pause that held them back."""
    await desk.add(make_definition())
    await desk.pause()
    clock.move(3 * MINUTE)

    await desk.edit(make_definition(every=HOUR))

    assert await desk.skips() == [Told("paused", START + MINUTE, START + 3 * MINUTE, 3)]
    assert (await desk.job()).held_from == START + HOUR


# --- enabled ---
async def test_disabling_clears_and_enabling_computes_from_now(desk: Desk, clock: FakeClock) -> None:
    """The gap of a disabled job is one skip record."""
    await desk.add(make_definition())
    await desk.edit(make_definition(enabled=False))
    job = await desk.job()
    assert (job.status, job.enabled, job.next_fire_at) == (JobStatus.ACTIVE, False, None)
    clock.move(10 * MINUTE + SECOND)
    assert await desk.tick() == []

    await desk.edit(make_definition())

    job = await desk.job()
    assert (job.enabled, job.held_from, job.next_fire_at) == (True, None, START + 11 * MINUTE)
    assert await desk.skips() == [Told("disabled", START + MINUTE, START + 10 * MINUTE, 10)]


async def test_a_due_fire_of_a_job_that_is_disabled_is_told_once(desk: Desk, clock: FakeClock) -> None:
    """I13: a fire time that was due when the job was disabled belongs to the gap, and to nothing else."""
    await desk.add(make_definition())
    clock.move(2 * MINUTE + SECOND)
    await desk.edit(make_definition(enabled=False))
    clock.move(2 * MINUTE)

    await desk.edit(make_definition())

    assert await desk.skips() == [Told("disabled", START + MINUTE, START + 4 * MINUTE, 4)]


async def test_a_schedule_changed_while_disabled_tells_each_part(desk: Desk, clock: FakeClock) -> None:
    """I13: what the old schedule missed and what the new one missed are told by their own times."""
    await desk.add(make_definition())
    await desk.edit(make_definition(enabled=False))
    clock.move(2 * MINUTE)
    await desk.edit(make_definition(every=HOUR, enabled=False))
    clock.move(3 * HOUR)

    await desk.edit(make_definition(every=HOUR))

    assert [(told.first, told.last, told.count) for told in await desk.skips()] == [
        (START + MINUTE, START + 3 * HOUR, 5)
    ], "one row for consecutive skips of one reason: two minutes and three hours"


async def test_enabling_a_paused_job_does_not_start_it(desk: Desk) -> None:
    """I4: enabled and paused are two columns; a job fires when it is enabled and not paused."""
    await desk.add(make_definition(enabled=False))
    await desk.pause()

    await desk.edit(make_definition())

    job = await desk.job()
    assert (job.status, job.enabled, job.next_fire_at) == (JobStatus.PAUSED, True, None)


# --- ended jobs ---
@pytest.mark.parametrize("change", [{"at": START + DAY}, {"every": HOUR}])
async def test_a_completed_job_whose_schedule_changed_is_active_again(
    desk: Desk, change: dict[str, int]
) -> None:
    """A changed trigger makes a completed job active from now, its count of runs at 0."""
    await desk.add(make_definition(at=START + MINUTE))
    await desk.finish(await desk.fired())
    assert (await desk.job()).fires_done == 1

    await desk.edit(make_definition(**change))  # type: ignore[arg-type]

    job = await desk.job()
    assert (job.status, job.fires_done) == (JobStatus.ACTIVE, 0)
    assert job.next_fire_at is not None


async def test_a_completed_job_with_more_max_runs_is_active_again(desk: Desk) -> None:
    """A raised max_runs makes a completed job active, and the runs count anew."""
    await desk.add(make_definition(max_runs=1))
    await desk.finish(await desk.fired())
    assert (await desk.job()).status is JobStatus.COMPLETED

    await desk.edit(make_definition(max_runs=2))

    job = await desk.job()
    assert (job.status, job.fires_done, job.next_fire_at) == (JobStatus.ACTIVE, 0, START + 2 * MINUTE)


@pytest.mark.parametrize("status", ["completed", "failed"])
async def test_an_edit_beside_the_schedule_leaves_an_ended_job_ended(desk: Desk, status: str) -> None:
    """An edit of something else neither revives a completed job nor a failed one."""
    await desk.add(make_definition(max_failures=1))
    run = await desk.fired()
    if status == "completed":
        await desk.finish(run, completed=True)
    else:
        await desk.finish(run, Ending.FAILED)

    await desk.edit(make_definition(max_failures=1, timeout=5))

    job = await desk.job()
    assert (job.status, job.next_fire_at, job.held_from) == (status, None, None)


async def test_a_failed_job_is_not_revived_by_an_edit(desk: Desk) -> None:
    """Only a resume makes a failed job active again."""
    await desk.add(make_definition(max_failures=1))
    await desk.finish(await desk.fired(), Ending.FAILED)

    await desk.edit(make_definition(max_failures=1, every=HOUR))

    assert (await desk.job()).status is JobStatus.FAILED


async def test_an_edit_into_the_past_completes_the_job(desk: Desk, clock: FakeClock) -> None:
    """Edit judges exhaustion: an `at` moved into the past ends the job, with a skip record."""
    await desk.add(make_definition(at=START + DAY))
    clock.move(HOUR)

    operated = await desk.edit(make_definition(at=START + MINUTE))

    assert operated.completed
    assert (await desk.job()).status is JobStatus.COMPLETED
    assert await desk.skips() == [Told("misfire", START + MINUTE, START + MINUTE, 1)]


async def test_an_at_that_ran_is_not_told_as_missed(desk: Desk) -> None:
    """A completed `at` whose edit leaves the instant alone is explained by its run, and by no skip."""
    await desk.add(make_definition(at=START + MINUTE, max_runs=2))
    await desk.finish(await desk.fired())

    await desk.edit(make_definition(at=START + MINUTE, max_runs=3))

    assert (await desk.job()).status is JobStatus.COMPLETED
    assert await desk.skips() == []


# --- remove ---
async def test_a_removed_job_is_gone_and_its_history_stays(desk: Desk) -> None:
    """Removal leaves runs and audit, cancels what waits, and lets the live run finish."""
    await desk.add(make_definition(retry=RETRY, overlap="allow", max_running=3))
    running, waiting = await desk.fired(), await desk.fired()
    await desk.finish(waiting, Ending.FAILED)

    operated = await desk.remove()

    with pytest.raises(NotFound):
        await desk.job()
    assert [(run.id, run.state, run.reason) for run in operated.cancelled] == [
        (waiting.id, RunState.CANCELLED, "removed")
    ]
    assert [run.id for run in operated.in_flight] == [running.id]
    assert len(await desk.executed()) == 2
    assert {entry.verb for entry in await desk.store.audit(JOB, before=None, limit=9)} == {"add", "remove"}


@pytest.mark.parametrize("verb", ["pause", "resume", "edit", "remove", "skip_next"])
async def test_a_removed_job_takes_no_verb(desk: Desk, verb: str) -> None:
    """What was removed is not found by any verb."""
    await desk.add(make_definition())
    await desk.remove()

    verbs: dict[str, Callable[[], Awaitable[object]]] = {
        "pause": desk.pause,
        "resume": desk.resume,
        "edit": partial(desk.edit, make_definition(timeout=1)),
        "remove": desk.remove,
        "skip_next": partial(desk.store.skip_next, JOB, 1, desk.peer),
    }

    with pytest.raises(NotFound):
        await verbs[verb]()


async def test_putting_a_job_back_restores_its_pause(desk: Desk, clock: FakeClock) -> None:
    """I4: an emptied job file is no resume: the tombstone keeps the pause, with who and since when."""
    await desk.add(make_definition())
    await desk.pause(note="month end", mode=PauseMode.DRAIN)
    before = await desk.job()
    await desk.remove()
    clock.move(HOUR)

    await desk.add(make_definition())

    job = await desk.job()
    assert (job.status, job.pause, job.next_fire_at) == (JobStatus.PAUSED, before.pause, None)
    assert job.added_revision > before.added_revision
    await desk.resume()
    assert (await desk.job()).next_fire_at == clock.now() + MINUTE


async def test_a_job_put_back_is_a_new_incarnation(desk: Desk) -> None:
    """An end is not restored: counters, problem and status start anew, revisions go on."""
    await desk.add(make_definition(max_failures=1))
    await desk.finish(await desk.fired(), Ending.FAILED)
    await desk.store.set_problem(JOB, "broken", "gone")
    await desk.remove()

    await desk.add(make_definition())

    job = await desk.job()
    assert (job.status, job.failures, job.crashes, job.fires_done) == (JobStatus.ACTIVE, 0, 0, 0)
    assert (job.problem_code, job.removed_at) == (None, None)
    assert job.next_fire_at == START + 2 * MINUTE


async def test_fires_that_were_held_back_or_due_at_a_removal_are_told(desk: Desk, clock: FakeClock) -> None:
    """I13: what passed before the removal has its row."""
    await desk.add(make_definition("a"))
    await desk.add(make_definition("b"))
    await desk.pause(JobId("a"))
    clock.move(2 * MINUTE)

    await desk.remove(JobId("a"))
    await desk.remove(JobId("b"))

    assert await desk.skips(JobId("a")) == [Told("paused", START + MINUTE, START + 2 * MINUTE, 2)]
    assert await desk.skips(JobId("b")) == [Told("edited", START + MINUTE, START + 2 * MINUTE, 2)]


async def test_revisions_are_never_used_twice(desk: Desk) -> None:
    """Each operator verb takes a number from one store-wide counter, also across jobs and incarnations."""
    seen: list[int] = []
    for name in ("a", "b"):
        await desk.add(make_definition(name))
        seen.append((await desk.job(JobId(name))).revision)
        await desk.pause(JobId(name))
        seen.append((await desk.job(JobId(name))).revision)
        await desk.resume(JobId(name))
        seen.append((await desk.job(JobId(name))).revision)
        await desk.remove(JobId(name))
        await desk.add(make_definition(name))
        seen.append((await desk.job(JobId(name))).revision)

    assert seen == sorted(set(seen))


async def test_a_job_that_moved_to_another_file_is_not_changed(desk: Desk) -> None:
    """The same definition in another file moves the job's origin and nothing else."""
    await desk.add(make_definition(), file="a.toml")
    before = await desk.job()
    change = DefinitionChange(
        kind=ChangeKind.MOVE, job_id=JOB, origin=Origin.FILE, origin_file="b.toml", peer=desk.peer
    )

    (operated,) = await desk.store.apply([change])

    after = await desk.job()
    assert after.origin_file == "b.toml"
    assert (after.revision, after.definition_revision) == (before.revision, before.definition_revision)
    assert not isinstance(operated, Exception)
    assert not operated.changed


async def test_a_delay_job_put_back_waits_for_no_run_of_the_job_before(desk: Desk, clock: FakeClock) -> None:
    """I7: the old run's end does not touch the new job, so a resume must not leave its next fire to it."""
    await desk.add(make_definition(delay=HOUR))
    old = await desk.fired()
    await desk.pause()
    await desk.remove()
    await desk.add(make_definition(delay=HOUR))

    await desk.resume()
    await desk.finish(old)

    assert (await desk.job()).next_fire_at == clock.now() + HOUR


async def test_a_job_put_back_does_not_count_runs_of_the_job_before(desk: Desk) -> None:
    """I7: `max_runs` of the new job is not used up by a run whose end it will never see."""
    definition = make_definition(max_runs=2, overlap="allow", max_running=3)
    await desk.add(definition)
    old = await desk.fired()
    await desk.remove()
    await desk.add(definition)

    runs = [await desk.fired(), await desk.fired()]
    for run in (old, *runs):
        await desk.finish(run)

    job = await desk.job()
    assert (job.status, job.fires_done) == (JobStatus.COMPLETED, 2)
