from __future__ import annotations

from typing import Any

from tests.cli.conftest import Schedctl
from tests.cli.support.stub import StubDaemon

STATUS: dict[str, Any] = {
    "version": "0.1.0",
    "instance": "526d51a4fd3970b3",
    "pid": 4711,
    "started_at": "2026-10-01T00:00:00+00:00",
    "uptime": 7325.5,
    "draining": False,
    "paused": None,
    "counts": {"jobs": {"active": 3, "paused": 1, "failed": 0}, "runs": {}},
    "health": {
        "ok": True,
        "store_ok": True,
        "last_tick_age": 1.5,
        "last_renewal_age": None,
        "loop_lag": 0.003,
    },
    "faults": [],
}


def test_status_tells_how_the_daemon_is(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """Version and health first, then counts and ages; what is in order is not spelt out."""
    daemon.on("GET", "/v1/status", STATUS)

    first, *rest = schedctl("status").out.splitlines()

    assert first == "schedulerd 0.1.0 healthy"
    assert [" ".join(line.split()) for line in rest if "started" not in line] == [
        "process pid 4711, instance 526d51a4fd3970b3",
        "jobs 3 active, 1 paused",
        "runs none",
        "last tick 1 s ago",
        "leases renewed never",
        "loop lag 3 ms",
    ]


def test_status_says_what_keeps_jobs_from_running(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """Draining, the pause of all jobs, a store that cannot be written, and every fault of the job files."""
    pause = {
        "by": "uid:0",
        "reason": "operator",
        "mode": "drain",
        "since": None,
        "until": None,
        "note": "move",
    }
    fault = {"file": "jobs.d/x.toml", "line": 3, "job": "x", "key": "cron", "message": "minute 61"}
    health = {**STATUS["health"], "ok": False, "store_ok": False}
    unwell = {
        **STATUS,
        "draining": True,
        "paused": pause,
        "counts": None,
        "health": health,
        "faults": [fault],
    }
    daemon.on("GET", "/v1/status", unwell)

    out = schedctl("status").out

    for text in (
        "not healthy",
        "starts nothing new",
        "by uid:0",
        "move",
        "cannot be written",
        "fault jobs.d/x.toml:3: job x: cron: minute 61",
        "jobs            ?",
    ):
        assert text in out


def test_status_as_json_is_the_object_of_the_api(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """Unchanged."""
    daemon.on("GET", "/v1/status", STATUS)

    assert schedctl("status", "--json").json == STATUS
