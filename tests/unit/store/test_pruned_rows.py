"""Which rows leave the history, among rows of every state, of several jobs, with items and without."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from scheduler.model.jobs import JobId, Retention
from scheduler.model.runs import RunId
from tests.support.builders import make_definition
from tests.support.desk import Desk
from tests.support.tables import changed, put_run, rows_of, write

ENDED = ("succeeded", "partial", "failed", "cancelled", "crashed", "interrupted")
GOES = [*(f"b-{state}" for state in ENDED), "b-with-done"]


class History:
    """Rows of runs as they are written, oldest first."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._moments = count(1)

    def run(self, job: str, state: str, name: str = "") -> str:
        """A run of the job in this state: its id. What ended did so later than all runs before it."""
        ended = next(self._moments) if state in ENDED else None
        skipped = next(self._moments) if state == "skipped" else None
        run = f"{job}-{name or state}"
        moments = {"finished_at": ended, "fire_time_last": skipped, "ready_at": 1}
        return put_run(self._path, job, id=run, state=state, **moments)

    def item(self, run: str, seq: int, state: str) -> None:
        """An item of the run."""
        write(
            self._path,
            """INSERT INTO items (run, seq, key, payload, state, nonce, claim)
            VALUES (:run, :seq, :seq, '0', :state, 'n', 1)""",
            run=run,
            seq=seq,
            state=state,
        )


@pytest.fixture
async def history(desk: Desk, path: Path) -> History:
    """Of job `b` rows in every state, then two more that ended and a skip; beside it newer runs of others."""
    for job in ("a", "b", "c"):
        await desk.add(make_definition(job, manual=True))
    written = History(path)
    for state in (*ENDED, "queued", "waiting", "held"):
        written.run("b", state)
    written.item(written.run("b", "succeeded", "with-done"), 1, "done")
    written.item(written.run("b", "partial", "with-unknown"), 1, "unknown")
    written.run("b", "skipped", "skip")
    for name in ("last-but-one", "last"):
        written.run("b", "succeeded", name)
    written.run("b", "skipped", "later-skip")
    for job in ("a", "c"):
        written.item(written.run(job, "partial"), 1, "unknown")
        written.run(job, "queued")
    return written


async def test_by_count_goes_what_ended_beyond_the_newest(desk: Desk, history: History) -> None:
    """Oldest first; neither skips nor unfinished runs, nor one with an item in doubt, go or count."""
    found, _ = await desk.store.surplus(Retention(runs_per_job=2, before=None), after="", limit=99)

    assert found == GOES


async def test_of_named_jobs_goes_what_they_do_not_keep(desk: Desk, history: History) -> None:
    """By their own number; what others have too much of is not looked at."""
    for job in ("b", "a"):
        await desk.edit(make_definition(job, manual=True, keep_runs=2))
    for name in ("first", "second", "third"):
        history.run("a", "succeeded", name)
    kept = Retention(runs_per_job=None, before=None)

    assert await desk.store.surplus_of(kept, [JobId("b")], limit=99) == GOES
    assert await desk.store.surplus_of(kept, [JobId("b"), JobId("c")], limit=3) == GOES[:3]


async def test_by_age_goes_all_that_is_old_but_the_newest_executed_run(desk: Desk, history: History) -> None:
    """Skips too, by the last fire time that they tell of; the walk ends at the first row that is young."""
    young = history.run("b", "succeeded", "young")
    found, _ = await desk.store.surplus(Retention(runs_per_job=None, before=14), after="a", limit=99)

    assert found == [*GOES, "b-skip", "b-last-but-one", "b-last", "b-later-skip"]
    assert young not in found


async def test_by_age_a_skip_is_as_old_as_its_last_fire_time(desk: Desk, history: History) -> None:
    """It stays as long as that, and all that came after it."""
    found, _ = await desk.store.surplus(Retention(runs_per_job=None, before=9), after="a", limit=99)

    assert found == GOES


