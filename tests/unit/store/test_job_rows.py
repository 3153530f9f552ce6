"""What the operator's verbs write: these columns of these rows, and none of the jobs and runs beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scheduler.clock import HOUR, MINUTE, SECOND
from scheduler.model.jobs import JobId, Overlap, PauseMode
from scheduler.model.runs import Wish
from scheduler.rules.reconcile import Ending
from scheduler.store.pausevalues import PauseAllRequest, ResumeAllRequest
from scheduler.store.values import PauseRequest
from tests.support.builders import JOB, make_definition, make_peer
from tests.support.clock import START
from tests.support.desk import Desk
from tests.support.tables import Key, changed, rows_of, write

JOBS = ("a", "b", "c")
B = JobId("b")
STATES = ("queued", "running", "recovering", "waiting", "held", "succeeded")


class Sheet:
    """A store's tables, and what was changed in them since they were looked at before."""

    def __init__(self, desk: Desk, path: Path) -> None:
        self.desk, self.path = desk, path
        self.before = rows_of(path)

    def changes(self) -> dict[Key, dict[str, Any] | None]:
        before, self.before = self.before, rows_of(self.path)
        return changed(before, self.before)


async def test_a_resume_leaves_nothing_of_a_pause(desk: Desk, path: Path) -> None:
    """But for the revision, the job's row is as it was."""
    for job in JOBS:
        await desk.add(make_definition(job, every=HOUR))
    sheet = Sheet(desk, path)
    until = desk.clock.now() + MINUTE
    for job in JOBS:
        request = PauseRequest(
            job_id=JobId(job), mode=PauseMode.ITEM, peer=desk.peer, note="why", until=until
        )
        await desk.store.pause([request])

    for job in JOBS:
        await desk.resume(JobId(job))

    assert sheet.changes() == {("jobs", job): {"revision": 6 + number} for number, job in enumerate(JOBS, 1)}


async def test_passing_over_slots_moves_the_job_on(desk: Desk, path: Path) -> None:
    """Its next slot and its revision, and a row that tells what was skipped."""
    for job in JOBS:
        await desk.add(make_definition(job, every=HOUR))
    sheet = Sheet(desk, path)
    slot = (await desk.job(B)).next_fire_at
    assert slot is not None

    await desk.store.skip_next(B, 2, desk.peer)

    told = sheet.changes()
    moved = {"next_fire_at": slot + 2 * HOUR, "due_at": slot + 2 * HOUR, "revision": 4}
    assert told.pop(("jobs", "b")) == moved
    assert set(told) == {("runs", "b")}


@pytest.fixture
async def crowd(desk: Desk, path: Path) -> Sheet:
    """Three paused jobs with a run in each state, started under the pause, that were wished to hold."""
    desk.clock.move(SECOND)
    for job in JOBS:
        await desk.add(make_definition(job, every=HOUR, overlap="allow", max_running=9))
        await desk.pause(JobId(job), mode=PauseMode.ITEM)
        for state in STATES:
            run = (await desk.start(JobId(job), overlap=Overlap.ALLOW)).run
            write(
                path,
                "UPDATE runs SET id = :name, state = :state, wish = 'hold', ready_at = 1 WHERE id = :id",
                id=run.id,
                name=f"{job}-{state}",
                state=state,
            )
    return Sheet(desk, path)


@pytest.mark.parametrize("wish", ["hold", "freeze"])
async def test_a_resume_lets_go_of_all_that_has_not_ended(crowd: Sheet, wish: str) -> None:
    """Wishes go, held runs wait, and no run stands under a pause any more; history stays as it was."""
    write(crowd.path, "UPDATE runs SET wish = :wish", wish=wish)
    crowd.changes()

    done = await crowd.desk.resume(B)

    assert [run.id for run in done.in_flight] == [f"b-{state}" for state in STATES[:-1]], "oldest first"
    told = crowd.changes()
    assert told.pop(("jobs", "b"))
    freed = {"wish": "run", "under_pause": 0}
    assert told == {
        **{("runs", f"b-{state}"): freed for state in STATES[:-2]},
        ("runs", "b-held"): {**freed, "state": "waiting", "ready_at": START + SECOND},
    }


