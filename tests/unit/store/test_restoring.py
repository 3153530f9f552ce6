"""A backup comes back whole, the store before it is kept, and nothing is in between."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from scheduler.errors import Conflict, NotFound, StoreRefused
from scheduler.store.offline import back_up
from scheduler.store.restoring import restore
from scheduler.store.schema import migrations, prepare
from scheduler.store.sqlite import FILE_NAME
from scheduler.store.statelock import StateLock
from tests.support.builders import make_definition
from tests.support.clock import FakeClock
from tests.support.desk import Desk
from tests.support.stores import dump, sqlite_store

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root acts for others")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    path = tmp_path / "state"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
async def backup(state: Path, tmp_path: Path) -> AsyncIterator[Path]:
    """A backup with the job `before`; the store has `after` too."""
    made = tmp_path / "backup.db"
    async with sqlite_store(state / FILE_NAME, FakeClock()) as store:
        desk = Desk(store, FakeClock())
        await desk.add(make_definition("before"))
        back_up(state, made)
        await desk.add(make_definition("after"))
    yield made  # noqa: PT022 - an async fixture that returns would be a coroutine


def jobs(path: Path) -> list[str]:
    return [row["id"] for row in dump(path)["jobs"]]


async def test_a_backup_takes_the_place_of_the_store(state: Path, backup: Path) -> None:
    """The store is what the backup holds, private and in one file; the one before lies beside it."""
    done = restore(backup, state)

    path = state / FILE_NAME
    assert done.kept == path.with_name(f"{FILE_NAME}.replaced-1")
    assert (done.bytes, path.stat().st_mode & 0o777) == (path.stat().st_size, 0o600)
    assert jobs(path) == ["before"]
    assert sorted(jobs(done.kept)) == ["after", "before"]
    assert {entry.name for entry in state.iterdir()} == {FILE_NAME, done.kept.name, "schedulerd.lock"}
    async with sqlite_store(path, FakeClock()) as store:
        assert [job.id for job in await store.jobs(after=None, limit=9)] == ["before"]


async def test_what_was_kept_can_be_restored_in_turn(state: Path, backup: Path) -> None:
    """A mistaken restore is undone by another one; no kept store is ever written over."""
    kept = restore(backup, state).kept
    assert kept is not None

    again = restore(kept, state).kept

    assert sorted(jobs(state / FILE_NAME)) == ["after", "before"]
    assert again is not None
    assert again.name.endswith(".replaced-2")
    assert sorted(jobs(kept)) == ["after", "before"]


def test_a_store_that_died_is_kept_with_its_log(state: Path, backup: Path) -> None:
    """What had committed, but stood in the write-ahead log alone, is in the kept store, and comes back."""
    path = state / FILE_NAME
    script = textwrap.dedent("""
        import os, signal, sqlite3, sys
        db = sqlite3.connect(sys.argv[1], isolation_level=None)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("INSERT INTO meta (name, value) VALUES ('in the log', 1)")
        os.kill(os.getpid(), signal.SIGKILL)
    """)
    subprocess.run([sys.executable, "-c", script, path], check=False)
    assert path.with_name(f"{FILE_NAME}-wal").stat().st_size

    kept = restore(backup, state).kept

    assert kept is not None
    assert kept.with_name(f"{kept.name}-wal").exists()
    assert not path.with_name(f"{FILE_NAME}-wal").exists()
    assert jobs(path) == ["before"]
    restore(kept, state)
    assert "in the log" in {row["name"] for row in dump(path)["meta"]}


def test_a_damaged_store_is_replaced(state: Path, backup: Path) -> None:
    """What cannot be opened any more is no obstacle, and is kept as it is."""
    path = state / FILE_NAME
    path.write_bytes(b"\0" * 5_000)
    path.with_name(f"{FILE_NAME}-open").touch()

    kept = restore(backup, state).kept

    assert kept is not None
    assert kept.read_bytes() == b"\0" * 5_000
    assert prepare(path) is None


def test_into_a_directory_without_a_store(backup: Path, tmp_path: Path) -> None:
    """On another machine there is nothing to keep."""
    other = tmp_path / "other"
    other.mkdir(mode=0o700)

    assert restore(backup, other).kept is None
    assert jobs(other / FILE_NAME) == ["before"]


def test_while_a_daemon_has_the_directory_nothing_is_done(state: Path, backup: Path) -> None:
    """The lock of the state directory decides; who holds it is told."""
    lock = StateLock.take(state)
    try:
        with pytest.raises(Conflict, match=f"pid {os.getpid()}"):
            restore(backup, state)
    finally:
        lock.release()

    assert sorted(jobs(state / FILE_NAME)) == ["after", "before"]


def newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {len(migrations()) + 1}")


def foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA application_id = 7")


def torn(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096 * 3 : 4096 * 6] = os.urandom(4096 * 3)
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:9_000])


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("spoil", [newer, foreign, torn, cut, empty], ids=lambda spoil: spoil.__name__)
def test_what_is_no_whole_store_of_ours_is_refused(state: Path, backup: Path, spoil: object) -> None:
    """I14: the backup is checked before anything moves: the store stays, nothing is left beside it."""
    assert callable(spoil)
    spoil(backup)
    before = (state / FILE_NAME).read_bytes()

    with pytest.raises(StoreRefused) as refused:
        restore(backup, state)

    assert str(backup) in refused.value.message
    assert (state / FILE_NAME).read_bytes() == before
    assert {entry.name for entry in state.iterdir()} == {FILE_NAME, "schedulerd.lock"}


def test_a_backup_that_others_can_write_is_refused(state: Path, backup: Path) -> None:
    """A store says what is run: whose hands the backup was in is looked at as with a job file."""
    backup.chmod(0o666)

    with pytest.raises(StoreRefused, match="may be written by everybody: chmod o-w"):
        restore(backup, state)

    assert sorted(jobs(state / FILE_NAME)) == ["after", "before"]


def test_what_is_not_there_is_told(state: Path, tmp_path: Path) -> None:
    """Neither a missing file nor a missing directory is made."""
    with pytest.raises(NotFound, match="no file"):
        restore(tmp_path / "none", state)
    with pytest.raises(NotFound, match="no state directory"):
        restore(tmp_path / "none", tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


STEPS = 4
"""Renames of a restore whose store has a log: the copy, the log, the store, the copy again."""


@pytest.mark.parametrize("step", range(1, STEPS + 1))
def test_a_restore_that_is_killed_is_ended_by_the_same_command(state: Path, backup: Path, step: int) -> None:
    """Before each rename a kill leaves the old store, or a daemon that refuses; never an empty store."""
    path = state / FILE_NAME
    path.with_name(f"{FILE_NAME}-wal").touch()
    script = textwrap.dedent("""
        import os, pathlib, signal, sys
        from scheduler.store import restoring
        left, rename = int(sys.argv[3]), pathlib.Path.rename
        def dying(self, target):
            global left
            if self.exists():
                left -= 1
                if left == 0: os.kill(os.getpid(), signal.SIGKILL)
            return rename(self, target)
        pathlib.Path.rename = dying
        restoring.restore(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
    """)
    killed = subprocess.run([sys.executable, "-c", script, backup, state, str(step)], check=False)
    assert killed.returncode == -9

    if step == 1:
        assert not path.with_name(f"{FILE_NAME}.restoring").exists()
    else:
        with pytest.raises(StoreRefused, match="did not end"):
            prepare(path)
    restore(backup, state)

    assert jobs(path) == ["before"]
    kept = path.with_name(f"{FILE_NAME}.replaced-1")
    assert {entry.name for entry in state.iterdir()} == {
        FILE_NAME,
        kept.name,
        f"{kept.name}-wal",
        "schedulerd.lock",
    }
    assert sorted(jobs(kept)) == ["after", "before"]
    assert prepare(path) is None


@as_root
def test_root_restores_for_the_daemons_user(state: Path, backup: Path) -> None:
    """The files are the user's, who could not open them otherwise; a backup that only root reads will do."""
    with tempfile.TemporaryDirectory(prefix="sd-") as folder:  # the folder of the tests is closed to others
        Path(folder).chmod(0o755)
        theirs = state.rename(Path(folder) / "state")
        for entry in (theirs, *theirs.iterdir()):
            os.chown(entry, 65534, 65534)

        kept = restore(backup, theirs).kept

        assert kept is not None
        for path in (theirs / FILE_NAME, kept):
            assert (path.stat().st_uid, path.stat().st_gid) == (65534, 65534)
    assert os.geteuid() == 0
