"""Issue 5: a signal that comes while the daemon still starts is heard, and does it no harm."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from tests.support.daemon import PATIENCE, Daemon

_HEAVY = "pydantic_core"
"""A library that is mapped early in the half second of imports, long before the loop turns."""


def _launched_and_listening(daemon: Daemon) -> None:
    """The process is there and catches SIGHUP, which it must do before it imports what takes long."""
    process = daemon.launch()
    proc = Path(f"/proc/{process.pid}")
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        imports_begun = _HEAVY in (proc / "maps").read_text()
        caught = int((proc / "status").read_text().partition("SigCgt:")[2].split()[0], 16)
        if caught >> (signal.SIGHUP - 1) & 1:
            return
        assert not imports_begun, "it imports, and a SIGHUP would end it"
        time.sleep(0.002)
    raise AssertionError("it never listened")


def test_signal_in_the_first_moment_of_a_start_is_heard() -> None:
    """I12, I14: SIGTERM ends it at once, in order and without a word; SIGHUP is a reload once it is ready."""
    with Daemon('[jobs.a]\nmanual = true\ncommand = ["true"]\n', fresh=True) as daemon:
        daemon.stop()
        _launched_and_listening(daemon)
        assert daemon.stop() == 0
        assert daemon.complaint() == ""
        assert not daemon.socket.exists()

        _launched_and_listening(daemon)
        daemon.signal(signal.SIGHUP)
        daemon.told("daemon_ready")
        daemon.until(lambda: len(daemon.events("config_reloaded")) == 2)
