"""Issue 2, point 3, with real deaths: no crash leaves a job unable to run, and nothing of it runs on."""

from __future__ import annotations

import os
import random
import signal
import time
from datetime import datetime

from tests.support.daemon import Daemon, is_alive

_TREE = """
[jobs.tree]
manual = true
shell = "trap '' TERM; sleep 300 & echo $! > '{here}/child'; echo $$ > '{here}/main'; sleep 301; sleep 302"
kill_grace = "200ms"
"""


def _pid_in(daemon: Daemon, name: str) -> int:
    path = daemon.path(name)
    daemon.until(lambda: path.exists() and path.read_text().strip())
    return int(path.read_text())


def test_after_kill_9_the_job_runs_at_once_and_nothing_of_the_old_run_is_left() -> None:
    """I7, I11: the old run is `crashed`, its whole process tree is ended before the new run starts."""
    with Daemon(_TREE, lease="10m", heartbeat="1m") as daemon:
        old = daemon.run("tree")
        tree = [_pid_in(daemon, "main"), _pid_in(daemon, "child")]
        daemon.kill9(and_warden=True)
        assert all(map(is_alive, tree))
        for name in ("main", "child"):
            daemon.path(name).unlink()
        daemon.start()
        new = daemon.run("tree")
        daemon.until(daemon.path("main").exists)
        assert not any(map(is_alive, tree))
        row = daemon.run_of(old)
        assert (row["state"], row["reason"]) == ("crashed", "owner_died")
        assert daemon.run_of(new)["state"] == "running"
        assert daemon.told("run_recovered", run_id=old)["state"] == "crashed"
        daemon.post(f"/v1/runs/{new}/cancel")
        daemon.ended(new)


def test_restart_does_not_wait_for_leases_or_for_processes() -> None:
    """I7: with a lease of ten minutes and leftovers that ignore SIGTERM it is ready, and answers, at once."""
    with Daemon(_TREE.replace("200ms", "60s"), lease="10m", heartbeat="1m") as daemon:
        old = daemon.run("tree")
        _pid_in(daemon, "main")
        daemon.kill9(and_warden=True)
        daemon.start()
        assert daemon.run_of(old)["state"] == "recovering"
        queued = daemon.post("/v1/jobs/tree/run", {})
        assert queued["state"] == "queued"
        daemon.post(f"/v1/runs/{queued['id']}/cancel")
        os.kill(_pid_in(daemon, "main"), signal.SIGKILL)
        for pid in daemon.descendants():
            os.kill(pid, signal.SIGKILL)
        assert daemon.ended(old)["state"] == "crashed"


def test_crashed_run_with_on_crash_retry_makes_a_second_claim() -> None:
    """I1, I3: `on_crash = "retry"` runs the same run again under the next claim; it is charged no try."""
    jobs = """
[jobs.again]
manual = true
on_crash = "retry"
shell = "echo $SCHEDULER_CLAIM >> '{here}/claims'; [ $SCHEDULER_CLAIM = 2 ] || sleep 300"
"""
    with Daemon(jobs) as daemon:
        run = daemon.run("again")
        daemon.until(daemon.path("claims").exists)
        daemon.kill9()
        daemon.start()
        row = daemon.ended(run)
        assert (row["state"], row["claim"], row["attempt"]) == ("succeeded", 2, 1)
        assert [attempt["state"] for attempt in row["attempts"]] == ["crashed", "succeeded"]
        assert daemon.path("claims").read_text().split() == ["1", "2"]


def test_delay_job_whose_run_died_fires_again() -> None:
    """I7: recovery goes through FINISH, so the next fire time of a `delay` job is set by it."""
    jobs = """
[jobs.delayed]
delay = "300ms"
shell = "[ -e '{here}/go' ] || sleep 300"
"""
    with Daemon(jobs) as daemon:
        first = str(daemon.until(lambda: daemon.job("delayed")["live_runs"])[0]["id"])
        daemon.kill9()
        daemon.open_gate("go")
        daemon.start()
        assert daemon.ended(first)["state"] == "crashed"
        daemon.until(lambda: any(row["state"] == "succeeded" for row in daemon.runs("delayed")))


