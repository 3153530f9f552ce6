"""Which rows each list shows, in which order, among rows that differ from them in one thing each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scheduler.clock import HOUR
from scheduler.model.jobs import JobId, Origin
from scheduler.model.listed import listed
from scheduler.model.runs import RunId
from scheduler.store import paging
from tests.support.builders import make_definition
from tests.support.clock import START
from tests.support.desk import Desk
from tests.support.tables import put_run, write

PAUSED = """UPDATE jobs SET status = 'paused', pause_reason = 'operator', pause_mode = 'drain',
pause_by = 'x', pause_note = '', pause_since = 1, next_fire_at = NULL, due_at = NULL WHERE id = :id"""
UNFINISHED = ("queued", "running", "recovering", "waiting", "held")
AT_WORK = {"owner": "o", "claim": 1, "lease_until": 1, "ready_at": 1}


@pytest.fixture
async def jobs(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Jobs from the last letter to the first: two in a group, two with a label, the last ones removed."""
    monkeypatch.setattr(paging, "_JOBS_AT_ONCE", 2)
    monkeypatch.setattr(paging, "_RUNS_AT_ONCE", 2)
    for name in ("gone", "e", "d", "c", "b", "a"):
        keys: dict[str, Any] = {"description": f"The {name.upper()} Job"}
        keys |= {"group": "g", "labels": ["l", "m"]} if name in ("gone", "b", "d") else {"labels": ["m"]}
        await desk.add(make_definition(name, every=HOUR, **keys))
    await desk.remove(JobId("gone"))
    return desk


@pytest.mark.parametrize(
    ("wanted", "after", "found"),
    [
        ({}, None, "abcde"),
        ({}, "b", "cde"),
        ({"status": "active"}, "b", "cde"),
        ({"status": "completed"}, None, ""),
        ({"group": "g"}, None, "bd"),
        ({"group": "g"}, "b", "d"),
        ({"group": "other"}, None, ""),
        ({"label": "l"}, None, "bd"),
        ({"label": "m", "group": "g"}, "b", "d"),
        ({"label": "m", "status": "completed"}, None, ""),
        ({"search": "d job"}, None, "d"),
        ({"search": "e"}, None, "abcde"),
        ({"search": "C"}, None, "c"),
    ],
)
async def test_a_list_of_jobs(jobs: Desk, wanted: dict[str, Any], after: str | None, found: str) -> None:
    """In the order of ids, behind the last that was seen, so many at most; none that was removed."""
    start = None if after is None else JobId(after)
    for limit in (1, 2, 9):
        page = await jobs.store.jobs(after=start, limit=limit, **wanted)
        assert [job.id for job in page] == list(found[:limit])


async def test_a_look_finds_what_is_due_late_ones_and_the_others_apart(jobs: Desk, path: Path) -> None:
    """Each the earliest first and so many at most, to the microsecond; under a pause of all none of them."""
    now, late_after = START + 2 * HOUR, HOUR
    jobs.clock.move(2 * HOUR)
    for name, due_at in zip("edcba", (now + 1, now, now - HOUR, now - HOUR - 1, now - HOUR - 2), strict=True):
        write(path, "UPDATE jobs SET due_at = :at WHERE id = :id", at=due_at, id=name)

    async def found(limit: int, late: int) -> list[str]:
        look = await jobs.store.due(limit=limit, late_after=late_after, late_limit=late)
        return [job.id for job in look.jobs]

    assert await found(9, 9) == ["a", "b", "c", "d"]
    assert await found(1, 1) == ["a", "c"]
    assert await found(9, 0) == ["c", "d"]
    statement = (
        "INSERT INTO global_pauses (mode, by, note, since, lifted_at) VALUES ('drain', 'x', '', 1, :at)"
    )
    write(path, statement, at=2)
    assert await found(9, 9) == ["a", "b", "c", "d"]
    write(path, statement, at=None)
    assert await found(9, 9) == []


@pytest.mark.parametrize(
    ("columns", "claimable"),
    [
        ({"state": "queued"}, True),
        ({"state": "waiting", "ready_at": START}, True),
        ({"state": "waiting", "ready_at": START + 1}, False),
        ({"state": "held", "ready_at": START}, False),
        ({"state": "succeeded"}, False),
    ],
)
async def test_a_look_says_whether_something_may_be_claimed(
    jobs: Desk, path: Path, columns: dict[str, Any], *, claimable: bool
) -> None:
    """A run in the queue, or one whose wait is over."""
    put_run(path, "a", **columns)

    assert (await jobs.store.due(limit=9, late_after=HOUR, late_limit=9)).claimable is claimable


async def test_the_next_fires_in_their_order(jobs: Desk, path: Path) -> None:
    """Of jobs that have one; the earliest first."""
    for place, name in enumerate("ceadb"):
        write(path, "UPDATE jobs SET due_at = :at WHERE id = :id", at=START + HOUR + place, id=name)
    write(path, PAUSED, id="e")

    assert list(await jobs.store.next_fires(9)) == ["c", "a", "d", "b"]
    assert list(await jobs.store.next_fires(2)) == ["c", "a"]


