"""Issue 6, point 4: `kill -9` at every marked point, a new start, and everything that was promised holds.

`SCHEDULERD_FAULTS=all` lets the next start die as well, at every point of a start (`make faults`).
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from scheduler.store import schema
from tests.support.deaths import DEATHS, HANDLERS, JOBS, UPGRADES, Death
from tests.support.faulty_daemon import FaultyDaemon
from tests.support.promises import broken_promises, read_ledger

ALL = os.environ.get("SCHEDULERD_FAULTS") == "all"
SECOND_DEATHS = [
    "commit:register_owner",
    "committed:register_owner",
    "commit:take_for_recovery",
    "committed:take_for_recovery",
    "before:leftovers",
    "after:leftovers",
    "commit:finish_run",
    "committed:finish_run",
    "commit:claim_run",
    "committed:claim_run",
]
"""Where the start after a death may die in its turn."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def shared() -> Iterator[FaultyDaemon]:
    """One state directory, and at most one process at a time, for all deaths of the module."""
    with FaultyDaemon(JOBS, handlers=HANDLERS, drain_timeout="0s") as daemon:
        yield daemon


@pytest.fixture
def daemon(shared: FaultyDaemon) -> FaultyDaemon:
    """It serves, whatever became of it in the test before."""
    shared.disarm()
    if shared.has_ended:
        shared.start()
    return shared


@pytest.mark.parametrize("death", DEATHS, ids=lambda death: death.name)
def test_what_a_death_leaves_is_what_was_promised(death: Death, daemon: FaultyDaemon) -> None:
    """I1-I14: the run is found in a state that tells the truth, nothing doubled, and the job runs again."""
    run = death.act(daemon, death)

    _holds(daemon, death, run)
    _runs_again(daemon)


@pytest.mark.parametrize("second", SECOND_DEATHS if ALL else [])
@pytest.mark.parametrize("death", DEATHS if ALL else [], ids=lambda death: death.name)
def test_a_start_after_a_death_may_die_too(death: Death, second: str) -> None:
    """I1-I14: whatever two deaths in a row leave behind, the third life makes good."""
    with FaultyDaemon(JOBS, handlers=HANDLERS, drain_timeout="0s") as daemon:
        daemon.dies_next = second
        run = death.act(daemon, death)
        if death.states:
            assert run is not None or None in death.states
        _is_quiet(daemon)
        assert broken_promises(daemon.database, read_ledger(daemon.path("ledger"))) == []
        _runs_again(daemon)


def _holds(daemon: FaultyDaemon, death: Death, run: str | None) -> None:
    _is_quiet(daemon)
    ledger = read_ledger(daemon.path("ledger"))
    assert broken_promises(daemon.database, ledger) == []
    if death.states:
        row = {"state": None} if run is None else daemon.run_of(run)
        assert row["state"] in death.states, row
        assert len([line for line in ledger if line.run == run]) in death.executions
    if death.items:
        calls = Counter(line.item for line in ledger if line.run == run)
        items = daemon.get(f"/v1/runs/{run}/items")["items"]
        told = [f"{item['state']} {calls[item['key']]}" for item in items]
        assert told[: len(death.items)] == list(death.items)


def _is_quiet(daemon: FaultyDaemon) -> None:
    """Everything that was under way has come to its end, processes too (I11)."""
    daemon.until(daemon.is_idle)
    daemon.until(lambda: not daemon.descendants())


def _runs_again(daemon: FaultyDaemon) -> None:
    """I7: the job that the death was about can be started at once, and succeeds."""
    row = daemon.ended(daemon.run("once"))
    assert row["state"] == "succeeded"
    assert "said" in daemon.get(f"/v1/runs/{row['id']}/output")


@pytest.mark.parametrize("error", ["EAGAIN", "ENOMEM", "EMFILE"])
def test_a_process_that_cannot_be_started_fails_its_run_and_nothing_else(
    error: str, daemon: FaultyDaemon
) -> None:
    """I7, I14: the run says what the system said; the next one starts."""
    daemon.arm("before:spawn", error)

    row = daemon.ended(daemon.run("once"))

    assert (row["state"], row["reason"]) == ("failed", "spawn_failed")
    _runs_again(daemon)


def test_a_socket_that_cannot_accept_is_tried_again(daemon: FaultyDaemon) -> None:
    """I14: without a free descriptor the client waits for a moment, and is answered."""
    before = daemon.strikes()
    daemon.arm("before:accept", "EMFILE", times=2)

    assert daemon.get("/v1/status")["health"]["store_ok"] is True

    assert daemon.strikes() == before + 2


def test_a_disk_that_fails_for_good_stops_nothing_but_what_needs_it(daemon: FaultyDaemon) -> None:
    """I10, I14: verbs are refused, reads answer, a run ends, and its outcome waits until it can be kept."""
    daemon.path("go").unlink(missing_ok=True)
    run = daemon.run("held")
    daemon.run_when(run, lambda row: row["pid"])
    daemon.arm("before:begin", "SQLITE_IOERR", times=None)
    assert daemon.ask("POST", "/v1/jobs/once/pause", {}).status == 503
    daemon.open_gate("go")
    daemon.until(lambda: not daemon.descendants())
    assert daemon.run_of(run)["state"] == "running"

    daemon.disarm()

    assert daemon.ended(run)["state"] == "succeeded"
    assert daemon.job("once")["status"] == "active"
    daemon.path("go").unlink()


@pytest.mark.parametrize(("name", "point"), UPGRADES, ids=[name for name, _ in UPGRADES])
def test_a_death_while_the_store_is_made_or_upgraded(name: str, point: str, old_store: Path) -> None:
    """I14: the next start finds the old store whole, or the new one; nothing half-made is taken or left."""
    daemon = FaultyDaemon(JOBS, handlers=HANDLERS)
    try:
        daemon.state.mkdir()
        if name.startswith("upgrade"):
            shutil.copy(old_store, daemon.database)
            daemon.migration = "CREATE TABLE of_the_next_version (id INTEGER);"
        daemon.arm(point)
        daemon.launch()
        assert daemon.exit_code() == -9, daemon.complaint()
        daemon.disarm()
        daemon.start()
        _runs_again(daemon)
        assert broken_promises(daemon.database, read_ledger(daemon.path("ledger"))) == []
        if name.startswith("upgrade"):
            assert daemon.job("kept")["pause"]["note"] == "by hand"
        assert not list(daemon.state.glob(".*.new-*")), "a store that was not made is left lying"
    finally:
        daemon.close()


@pytest.fixture(scope="module")
def old_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of today, in which somebody has paused a job."""
    path = tmp_path_factory.mktemp("old") / "store.db"
    schema.prepare(path)
    with closing(sqlite3.connect(path)) as db:
        db.execute(
            "INSERT INTO jobs (id, definition_revision, added_revision, revision, origin,"
            " enabled, max_running, priority, status, pause_reason, pause_mode, pause_by, pause_note,"
            " pause_since)"
            """ VALUES ('kept', 1, 1, 1, 'api', 1, 1, 0, 'paused',"""
            " 'operator', 'drain', 'root', 'by hand', 1)"
        )
        db.execute('INSERT INTO definitions VALUES (\'kept\', \'{"manual":true,"command":["true"]}\')')
        db.commit()
    return path
