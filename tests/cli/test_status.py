from __future__ import annotations

from tests.cli.conftest import Schedctl
from tests.cli.support.stub import StubDaemon

STATUS = {
    "version": "0.1.0",
    "uptime": 7325.5,
    "draining": False,
    "paused": None,
    "counts": {"active": 3, "paused": 1},
    "store": {"ok": True, "detail": {"wal": 3}},
}


def test_status_tells_every_fact(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """Uptime reads as a duration, groups of numbers stand on one line."""
    daemon.on("GET", "/v1/status", STATUS)

    out = schedctl("status").out

    assert "uptime    2 h 2 min" in out
    assert "counts    active 3, paused 1" in out
    assert "store     ok yes, detail (wal 3)" in out
    assert "nothing new" not in out


def test_status_of_a_draining_daemon_says_it_first(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """What keeps jobs from running stands on top."""
    daemon.on("GET", "/v1/status", {**STATUS, "draining": True, "paused": {"by": "uid:0"}})

    first, second = schedctl("status").out.splitlines()[:2]

    assert first.startswith("draining")
    assert second.startswith("paused")


def test_status_as_json_is_the_object_of_the_api(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """Unchanged."""
    daemon.on("GET", "/v1/status", STATUS)

    assert schedctl("status", "--json").json == STATUS
