from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest

from tests.support.daemon import Daemon, is_alive

pytestmark = pytest.mark.slow

JOBS = """
[jobs.command]
manual = true
shell = "trap '' TERM; sleep 600 & setsid sleep 601 & wait"
[jobs.handler]
manual = true
python = "handlers:work"
process = true
"""
HANDLERS = "import time\ndef work(run):\n    time.sleep(600)\n"


def wardens_of(pid: int) -> list[int]:
    command = ["pgrep", "-P", str(pid), "-f", "warden_watch"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return [int(word) for word in found.stdout.split()]


def test_nothing_outlives_a_killed_daemon_by_more_than_a_moment() -> None:
    """After SIGKILL, and no new start, commands, handlers and runaways are dead within two seconds."""
    with Daemon(JOBS, handlers=HANDLERS) as daemon:
        for job in ("command", "handler"):
            daemon.run_when(daemon.run(job), lambda row: row["pid"])
        daemon.until(lambda: len(daemon.descendants()) >= 4)
        (warden,) = wardens_of(daemon.pid)

        daemon.kill9()

        killed_at = time.monotonic()
        daemon.until(lambda: not daemon.descendants())
        assert time.monotonic() - killed_at < 2
        daemon.until(lambda: not is_alive(warden))


def test_a_warden_that_was_killed_first_is_replaced_in_time() -> None:
    """A new warden takes the place of a dead one, and ends what was started before it."""
    with Daemon(JOBS, handlers=HANDLERS) as daemon:
        daemon.run_when(daemon.run("command"), lambda row: row["pid"])
        (first,) = wardens_of(daemon.pid)
        os.kill(first, signal.SIGKILL)
        daemon.until(lambda: wardens_of(daemon.pid) not in ([], [first]))

        daemon.kill9()

        daemon.until(lambda: not daemon.descendants())


def test_an_orderly_stop_takes_the_warden_with_it() -> None:
    """After SIGTERM no warden is left."""
    with Daemon(JOBS, handlers=HANDLERS) as daemon:
        (warden,) = wardens_of(daemon.pid)

        assert daemon.stop() == 0

        daemon.until(lambda: not is_alive(warden))
