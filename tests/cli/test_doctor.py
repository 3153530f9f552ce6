"""`doctor` and `backup` against a real daemon, up and down."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support.client import Called
from tests.cli.support.living import listing, schedctl
from tests.support.daemon import Daemon

JOBS = """
[jobs.quick]
manual = true
command = ["true"]
[jobs.slow]
manual = true
command = ["sleep", "600"]
"""


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with Daemon(JOBS) as daemon:
        daemon.config.parent.chmod(0o755)
        yield daemon


def faults(called: Called) -> list[dict[str, Any]]:
    return [finding for finding in called.json["findings"] if finding["level"] == "fault"]


def test_a_healthy_daemon_has_no_faults(daemon: Daemon) -> None:
    """Exit 0, in words and as JSON; a live run and its process are as they should be."""
    run = daemon.run("slow")
    daemon.run_when(run, lambda row: row["pid"])

    called = schedctl(daemon, "doctor", "--json")

    assert faults(called) == []
    assert (called.code, called.json["ok"]) == (0, True)
    assert "nothing is wrong" in schedctl(daemon, "doctor").out
    daemon.post(f"/v1/runs/{run}/cancel")
    daemon.ended(run)


def test_faulty_files_and_open_modes_are_found(daemon: Daemon) -> None:
    """Exit 1; each finding stands with its remedy."""
    daemon.write("[jobs.bad]\nnonsense = 1\n", "bad.toml").chmod(0o666)
    daemon.state.chmod(0o755)
    schedctl(daemon, "reload")

    called = schedctl(daemon, "doctor")

    assert called.code == 1
    assert "bad.toml" in called.out
    assert f"chmod o-w {daemon.folder / 'jobs.d' / 'bad.toml'}" in called.out
    assert f"chmod 0700 {daemon.state}" in called.out


def test_a_process_of_a_run_that_ended_is_found(daemon: Daemon) -> None:
    """It bears the store's id and a run that is over; other processes are nobody's business."""
    store, run = daemon.store_id(), daemon.run("quick")
    daemon.ended(run)
    marks = {"SCHEDULER_STORE_ID": str(store), "SCHEDULER_RUN_ID": run}
    left = subprocess.Popen(["sleep", "60"], env={**os.environ, **marks})
    other = subprocess.Popen(["sleep", "60"], env={**os.environ, **marks, "SCHEDULER_STORE_ID": "another"})
    try:
        found = faults(schedctl(daemon, "doctor", "--json"))
    finally:
        for process in (left, other):
            process.kill()
            process.wait()

    assert [finding["check"] for finding in found] == ["processes"]
    assert f"process {left.pid} (sleep 60)" in found[0]["message"]


def test_a_daemon_that_is_down_is_a_fault_and_its_store_is_checked(daemon: Daemon) -> None:
    """The pages of the store are looked at then, and nothing is touched."""
    daemon.stop()
    before = listing(daemon.state)

    whole = faults(schedctl(daemon, "doctor", "--json"))

    assert [finding["check"] for finding in whole] == ["daemon"]
    assert listing(daemon.state) == before
    with closing(sqlite3.connect(daemon.database)) as db:
        root = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'runs_history'").fetchone()[0]
        size = db.execute("PRAGMA page_size").fetchone()[0]
    data = bytearray(daemon.database.read_bytes())
    data[(root - 1) * size : root * size] = b"\xff" * size
    daemon.database.write_bytes(data)
    damaged = faults(schedctl(daemon, "doctor", "--json"))
    assert {finding["check"] for finding in damaged} == {"daemon", "store"}


def test_a_clock_behind_what_was_seen_is_found(daemon: Daemon) -> None:
    """The store remembers the latest wall time, also over a restart."""
    daemon.stop()
    with closing(sqlite3.connect(daemon.database)) as db:
        db.execute("UPDATE meta SET value = value + 3600000000 WHERE name = 'wall_seen'")
        db.commit()

    assert "clock" in [finding["check"] for finding in faults(schedctl(daemon, "doctor", "--json"))]


@pytest.mark.parametrize("is_up", [True, False])
def test_a_backup_restores(daemon: Daemon, is_up: bool, tmp_path: Path) -> None:
    """Taken with the daemon up or down, put in place by `restore`, it has jobs and history."""
    run = daemon.run("quick")
    daemon.ended(run)
    if not is_up:
        daemon.stop()
    target = tmp_path / "b.db"

    made = schedctl(daemon, "backup", str(target), "--json")

    assert made.json == {"file": str(target), "bytes": target.stat().st_size, "state": str(daemon.state)}
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert schedctl(daemon, "backup", str(target)).code == 4
    if is_up:
        daemon.stop()
    daemon.database.unlink()

    called = schedctl(daemon, "restore", str(target))

    assert (called.code, "is the store in" in called.out) == (0, True)
    daemon.start()
    assert daemon.run_of(run)["state"] == "succeeded"


def test_a_backup_of_no_store_is_exit_6(daemon: Daemon, tmp_path: Path) -> None:
    """And makes no file."""
    called = schedctl(daemon, "backup", str(tmp_path / "b.db"), "--state", str(tmp_path / "none"))

    assert called.code == 6
    assert list(tmp_path.iterdir()) == []
