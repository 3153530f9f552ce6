"""Reading without a daemon: the store as it was left, in the shapes of the API, and nothing is touched."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.cli.support.client import call
from tests.cli.support.living import environ_of, listing, schedctl
from tests.support.daemon import Daemon

JOBS = """
[jobs.nightly]
cron = "30 2 * * *"
timezone = "Europe/Berlin"
command = ["true"]
labels = ["billing"]

[jobs.quick]
manual = true
shell = "echo one; echo two >&2"

[jobs.slow]
manual = true
command = ["sleep", "600"]
"""

READS = (
    ("list", "--json"),
    ("list", "night*", "--json"),
    ("list", "--label", "billing", "--json"),
    ("list", "-q"),
    ("show", "nightly", "--json"),
    ("next", "nightly", "-n", "5", "--json"),
    ("runs", "--json"),
    ("runs", "quick", "--state", "succeeded", "--json"),
)


@contextmanager
def paused_slow() -> Iterator[Daemon]:
    with Daemon(JOBS) as daemon:
        daemon.ended(daemon.run("quick"))
        daemon.post("/v1/jobs/slow/pause", {"reason": "disk is full"})
        yield daemon


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    """A daemon of the test's own."""
    with paused_slow() as daemon:
        yield daemon


@pytest.fixture(scope="module")
def stopped() -> Iterator[Daemon]:
    """A daemon that was stopped in order: reading changes nothing, so its store serves all who read."""
    with paused_slow() as daemon:
        assert daemon.stop() == 0
        yield daemon


def test_answers_without_a_daemon_are_those_of_the_daemon(daemon: Daemon) -> None:
    """Each reading verb prints the same with the daemon stopped, exit 0, and says on stderr what it read."""
    run = schedctl(daemon, "runs", "quick", "-q").out.strip()
    asked = [
        *READS,
        ("show", run, "--json"),
        ("output", run),
        ("output", run, "--stream", "stderr", "--json"),
    ]
    online = [schedctl(daemon, *arguments) for arguments in asked]
    assert daemon.stop() == 0
    before = listing(daemon.state)

    offline = [schedctl(daemon, *arguments) for arguments in asked]

    for arguments, there, here in zip(asked, online, offline, strict=True):
        assert (arguments, here.out) == (arguments, there.out)
        assert (here.code, there.err) == (0, "")
        assert here.err == (
            f"schedctl: no daemon answers: read from the store in {daemon.state}, as it was left\n"
        )
    assert listing(daemon.state) == before


def test_a_store_whose_daemon_was_killed_is_read_with_its_last_commits(daemon: Daemon) -> None:
    """What stands in the log of a crashed daemon alone is seen, and the log is left for its recovery."""
    slow = daemon.run("slow")
    daemon.run_when(slow, lambda run: run["state"] == "running")
    assert schedctl(daemon, "pause", "slow").code == 0
    daemon.kill9()
    before = listing(daemon.state)
    assert f"{daemon.database.name}-wal" in before

    shown = schedctl(daemon, "show", slow, "--json")
    why = schedctl(daemon, "why", "slow", "--json")

    assert shown.json["state"] == "running"
    assert (why.json["code"], why.json["run_id"]) == ("no_daemon", slow)
    assert "its next start recovers it; the job is paused by " in why.json["message"]
    assert listing(daemon.state) == before
    daemon.start()
    assert daemon.ended(slow)["state"] == "crashed"


def test_why_tells_what_the_rows_tell(stopped: Daemon) -> None:
    """A pause and a coming fire time are reasons also without a daemon; a past one has its record."""
    assert schedctl(stopped, "why", "slow", "--json").json["code"] == "paused"
    assert "disk is full" in schedctl(stopped, "why", "slow").out
    assert schedctl(stopped, "why", "nightly", "--json").json["code"] == "not_due"
    assert schedctl(stopped, "why", "nightly", "--at", "2020-01-01T02:30+01:00", "--json").json["code"] == (
        "no_record"
    )


def test_the_state_directory_may_be_named_and_stands_for_its_own_daemon(stopped: Daemon) -> None:
    """`--state` beats the default one, also for `runs`, whose `--state` is a run's state too."""
    env = {**environ_of(stopped), "SCHEDULER_SOCKET": ""}
    state = str(stopped.state)

    assert len(call("list", "--state", state, "--json", env=env).lines) == 3
    assert len(call("runs", "--state", state, "--state", "succeeded", "--json", env=env).lines) == 1
    assert call("runs", "--state", "suceeded", env=env).code == 2


def test_a_socket_beside_its_store_is_enough(stopped: Daemon) -> None:
    """Without a runtime directory the socket lies in the state directory: naming it names the store."""
    socket = str(stopped.state / "control.sock")
    env = {**environ_of(stopped), "SCHEDULER_SOCKET": ""}

    assert len(call("list", "--socket", socket, "--json", env=env).lines) == 3


def test_no_store_is_exit_6_and_none_is_made(stopped: Daemon, tmp_path: Path) -> None:
    """Looking makes nothing."""
    empty = tmp_path / "empty"

    for verb in (
        ["list"],
        ["show", "quick"],
        ["runs"],
        ["next", "nightly"],
        ["why", "quick"],
        ["output", "0193f2c4"],
    ):
        called = call(*verb, "--state", str(empty), env={**environ_of(stopped), "SCHEDULER_SOCKET": ""})
        assert (called.code, called.out) == (6, "")
        assert f"no store in {empty}" in called.err
    assert not empty.exists()


def test_verbs_that_change_something_need_a_daemon(stopped: Daemon) -> None:
    """They are exit 6, whatever store there is."""
    assert schedctl(stopped, "pause", "nightly").code == 6
    assert schedctl(stopped, "status").code == 6


def test_unknown_names_are_not_found_and_the_nearest_is_named(stopped: Daemon) -> None:
    """As with a daemon: exit 3 and a hint."""
    called = schedctl(stopped, "show", "nigthly")

    assert called.code == 3
    assert called.err.endswith("did you mean nightly?\n")


def test_a_newer_store_is_refused_and_left(stopped: Daemon, tmp_path: Path) -> None:
    """Exit 6, a line that says so, and not a byte of it changed."""
    state = Path(shutil.copytree(stopped.state, tmp_path / "state"))
    state.chmod(0o700)
    with closing(sqlite3.connect(state / stopped.database.name)) as db:
        db.execute("PRAGMA user_version = 99")
    before = listing(state)

    called = call("list", "--state", str(state), env={**environ_of(stopped), "SCHEDULER_SOCKET": ""})

    assert called.code == 6
    assert "schema 99" in called.err
    assert listing(state) == before


def test_list_as_json_stays_json_beside_the_note(stopped: Daemon) -> None:
    """The note is on stderr alone."""
    assert all(json.loads(line)["id"] for line in schedctl(stopped, "list", "--json").out.splitlines())


def test_a_pause_of_all_jobs_stands_above_the_list(daemon: Daemon) -> None:
    """With the daemon and without it: who, why, how to end it, and no coming times; `next` says it too."""
    daemon.post("/v1/pause", {"reason": "moving house"})
    for answers in (True, False):
        if not answers:
            daemon.stop()
        listed, told = schedctl(daemon, "list"), schedctl(daemon, "next", "nightly")

        assert listed.out.startswith("all jobs are paused by uid:")
        assert "moving house" in listed.out.splitlines()[0]
        assert listed.out.splitlines()[1] == "none fires until `schedctl resume --all`"
        assert re.search(r"nightly +active +- ", listed.out)
        assert "all jobs are paused: none of these fires until" in told.err
