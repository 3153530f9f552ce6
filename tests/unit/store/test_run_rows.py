"""What FIRE and FINISH write: these columns of these rows, while jobs beside them that are alike stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scheduler.clock import HOUR, MINUTE, SECOND
from scheduler.model.jobs import JobId, PauseMode
from scheduler.model.runs import Run
from scheduler.rules.reconcile import Ending
from scheduler.store.values import PauseRequest
from tests.support.builders import make_definition
from tests.support.clock import START
from tests.support.desk import Desk
from tests.support.tables import changed, put_run, rows_of, write

JOBS = ("a", "b", "c")
B = JobId("b")
SLOT = START + HOUR


async def add_all(desk: Desk, **keys: Any) -> None:
    for job in JOBS:
        await desk.add(make_definition(job, **{"every": HOUR, **keys}))


def said(row: dict[str, Any] | None) -> dict[str, Any]:
    """What stands in a new row, and is not the same in every run."""
    same = {"seq", "id", "job", "trigger", "attempt", "wish", "added_revision", "count"}
    return {name: value for name, value in (row or {}).items() if name not in same and value not in (None, 0)}


# --- FIRE ---
async def test_a_fire_moves_its_job_and_claims_its_run(desk: Desk, path: Path) -> None:
    """A row of the run and one of its attempt; the jobs beside it, as due as it is, stay due."""
    await add_all(desk)
    before = rows_of(path)

    run = await desk.fired(B)

    told = changed(before, rows_of(path))
    assert told.pop(("jobs", "b")) == {
        "last_fire_at": SLOT,
        "next_fire_at": SLOT + HOUR,
        "due_at": SLOT + HOUR,
    }
    row = told.pop(("runs", "b"))
    assert row is not None
    assert (row["id"], row["job"], row["trigger"], row["added_revision"], row["attempt"]) == (
        run.id,
        "b",
        "schedule",
        2,
        1,
    )
    assert said(row) == {
        "state": "running",
        "fire_time": SLOT,
        "solo": 1,
        "definition_revision": 2,
        "claim": 1,
        "owner": desk.who.owner.id,
        "lease_until": SLOT + desk.who.lease,
        **dict.fromkeys(("queued_at", "claimed_at", "started_at", "progress_at"), SLOT),
    }
    attempt = {"claim": 1, "owner": desk.who.owner.id, "started_at": SLOT}
    assert said(told.pop(("attempts", "b", "1"))) == {"run": run.id, **attempt}
    assert told == {}


async def test_a_fire_without_room_queues_its_run(desk: Desk, path: Path) -> None:
    """It has no owner, no claim and no attempt yet."""
    await add_all(desk, overlap="allow", max_running=2)
    desk.who.max_running = 0
    before = rows_of(path)

    await desk.fire(B)

    told = changed(before, rows_of(path))
    assert said(told.pop(("runs", "b"))) == {"state": "queued", "fire_time": SLOT, "queued_at": SLOT}
    assert set(told) == {("jobs", "b")}


async def test_a_start_by_hand_keeps_what_it_was_given(desk: Desk, path: Path) -> None:
    """Its arguments, and that it was started under a pause; it has no fire time."""
    await add_all(desk)
    await desk.pause(B)
    before = rows_of(path)

    await desk.start(B, args='{"x": 1}')

    told = changed(before, rows_of(path))
    row = told.pop(("runs", "b")) or {}
    assert (row["trigger"], row["args"], row["under_pause"], row["fire_time"]) == (
        "manual",
        '{"x": 1}',
        1,
        None,
    )
    assert set(told) == {("attempts", "b", "1")}


async def test_skips_of_one_reason_are_one_row(desk: Desk, path: Path) -> None:
    """The newest row of the job stands for more, with the newest words; skips beside it do not."""
    await add_all(desk)
    for job in (*JOBS, *JOBS):
        await desk.fire(JobId(job))
    before = rows_of(path)

    await desk.fire(B)

    told = changed(before, rows_of(path))
    assert told.pop(("jobs", "b"))
    assert told == {
        ("runs", "b#2"): {
            "fire_time_last": SLOT + 2 * HOUR,
            "count": 2,
            "message": f"run {(await desk.executed(B))[0].id} has been running for 7200 s",
            "finished_at": SLOT + 2 * HOUR,
        }
    }


async def test_a_skip_is_a_row_of_its_own_after_anything_else(desk: Desk, path: Path) -> None:
    """Of this reason, these fire times, and the incarnation of its job."""
    await add_all(desk)
    run = await desk.fired(B)
    before = rows_of(path)

    await desk.fire(B)

    told = changed(before, rows_of(path))
    row = told.pop(("runs", "b#2"))
    assert row is not None
    assert (row["trigger"], row["added_revision"], row["count"]) == ("schedule", 2, 1)
    assert said(row) == {
        "state": "skipped",
        "reason": "overlap",
        "message": f"run {run.id} has been running for 3600 s",
        "fire_time": SLOT + HOUR,
        "fire_time_last": SLOT + HOUR,
        "queued_at": SLOT + HOUR,
        "finished_at": SLOT + HOUR,
    }


async def test_a_fire_counts_the_scheduled_runs_that_max_runs_counts(desk: Desk, path: Path) -> None:
    """Each once, on its way, of this incarnation: where they reach the number there is no next slot."""
    for job, (columns, _) in OTHERS.items():
        added = (
            await desk.add(make_definition(job, every=HOUR, overlap="allow", max_runs=2, max_running=9))
        ).job
        put_run(path, job, **{"added_revision": added.added_revision, **columns})
    added = (
        await desk.add(make_definition("counted", every=HOUR, overlap="allow", max_runs=2, max_running=9))
    ).job
    put_run(path, "counted", state="held", added_revision=added.added_revision, job_counted=1)
    await desk.add(make_definition("only", every=HOUR, max_runs=1))

    fired = {job: len((await desk.fire(JobId(job))).grants) for job in (*OTHERS, "counted", "only")}

    assert set(fired.values()) == {1}
    last = {job for job in fired if (await desk.job(JobId(job))).next_fire_at is None}
    assert last == {"only", *(job for job, (_, completes) in OTHERS.items() if not completes)}


async def test_jobs_that_fire_together_are_counted_apart(desk: Desk) -> None:
    """I2: what stands in the way of one of them is not counted for the others."""
    await add_all(desk, overlap="allow", max_running=2)
    for _ in range(2):
        desk.clock.move(HOUR)
        fired = await desk.tick()
        assert [len(one.grants) for one in fired] == [1, 1, 1]
    desk.clock.move(HOUR)

    fired = await desk.tick()

    assert [[skip.reason for skip in one.skips] for one in fired] == [["overlap"]] * 3


async def test_a_clock_that_stepped_back_moves_armed_jobs(
    desk: Desk, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slice by slice, each once: a new generation, and the next slot from now; a job without one stays."""
    monkeypatch.setattr("scheduler.store.clockwork._SLICE", 1)
    await add_all(desk)
    await desk.add(make_definition("aa", manual=True))
    desk.clock.step(-2 * HOUR)
    before, slot = rows_of(path), SLOT - 2 * HOUR

    await desk.store.rearm(2 * HOUR)

    moved = {"generation": 1, "next_fire_at": slot, "due_at": slot}
    told = changed(before, rows_of(path))
    assert {key: row for key, row in told.items() if key[0] == "jobs"} == {
        ("jobs", job): moved for job in JOBS
    }


