"""Stores of every schema that was released are upgraded, with everything that was in them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from scheduler.model.jobs import JobId, JobStatus
from scheduler.model.runs import RunState
from scheduler.store.schema import migrations, prepare
from scheduler.store.sqlite import FILE_NAME
from tests.support.clock import FakeClock
from tests.support.desk import Desk
from tests.support.sample import FOLDER, loaded
from tests.support.stores import sqlite_store

SAMPLES = sorted(FOLDER.glob("schema-*.sql"))


def schema_of(path: Path) -> dict[str, str]:
    """Every table and index, in the words of its definition, white space and comments aside."""
    query = "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'"
    with closing(sqlite3.connect(path)) as db:
        found = db.execute(query).fetchall()
    return {name: " ".join(line.partition("--")[0] for line in sql.split("\n")) for name, sql in found}


def columns_of(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Every table with its columns: name, type, whether it may be null, default, place in the key."""
    with closing(sqlite3.connect(path)) as db:
        names = [row[0] for row in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        return {
            name: [row[1:] for row in db.execute(f"PRAGMA table_info({name})")]
            for name in names
            if not name.startswith("sqlite_")
        }


def test_every_schema_has_a_sample() -> None:
    """A new migration comes with a sample of the schema that it makes."""
    assert [path.stem for path in SAMPLES] == [f"schema-{n}" for n in range(1, len(migrations()) + 1)]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_an_upgraded_store_is_like_a_new_one(sample: Path, tmp_path: Path) -> None:
    """Whatever the schema it comes from, the tables and indexes are those of a new store.

    For the newest schema this says that its migration was not changed after the sample was taken.
    """
    loaded(sample, tmp_path / "old.db")

    prepare(tmp_path / "old.db")

    prepare(tmp_path / "new.db")
    assert columns_of(tmp_path / "old.db") == columns_of(tmp_path / "new.db")
    assert schema_of(tmp_path / "old.db").keys() == schema_of(tmp_path / "new.db").keys()


def test_the_newest_sample_is_word_for_word_the_newest_schema(tmp_path: Path) -> None:
    """A migration that was changed after its sample was taken is red here (`tests.support.sample`)."""
    loaded(SAMPLES[-1], tmp_path / "old.db")
    prepare(tmp_path / "new.db")

    assert schema_of(tmp_path / "old.db") == schema_of(tmp_path / "new.db")


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
async def test_an_upgraded_store_goes_on_working(sample: Path, tmp_path: Path) -> None:
    """Definitions, pause, history and claims are there; jobs fire, resume, and end what they had begun."""
    path = tmp_path / FILE_NAME
    loaded(sample, path)
    clock = FakeClock()
    clock.step(2 * 3_600_000_000)
    async with sqlite_store(path, clock) as store:
        desk = Desk(store, clock)
        jobs = {job.id: job for job in await store.jobs(after=None, limit=9)}
        assert set(jobs) == {"minutely", "paused", "narrate"}
        pause = jobs[JobId("paused")].pause
        assert jobs[JobId("paused")].status is JobStatus.PAUSED
        assert pause is not None
        assert pause.reason == "operator"
        states = [run.state for run in await desk.executed(JobId("minutely"))]
        assert states == [RunState.SUCCEEDED, RunState.FAILED, RunState.RUNNING]

        live = [run for run in await desk.runs(None) if run.state is RunState.RUNNING]
        for run in live:
            await desk.crash(run)
        await desk.resume(JobId("paused"))
        fired = await desk.fired(JobId("minutely"))
        await desk.finish(fired)

        assert (await desk.run(fired)).state is RunState.SUCCEEDED
        assert (await desk.job(JobId("paused"))).status is JobStatus.ACTIVE
