"""Issue 2, point 5: SIGTERM with real processes: nothing starts, no outcome is lost, none is left (I12)."""

from __future__ import annotations

import signal
import sqlite3
import time
from contextlib import closing
from typing import Any

import pytest

from tests.support.daemon import Daemon, is_alive

_STUBBORN = "trap '' TERM; (trap '' TERM; sleep 300) & echo $$ > '{here}/pid'; while true; do sleep 0.1; done"


def _row(daemon: Daemon, run: str) -> dict[str, Any]:
    """The run as it is on disk, for a daemon that is gone."""
    with closing(sqlite3.connect(daemon.database)) as db:
        db.row_factory = sqlite3.Row
        return dict(db.execute("SELECT * FROM runs WHERE id = ?", (run,)).fetchone())


def _start_draining(daemon: Daemon) -> None:
    daemon.signal(signal.SIGTERM)
    daemon.told("daemon_draining")


def test_run_that_ends_within_the_drain_is_recorded() -> None:
    """I12: a command and a handler that end during the drain have succeeded, and the exit code is 0."""
    jobs = """
[jobs.command]
manual = true
shell = "while [ ! -e '{here}/go' ]; do sleep 0.02; done"
[jobs.handler]
manual = true
python = "handlers:wait"
[jobs.due]
every = "1s"
shell = "true"
"""
    handlers = """
import asyncio, pathlib
async def wait(run):
    while not (pathlib.Path(__file__).parent / "go").exists():
        await asyncio.sleep(0.02)
"""
    with Daemon(jobs, handlers=handlers, drain_timeout="30s") as daemon:
        runs = [daemon.run("command"), daemon.run("handler")]
        daemon.until(lambda: len(daemon.events("run_started", trigger="manual")) == 2)
        _start_draining(daemon)
        begun = len(daemon.events("run_claimed"))
        time.sleep(1.1)  # a fire time passes: it is the case that a test cannot wait for by a condition
        assert len(daemon.events("run_claimed")) == begun
        daemon.open_gate("go")
        assert daemon.exit_code() == 0
        assert [_row(daemon, run)["state"] for run in runs] == ["succeeded", "succeeded"]
        assert daemon.events("daemon_stopped")


def test_run_that_does_not_end_is_killed_with_its_whole_group() -> None:
    """I12: after `drain_timeout` and `kill_grace` nothing of it lives; it is `interrupted`, exit code 0."""
    jobs = f'[jobs.stubborn]\nmanual = true\nkill_grace = "300ms"\nshell = "{_STUBBORN}"\n'
    with Daemon(jobs, drain_timeout="200ms") as daemon:
        run = daemon.run("stubborn")
        daemon.until(daemon.path("pid").exists)
        assert daemon.stop() == 0
        row = _row(daemon, run)
        assert (row["state"], row["reason"]) == ("interrupted", "shutdown")
        assert daemon.descendants() == []


def test_command_is_asked_with_sigterm_before_it_is_killed() -> None:
    """I12: a command that cleans up at SIGTERM gets to do so within its `kill_grace`."""
    jobs = """
[jobs.clean]
manual = true
shell = "trap 'touch {here}/cleaned; exit 0' TERM; touch '{here}/on'; while true; do sleep 0.02; done"
"""
    with Daemon(jobs, drain_timeout="0s") as daemon:
        run = daemon.run("clean")
        daemon.until(daemon.path("on").exists)
        assert daemon.stop() == 0
        assert daemon.path("cleaned").exists()
        assert _row(daemon, run)["state"] == "interrupted"


@pytest.mark.parametrize(("drain", "grace"), [("10m", "1s"), ("0s", "10m")])
def test_second_signal_hurries(drain: str, grace: str) -> None:
    """I12: it skips the wait, and the grace that has begun; the outcome is recorded all the same."""
    jobs = f'[jobs.stubborn]\nmanual = true\nkill_grace = "{grace}"\nshell = "{_STUBBORN}"\n'
    with Daemon(jobs, drain_timeout=drain) as daemon:
        run = daemon.run("stubborn")
        daemon.until(daemon.path("pid").exists)
        _start_draining(daemon)
        assert daemon.get("/v1/status")["draining"] is True
        daemon.signal(signal.SIGTERM)
        assert daemon.exit_code(patience=10) == 0
        assert _row(daemon, run)["state"] == "interrupted"
        assert daemon.descendants() == []


