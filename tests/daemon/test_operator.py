"""The operator's verbs of schedctl against a real daemon."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.support.daemon import Daemon

JOBS = """
[jobs.long]
manual = true
shell = "touch '{here}/long.on'; while [ ! -e '{here}/long.gate' ]; do sleep 0.02; done"
kill_grace = "1s"

[jobs.tick]
every = "1h"
shell = "true"
"""


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with Daemon(JOBS) as started:
        yield started


def schedctl(daemon: Daemon, *words: str) -> subprocess.CompletedProcess[str]:
    """One call, ended."""
    return subprocess.run(_words(daemon, *words), capture_output=True, text=True, timeout=60, check=False)


def _words(daemon: Daemon, *words: str) -> list[str]:
    call = "import sys; from scheduler.cli.main import main; sys.exit(main())"
    return [sys.executable, "-c", call, words[0], "--socket", str(daemon.socket), *words[1:]]


def test_pause_all_is_one_pause_and_resume_all_its_end(daemon: Daemon) -> None:
    """The jobs stay active; status and why say it; a start is a conflict until it is over."""
    paused = schedctl(daemon, "pause", "--all", "--reason", "power cut", "--for", "1h")
    status = schedctl(daemon, "status")
    why = schedctl(daemon, "why", "tick")
    start = schedctl(daemon, "run", "tick")
    resumed = schedctl(daemon, "resume", "--all")

    assert paused.returncode == 0, paused
    assert "power cut" in paused.stdout
    assert "power cut" in status.stdout
    assert "all jobs are paused" in why.stdout
    assert (start.returncode, resumed.returncode) == (4, 0)
    assert daemon.job("tick")["status"] == "active"
    assert daemon.get("/v1/status")["paused"] is None


def test_pause_wait_returns_when_the_run_has_ended(daemon: Daemon) -> None:
    """It blocks while the run in flight goes on, tells how that ended, and the job stays paused."""
    run = daemon.run("long")
    daemon.until(daemon.path("long.on").exists)
    with subprocess.Popen(
        _words(daemon, "pause", "long", "--wait", "--json"), stdout=subprocess.PIPE, text=True
    ) as waiting:
        daemon.until(lambda: daemon.job("long")["status"] == "paused")
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(1.0)
        daemon.open_gate("long.gate")
        out, _ = waiting.communicate(timeout=30)

    first, last = map(json.loads, out.splitlines())
    assert waiting.returncode == 0
    assert [one["id"] for one in first["runs"]] == [run]
    assert (last["id"], last["state"]) == (run, "succeeded")
    assert daemon.job("long")["status"] == "paused"


def test_pause_wait_has_a_limit(daemon: Daemon) -> None:
    """`--timeout` ends the wait with exit code 7; the pause holds."""
    daemon.run("long")

    waited = schedctl(daemon, "pause", "--all", "--wait", "--timeout", "1s")

    assert waited.returncode == 7
    assert "still running" in waited.stderr
    daemon.open_gate("long.gate")


@pytest.mark.parametrize(
    "words",
    [
        ("pause", "tick", "--for", "1h", "--until", "23:00"),
        ("pause", "tick", "--mode", "freeze", "--wait"),
        ("pause", "tick", "--for", "soon"),
        ("pause", "tick", "--for", "0"),
        ("resume", "--all", "--missed", "all"),
    ],
)
def test_what_makes_no_sense_is_usage(daemon: Daemon, words: tuple[str, ...]) -> None:
    """Exit code 2, one line that says it, and nothing is paused."""
    said = schedctl(daemon, *words)

    assert (said.returncode, said.stdout) == (2, "")
    assert said.stderr.count("\n") == 1
    assert daemon.job("tick")["status"] == "active"


def test_until_is_the_next_time_the_clock_shows_it(daemon: Daemon) -> None:
    """A time of day lies ahead."""
    schedctl(daemon, "pause", "tick", "--until", "00:00")

    assert daemon.job("tick")["pause"]["until"] > daemon.job("tick")["pause"]["since"]


def test_resume_missed_runs_what_was_held(daemon: Daemon) -> None:
    """`--missed` reaches the daemon and stands in the audit."""
    schedctl(daemon, "pause", "tick")
    resumed = schedctl(daemon, "resume", "tick", "--missed", "latest")
    audit = schedctl(daemon, "audit", "tick")

    assert resumed.returncode == 0
    assert "missed latest" in audit.stdout


def test_events_are_told_followed_and_resumed(daemon: Daemon) -> None:
    """Those of before, those to come also over a restart of the daemon, each as a line of JSON."""
    daemon.open_gate("long.gate")
    daemon.ended(daemon.run("long"))
    before = schedctl(daemon, "events", "--job", "long", "-n", "3", "--json")
    names = [json.loads(line)["event"] for line in before.stdout.splitlines()]
    assert names == ["run_claimed", "run_started", "run_succeeded"]

    following = subprocess.Popen(
        _words(daemon, "events", "-f", "--json"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        time.sleep(2)  # a process starts and connects
        daemon.post("/v1/jobs/tick/pause", {})
        daemon.stop()
        daemon.start()
        for _ in range(12):  # whenever it comes back, it hears of one of these
            daemon.post("/v1/jobs/tick/resume", {})
            daemon.post("/v1/jobs/tick/pause", {})
            time.sleep(0.3)
    finally:
        following.terminate()
        out, errors = following.communicate(timeout=20)

    told = [json.loads(line)["event"] for line in out.splitlines()]
    assert "job_paused" in told[: told.index("daemon_draining")]
    assert "job_resumed" in told[told.index("daemon_draining") :]
    assert "some events were missed" in errors