# --- FINISH ---
@pytest.fixture
async def at_work(desk: Desk, path: Path) -> dict[str, Run]:
    """A run of each job under its second claim, which has told its pid, its cost and a result."""
    await add_all(desk, on_crash="retry")
    for job in JOBS:
        await desk.crash(await desk.fired(JobId(job)))
    runs = {grant.run.job: grant.run for grant in await desk.claim()}
    write(path, """UPDATE runs SET pid = 7, pid_ticks = 8, result = '"old"', cost = 9.0, message = 'old'""")
    write(path, "UPDATE jobs SET failures = 2, crashes = 1")
    desk.clock.move(SECOND)
    return {str(job): run for job, run in runs.items()}


@pytest.mark.parametrize(
    ("ending", "told", "run", "job"),
    [
        (
            Ending.FAILED,
            {"exit_code": 3, "signal": 9, "retryable": False},
            {"state": "failed", "reason": "exit_code", "message": "exit code 1", "exit_code": 3, "signal": 9},
            {"failures": 3},
        ),
        (
            Ending.SUCCEEDED,
            {"result": '"new"', "cost": 0.5},
            {"state": "succeeded", "message": None, "exit_code": 0, "result": '"new"', "cost": 0.5},
            {"failures": 0, "crashes": 0},
        ),
    ],
)
async def test_an_end_is_written_to_run_attempt_and_job(
    desk: Desk,
    path: Path,
    at_work: dict[str, Run],
    ending: Ending,
    told: dict[str, Any],
    run: dict[str, Any],
    job: dict[str, Any],
) -> None:
    """The child is gone; a result and a cost that are not told stay; the attempt before stays as it ended."""
    before, now = rows_of(path), desk.clock.now()

    await desk.finish(at_work["b"], ending, **told)

    attempt = {name: run.get(name) for name in ("state", "reason", "message", "exit_code", "signal")}
    assert changed(before, rows_of(path)) == {
        ("runs", "b"): {**run, "job_counted": 1, "finished_at": now, "pid": None, "pid_ticks": None},
        ("attempts", "b", "2"): {
            "finished_at": now,
            **{name: value for name, value in attempt.items() if value is not None},
        },
        ("jobs", "b"): {**job, "fires_done": 1},
    }


async def test_a_cancel_of_a_run_that_waits_leaves_its_attempts_alone(
    desk: Desk, path: Path, at_work: dict[str, Run]
) -> None:
    """They ended as they did; only the run is cancelled, and counted."""
    await desk.finish(at_work["b"], Ending.RETRY_ASKED)
    desk.clock.move(SECOND)
    before = rows_of(path)

    await desk.cancel(await desk.run(at_work["b"]))

    told = changed(before, rows_of(path))
    run = told.pop(("runs", "b")) or {}
    assert (run["state"], run["finished_at"]) == ("cancelled", desk.clock.now())
    assert told == {("jobs", "b"): {"fires_done": 1}}