def test_coroutine_that_swallows_cancellation_does_not_hold_the_exit() -> None:
    """I12: it is told as stuck, its run is recorded as interrupted, and the process ends with 0."""
    handlers = """
import asyncio
async def swallow(run):
    run.progress(message="on")
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass
"""
    jobs = '[jobs.swallow]\nmanual = true\nkill_grace = "200ms"\npython = "handlers:swallow"\n'
    with Daemon(jobs, handlers=handlers, drain_timeout="100ms") as daemon:
        run = daemon.run("swallow")
        daemon.run_when(run, lambda row: row["progress"]["message"] == "on")
        began = time.monotonic()
        assert daemon.stop(patience=30) == 0
        assert time.monotonic() - began < 15
        assert daemon.events("run_stuck", run_id=run)
        assert _row(daemon, run)["state"] == "interrupted"


def test_while_draining_reads_pauses_resumes_and_cancels_work_and_the_rest_is_refused() -> None:
    """I12: what would start or define answers 503 `draining`; a cancel of the run wins over the stop."""
    jobs = """
[jobs.long]
manual = true
shell = "sleep 300"
kill_grace = "200ms"
[jobs.failed]
manual = true
shell = "exit 1"
"""
    with Daemon(jobs, drain_timeout="10m") as daemon:
        made = {"manual": True, "command": ["true"]}
        assert daemon.ask("POST", "/v1/jobs", {"id": "mine", **made}).status in (200, 201)
        failed = daemon.run("failed")
        daemon.ended(failed)
        run = daemon.run("long")
        _start_draining(daemon)
        assert daemon.ask("GET", "/readyz").status == 503
        for method, path, body in [
            ("POST", "/v1/jobs/failed/run", {}),
            ("POST", "/v1/jobs", {"id": "other", **made}),
            ("DELETE", "/v1/jobs/mine", None),
            ("POST", f"/v1/runs/{failed}/retry", {}),
            ("POST", "/v1/reload", None),
        ]:
            reply = daemon.ask(method, path, body)
            assert (reply.status, reply.body["code"]) == (503, "draining"), (method, path, reply)
        assert daemon.post("/v1/jobs/failed/pause", {})["job"]["status"] == "paused"
        assert daemon.post("/v1/jobs/failed/resume", {})["job"]["status"] == "active"
        assert daemon.job("long")["live_runs"][0]["id"] == run
        daemon.post(f"/v1/runs/{run}/cancel")
        assert daemon.exit_code() == 0
        assert _row(daemon, run)["state"] == "cancelled"


def test_run_with_on_crash_retry_waits_for_the_next_start_and_is_charged_nothing() -> None:
    """I12: what a stop cut is resumed by policy: the same run, the next claim, the first try."""
    jobs = """
[jobs.again]
manual = true
on_crash = "retry"
kill_grace = "200ms"
shell = "touch '{here}/on'; [ $SCHEDULER_CLAIM = 2 ] || sleep 300"
"""
    with Daemon(jobs, drain_timeout="0s") as daemon:
        run = daemon.run("again")
        daemon.until(daemon.path("on").exists)
        assert daemon.stop() == 0
        assert _row(daemon, run)["state"] == "waiting"
        daemon.start()
        row = daemon.ended(run)
        assert (row["state"], row["claim"], row["attempt"]) == ("succeeded", 2, 1)
        assert [attempt["state"] for attempt in row["attempts"]] == ["interrupted", "succeeded"]


def test_sigint_is_as_good_as_sigterm_and_an_idle_daemon_stops_at_once() -> None:
    """I12: exit code 0, the socket is gone, and the next start finds an orderly stop."""
    with Daemon("[jobs.idle]\nmanual = true\ncommand = ['true']\n", drain_timeout="30s") as daemon:
        began = time.monotonic()
        daemon.signal(signal.SIGINT)
        assert daemon.exit_code() == 0
        assert time.monotonic() - began < 5
        assert not daemon.socket.exists()
        assert not is_alive(daemon.pid)


def test_sigterm_during_the_start_ends_it_in_order() -> None:
    """I12: a daemon that is told to stop before it is ready starts nothing and exits 0."""
    jobs = '[jobs.due]\nevery = "1s"\nshell = "touch {here}/ran; sleep 1"\n'
    with Daemon(jobs) as daemon:
        daemon.stop()
        daemon.path("ran").unlink(missing_ok=True)
        daemon.launch()
        daemon.told("daemon_started")
        daemon.signal(signal.SIGTERM)
        assert daemon.exit_code() == 0
        assert daemon.events("run_claimed") == []
