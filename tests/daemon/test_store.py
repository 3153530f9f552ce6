"""Issue 2, point 7, on a real disk: full, locked, damaged, newer: nothing lost or replaced (I10, I14)."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.support.daemon import Daemon, Reply

_GATED = """
[jobs.live]
manual = true
shell = "while [ ! -e '{here}/go' ]; do sleep 0.02; done; touch '{here}/over'"

[jobs.other]
manual = true
shell = "touch '{here}/started'"

[jobs.each-second]
every = "1s"
shell = "echo $SCHEDULER_FIRE_TIME >> '{here}/fires'"
"""


@contextmanager
def write_lock(database: Path) -> Iterator[None]:
    """Another program holds the database's write lock."""
    with closing(sqlite3.connect(database, isolation_level=None, timeout=10)) as db:
        db.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            db.execute("ROLLBACK")


def fires(daemon: Daemon) -> list[str]:
    """Fire times that were executed."""
    path = daemon.path("fires")
    return path.read_text().split() if path.exists() else []


def test_lock_of_three_seconds_only_delays() -> None:
    """I14: with the database locked for 3 s a start is late and runs once, and a result is recorded."""
    with Daemon(_GATED) as daemon, ThreadPoolExecutor(1) as pool:
        live = daemon.run("live")
        daemon.until(lambda: daemon.run_of(live)["pid"] is not None)
        with write_lock(daemon.database):
            answer = pool.submit(daemon.ask, "POST", "/v1/jobs/other/run", {})
            daemon.open_gate("go")
            daemon.until(daemon.path("over").exists)
            daemon.told("store_unavailable")
            assert daemon.run_of(live)["state"] == "running"
            assert not daemon.path("started").exists()
            time.sleep(2.0)  # the span of the case
            assert not answer.done()
        reply: Reply = answer.result(20)
        assert reply.status == 202
        assert daemon.ended(live)["state"] == "succeeded"
        assert daemon.ended(reply.body["id"])["state"] == "succeeded"
        assert len(daemon.runs("other")) == 1
        daemon.told("store_recovered")


def test_longer_lock_refuses_what_cannot_be_kept_and_loses_nothing() -> None:
    """I10, I14: verbs are 503, reads answer, nothing starts; afterwards all goes on, each fire once."""
    with Daemon(_GATED) as daemon, ThreadPoolExecutor(2) as pool:
        live = daemon.run("live")
        daemon.until(lambda: daemon.run_of(live)["pid"] is not None)
        daemon.until(lambda: fires(daemon))
        with write_lock(daemon.database):
            daemon.open_gate("go")
            daemon.told("store_unavailable")
            done = fires(daemon)
            verbs = ["/v1/jobs/other/run", "/v1/jobs/live/pause"]
            replies = list(pool.map(lambda path: daemon.ask("POST", path, {}), verbs))
            assert [(reply.status, reply.body["code"]) for reply in replies] == [
                (503, "store_unavailable")
            ] * 2
            assert daemon.job("live")["live_runs"][0]["id"] == live
            assert daemon.get("/v1/status")["health"]["store_ok"] is False
            assert fires(daemon) == done, "a fire ran whose claim cannot be durable"
        assert daemon.ended(live)["state"] == "succeeded"
        assert daemon.runs("other") == []
        assert daemon.job("live")["status"] == "active"
        daemon.until(lambda: len(fires(daemon)) > len(done) + 1)
        assert len(fires(daemon)) == len(set(fires(daemon)))
        assert len(daemon.events("store_unavailable")) == len(daemon.events("store_recovered")) == 1