async def test_an_end_of_the_job_leaves_nothing_of_a_pause(
    desk: Desk, path: Path, at_work: dict[str, Run]
) -> None:
    """I5: its queued and waiting runs end with it; jobs beside it that are paused alike stay so."""
    for job in JOBS:
        request = PauseRequest(
            job_id=JobId(job), mode=PauseMode.ITEM, peer=desk.peer, note="why", until=START + 9 * HOUR
        )
        await desk.store.pause([request])
        put_run(path, job, "queued", state="queued")
        put_run(path, job, "waiting", state="waiting", ready_at=1)
        put_run(path, job, "held", state="held")
    write(path, "UPDATE runs SET wish = 'run'")
    before = rows_of(path)

    await desk.finish(at_work["b"], completed=True)

    told = changed(before, rows_of(path))
    ended = told.pop(("jobs", "b")) or {}
    assert ended == {
        "status": "completed",
        "failures": 0,
        "crashes": 0,
        "fires_done": 1,
        **dict.fromkeys(("pause_reason", "pause_mode", "pause_by", "pause_note", "pause_since")),
        **dict.fromkeys(("pause_until", "held_from")),
    }
    assert {key: (row or {})["state"] for key, row in told.items() if key[0] == "runs"} == {
        ("runs", "b"): "succeeded",
        ("runs", "b/queued"): "cancelled",
        ("runs", "b/waiting"): "cancelled",
        ("runs", "b/held"): "cancelled",
    }
    assert {key for key in told if key[0] != "runs"} == {("attempts", "b", "2")}


@pytest.mark.parametrize(("note", "after"), [("", "{}"), ("month end", "month end; {}")])
async def test_crashes_add_to_the_words_of_a_pause(
    desk: Desk, path: Path, at_work: dict[str, Run], note: str, after: str
) -> None:
    """And take its end away: neither by whom nor since when it is, nor any other job's pause."""
    for job in JOBS:
        request = PauseRequest(
            job_id=JobId(job), mode=PauseMode.DRAIN, peer=desk.peer, note=note, until=START + 9 * HOUR
        )
        await desk.store.pause([request])
    write(path, "UPDATE jobs SET crashes = 9")
    taken = await desk.take(at_work["b"])
    before = rows_of(path)

    await desk.finish(taken, Ending.CRASHED)

    told = changed(before, rows_of(path))
    evidence = "10 crashes in a row; the last: the daemon died"
    assert told.pop(("jobs", "b")) == {
        "crashes": 10,
        "pause_until": None,
        "pause_note": after.format(evidence),
    }
    assert {key for key in told if key[0] == "jobs"} == set()


async def test_a_broken_handler_is_told_on_its_job_alone(
    desk: Desk, path: Path, at_work: dict[str, Run]
) -> None:
    """Code and words; a job that was removed has no problem any more."""
    before = rows_of(path)
    await desk.finish(at_work["b"], Ending.FAILED, retryable=False, broken="no such handler")
    told = changed(before, rows_of(path))
    problem = {"problem_code": "broken", "problem_message": "no such handler"}
    assert told[("jobs", "b")] == {"failures": 3, "fires_done": 1, **problem}
    assert {key for key in told if key[0] == "jobs"} == {("jobs", "b")}

    await desk.remove(JobId("c"))
    before = rows_of(path)
    await desk.store.set_problem(JobId("c"), "broken", "gone")
    assert changed(before, rows_of(path)) == {}


OTHERS: dict[str, tuple[dict[str, Any], bool]] = {
    "queued": ({"state": "queued"}, False),
    "running": ({"state": "running", "owner": "o", "claim": 1, "lease_until": 1}, False),
    "recovering": ({"state": "recovering", "owner": "o", "claim": 1, "lease_until": 1}, False),
    "waiting": ({"state": "waiting", "ready_at": 1}, False),
    "held": ({"state": "held"}, False),
    "caught-up": ({"state": "queued", "trigger": "catch_up"}, False),
    "ended": ({"state": "failed"}, True),
    "skipped": ({"state": "skipped"}, True),
    "by-hand": ({"state": "queued", "trigger": "manual"}, True),
    "retried": ({"state": "queued", "trigger": "retry"}, True),
    "of-the-job-before": ({"state": "queued", "added_revision": 99}, True),
}


async def test_only_another_run_of_the_trigger_keeps_an_exhausted_job_open(desk: Desk, path: Path) -> None:
    """In whatever state it is on its way, but of this incarnation of the job."""
    for job in OTHERS:
        await desk.add(make_definition(job, at=START + MINUTE, overlap="allow", max_running=9))
    runs = {job: await desk.fired(JobId(job)) for job in OTHERS}
    for job, (columns, _) in OTHERS.items():
        put_run(path, job, **{"added_revision": (await desk.job(JobId(job))).added_revision, **columns})

    ended = {job for job, run in runs.items() if (await desk.finish(run)).decision.ends_job}

    assert ended == {job for job, (_, completes) in OTHERS.items() if completes}
