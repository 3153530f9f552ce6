"""Processes of a benchmark: each is ended by its pid, whatever happens, and its children's CPU counts."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

GRACE_SECONDS = 20.0


class Unmeasured(Exception):
    """Something could not be measured; the text says why, in a table cell."""


@contextmanager
def started(
    command: Sequence[str | Path],
    *,
    log: Path,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    user: str | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """The process runs in a session of its own, so that Ctrl-C reaches it only through us; it is ended."""
    with log.open("ab") as file:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, cwd=cwd, env=env, user=user,
            start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        end(process)


def end(process: subprocess.Popen[bytes], first: signal.Signals = signal.SIGTERM) -> None:
    """The process and what it left in its session are gone."""
    with suppress(ProcessLookupError):
        process.send_signal(first)
    try:
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def cpu_of(pid: int) -> float:
    """Seconds of CPU that the process and its children have used, those that have ended included."""
    total = 0.0
    with suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        for process in [parent, *parent.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
    return total


@contextmanager
def workspace(root: Path) -> Iterator[Path]:
    """A folder on the disk that is measured, gone afterwards; a user without rights may pass through it."""
    with TemporaryDirectory(prefix="schedulerd-bench-", dir=root, ignore_cleanup_errors=True) as path:
        folder = Path(path)
        folder.chmod(0o755)
        yield folder


def sleep_until(moment: float) -> None:
    """It is that time, as `time.time()` tells it, or later."""
    time.sleep(max(0.0, moment - time.time()))
