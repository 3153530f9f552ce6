from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from scheduler.errors import SchedulerError, StoreRefused, StoreUnavailable
from scheduler.store import schema
from scheduler.store.schema import APPLICATION_ID, load_queries, migrations, prepare
from tests.support.stores import dump


def pragma(path: Path, name: str) -> int:
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute(f"PRAGMA {name}").fetchone()[0])


def execute(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for statement in statements:
            db.execute(statement)


# --- a new store ---
def test_a_new_store_is_whole_and_ours(path: Path) -> None:
    """The file has our application id, the newest schema, an id of its own, and is its owner's alone."""
    prepare(path)

    assert pragma(path, "application_id") == APPLICATION_ID
    assert pragma(path, "user_version") == len(migrations())
    assert len(dump(path)["meta"]) == 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_preparing_again_changes_nothing(path: Path) -> None:
    """A store that has the newest schema is left as it is."""
    prepare(path)
    before = path.read_bytes()

    prepare(path)

    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_two_stores_differ(tmp_path: Path) -> None:
    """Each store has a random id."""
    for name in ("a", "b"):
        prepare(tmp_path / name)

    assert dump(tmp_path / "a")["meta"] != dump(tmp_path / "b")["meta"]


def test_a_failure_during_creation_leaves_no_half_store(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be made whole is not there at all, and the next start makes it anew."""
    with monkeypatch.context() as patch:
        patch.setattr(schema, "migrations", lambda: [*migrations(), "CREATE TABLE broken ("])
        with pytest.raises(StoreRefused):
            prepare(path)
    assert list(path.parent.iterdir()) == []

    prepare(path)

    assert pragma(path, "user_version") == len(migrations())


def test_a_kill_during_creation_leaves_no_half_store(path: Path) -> None:
    """A process that is killed at any step of the creation leaves nothing that the next start trips over."""
    script = textwrap.dedent("""
        import os, signal, sqlite3, sys
        from pathlib import Path
        from scheduler.store import schema
        steps = int(sys.argv[2])
        class Connection(sqlite3.Connection):
            def execute(self, *a):
                self.step(); return super().execute(*a)
            def executescript(self, *a):
                self.step(); return super().executescript(*a)
            def step(self):
                global steps
                if steps == 0: os.kill(os.getpid(), signal.SIGKILL)
                steps -= 1
        connect = sqlite3.connect
        sqlite3.connect = lambda *a, **k: connect(*a, factory=Connection, **k)
        schema.prepare(Path(sys.argv[1]))
    """)
    for steps in range(3):
        killed = subprocess.run([sys.executable, "-c", script, path, str(steps)], check=False)
        assert killed.returncode == -9
        assert not path.exists()

    prepare(path)

    assert pragma(path, "user_version") == len(migrations())


# --- what is refused ---
def newer(path: Path) -> None:
    prepare(path)
    execute(path, f"PRAGMA user_version = {len(migrations()) + 1}")


def empty(path: Path) -> None:
    path.touch()


def text(path: Path) -> None:
    path.write_text("this is a text that somebody put here\n" * 100)


def foreign(path: Path) -> None:
    execute(path, "PRAGMA application_id = 42", "PRAGMA user_version = 1", "CREATE TABLE theirs (x)")


def unmarked(path: Path) -> None:
    execute(path, "CREATE TABLE jobs (id)")


def unversioned(path: Path) -> None:
    execute(path, f"PRAGMA application_id = {APPLICATION_ID}", "CREATE TABLE jobs (id)")


def damaged_header(path: Path) -> None:
    prepare(path)
    data = bytearray(path.read_bytes())
    data[:100] = os.urandom(100)
    path.write_bytes(data)


def cut_short(path: Path) -> None:
    prepare(path)
    path.write_bytes(path.read_bytes()[:50])


REFUSED = [newer, empty, text, foreign, unmarked, unversioned, damaged_header, cut_short]


@pytest.mark.parametrize("spoil", REFUSED, ids=lambda spoil: spoil.__name__)
def test_a_file_that_is_not_ours_to_open_is_left_untouched(path: Path, spoil: Callable[[Path], None]) -> None:
    """I14: a newer, foreign, empty or damaged file is refused with what to do, and not one byte changes."""
    spoil(path)
    before = path.read_bytes()
    beside = sorted(path.parent.iterdir())

    with pytest.raises(StoreRefused) as refused:
        prepare(path)

    assert path.read_bytes() == before
    assert sorted(path.parent.iterdir()) == beside
    assert str(path) in refused.value.message
    assert refused.value.hint


def test_a_newer_store_with_a_log_is_left_untouched(path: Path) -> None:
    """I14: what a newer daemon left in its write-ahead log when it died stays in the log."""
    newer(path)
    script = textwrap.dedent("""
        import os, signal, sqlite3, sys
        db = sqlite3.connect(sys.argv[1], isolation_level=None)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("INSERT INTO meta (name, value) VALUES ('later', 1)")
        os.kill(os.getpid(), signal.SIGKILL)
    """)
    subprocess.run([sys.executable, "-c", script, path], check=False)
    log = path.with_name(f"{path.name}-wal")
    before = path.read_bytes(), log.read_bytes()
    assert before[1]

    with pytest.raises(StoreRefused, match="knows schemas"):
        prepare(path)

    assert (path.read_bytes(), log.read_bytes()) == before


def test_a_directory_in_the_place_of_the_file_is_refused(path: Path) -> None:
    """What stands there is told."""
    path.mkdir()

    with pytest.raises(StoreRefused, match=str(path)):
        prepare(path)


@pytest.mark.parametrize("missing", ["no folder", "a file as folder"])
def test_a_place_that_takes_no_file_is_refused(tmp_path: Path, missing: str) -> None:
    """Errors of the file system are translated, too: they name the path and what to do."""
    folder = tmp_path / "state"
    if missing == "a file as folder":
        folder.touch()

    with pytest.raises(StoreRefused) as refused:
        prepare(folder / "schedulerd.db")

    assert str(folder) in refused.value.message
    assert refused.value.hint


def test_an_old_sqlite_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that lacks what the schema needs is told before any file is made."""
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 36, 0))

    with pytest.raises(StoreRefused, match=r"3\.37"):
        prepare(path)

    assert not path.exists()


