"""Issue 2, point 8: the clockwork of the real process: what ends it, what does not (I14, I15)."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import Any

import pytest

from tests.support.daemon import Daemon

_HANDLERS = """
import asyncio, sys, time
async def end_loop(run, name):
    for task in asyncio.all_tasks():
        if task.get_name() == name:
            task.cancel()
async def block(run, seconds):
    await asyncio.create_task(_block(seconds))
async def _block(seconds):
    time.sleep(seconds)
async def leave(run):
    sys.exit(0)
async def leave_by_callback(run):
    asyncio.create_task(_exit())
    await asyncio.sleep(0.1)
async def end_from_outside(run, how):
    loop = asyncio.get_running_loop()
    loop.call_soon(*{"exit": (sys.exit, 0), "stop": (loop.stop,)}[how])
    await asyncio.sleep(60)
async def _exit():
    raise SystemExit(0)
"""
_JOBS = """
[jobs.end-loop]
manual = true
python = "handlers:end_loop"
[jobs.end-from-outside]
manual = true
python = "handlers:end_from_outside"
[jobs.block]
manual = true
python = "handlers:block"
args = { seconds = 2.5 }
[jobs.leave]
manual = true
python = "handlers:leave"
[jobs.leave-by-callback]
manual = true
python = "handlers:leave_by_callback"
[jobs.each-second]
every = "1s"
command = ["true"]
[jobs.missing]
every = "1s"
python = "no_such_module:handler"
[jobs.exits-at-import]
manual = true
python = "exits:handler"
"""


def test_end_of_an_essential_loop_ends_the_process_with_an_error() -> None:
    """I14: without its heartbeat it is no daemon: it tells which loop ended, drains, and exits 1."""
    with Daemon(_JOBS, handlers=_HANDLERS) as daemon:
        daemon.run("end-loop", args={"name": "heartbeat"})
        assert daemon.exit_code() == 1
        assert daemon.events("loop_blocked", task="heartbeat")
        assert daemon.events("daemon_stopped")


@pytest.mark.parametrize("how", ["exit", "stop"])
def test_end_of_the_loop_from_outside_ends_the_process_with_an_error(how: str) -> None:
    """I14: a callback that a handler left can end the loop; the log says so, and no thread keeps it alive."""
    with Daemon(_JOBS, handlers=_HANDLERS) as daemon:
        with suppress(ConnectionError):  # it may end before it has answered
            daemon.run("end-from-outside", args={"how": how})
        assert daemon.exit_code() == 1
        (told,) = daemon.events("daemon_stopped", level="error")
        assert "recovered at the next start" in told["message"]


def test_handler_that_blocks_the_loop_is_named_and_no_slot_is_lost() -> None:
    """I15: a loop that was held is told with the run that held it; afterwards every slot has a row."""
    with Daemon(_JOBS, handlers=_HANDLERS) as daemon:
        daemon.until(lambda: _done(daemon, "each-second"))
        run = daemon.run("block")
        told = daemon.told("loop_blocked", run_id=run)  # a busy machine may hold the loop, too
        assert "handlers.py" in told["place"]
        assert told["seconds"] >= 1
        assert daemon.ended(run)["state"] == "succeeded"
        after = len(_done(daemon, "each-second"))
        daemon.until(lambda: len(_done(daemon, "each-second")) >= after + 2)
        _without_holes(daemon.runs("each-second"))


def _done(daemon: Daemon, job: str) -> list[dict[str, Any]]:
    return [row for row in daemon.runs(job) if row["state"] == "succeeded"]


def _without_holes(rows: list[dict[str, Any]]) -> None:
    """Each second from the first slot to the last is a run or part of a skip row."""
    told: list[int] = []
    for row in rows:
        first = round(datetime.fromisoformat(row["fire_time"]).timestamp())
        told += range(first, first + row["count"])
    assert told == list(range(told[0], told[0] + len(told)))


def test_handler_that_exits_fails_its_run_and_not_the_daemon() -> None:
    """I14: `sys.exit()` in a handler, or in a task of it, is a failure of the run, or of that task."""
    with Daemon(_JOBS, handlers=_HANDLERS) as daemon:
        row = daemon.ended(daemon.run("leave"))
        assert (row["state"], row["reason"]) == ("failed", "exception")
        daemon.ended(daemon.run("leave-by-callback"))
        assert daemon.get("/v1/status")["pid"] == daemon.pid


def test_broken_handler_breaks_its_job_and_no_other() -> None:
    """I14: what cannot be imported is shown as broken with the reason and keeps its row; others fire."""
    with Daemon(_JOBS, handlers=_HANDLERS) as daemon:
        daemon.path("exits.py").write_text("raise SystemExit(3)\n")
        daemon.told("job_broken", job="missing")
        job = daemon.job("missing")
        assert job["problem"]["code"] == "broken"
        assert "no_such_module" in job["problem"]["message"]
        daemon.run("exits-at-import")
        daemon.told("job_broken", job="exits-at-import")
        daemon.until(lambda: _done(daemon, "each-second"))
        daemon.until(lambda: any(row["reason"] == "broken" for row in daemon.runs("missing")[1:]))
        assert daemon.ask("POST", "/v1/jobs/missing/run", {}).status == 409


def test_health_and_readiness_follow_the_loops() -> None:
    """I14: both probes answer 200 with a fresh tick and renewal, and say how old they are."""
    with Daemon(_JOBS, handlers=_HANDLERS) as daemon:
        assert daemon.ask("GET", "/healthz").status == 200
        assert daemon.ask("GET", "/readyz").status == 200
        health = daemon.get("/v1/status")["health"]
        assert health["ok"] is health["store_ok"] is True
        assert 0 <= health["last_tick_age"] < 15
        assert 0 <= health["last_renewal_age"] < 5