def test_slow_run_that_renews_is_left_alone() -> None:
    """I8: a run that lives many leases long, with looks all the while, is never taken for dead."""
    jobs = """
[jobs.slow]
manual = true
shell = "while [ ! -e '{here}/go' ]; do sleep 0.05; done"
"""
    with Daemon(jobs, lease="300ms", heartbeat="60ms") as daemon:
        run = daemon.run("slow")
        renewed = daemon.until(lambda: _renewals(daemon) >= 20)
        assert renewed
        assert daemon.run_of(run)["state"] == "running"
        daemon.open_gate("go")
        row = daemon.ended(run)
        assert (row["state"], row["claim"]) == ("succeeded", 1)
        assert daemon.events("run_recovering") == []


def test_daemon_that_was_frozen_for_longer_than_a_lease_goes_on() -> None:
    """I8: after SIGSTOP beyond the lease and SIGCONT the daemon renews before it reaps; its run succeeds."""
    jobs = """
[jobs.frozen]
manual = true
shell = "while [ ! -e '{here}/go' ]; do sleep 0.05; done"

[jobs.beside]
manual = true
shell = "sleep 1.5; touch '{here}/beside'"
"""
    with Daemon(jobs, lease="600ms", heartbeat="100ms") as daemon:
        run = daemon.run("frozen")
        daemon.told("run_started", run_id=run)
        daemon.told("run_started", run_id=daemon.run("beside"))
        daemon.signal(signal.SIGSTOP)
        daemon.until(daemon.path("beside").exists)  # longer than two leases: the daemon did not see it end
        daemon.signal(signal.SIGCONT)
        before = _renewals(daemon)
        daemon.until(lambda: _renewals(daemon) >= before + 3)
        assert daemon.run_of(run)["state"] == "running"
        daemon.open_gate("go")
        row = daemon.ended(run)
        assert (row["state"], row["claim"]) == ("succeeded", 1)
        assert daemon.events("run_recovering") == daemon.events("lease_lost") == []


def _renewals(daemon: Daemon) -> float:
    text = str(daemon.ask("GET", "/metrics").body)
    lines = [line for line in text.splitlines() if "lease_renew" in line and not line.startswith("#")]
    return max((float(line.split()[-1]) for line in lines if "total" in line.split()[0]), default=0.0)


_KILLER = """
[jobs.killer]
every = "1h"
on_crash = "retry"
max_crashes = 2
shell = "while [ ! -e '{here}/armed' ]; do sleep 0.02; done; \
    echo x >> '{here}/kills'; kill -9 $(cat '{here}/daemon.pid'); sleep 60"
kill_grace = "100ms"

[jobs.beside]
manual = true
on_crash = "retry"
shell = "while [ ! -e '{here}/go' ]; do sleep 0.02; done"
"""


def _kill_after_kill(daemon: Daemon, *, most: int) -> int:
    """How many deaths it took until the daemon stayed alive."""
    for deaths in range(most + 1):
        _launch_known(daemon)
        daemon.until(lambda: daemon.has_ended or _is_parked(daemon))
        if not daemon.has_ended:
            return deaths
    raise AssertionError(f"it died more than {most} times")


def _launch_known(daemon: Daemon) -> None:
    """A process starts whose pid the killer knows."""
    daemon.path("daemon.pid").write_text(str(daemon.launch().pid))


def _is_parked(daemon: Daemon) -> bool:
    try:
        return bool(daemon.job("killer")["status"] == "paused")
    except (OSError, AssertionError):
        return False


