"""The store read without its daemon: nothing is made, moved or written, and what is not ours is refused."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from scheduler.errors import Conflict, Forbidden, NotFound, StoreRefused
from scheduler.model.jobs import JobId
from scheduler.store import offline
from scheduler.store.offline import OfflineStore, back_up, store_exists, store_facts, store_faults
from scheduler.store.sqlite import FILE_NAME, SqliteStore
from tests.support.builders import make_definition
from tests.support.clock import FakeClock
from tests.support.desk import Desk
from tests.support.tables import write


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Desk]:
    """An open store in `tmp_path` with one job, as beside a living daemon."""
    clock = FakeClock()
    store = await SqliteStore.open(tmp_path / FILE_NAME, clock)
    desk = Desk(store, clock)
    await desk.add(make_definition("a"))
    yield desk
    await store.close()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def ids(state: Path) -> list[str]:
    store = await OfflineStore.open(state)
    try:
        return [job.id for job in await store.jobs(after=None, limit=10)]
    finally:
        await store.close()


async def test_what_has_committed_is_seen_beside_the_writer(served: Desk, tmp_path: Path) -> None:
    """Every look sees the commits before it; the writer goes on."""
    assert await ids(tmp_path) == ["a"]

    await served.add(make_definition("b"))

    assert await ids(tmp_path) == ["a", "b"]
    assert (await served.store.job(JobId("b"))).job.id == "b"


async def test_a_closed_store_is_read_without_side_files(served: Desk, tmp_path: Path) -> None:
    """SQLite alone would leave an empty log and its index behind."""
    await served.store.close()
    before = names(tmp_path)
    assert before == [FILE_NAME]

    assert await ids(tmp_path) == ["a"]

    assert names(tmp_path) == before


async def test_a_log_without_its_index_is_read_too(served: Desk, tmp_path: Path) -> None:
    """A copy of database and log, as a snapshot holds them, needs no index and gets none."""
    copied = tmp_path / "copy"
    copied.mkdir()
    for suffix in ("", "-wal"):
        (copied / f"{FILE_NAME}{suffix}").write_bytes((tmp_path / f"{FILE_NAME}{suffix}").read_bytes())

    assert await ids(copied) == ["a"]
    assert names(copied) == [FILE_NAME, f"{FILE_NAME}-wal"]


async def test_nothing_can_be_written(served: Desk, tmp_path: Path) -> None:
    """The connection itself refuses."""
    store = await OfflineStore.open(tmp_path)
    try:
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            await store._connection.run(lambda db: db.execute("DELETE FROM jobs"))  # noqa: SLF001
    finally:
        await store.close()


async def test_an_absent_store_is_not_found_and_not_made(tmp_path: Path) -> None:
    """Neither the file nor the directory."""
    absent = tmp_path / "absent"

    assert not store_exists(absent)
    with pytest.raises(NotFound):
        await OfflineStore.open(absent)
    assert not absent.exists()


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("PRAGMA user_version = 99", "schema 99"),
        ("PRAGMA user_version = 2", "schema 2, this schedctl reads 3"),
        ("PRAGMA application_id = 7", "no schedulerd database"),
    ],
)
async def test_other_versions_and_other_files_are_refused(
    served: Desk, tmp_path: Path, statement: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Newer, older and foreign databases are told apart and left as they are."""
    monkeypatch.setattr(offline, "migrations", lambda: ["", "", ""])
    await served.store.close()
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as db:
        db.execute(statement)
    before = (tmp_path / FILE_NAME).read_bytes()

    with pytest.raises(StoreRefused, match=words):
        await OfflineStore.open(tmp_path)

    assert (tmp_path / FILE_NAME).read_bytes() == before


async def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    """Garbage is named as such."""
    (tmp_path / FILE_NAME).write_bytes(b"garbage " * 1_000)

    with pytest.raises(StoreRefused, match="not a usable"):
        await OfflineStore.open(tmp_path)


async def test_a_symbolic_link_is_no_store(served: Desk, tmp_path: Path) -> None:
    """Whoever may write the directory could point it anywhere."""
    other = tmp_path / "other"
    other.mkdir()
    (other / FILE_NAME).symlink_to(tmp_path / FILE_NAME)

    with pytest.raises(StoreRefused, match="symbolic link"):
        await OfflineStore.open(other)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
async def test_a_closed_file_is_forbidden(served: Desk, tmp_path: Path) -> None:
    """Who may not read it is told so."""
    (tmp_path / FILE_NAME).chmod(0)

    with pytest.raises(Forbidden):
        await OfflineStore.open(tmp_path)


async def test_a_backup_is_one_whole_private_file(served: Desk, tmp_path: Path) -> None:
    """Taken beside the writer, it opens as a store with everything that had committed."""
    target = tmp_path / "made" / "b.db"
    target.parent.mkdir()

    size = back_up(tmp_path, target)

    assert names(target.parent) == ["b.db"]
    assert (target.stat().st_mode & 0o777, target.stat().st_size) == (0o600, size)
    restored = tmp_path / "restored"
    restored.mkdir()
    target.rename(restored / FILE_NAME)
    again = await SqliteStore.open(restored / FILE_NAME, FakeClock())
    assert [job.id for job in await again.jobs(after=None, limit=10)] == ["a"]
    await again.close()


async def test_a_backup_replaces_nothing(served: Desk, tmp_path: Path) -> None:
    """An existing file, and a link that leads nowhere, stay as they are."""
    target = tmp_path / "b.db"
    target.write_text("precious")
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "elsewhere")

    for taken in (target, link):
        with pytest.raises(Conflict):
            back_up(tmp_path, taken)

    assert target.read_text() == "precious"
    assert not (tmp_path / "elsewhere").exists()
    assert not [name for name in names(tmp_path) if name.endswith(".new")]


async def test_facts_tell_the_id_and_the_unfinished_runs(served: Desk, tmp_path: Path) -> None:
    """What `doctor` holds against the processes of the machine."""
    await served.add(make_definition())
    run = await served.fired()
    await served.store.see_wall()

    facts = store_facts(tmp_path)

    assert facts.store_id == served.store.store_id
    assert facts.unfinished == {run.id: "running"}
    assert facts.wall_seen == served.clock.now()
    assert store_faults(tmp_path) == []


async def test_every_state_in_which_a_run_has_not_ended_is_a_fact(served: Desk, tmp_path: Path) -> None:
    """A run that has ended, or never was one, is none of them."""
    unfinished = ("queued", "running", "recovering", "waiting", "held")
    for state in (*unfinished, "succeeded", "skipped"):
        await served.add(make_definition(state, manual=True))
        run = (await served.start(JobId(state))).run
        statement = "UPDATE runs SET state = :state, ready_at = 1, id = :state WHERE id = :id"
        write(tmp_path / FILE_NAME, statement, state=state, id=run.id)

    assert store_facts(tmp_path).unfinished == {state: state for state in unfinished}


async def test_a_damaged_store_has_faults(served: Desk, tmp_path: Path) -> None:
    """SQLite's own check finds a page that was overwritten."""
    for number in range(200):
        await served.add(make_definition(f"job-{number}"))
    await served.store.close()
    path = tmp_path / FILE_NAME
    data = bytearray(path.read_bytes())
    with closing(sqlite3.connect(path)) as db:
        root = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'runs_history'").fetchone()[0]
        size = db.execute("PRAGMA page_size").fetchone()[0]
    begin = (root - 1) * size
    data[begin : begin + size] = b"\xff" * size
    path.write_bytes(data)

    assert store_faults(tmp_path)