async def test_a_job_is_shown_with_its_last_and_its_unfinished_runs(jobs: Desk, path: Path) -> None:
    """Skips are not the last; unfinished ones come oldest first, and only its own."""
    for job in ("a", "b"):
        for state in (*UNFINISHED, "succeeded"):
            put_run(path, job, state, state=state, **AT_WORK)
        put_run(path, job, "skip", state="skipped")

    shown = await jobs.store.job(JobId("b"))
    of_b = listed(shown.job, shown.last_run, shown.live_runs)
    for view in [of_b, *await jobs.store.jobs(after=None, limit=2)]:
        job = view.id
        assert view.last_run is not None
        assert view.last_run.id == f"{job}/succeeded"
        assert [run.id for run in view.live_runs] == [f"{job}/{state}" for state in UNFINISHED]
    assert (await jobs.store.job(JobId("c"))).last_run is None
    assert [run.id for run in await jobs.store.live_runs(JobId("a"))] == [
        f"a/{state}" for state in UNFINISHED
    ]


RUNS = {
    "started": {"state": "failed", "started_at": 10, "queued_at": 1},
    "queued": {"state": "queued", "queued_at": 10},
    "older": {"state": "failed", "started_at": 9, "queued_at": 20},
    "newest": {"state": "failed", "started_at": 11},
}


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, ["newest", "older", "queued", "started"]),
        ({"state": "failed"}, ["newest", "older", "started"]),
        ({"since": 10}, ["newest", "queued", "started"]),
        ({"since": 10, "state": "failed"}, ["newest", "started"]),
        ({"since": 12}, []),
    ],
)
@pytest.mark.parametrize("of_job", [True, False])
async def test_a_list_of_runs(
    jobs: Desk, path: Path, wanted: dict[str, Any], found: list[str], *, of_job: bool
) -> None:
    """Newest first, before the last that was seen, so many at most; of one job or of all."""
    for name, columns in RUNS.items():
        for job in ("a", "b") if of_job else ("b",):
            put_run(path, job, name, **columns)
    only: dict[str, Any] = {"job": JobId("b")} if of_job else {}
    expected = [f"b/{name}" for name in found]

    for limit in (1, 2, 9):
        page = await jobs.store.runs(before=None, limit=limit, **only, **wanted)
        assert [run.id for run in page] == expected[:limit]
        if page and len(page) < len(expected):
            rest = await jobs.store.runs(before=page[-1].seq, limit=9, **only, **wanted)
            assert [run.id for run in rest] == expected[limit:]


async def test_runs_of_the_only_job_that_has_any(jobs: Desk, path: Path) -> None:
    """They are found without any others; before the first one the history has no newest row."""
    assert await jobs.store.newest_run() == 0
    for number in range(3):
        put_run(path, "b", str(number), state="failed")

    found = await jobs.store.runs(before=None, limit=9, job=JobId("b"), state="failed")

    assert [run.id for run in found] == ["b/2", "b/1", "b/0"]
    assert await jobs.store.newest_run() == found[0].seq


async def test_attempts_come_in_their_order(jobs: Desk, path: Path) -> None:
    """Of this run alone."""
    statement = (
        "INSERT INTO attempts (run, claim, attempt, owner, started_at) VALUES (:run, :claim, 1, 'o', 1)"
    )
    for claim in (3, 1, 2):
        for run in ("a", "b"):
            write(path, statement, run=run, claim=claim)

    assert [attempt.claim for attempt in await jobs.store.attempts(RunId("b"))] == [1, 2, 3]


async def test_a_fire_time_is_explained_by_the_newest_row_that_has_it(jobs: Desk, path: Path) -> None:
    """Its run, or the skip that reaches over it; not those of another job, before it or behind it."""
    for job in ("a", "b"):
        put_run(path, job, "run", state="failed", fire_time=10)
        put_run(path, job, "again", state="failed", fire_time=10, generation=1)
        put_run(path, job, "span", state="skipped", fire_time=20, fire_time_last=30)
        put_run(path, job, "one", state="skipped", fire_time=40)
        put_run(path, job, "over", state="skipped", fire_time=25, fire_time_last=26)
    put_run(path, "c", "later", state="failed", fire_time=10)
    put_run(path, "c", "long", state="skipped", fire_time=1, fire_time_last=99)

    async def explained(fire_time: int) -> str | None:
        run = await jobs.store.run_at(JobId("b"), fire_time)
        return None if run is None else run.id.removeprefix("b/")

    told = {
        fire_time: await explained(fire_time) for fire_time in (9, 10, 11, 19, 20, 25, 27, 30, 31, 40, 41)
    }
    assert told == {
        **dict.fromkeys((9, 11, 19, 31, 41)),
        10: "again",
        20: "span",
        25: "over",
        27: "span",
        30: "span",
        40: "one",
    }


