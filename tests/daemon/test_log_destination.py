"""Whatever becomes of the reader of the log, jobs go on, and lines that are lost are counted."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress

import pytest

from tests.support.daemon import Daemon

JOBS = '[jobs.quick]\nmanual = true\ncommand = ["true"]\n'


class LoggingTo(Daemon):
    """A daemon whose stdout is this descriptor."""

    def __init__(self, out: int) -> None:
        super().__init__(JOBS)
        self._out = out

    def launch(self) -> subprocess.Popen[bytes]:
        self._lives += 1
        self._log_file().touch()
        flags = ["--config", str(self.config), "--state", str(self.state), "--socket", str(self.socket)]
        with self._error_file().open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "scheduler.daemon", *flags],
                stdin=subprocess.DEVNULL,
                stdout=self._out,
                stderr=errors,
                start_new_session=True,
            )
        return self.process

    def lost(self) -> float:
        """Lines that the daemon counts as lost."""
        text = self.get("/metrics")
        (line,) = [line for line in text.splitlines() if line.startswith("scheduler_log_lines_lost")]
        return float(line.split()[1])


def unread() -> tuple[int, Callable[[], None]]:
    """A pipe that nobody reads, and that is full."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writer, b"." * 4_096)
    os.set_blocking(writer, True)
    return writer, lambda: os.close(reader)


def hung_up() -> tuple[int, Callable[[], None]]:
    """A pipe whose reader is gone."""
    reader, writer = os.pipe()
    os.close(reader)
    return writer, lambda: None


def full() -> tuple[int, Callable[[], None]]:
    """A file on a full disk."""
    return os.open("/dev/full", os.O_WRONLY), lambda: None


@pytest.mark.parametrize(
    ("destination", "counts"),
    [(unread, False), (hung_up, True), (full, True)],
    ids=["unread", "hung up", "full"],
)
def test_jobs_go_on_whatever_becomes_of_the_log(
    destination: Callable[[], tuple[int, Callable[[], None]]], counts: bool
) -> None:
    """I14, I15: runs start and end, lost lines are counted, the loop is free, the stop is in order."""
    out, release = destination()
    try:
        with LoggingTo(out) as daemon:
            assert daemon.ended(daemon.run("quick"))["state"] == "succeeded"
            assert bool(daemon.lost()) is counts  # those that nobody reads yet wait in the queue
            assert daemon.get("/v1/status")["health"]["loop_lag"] < 5
            assert daemon.stop() == 0
            assert daemon.complaint() == ""
    finally:
        with suppress(OSError):
            release()
        os.close(out)
