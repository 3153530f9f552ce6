"""Issue 2, point 4: one live run per job and one daemon per state directory, however many ask at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from tests.support.daemon import PATIENCE, Daemon, Reply

_JOBS = """
[jobs.solo]
manual = true
shell = "while [ ! -e '{here}/go' ]; do sleep 0.02; done"
"""


def test_of_100_simultaneous_starts_one_runs_and_99_are_told_which() -> None:
    """I2: one answer is 202; the 99 others are 409 `already_running`, and each names the run that is live."""
    with Daemon(_JOBS) as daemon, ThreadPoolExecutor(100) as pool:
        together = Barrier(100)

        def start(_: int) -> Reply:
            together.wait()
            return daemon.ask("POST", "/v1/jobs/solo/run", {})

        replies = list(pool.map(start, range(100)))
        (started,) = [reply for reply in replies if reply.status == 202]
        refused = [reply for reply in replies if reply.status == 409]
        assert len(refused) == 99
        assert {reply.body["code"] for reply in refused} == {"already_running"}
        assert {reply.body["run_id"] for reply in refused} == {started.body["id"]}
        daemon.open_gate("go")
        daemon.ended(started.body["id"])
        assert len(daemon.runs("solo")) == 1


def test_second_daemon_on_the_same_state_ends_with_a_clear_line() -> None:
    """I1: the second one exits 1, names the first by its pid, and the first goes on undisturbed."""
    with Daemon(_JOBS, fresh=True) as daemon:
        first, pid = daemon.process, daemon.pid
        second, daemon.process = daemon.launch(), first
        assert second.wait(PATIENCE) == 1
        assert f"another schedulerd (pid {pid}) serves the state directory" in daemon.complaint()
        assert "Traceback" not in daemon.complaint()
        assert daemon.get("/v1/status")["pid"] == pid