async def test_by_age_a_later_skip_does_not_let_the_last_run_go(desk: Desk, history: History) -> None:
    """The newest executed run of the job stays, however many skips and runs of others are newer."""
    found, _ = await desk.store.surplus(Retention(runs_per_job=None, before=99), after="a", limit=99)

    assert found == [*GOES, "b-skip", "b-last-but-one", "b-later-skip"]


async def test_only_what_ended_is_deleted(desk: Desk, path: Path, history: History) -> None:
    """Also if more is asked for; a skip may go, a run with an item in doubt may not."""
    before = rows_of(path)
    runs = [RunId(key[1]) for key in before if key[0] == "runs"]

    gone = await desk.store.prune(runs)

    expected = [*GOES, "b-skip", "b-last-but-one", "b-last", "b-later-skip"]
    assert gone == len(expected)
    told = changed(before, rows_of(path))
    assert {key[1] for key, row in told.items() if key[0] == "runs" and row is None} == set(expected)
    assert {key[1] for key, row in told.items() if key[0] == "pruned" and row is not None} == set(expected)
    assert len(told) == 2 * len(expected)


async def test_what_belongs_to_a_pruned_run_goes_in_steps(desk: Desk, path: Path, history: History) -> None:
    """In the order of the ids; its items alone, a bounded number at a time; then it is forgotten alone."""
    for seq in (2, 3):
        history.item("b-with-done", seq, "done")
    for seq in range(5):
        history.item("a-first", seq, "done")
    runs = [RunId(history.run("a", "succeeded", name)) for name in ("third", "first", "second")]
    await desk.store.prune([*runs, RunId("b-with-done")])
    before = rows_of(path)

    assert await desk.store.pruned(limit=2) == ["a-first", "a-second"]
    await desk.store.clear([RunId("b-with-done")], limit=2)
    assert changed(before, rows_of(path)) == {("items", "b-with-done", seq): None for seq in ("1", "2")}
    await desk.store.clear([RunId("b-with-done"), RunId("a-third")], limit=2)

    gone = {key for key, row in changed(before, rows_of(path)).items() if row is None}
    assert gone == {
        *(("items", "b-with-done", seq) for seq in ("1", "2", "3")),
        *(("pruned", run) for run in ("b-with-done", "a-third")),
    }


async def test_the_newest_ten_thousand_changes_stay(desk: Desk, path: Path) -> None:
    """The older ones go, the oldest first, a bounded number at a time."""
    for seq in (1, 2, 3, 4, 5, 10_004):
        write(path, "INSERT INTO changes (seq, kind, id) VALUES (:seq, 'pause', 'a')", seq=seq)

    steps = [await desk.store.prune_records(None, limit=3) for _ in range(3)]

    assert steps == [3, 1, 0]
    left = [key[1] for key in rows_of(path, without=frozenset()) if key[0] == "changes"]
    assert left == ["5", "10004"]


async def test_each_removed_job_goes_for_its_own_sake(desk: Desk, path: Path) -> None:
    """Older than the bound, without a run or a pause; others say nothing of it, and steps are bounded."""
    written = History(path)
    for job in ("gone", "gone-too", "live", "paused", "ran", "young"):
        await desk.add(make_definition(job, manual=True))
    runs = [written.run(job, "succeeded") for job in ("live", "ran")]
    await desk.pause(JobId("paused"))
    for job in ("gone", "gone-too", "paused", "ran", "young"):
        await desk.remove(JobId(job))
        write(path, "UPDATE jobs SET removed_at = :at WHERE id = :id", at=9 if job == "young" else 8, id=job)

    found, _ = await desk.store.surplus(Retention(runs_per_job=None, before=9), after="", limit=99)
    steps = [await desk.store.prune_records(9, limit=1) for _ in range(3)]

    assert found == runs[1:]
    assert steps == [1, 1, 0]
    left = rows_of(path)
    for table in ("jobs", "definitions"):
        assert [key[1] for key in left if key[0] == table] == ["live", "paused", "ran", "young"]
