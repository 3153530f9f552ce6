"""On what was measured: cores, load, disk, versions."""

from __future__ import annotations

import os
import platform
import sqlite3
import time
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.harness.figures import middle
from benchmarks.harness.peer import PROJECT, versions
from benchmarks.harness.processes import Unmeasured, workspace
from scheduler import __version__

WRITES = 300
TOLD = ("apscheduler", "sqlalchemy", "pgqueuer", "asyncpg", "huey")


def facts(root: Path) -> list[str]:
    """Lines of a list."""
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    peers = versions(PROJECT / "requirements-bench.lock")
    later = versions(PROJECT / "requirements-bench-apscheduler4.lock")
    told = ", ".join(f"{name} {peers[name]}" for name in TOLD if name in peers)
    return [
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC; schedulerd {__version__}",
        f"{os.cpu_count()} cores ({platform.machine()}), load {load}, Linux {platform.release()}",
        f"{filesystem(root)} at {root}, `fdatasync` of 4 KiB: {_sync_micros(root):.0f} µs (median)",
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}",
        f"{told}; APScheduler {later.get('apscheduler', '4')}",
    ]


def filesystem(path: Path) -> str:
    """The kind of the file system; raises Unmeasured for one that is no disk, whose commits cost nothing."""
    best, kind = "", "unknown"
    real = str(path.resolve())
    for line in Path("/proc/mounts").read_text().splitlines():
        _, point, type_, *_ = line.split()
        if (real == point or real.startswith(point.rstrip("/") + "/")) and len(point) >= len(best):
            best, kind = point, type_
    if kind in {"tmpfs", "ramfs"}:
        raise Unmeasured(f"{path} is in memory ({kind}): name a folder on a disk with --folder")
    return kind


def _sync_micros(root: Path) -> float:
    with workspace(root) as folder, (folder / "sync").open("wb", buffering=0) as file:
        taken = []
        for _ in range(WRITES):
            file.write(bytes(4096))
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            taken.append(time.perf_counter() - began)
    return middle(taken) * 1e6
