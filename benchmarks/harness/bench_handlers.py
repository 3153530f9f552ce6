"""The handlers that the measured daemon runs; it imports this file from its `python_path`.

What they note stays in memory until `dump` is started by hand, so that noting costs as little as in the
peers.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from array import array
from pathlib import Path

from scheduler import RunContext

MONITOR_SECONDS = 0.002

_starts = array("d")
_stalls: list[float] = []
_over = asyncio.Event()


async def nothing(run: RunContext) -> None:
    """As little as a job can be."""
    del run


async def note(run: RunContext) -> None:
    """Remembers when it was due and when it started."""
    _starts.append(run.fire_time.timestamp() if run.fire_time else 0.0)
    _starts.append(time.time())


async def watch(run: RunContext) -> None:
    """Sleeps 2 ms at a time until `dump`, and remembers the longest that it had to wait beyond that."""
    del run
    before = time.perf_counter()
    while not _over.is_set():
        await asyncio.sleep(MONITOR_SECONDS)
        now = time.perf_counter()
        _stalls.append(now - before - MONITOR_SECONDS)
        before = now


async def dump(run: RunContext, *, folder: str) -> None:
    """Writes what was remembered into the folder, and ends `watch`."""
    del run
    _over.set()
    place = Path(folder)
    (place / "stall.json").write_text(json.dumps(max(_stalls, default=None)))
    (place / "starts.tmp").write_bytes(_starts.tobytes())
    (place / "starts.tmp").rename(place / "starts")


async def short(run: RunContext, *, ledger: str) -> None:
    """Takes 30 ms; the ledger gets a line at its start and one at its end."""
    _write(ledger, "start", run)
    await asyncio.sleep(0.03)
    _write(ledger, "end", run)


async def long(run: RunContext, *, ledger: str) -> None:
    """Lasts until the daemon dies; when it runs again it has only to begin."""
    _write(ledger, "start", run)
    if _begun(ledger, run) < 2:
        await asyncio.sleep(3600)
    _write(ledger, "end", run)


def _begun(ledger: str, run: RunContext) -> int:
    return Path(ledger).read_text().count(f'"start", "{run.job_id}"')


def _write(ledger: str, what: str, run: RunContext) -> None:
    line = json.dumps([what, run.job_id, time.time()]) + "\n"
    file = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)
