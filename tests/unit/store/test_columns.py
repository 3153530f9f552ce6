"""The columns that only the SQL reads: an edit and a return reach each of them, and no old value stays."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from scheduler.clock import DAY, HOUR, SECOND
from scheduler.errors import SchedulerError
from scheduler.model.jobs import JobId, Origin
from scheduler.rules.reconcile import Ending
from scheduler.store.keyed import RecordedAnswer, RequestKey
from scheduler.store.sqlite import FILE_NAME
from scheduler.store.values import ChangeKind, DefinitionChange, Peer
from tests.support.builders import JOB, make_definition
from tests.support.clock import FakeClock
from tests.support.desk import Desk
from tests.support.stores import dump, sqlite_store

OTHER: dict[str, Any] = {
    "every": HOUR,
    "group": "g",
    "max_running": 3,
    "priority": 7,
    "enabled": False,
    "overlap": "allow",
    "ping": {"failure": "https://alerts.example/down"},
}
OWN = {"id", "definition_revision", "added_revision", "revision"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / FILE_NAME


@pytest.fixture
async def desk(path: Path) -> AsyncIterator[Desk]:
    clock = FakeClock()
    async with sqlite_store(path, clock) as store:
        yield Desk(store, clock)


def jobs(path: Path) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in dump(path)["jobs"]}


def but(row: dict[str, Any], *left_out: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in OWN | set(left_out)}


async def test_an_edit_reaches_every_column(desk: Desk, path: Path) -> None:
    """A job that was edited has the same columns as one that was added so."""
    await desk.add(make_definition(manual=True))
    before = jobs(path)[JOB]["revision"]
    await desk.edit(make_definition(**OTHER), file="other.toml")
    await desk.add(make_definition("new", **OTHER), file="other.toml")

    rows = jobs(path)
    assert but(rows[JOB]) == but(rows["new"])
    assert rows[JOB]["revision"] == rows[JOB]["definition_revision"] > before


async def test_a_return_reaches_every_column(desk: Desk, path: Path) -> None:
    """A job that was removed, and is added otherwise, has the same columns as one that never was there."""
    await desk.add(make_definition(max_failures=1))
    await desk.crash(await desk.fired())
    await desk.finish(await desk.fired(), Ending.FAILED)
    await desk.store.set_problem(JOB, "broken", "gone")
    await desk.remove()
    tombstone = jobs(path)[JOB]
    await desk.add(make_definition(**OTHER), origin=Origin.API, file=None)
    await desk.add(make_definition("new", **OTHER), origin=Origin.API, file=None)

    rows = jobs(path)
    assert tombstone["removed_at"] == desk.clock.now()
    assert {name: tombstone[name] for name in ("held_from", "next_fire_at", "due_at")} == {
        "held_from": None,
        "next_fire_at": None,
        "due_at": None,
    }
    assert but(rows[JOB], "last_fire_at") == but(rows["new"], "last_fire_at")
    revisions = {rows[JOB][name] for name in ("revision", "definition_revision", "added_revision")}
    assert len(revisions) == 1
    assert min(revisions) > tombstone["revision"] == tombstone["definition_revision"]


async def test_a_return_changes_no_other_job(desk: Desk, path: Path) -> None:
    """Counters and problem of a neighbour are its own."""
    await desk.add(make_definition())
    await desk.add(make_definition("other"))
    other = JobId("other")
    await desk.finish(await desk.fired(other), Ending.FAILED)
    await desk.store.set_problem(other, "broken", "gone")
    await desk.remove()
    before = jobs(path)["other"]

    await desk.add(make_definition())

    assert jobs(path)["other"] == before


def keyed(peer: Peer, key: str) -> Peer:
    def answer(_: object) -> RecordedAnswer:
        return RecordedAnswer(status=200, headers={}, body="{}")

    return Peer(
        uid=peer.uid,
        gid=peer.gid,
        pid=peer.pid,
        command=peer.command,
        key=RequestKey(key=key, request="digest", answer=answer),
    )


async def test_answers_go_a_day_later_the_oldest_first_a_hundred_at_a_time(desk: Desk, path: Path) -> None:
    """What has expired is deleted with the next answer, in bounded steps; what has not stays."""
    await desk.add(make_definition())
    plain = desk.peer
    for number in range(103):
        desk.peer = keyed(plain, f"k{number:03}")
        await desk.store.skip_next(JOB, 1, desk.peer)
        desk.clock.move(SECOND)
    desk.clock.move(DAY - 2 * SECOND)

    desk.peer = keyed(plain, "next")
    await desk.store.skip_next(JOB, 1, desk.peer)

    kept = [row["key"] for row in dump(path)["answers"]]
    assert sorted(kept) == ["k100", "k101", "k102", "next"]

    desk.peer = keyed(plain, "last")
    desk.clock.move(-SECOND)
    await desk.store.skip_next(JOB, 1, desk.peer)
    assert sorted(row["key"] for row in dump(path)["answers"]) == ["k101", "k102", "last", "next"]


async def test_an_answer_counts_until_the_moment_that_it_is_asked_after(desk: Desk) -> None:
    """A day old is too old, to the microsecond."""
    await desk.add(make_definition())
    peer = keyed(desk.peer, "k")
    await desk.store.skip_next(JOB, 1, peer)
    at = desk.clock.now()

    assert await desk.store.answered(peer.uid, "k", at - 1) is not None
    assert await desk.store.answered(peer.uid, "k", at) is None


async def test_only_a_job_from_a_file_moves_to_another(desk: Desk, path: Path) -> None:
    """One that was made through the API, or was removed, has no file to move from."""
    await desk.add(make_definition("made"), origin=Origin.API, file=None)
    await desk.add(make_definition("gone"))
    await desk.remove(JobId("gone"))
    before = jobs(path)

    for job in ("made", "gone"):
        change = DefinitionChange(
            kind=ChangeKind.MOVE, job_id=JobId(job), origin=Origin.FILE, origin_file="b.toml", peer=desk.peer
        )
        with suppress(SchedulerError):
            await desk.store.apply([change])

    assert jobs(path) == before


async def test_a_paused_job_that_is_removed_holds_nothing_back(desk: Desk, path: Path) -> None:
    """The tombstone has the pause, and no slot."""
    await desk.add(make_definition())
    await desk.pause()
    assert jobs(path)[JOB]["held_from"] is not None

    await desk.remove()

    assert (jobs(path)[JOB]["held_from"], jobs(path)[JOB]["status"]) == (None, "paused")
