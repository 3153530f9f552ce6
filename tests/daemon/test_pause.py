"""Issue 2, point 2, in the running daemon: a pause that comes in mid-run is there when the run has ended."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.daemon import Daemon

_GATED = """
[jobs.{name}]
every = "1s"
shell = "touch '{{here}}/{name}.on'; while [ ! -e '{{here}}/{name}.gate' ]; do sleep 0.02; done; exit {code}"
"""
_JOBS = (
    "".join(
        _GATED.format(name=name, code=code)
        for name, code in [
            ("succeeds", 0),
            ("fails", 3),
            ("resumed", 0),
            ("completes", 7),
            ("limit", 3),
            ("edited", 0),
            ("restarted", 0),
        ]
    )
    .replace("[jobs.completes]", "[jobs.completes]\ncomplete_exit_codes = [7]")
    .replace("[jobs.limit]", "[jobs.limit]\nmax_failures = 1")
    + """
[jobs.times-out]
every = "1s"
shell = "touch '{here}/times-out.on'; sleep 60"
timeout = "2s"
kill_grace = "1s"

[jobs.handler]
every = "1s"
python = "handlers:wait"

[jobs.cancelled]
every = "1s"
shell = "touch '{here}/cancelled.on'; sleep 60"
"""
)
_HANDLERS = """
import asyncio, pathlib
here = pathlib.Path(__file__).parent
async def wait(run):
    (here / "handler.on").touch()
    while not (here / "handler.gate").exists():
        await asyncio.sleep(0.02)
    return {"done": True}
"""


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with Daemon(_JOBS, handlers=_HANDLERS) as daemon:
        yield daemon


def _in_mid_run(daemon: Daemon, job: str) -> str:
    """The id of the run of a fire time that is under way."""
    daemon.until(daemon.path(f"{job}.on").exists)
    return str(daemon.job(job)["live_runs"][0]["id"])


def _paused_in_mid_run(daemon: Daemon, job: str) -> dict[str, Any]:
    """The run, ended after a pause that came in the middle of it."""
    run = _in_mid_run(daemon, job)
    answer = daemon.post(f"/v1/jobs/{job}/pause", {"reason": "maintenance"})
    assert [row["id"] for row in answer["runs"]] == [run]
    daemon.open_gate(f"{job}.gate")
    return daemon.ended(run)


def _is_quiet(daemon: Daemon, job: str) -> bool:
    """The job is paused, with who and why, and has no fire time to come."""
    row = daemon.job(job)
    pause = row["pause"]
    assert (row["status"], pause["note"], pause["by"]) == ("paused", "maintenance", f"uid:{_uid()}")
    return row["next_fire_at"] is None and row["live_runs"] == []


def _uid() -> int:
    return os.getuid()


@pytest.mark.parametrize(
    ("job", "state", "reason"),
    [
        ("succeeds", "succeeded", None),
        ("fails", "failed", "exit_code"),
        ("times-out", "failed", "timeout"),
        ("handler", "succeeded", None),
    ],
)
def test_pause_in_mid_run_survives_the_write_back(
    daemon: Daemon, job: str, state: str, reason: str | None
) -> None:
    """I4: however the run ends, its result is recorded, the job stays paused, and nothing starts again."""
    run = _paused_in_mid_run(daemon, job)
    assert (run["state"], run["reason"]) == (state, reason)
    assert _is_quiet(daemon, job)
    assert daemon.told("pause_preserved", job=job)["run_id"] == run["id"]
    assert [row["state"] for row in daemon.runs(job) if row["state"] != "skipped"] == [state]


def test_resume_in_mid_run_survives_the_write_back(daemon: Daemon) -> None:
    """I4: pause and resume within one run leave an active job that fires on, and no second run beside it."""
    run = _in_mid_run(daemon, "resumed")
    daemon.post("/v1/jobs/resumed/pause", {})
    assert daemon.post("/v1/jobs/resumed/resume", {})["job"]["status"] == "active"
    assert [row["id"] for row in daemon.job("resumed")["live_runs"]] == [run]
    daemon.open_gate("resumed.gate")
    daemon.ended(run)
    daemon.until(lambda: sum(row["state"] == "succeeded" for row in daemon.runs("resumed")) >= 2)


def test_completed_job_wins_over_a_pause(daemon: Daemon) -> None:
    """I5: a run that says "done for good" completes the job although a pause came in between."""
    run = _paused_in_mid_run(daemon, "completes")
    assert (run["state"], daemon.job("completes")["status"]) == ("succeeded", "completed")


def test_failed_job_wins_over_a_pause(daemon: Daemon) -> None:
    """I5: the last allowed failure makes the job failed although a pause came in between."""
    run = _paused_in_mid_run(daemon, "limit")
    assert (run["state"], daemon.job("limit")["status"]) == ("failed", "failed")


def test_pause_with_mode_cancel_ends_the_run_and_stays(daemon: Daemon) -> None:
    """I4: mode `cancel` ends the run in flight at once, and the pause outlives that end too."""
    run = _in_mid_run(daemon, "cancelled")
    daemon.post("/v1/jobs/cancelled/pause", {"mode": "cancel", "reason": "maintenance"})
    assert daemon.ended(run)["state"] == "cancelled"
    assert _is_quiet(daemon, "cancelled")


def test_edit_in_mid_run_survives_the_write_back_and_so_does_the_pause() -> None:
    """I4: a changed file and a pause, both in mid-run, are both in force after the run."""
    text = _GATED.format(name="edited", code=0)
    with Daemon(text) as daemon:
        run = _in_mid_run(daemon, "edited")
        daemon.write(text.replace('every = "1s"', 'every = "1h"'))
        daemon.post("/v1/reload")
        daemon.post("/v1/jobs/edited/pause", {"reason": "maintenance"})
        daemon.open_gate("edited.gate")
        assert daemon.ended(run)["state"] == "succeeded"
        assert _is_quiet(daemon, "edited")
        assert daemon.job("edited")["trigger"] == {"kind": "every", "every": 3600}
        daemon.post("/v1/jobs/edited/resume", {})
        assert daemon.job("edited")["next_fire_at"] is not None


def test_removal_in_mid_run_keeps_the_result_and_putting_back_restores_the_pause() -> None:
    """I6: the run of a removed job is recorded and brings nothing back; the file brings the pause back."""
    text = _GATED.format(name="removed", code=0)
    with Daemon(text) as daemon:
        run = _in_mid_run(daemon, "removed")
        daemon.post("/v1/jobs/removed/pause", {"reason": "maintenance"})
        daemon.write("# nothing\n")
        daemon.post("/v1/reload")
        assert daemon.ask("GET", "/v1/jobs/removed").status == 404
        daemon.open_gate("removed.gate")
        assert daemon.ended(run)["state"] == "succeeded"
        assert daemon.ask("GET", "/v1/jobs/removed").status == 404
        daemon.write(text)
        daemon.post("/v1/reload")
        assert _is_quiet(daemon, "removed")


def test_pause_survives_kill_9_a_restart_and_a_reload() -> None:
    """I4: a pause is a row: neither a death in mid-run, nor the next start, nor a touched file lifts it."""
    text = _GATED.format(name="restarted", code=0)
    with Daemon(text) as daemon:
        run = _in_mid_run(daemon, "restarted")
        daemon.post("/v1/jobs/restarted/pause", {"reason": "maintenance"})
        daemon.kill9()
        daemon.start()
        assert daemon.ended(run)["state"] == "crashed"
        daemon.write(text + "\n# touched\n")
        daemon.post("/v1/reload")
        assert _is_quiet(daemon, "restarted")