async def test_the_newest_of_very_many_skips_is_found(jobs: Desk, path: Path) -> None:
    """Those that are nearest before the fire time are looked at."""
    statement = """
    WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 150)
    INSERT INTO runs (id, job, trigger, state, solo, added_revision, fire_time)
    SELECT 'skip-' || n, 'b', 'schedule', 'skipped', 0, 1, n FROM numbers
    """
    write(path, statement)

    run = await jobs.store.run_at(JobId("b"), 150)

    assert run is not None
    assert run.id == "skip-150"


async def test_an_audit_has_what_was_done_to_all_jobs(jobs: Desk, path: Path) -> None:
    """Newest first, before the last that was seen, so many at most; none of another job's."""
    statement = """INSERT INTO audit (seq, at, verb, job, uid, gid, pid, command, detail)
    VALUES (:seq, 1, :verb, :job, 0, 0, 0, '', '{}')"""
    for seq, job in enumerate(("b", None, "a", "b", None, "b", None, "a"), 100):
        write(path, statement, seq=seq, verb=str(seq), job=job)

    async def verbs(before: int | None, limit: int) -> list[str]:
        return [entry.verb for entry in await jobs.store.audit(JobId("b"), before=before, limit=limit)]

    assert await verbs(None, 3) == ["106", "105", "104"]
    assert await verbs(104, 9) == ["103", "101", "100", "add"]
    assert await verbs(104, 1) == ["103"]


async def test_controllers_are_processes_at_work_of_jobs_that_may(desk: Desk, path: Path) -> None:
    """Whose pid and start are both known."""
    for job, control in (("may", True), ("may-not", False)):
        await desk.add(make_definition(job, manual=True, control=control))
    rows: list[tuple[str, dict[str, Any]]] = [
        ("may", {"state": "running", "pid": 1, "pid_ticks": 11}),
        ("may", {"state": "recovering", "pid": 2, "pid_ticks": 12}),
        ("may", {"state": "running", "pid": 3}),
        ("may", {"state": "running", "pid_ticks": 14}),
        ("may-not", {"state": "running", "pid": 5, "pid_ticks": 15}),
    ]
    for number, (job, columns) in enumerate(rows):
        put_run(path, job, str(number), **AT_WORK, **columns)

    assert await desk.store.controllers() == {1: 11}


async def test_counts_are_of_what_is_there(jobs: Desk, path: Path) -> None:
    """Unfinished runs by state, jobs by status, claims by group; nothing of what ended or was removed."""
    for job in ("a", "b"):
        for state in (*UNFINISHED, "failed", "skipped"):
            put_run(path, job, state, state=state, **AT_WORK)
    await jobs.pause(JobId("a"))

    counts = await jobs.store.counts()

    assert counts.runs == dict.fromkeys(UNFINISHED, 2)
    assert counts.jobs == {"active": 4, "paused": 1}
    assert await jobs.store.claimed_in_group("g") == 2


async def test_jobs_are_known_by_where_they_come_from_and_what_they_have(desk: Desk) -> None:
    """Files, the API, a problem, somebody to tell; none of them of a job that was removed."""
    ping = {"failure": "https://alerts.example/down"}
    for name in ("b", "a", "gone"):
        await desk.add(make_definition(f"file-{name}"), file=f"{name}.toml")
        await desk.add(make_definition(f"api-{name}"), origin=Origin.API, file=None)
        await desk.add(make_definition(f"broken-{name}"), file="broken.toml")
        await desk.add(make_definition(f"tells-{name}", ping=ping), file="tells.toml")
        await desk.store.set_problem(JobId(f"broken-{name}"), "broken", "why")
    for kind in ("file", "broken", "tells"):
        await desk.remove(JobId(f"{kind}-gone"))
    await desk.remove(JobId("api-gone"), origin=Origin.API)
    ids = [JobId(f"{kind}-{name}") for kind in ("api", "file") for name in ("a", "b", "gone")]

    files = {job: file for job, (file, _) in (await desk.store.file_definitions()).items()}
    assert files == {
        **{f"file-{name}": f"{name}.toml" for name in ("a", "b")},
        **{f"broken-{name}": "broken.toml" for name in ("a", "b")},
        **{f"tells-{name}": "tells.toml" for name in ("a", "b")},
    }
    assert await desk.store.api_ids(ids) == {"api-a", "api-b"}
    assert await desk.store.api_ids(ids[1:]) == {"api-b"}
    assert [job.id for job in await desk.store.broken_jobs()] == ["broken-a", "broken-b"]
    telling = [job.id for job in await desk.store.telling_jobs(after=None, limit=9)]
    assert telling == ["tells-a", "tells-b"]
    assert [job.id for job in await desk.store.telling_jobs(after=None, limit=1)] == ["tells-a"]
    assert [job.id for job in await desk.store.telling_jobs(after=JobId("tells-a"), limit=9)] == ["tells-b"]
