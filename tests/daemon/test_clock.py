"""Issue 3, point 4, once on the real daemon: its wall clock is set with libfaketime while it runs."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon import Daemon

_LIBRARY = next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))), None)
_JOBS = """
[jobs.each-second]
every = "1s"
command = ["true"]

[jobs.hourly]
every = "1h"
command = ["true"]

[jobs.live]
manual = true
shell = "while [ ! -e '{here}/go' ]; do sleep 0.05; done"
timeout = "10m"
"""

pytestmark = pytest.mark.skipif(_LIBRARY is None, reason="libfaketime is not installed (apt: faketime)")


def _set_clock(daemon: Daemon, offset: str) -> None:
    """The wall clock of the daemon, and of nothing else, is the machine's plus `offset`."""
    fresh = daemon.path("clock.new")
    fresh.write_text(f"{offset}\n")
    fresh.rename(daemon.path("clock"))


@pytest.mark.parametrize("hours", [1, -1], ids=["forward", "back"])
def test_wall_clock_that_is_set_by_an_hour(hours: int) -> None:
    """It is noticed; regular jobs go on, no slot runs twice, a live run stays, no duration is negative."""
    daemon = Daemon(_JOBS, lease="3s", heartbeat="500ms")
    _set_clock(daemon, "+0")
    daemon._env.update(  # noqa: SLF001 - the environment of the process is this test's own business
        LD_PRELOAD=str(_LIBRARY),
        FAKETIME_TIMESTAMP_FILE=str(daemon.path("clock")),
        FAKETIME_DONT_FAKE_MONOTONIC="1",
        FAKETIME_CACHE_DURATION="1",  # read at each call, it gives threads beside each other wrong times
    )
    with daemon:
        live = daemon.run("live")
        daemon.until(lambda: len(daemon.runs("each-second")) >= 2)
        hourly = len(daemon.runs("hourly"))
        _set_clock(daemon, f"{hours:+d}h")
        told = daemon.until(lambda: daemon.events("clock_stepped"), seconds=40)[0]
        assert abs(told["seconds"] - 3600 * hours) < 60
        since = datetime.fromisoformat(told["timestamp"])
        daemon.until(lambda: len(_succeeded(daemon, since)) >= 3)
        if hours > 0:
            daemon.until(lambda: len(daemon.runs("hourly")) > hourly)
        assert daemon.run_of(live)["state"] == "running"
        daemon.open_gate("go")
        row = daemon.ended(live)
        assert (row["state"], row["claim"]) == ("succeeded", 1)
        assert daemon.told("run_succeeded", run_id=live)["seconds"] >= 0
        if hours > 0:
            times = [row["fire_time"] for row in _succeeded(daemon)]
            assert len(times) == len(set(times))
        assert all(
            datetime.fromisoformat(row["finished_at"]) >= datetime.fromisoformat(row["started_at"])
            for row in _succeeded(daemon, since)
        )


def _succeeded(daemon: Daemon, since: datetime | None = None) -> list[dict[str, Any]]:
    """Those that began by the clock of that moment: a claim may commit after a step that it preceded."""
    return [
        row
        for row in daemon.runs("each-second")
        if row["state"] == "succeeded"
        and (since is None or abs(datetime.fromisoformat(row["started_at"]) - since) < timedelta(minutes=30))
    ]
