"""Issue 2, points 6 and 9, end to end: how runs end, what is left of them, and what every slot came to."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.support.daemon import Daemon, is_alive

_JOBS = r"""
[jobs.ok]
manual = true
shell = '''
cat; echo out; echo err >&2
printf '{"done": 2, "total": 3, "cost": 0.5}\n' >&$SCHEDULER_PROGRESS_FD'''
stdin = "hello\n"
[jobs.code]
manual = true
shell = "exit 3"
[jobs.code-143]
manual = true
shell = "exit 143"
[jobs.signal]
manual = true
shell = "kill -9 $$"
[jobs.pipeline]
manual = true
shell = "false | true"
[jobs.absent]
manual = true
command = ["/no/such/program"]
[jobs.returns]
manual = true
python = "handlers:returns"
[jobs.raises]
manual = true
python = "handlers:raises"
[jobs.blocking]
manual = true
python = "handlers:blocking"
[jobs.timeout]
manual = true
shell = "sleep 300 & echo $! > '{here}/timeout.pid'; sleep 301; true"
timeout = "500ms"
kill_grace = "200ms"
[jobs.cancel]
manual = true
shell = "trap '' TERM; sleep 300 | cat & echo $! > '{here}/cancel.pid'; while true; do sleep 0.1; done"
kill_grace = "200ms"
[jobs.background]
manual = true
shell = "sleep 2.5 & exit 0"
[jobs.pulse]
every = "1s"
shell = "while [ ! -e '{here}/pulse' ]; do sleep 0.05; done"
[jobs.flaky]
manual = true
shell = "[ $SCHEDULER_ATTEMPT = 3 ]"
[jobs.flaky.retry]
attempts = 3
delay = "100ms"
backoff = "constant"
[jobs.once]
at = 2026-01-01T00:00:00Z
command = ["true"]
[jobs.after]
delay = "200ms"
command = ["true"]
[jobs.cron]
cron = "* * * * * *"
command = ["true"]
"""
_HANDLERS = """
import time
async def returns(run):
    return {"job": run.job_id, "attempt": run.attempt}
async def raises(run):
    raise ValueError("no")
def blocking(run):
    time.sleep(0.3)
    return "from a child"
"""


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with Daemon(_JOBS, handlers=_HANDLERS) as daemon:
        yield daemon


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        ("code", ("failed", "exit_code", 3, None)),
        ("code-143", ("failed", "exit_code", 143, None)),
        ("signal", ("failed", "signal", None, 9)),
        ("pipeline", ("succeeded", None, 0, None)),
        ("absent", ("failed", "spawn_failed", None, None)),
        ("raises", ("failed", "exception", None, None)),
        ("flaky", ("succeeded", None, 0, None)),
    ],
)
def test_ends_are_told_apart(daemon: Daemon, job: str, expected: tuple[Any, ...]) -> None:
    """Exit code and signal are separate, who ended it is said, and a retried run is one run."""
    row = daemon.ended(daemon.run(job))
    assert (row["state"], row["reason"], row["exit_code"], row["signal"]) == expected


def test_output_stdin_progress_and_results_are_kept(daemon: Daemon) -> None:
    """What a command wrote, read and told is in the answers, and so is what a handler returned."""
    row = daemon.ended(daemon.run("ok"))
    output = daemon.ask("GET", f"/v1/runs/{row['id']}/output").body
    assert {"hello", "out", "err"} <= set(output.split())
    row = daemon.run_of(row["id"])
    assert (row["progress"]["done"], row["progress"]["total"], row["cost"]) == (2, 3, 0.5)
    assert daemon.ended(daemon.run("returns"))["result"] == {"job": "returns", "attempt": 1}
    assert daemon.ended(daemon.run("blocking"))["result"] == "from a child"


def test_timeout_ends_the_whole_session(daemon: Daemon) -> None:
    """I11: the shell, its child in the foreground and the one behind it are gone, reason `timeout`."""
    row = daemon.ended(daemon.run("timeout"))
    assert (row["state"], row["reason"]) == ("failed", "timeout")
    assert not is_alive(int(daemon.path("timeout.pid").read_text()))


def test_cancel_ends_a_pipeline_that_ignores_sigterm(daemon: Daemon) -> None:
    """I11: it is `cancelled` within its grace, nothing of it is left, and the job is free again."""
    run = daemon.run("cancel")
    daemon.until(lambda: daemon.path("cancel.pid").exists() and daemon.path("cancel.pid").read_text())
    daemon.post(f"/v1/runs/{run}/cancel")
    row = daemon.ended(run)
    assert (row["state"], row["reason"]) == ("cancelled", "cancelled")
    assert not is_alive(int(daemon.path("cancel.pid").read_text()))
    assert daemon.job("cancel")["live_runs"] == []


def test_run_ends_with_its_main_process(daemon: Daemon) -> None:
    """A background process that keeps stdout open does not keep the run alive."""
    row = daemon.ended(daemon.run("background"))
    assert row["state"] == "succeeded"


def test_slots_beside_a_live_run_are_one_row_that_names_it(daemon: Daemon) -> None:
    """I13: a manual start is refused, slots are skipped and counted, the schedule is not moved by either."""
    live = daemon.until(lambda: daemon.job("pulse")["live_runs"])[0]["id"]
    refused = daemon.ask("POST", "/v1/jobs/pulse/run", {})
    assert (refused.status, refused.body["run_id"]) == (409, live)
    daemon.until(lambda: any(row["count"] >= 2 for row in daemon.runs("pulse") if row["state"] == "skipped"))
    (row,) = [row for row in daemon.runs("pulse") if row["state"] == "skipped"]
    assert row["reason"] == "overlap"
    assert live in row["message"]
    daemon.open_gate("pulse")
    daemon.until(lambda: sum(row["state"] == "succeeded" for row in daemon.runs("pulse")) >= 2)


def test_each_trigger_kind_fires(daemon: Daemon) -> None:
    """I1: cron with seconds and `delay` go on firing; an `at` that has passed is completed."""
    for job in ("cron", "after"):
        rows = daemon.until(partial(_two_ends, daemon, job))
        assert len(rows) == len(set(rows))
    assert daemon.job("once")["status"] == "completed"


def _two_ends(daemon: Daemon, job: str) -> list[str]:
    """The fire times that ran, once there are two."""
    rows = [row["fire_time"] for row in daemon.runs(job) if row["state"] == "succeeded"]
    return rows if len(rows) >= 2 else []