def test_job_that_kills_the_daemon_is_paused_with_evidence() -> None:
    """After `max_crashes` deaths the job is paused, reason `crashes`, and the loop is over (issue 3, 6)."""
    with Daemon(_KILLER) as daemon:
        daemon.path("daemon.pid").write_text(str(daemon.pid))
        run = daemon.run("killer")
        daemon.open_gate("armed")  # not before the answer is here
        daemon.exit_code()
        deaths = 1 + _kill_after_kill(daemon, most=4)
        job = daemon.job("killer")
        assert deaths == 2
        assert (job["pause"]["reason"], job["pause"]["by"]) == ("crashes", "schedulerd")
        assert "2 crashes in a row" in job["pause"]["note"]
        daemon.until(lambda: daemon.run_of(run)["state"] in ("waiting", "crashed"))
        assert len(daemon.path("kills").read_text().split()) == 2


def test_job_beside_one_that_kills_the_daemon_is_not_punished() -> None:
    """Serial restarts find who killed; the run beside it is neither charged nor paused (issue 3, 6)."""
    with Daemon(_KILLER) as daemon:
        daemon.path("daemon.pid").write_text(str(daemon.pid))
        beside = daemon.run("beside")
        daemon.told("run_started", run_id=beside)
        daemon.run("killer")
        daemon.open_gate("armed")
        daemon.exit_code()
        deaths = 1
        while not _is_parked(daemon):
            assert deaths < 12, "the killer was never found"
            _launch_known(daemon)
            daemon.until(lambda: daemon.has_ended or _is_parked(daemon) or _serial_rest(daemon))
            if not daemon.has_ended and not _is_parked(daemon):
                daemon.open_gate("go")  # the run beside goes first: let it end, and the killer has its turn
                daemon.until(lambda: daemon.has_ended or _is_parked(daemon))
            deaths += daemon.has_ended
        assert daemon.job("killer")["pause"]["reason"] == "crashes"
        job = daemon.job("beside")
        assert (job["status"], job["pause"]) == ("active", None)
        daemon.open_gate("go")
        assert daemon.ended(beside)["state"] == "succeeded"


def _serial_rest(daemon: Daemon) -> bool:
    """The run beside is running alone while the killer waits for its turn."""
    try:
        states = [[row["state"] for row in daemon.job(job)["live_runs"]] for job in ("beside", "killer")]
    except (OSError, AssertionError):
        return False
    return states == [["running"], ["waiting"]]


def test_kill_9_at_any_moment_neither_doubles_nor_hides_a_fire() -> None:
    """I1, I13: over deaths at arbitrary moments each slot ran at most once, and each has its row."""
    jobs = """
[jobs.each-second]
every = "1s"
catch_up = "all"
shell = "echo $SCHEDULER_FIRE_TIME >> '{here}/fires'; sleep 0.2"
"""
    dice = random.Random(3)  # noqa: S311 - a case that can be repeated
    with Daemon(jobs) as daemon:
        daemon.until(lambda: daemon.runs("each-second"))
        for _ in range(3):
            daemon.until(daemon.path("fires").exists)
            time.sleep(dice.random())  # the arbitrary moment
            daemon.kill9()
            daemon.start()
        last = daemon.runs("each-second")[-1]["fire_time"]
        daemon.until(lambda: _settled_until(daemon, last))
        fires = daemon.path("fires").read_text().split()
        assert len(fires) == len(set(fires))
        told: set[int] = set()
        for row in daemon.runs("each-second"):
            first = round(datetime.fromisoformat(row["fire_time"]).timestamp())
            span = set(range(first, first + row["count"]))
            assert not (row["state"] != "skipped" and span & told), row
            told |= span
        assert told == set(range(min(told), max(told) + 1))


def _settled_until(daemon: Daemon, fire_time: str) -> bool:
    rows = [row for row in daemon.runs("each-second") if row["fire_time"] <= fire_time]
    return all(row["finished_at"] is not None for row in rows)