def test_stop_while_the_store_is_locked_waits_for_it_and_loses_no_outcome() -> None:
    """I12, I14: a result that cannot be written yet holds the exit up; once it can, it is recorded."""
    with Daemon(_GATED, drain_timeout="200ms") as daemon:
        live = daemon.run("live")
        daemon.until(lambda: daemon.run_of(live)["pid"] is not None)
        with write_lock(daemon.database):
            daemon.open_gate("go")
            daemon.until(daemon.path("over").exists)
            daemon.told("store_unavailable")
            daemon.signal(signal.SIGTERM)
            daemon.told("daemon_draining")
            time.sleep(1.0)  # longer than `drain_timeout`: the case
            assert daemon.process is not None
            assert daemon.process.poll() is None
        assert daemon.exit_code() == 0
        daemon.start()
        assert daemon.run_of(live)["state"] == "succeeded"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m,mode=0700", "tmpfs", str(tmp_path)], check=False
    )
    if made.returncode != 0:
        pytest.skip("this machine lets nobody mount a file system")
    try:
        yield tmp_path
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def _fill(path: Path) -> None:
    """The file has taken what was left of its file system."""
    with path.open("wb", buffering=0) as file:
        while True:
            file.write(b"\0" * 4096)


def test_full_disk_starts_nothing_and_keeps_results(small_disk: Path) -> None:
    """I10, I14: no claim without room for it; a live run's result is written when there is room again."""
    daemon = Daemon(_GATED.replace('every = "1s"', "manual = true"))
    daemon.state = small_disk / "state"
    with daemon:
        live = daemon.run("live")
        daemon.until(lambda: daemon.run_of(live)["pid"] is not None)
        filler = small_disk / "filler"
        with pytest.raises(OSError, match="No space"):
            _fill(filler)
        statuses: list[int] = []
        while not daemon.events("store_unavailable"):  # until the journal, reused so far, has to grow
            assert len(statuses) < 2_000
            reply = daemon.ask("POST", "/v1/jobs/live/pause", {"reason": f"{len(statuses)} " + "x" * 500})
            statuses.append(reply.status)
        reply = daemon.ask("POST", "/v1/jobs/other/run", {})
        assert (reply.status, reply.body["code"]) == (503, "store_unavailable")
        assert not daemon.path("started").exists()
        daemon.open_gate("go")
        daemon.until(daemon.path("over").exists)
        assert daemon.run_of(live)["state"] == "running"
        filler.unlink()
        assert daemon.ended(live)["state"] == "succeeded"
        daemon.told("store_recovered")
        accepted = statuses.count(200)
        pause = daemon.job("live")["pause"]
        assert (pause is None) if accepted == 0 else pause["note"].startswith(f"{accepted - 1} ")
        assert daemon.ended(daemon.run("other"))["state"] == "succeeded"


def _newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 99")
        db.commit()


def _overwrite_head(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(b"\xde\xad" * 50 + data[100:])


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda path: path.write_bytes(b""), "empty"),
        (lambda path: path.write_bytes(b"no database, " * 1000), "not a database"),
        (_overwrite_head, "not a database"),
        (_newer, "99"),
    ],
    ids=["zero bytes", "garbage", "damaged head", "newer schema"],
)
def test_file_that_is_no_store_of_ours_is_refused_and_left_as_it_is(
    spoil: object, words: str, used_store: Path
) -> None:
    """I14: exit 1 within seconds, with the file, the reason and the remedy, and not a byte is changed."""
    daemon = Daemon('[jobs.a]\nmanual = true\ncommand = ["true"]\n')
    try:
        daemon.state.mkdir()
        daemon.database.write_bytes(used_store.read_bytes())
        spoil(daemon.database)  # type: ignore[operator]
        before = daemon.database.read_bytes()
        began = time.monotonic()
        assert daemon.launch().wait(15) == 1
        assert time.monotonic() - began < 8  # 2 s on an idle machine, most of them imports
        assert daemon.database.read_bytes() == before
        assert str(daemon.database) in daemon.complaint()
        assert words in daemon.complaint()
        assert "Traceback" not in daemon.complaint()
    finally:
        daemon.close()


@pytest.fixture(scope="module")
def used_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a store that a daemon has used and closed."""
    kept = tmp_path_factory.mktemp("used") / "store.db"
    with Daemon('[jobs.a]\nmanual = true\ncommand = ["true"]\n') as daemon:
        daemon.ended(daemon.run("a"))
        daemon.stop()
        kept.write_bytes(daemon.database.read_bytes())
    return kept