# --- upgrades ---
ADDS = "ALTER TABLE meta ADD COLUMN colour TEXT;"


@pytest.fixture
def upgraded(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """This schedulerd knows one migration more."""
    known = migrations()

    def know(script: str) -> None:
        monkeypatch.setattr(schema, "migrations", lambda: [*known, script])

    return know


def test_an_older_store_is_upgraded_after_a_backup(path: Path, upgraded: Callable[[str], None]) -> None:
    """Before a migration a copy of the store as it was stands beside it, readable by its owner only."""
    prepare(path)
    execute(path, "INSERT INTO meta (name, value) VALUES ('mine', 7)")
    version = pragma(path, "user_version")
    before = dump(path)
    upgraded(ADDS)

    prepare(path)

    assert pragma(path, "user_version") == version + 1
    assert {row["name"] for row in dump(path)["meta"]} == {"store_id", "mine"}
    assert "colour" in dump(path)["meta"][0]
    copy = path.with_name(f"{path.name}.backup-{version}")
    assert dump(copy) == before
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600


def test_a_failed_migration_leaves_the_store_as_it_was(path: Path, upgraded: Callable[[str], None]) -> None:
    """A migration is one transaction: half of it is none of it."""
    prepare(path)
    before = dump(path)
    version = pragma(path, "user_version")
    upgraded(f"{ADDS}\nINSERT INTO nowhere VALUES (1);")

    with pytest.raises(StoreRefused):
        prepare(path)

    assert dump(path) == before
    assert pragma(path, "user_version") == version


def test_an_upgrade_is_tried_again(path: Path, upgraded: Callable[[str], None]) -> None:
    """A backup that an upgrade left which failed does not stand in the way of the next one."""
    prepare(path)
    upgraded("INSERT INTO nowhere VALUES (1);")
    with pytest.raises(StoreRefused):
        prepare(path)
    upgraded(ADDS)

    prepare(path)

    assert "colour" in dump(path)["meta"][0]


def test_an_upgrade_of_a_locked_store_says_so(
    path: Path, upgraded: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else at the file is a passing trouble, not a fault of the file."""
    prepare(path)
    upgraded(ADDS)
    monkeypatch.setattr(schema, "_LOCK_SECONDS", 0.0)

    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable):
            prepare(path)


# --- named queries ---
def test_every_query_can_be_prepared(path: Path) -> None:
    """Each named statement is valid SQL against the schema, with its parameters."""
    prepare(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for name, sql in load_queries().items():
            if name in {
                "begin",
                "commit",
                "rollback",
                "savepoint",
                "release_savepoint",
                "rollback_to_savepoint",
            }:
                continue
            try:
                db.execute(f"EXPLAIN {sql}", _Anything())
            except sqlite3.Error as error:
                pytest.fail(f"{name}: {error}")


class _Anything(dict[str, Any]):
    """A value for every parameter."""

    def __missing__(self, key: str) -> Any:
        return "[]"


def test_a_name_that_stands_twice_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two statements of one name would make one of them unreachable."""
    (tmp_path / "a.sql").write_text(
        "-- name: one\n-- First.\nSELECT 1;\n-- name: two\n-- Second.\nSELECT 2;\n"
    )
    monkeypatch.setattr(schema, "_folder", lambda: tmp_path)
    assert load_queries() == {"one": "-- First.\nSELECT 1", "two": "-- Second.\nSELECT 2"}
    (tmp_path / "b.sql").write_text("-- name: one\n-- Again.\nSELECT 3;\n")

    with pytest.raises(SchedulerError, match="one"):
        load_queries()


# --- the backstops of the schema itself ---
JOB = (
    "INSERT INTO jobs (id, definition_revision, added_revision, revision, origin, enabled, status"
    "{columns}) VALUES ('job', 1, 1, 1, 'file', {enabled}, '{status}'{values})"
)


@pytest.mark.parametrize(
    ("status", "enabled", "columns", "values"),
    [
        ("paused", 1, "", ""),  # a pause without a reason
        ("active", 1, ", pause_reason", ", 'operator'"),  # a reason without a pause
        (
            "paused",
            1,
            ", pause_reason, next_fire_at, due_at",
            ", 'operator', 1, 1",
        ),  # a paused job that is due
        ("active", 0, ", next_fire_at, due_at", ", 1, 1"),  # a disabled job that is due
        ("active", 1, ", next_fire_at, due_at, removed_at", ", 1, 1, 1"),  # a removed job that is due
        ("active", 1, ", next_fire_at", ", 1"),  # a slot without its due moment
        ("asleep", 1, "", ""),
    ],
)
def test_a_job_row_that_contradicts_itself_cannot_be_written(
    path: Path, status: str, enabled: int, columns: str, values: str
) -> None:
    """I4: what every statement is careful about, the table itself refuses."""
    prepare(path)

    with pytest.raises(sqlite3.IntegrityError):
        execute(path, JOB.format(status=status, enabled=enabled, columns=columns, values=values))


RUN = (
    "INSERT INTO runs (id, job, trigger, state, solo, added_revision, fire_time, generation, claim, owner,"
    " lease_until, ready_at) VALUES ({id!r}, 'job', 'schedule', {state!r}, {solo}, 1, {fire_time},"
    " {generation}, {claim}, {owner}, 9, {ready_at})"
)


def run(number: int, **changes: Any) -> str:
    values: dict[str, Any] = {
        "id": f"run-{number}",
        "state": "running",
        "solo": 0,
        "fire_time": number,
        "generation": 0,
        "claim": 1,
        "owner": "'me'",
        "ready_at": "NULL",
    }
    return RUN.format(**{**values, **changes})


def test_one_run_per_fire_time_is_the_tables_own_rule(path: Path) -> None:
    """I1: a second run of a slot is refused; skips, manual runs and other generations stand outside."""
    prepare(path)
    execute(path, run(1))

    with pytest.raises(sqlite3.IntegrityError, match="fire_time"):
        execute(path, run(2, fire_time=1))
    execute(
        path,
        run(3, fire_time=1, generation=1),
        run(4, fire_time=1, state="skipped"),
        run(5, fire_time=1, state="skipped"),
        run(6, fire_time="NULL"),
        run(7, fire_time="NULL"),
    )


@pytest.mark.parametrize("state", ["running", "recovering", "waiting", "held"])
def test_one_live_run_of_a_solo_job_is_the_tables_own_rule(path: Path, state: str) -> None:
    """I2: the backstop behind the counting of rows."""
    prepare(path)
    execute(path, run(1, solo=1))

    with pytest.raises(sqlite3.IntegrityError, match=r"runs\.job"):
        execute(path, run(2, solo=1, state=state, ready_at=1))
    execute(path, run(3, solo=1, state="queued"), run(4, solo=1, state="failed"), run(5, solo=0))


@pytest.mark.parametrize(
    "changes", [{"owner": "NULL"}, {"claim": 0}, {"state": "waiting"}, {"state": "asleep"}]
)
def test_a_run_row_that_contradicts_itself_cannot_be_written(path: Path, changes: dict[str, Any]) -> None:
    """A running row has an owner and a claim, a waiting one its moment."""
    prepare(path)

    with pytest.raises(sqlite3.IntegrityError):
        execute(path, run(1, **changes))