async def test_a_resume_of_all_lets_go_of_all_that_has_not_ended(crowd: Sheet) -> None:
    """Runs of a job that is paused by itself stay held, and what is at work there is told so again."""
    for job in ("a", "c"):
        await crowd.desk.resume(JobId(job))
    await crowd.desk.store.pause_all(PauseAllRequest(mode=PauseMode.DRAIN, peer=crowd.desk.peer))
    for job, wish in zip(JOBS, ("hold", "hold", "freeze"), strict=True):
        statement = "UPDATE runs SET wish = :wish, state = substr(id, 3) WHERE job = :job"
        write(crowd.path, statement, wish=wish, job=job)
    crowd.desk.clock.move(SECOND)
    crowd.changes()

    done = await crowd.desk.store.resume_all(ResumeAllRequest(peer=crowd.desk.peer))

    told = crowd.changes()
    now = START + 2 * SECOND
    held_on = {"b-running": Wish.HOLD, "b-recovering": Wish.HOLD}
    assert (
        dict(done.wishes) == {f"{job}-{state}": Wish.RUN for job in JOBS for state in STATES[:-1]} | held_on
    )
    assert told.pop(("global_pauses", "1")) == {"lifted_at": now}
    freed = {"wish": "run"}
    held = {**freed, "state": "waiting", "ready_at": now}
    assert told == {
        **{("runs", f"{job}-{state}"): freed for job in ("a", "c") for state in STATES[:-2]},
        **{("runs", f"{job}-held"): held for job in ("a", "c")},
        **{("runs", f"b-{state}"): freed for state in ("queued", "waiting", "held")},
    }


async def test_a_resume_under_a_pause_of_all_tells_what_that_wants(crowd: Sheet) -> None:
    """What is at work there is told to hold, again; all else is let go as ever."""
    await crowd.desk.store.pause_all(PauseAllRequest(mode=PauseMode.ITEM, peer=crowd.desk.peer))

    done = await crowd.desk.resume(B)

    held_on = {"b-running": Wish.HOLD, "b-recovering": Wish.HOLD}
    assert dict(done.wishes) == {f"b-{state}": Wish.RUN for state in STATES[:-1]} | held_on


async def test_a_pause_of_all_finds_every_run_in_flight(desk: Desk, path: Path) -> None:
    """Whatever its state is; those at work are told, oldest first, and those that wait end at once."""
    for state in STATES:
        await desk.add(make_definition(state, manual=True))
        run = (await desk.start(JobId(state))).run
        write(path, "UPDATE runs SET state = :state, ready_at = 1 WHERE id = :id", state=state, id=run.id)
    sheet = Sheet(desk, path)

    done = await desk.store.pause_all(PauseAllRequest(mode=PauseMode.CANCEL, peer=desk.peer))

    told = sheet.changes()
    assert {key[1]: (row or {}).get("state", (row or {}).get("wish")) for key, row in told.items()} == {
        "1": None,
        "running": "cancel",
        "recovering": "cancel",
        "waiting": "cancelled",
        "held": "cancelled",
    }
    assert [run.job for run in done.in_flight] == ["running", "recovering"]


async def test_another_pause_of_all_says_who_and_why(desk: Desk, path: Path) -> None:
    """Mode, words and end are the newest, and a pause that is over stays as it was."""
    for mode in (PauseMode.DRAIN, PauseMode.ITEM):
        await desk.store.pause_all(PauseAllRequest(mode=mode, peer=desk.peer, note="first"))
        await desk.store.resume_all(ResumeAllRequest(peer=desk.peer))
    await desk.store.pause_all(PauseAllRequest(mode=PauseMode.DRAIN, peer=desk.peer, note="second"))
    sheet = Sheet(desk, path)
    until = desk.clock.now() + HOUR

    request = PauseAllRequest(mode=PauseMode.ITEM, peer=make_peer(1001), note="third", until=until)
    await desk.store.pause_all(request)

    words = {"mode": "item", "by": "uid:1001", "note": "third", "until": until}
    assert sheet.changes() == {("global_pauses", "3"): words}


async def test_timed_pauses_are_lifted_at_their_moment_a_slice_at_a_time(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The earliest first, to the microsecond; who has more to lift says so."""
    monkeypatch.setattr("scheduler.store.pausing._SLICE", 2)
    for job, later in zip(JOBS, (3, 1, 2), strict=True):
        await desk.add(make_definition(job, every=HOUR))
        until = desk.clock.now() + later * MINUTE
        request = PauseRequest(job_id=JobId(job), mode=PauseMode.DRAIN, peer=desk.peer, until=until)
        await desk.store.pause([request])
    desk.clock.move(MINUTE - 1)
    assert not (await desk.store.due(limit=9, late_after=MINUTE, late_limit=9)).pause_over

    desk.clock.move(1)
    assert (await desk.store.due(limit=9, late_after=MINUTE, late_limit=9)).pause_over
    desk.clock.move(2 * MINUTE)
    first, second = await desk.store.expire_pauses(desk.peer), await desk.store.expire_pauses(desk.peer)

    assert [[one.job_id for one in expired.jobs] for expired in (first, second)] == [["b", "c"], ["a"]]
    assert (first.more, second.more) == (True, False)
    assert not (await desk.store.due(limit=9, late_after=MINUTE, late_limit=9)).pause_over


async def test_only_a_pause_that_holds_is_over(desk: Desk) -> None:
    """The timed pause of a removed job, and one of all that was lifted before its time, end nothing more."""
    until = desk.clock.now() + MINUTE
    await desk.add(make_definition())
    await desk.store.pause([PauseRequest(job_id=JOB, mode=PauseMode.DRAIN, peer=desk.peer, until=until)])
    await desk.remove()
    await desk.store.pause_all(PauseAllRequest(mode=PauseMode.DRAIN, peer=desk.peer, until=until))
    await desk.store.resume_all(ResumeAllRequest(peer=desk.peer))
    desk.clock.move(HOUR)

    assert not (await desk.store.due(limit=9, late_after=MINUTE, late_limit=9)).pause_over
    assert (await desk.store.expire_pauses(desk.peer)).jobs == ()


async def test_a_timed_pause_of_all_is_lifted_at_its_moment(desk: Desk) -> None:
    """To the microsecond."""
    until = desk.clock.now() + MINUTE
    await desk.store.pause_all(PauseAllRequest(mode=PauseMode.DRAIN, peer=desk.peer, until=until))
    desk.clock.move(MINUTE - 1)
    assert not (await desk.store.due(limit=9, late_after=MINUTE, late_limit=9)).pause_over
    assert (await desk.store.expire_pauses(desk.peer)).all is None

    desk.clock.move(1)
    assert (await desk.store.due(limit=9, late_after=MINUTE, late_limit=9)).pause_over
    lifted = (await desk.store.expire_pauses(desk.peer)).all

    assert lifted is not None
    assert (lifted.changed, lifted.pause, lifted.lifted_at) == (True, None, until)


async def test_a_retried_run_starts_over(desk: Desk, path: Path) -> None:
    """At attempt 1, without a trace of its end, for the job as it is now; runs that ended beside it stay."""
    for job in JOBS:
        await desk.add(make_definition(job, manual=True))
        run = (await desk.start(JobId(job))).run
        await desk.finish(run, Ending.FAILED, retryable=False, signal=9)
        await desk.remove(JobId(job))
        await desk.add(make_definition(job, manual=True))
    write(path, "UPDATE runs SET attempt = 3, wish = 'hold'")
    desk.clock.move(SECOND)
    sheet = Sheet(desk, path)
    (run,) = await desk.executed(B)

    await desk.store.retry(run.id, desk.peer)

    assert sheet.changes() == {
        ("runs", "b"): {
            "state": "queued",
            "reason": None,
            "message": None,
            "attempt": 1,
            "wish": "run",
            "queued_at": START + SECOND,
            "finished_at": None,
            "exit_code": None,
            "signal": None,
            "added_revision": (await desk.job(B)).added_revision,
        }
    }
