"""What facts mean: each fault with its remedy, and a healthy machine with none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler.cli.findings import DiskFacts, Facts, LingeringProcess, PathFacts, judge
from scheduler.clock import DAY, HOUR, SECOND, rfc3339
from tests.cli.support.builders import job

NOW = 1_800_000_000 * SECOND
DISK = DiskFacts(path="/s", free=90 << 30, total=100 << 30, inodes_free=900, inodes=1_000, log=0)
STATUS: dict[str, Any] = {
    "version": "1.0",
    "pid": 7,
    "draining": False,
    "paused": None,
    "counts": {"jobs": {}, "runs": {}},
    "health": {"ok": True, "store_ok": True},
    "faults": [],
}
HEALTHY = Facts(
    now=NOW,
    version="1.0",
    status=STATUS,
    jobs=[job()],
    paths=[
        PathFacts(path="/s", kind="state directory", mode=0o700, uid=500),
        PathFacts(path="/s/schedulerd.db", kind="store", mode=0o600, uid=500),
        PathFacts(path="/c/scheduler.toml", kind="configuration file", mode=0o644, uid=0),
    ],
    daemon_uid=500,
    is_synchronised=True,
    wall_seen=NOW - SECOND,
    disk=DISK,
    has_systemd=True,
    unit="schedulerd.service",
    unit_enabled=True,
)


def paused(days: int, **changes: Any) -> dict[str, Any]:
    since = rfc3339(NOW - days * DAY)
    pause = {"reason": "operator", "by": "uid:0", "note": "", "since": since, "until": None, "mode": "drain"}
    return {**pause, **changes}


def test_a_healthy_machine_has_no_findings() -> None:
    """Nothing is made up."""
    assert list(judge(HEALTHY)) == []


@pytest.mark.parametrize(
    ("changes", "check", "words", "remedy"),
    [
        ({"status": None, "unreachable": "nobody"}, "daemon", "nobody", "systemctl start"),
        ({"version": "1.1"}, "version", "version 1.0, this schedctl is 1.1", "restart"),
        ({"status": {**STATUS, "counts": None}}, "store", "cannot read or write", "disk"),
        ({"status": {**STATUS, "health": {"ok": False}}}, "daemon", "does not do its work", "loop_blocked"),
        (
            {"status": {**STATUS, "faults": [{"message": "unknown key", "file": "/c/a.toml", "line": 3}]}},
            "files",
            "/c/a.toml:3: unknown key",
            "schedctl check",
        ),
        ({"config_faults": ["b.toml: bad"]}, "files", "b.toml: bad", "schedctl reload"),
        (
            {"paths": [PathFacts(path="/c/x", kind="job file", mode=0o666, uid=0)]},
            "permissions",
            "everybody may write",
            "chmod o-w /c/x",
        ),
        (
            {"paths": [PathFacts(path="/s", kind="state directory", mode=0o750, uid=500)]},
            "permissions",
            "others may read",
            "chmod 0700 /s",
        ),
        (
            {"paths": [PathFacts(path="/c/x", kind="job file", mode=0o644, uid=1000)]},
            "permissions",
            "belongs to uid 1000",
            "chown 500 /c/x",
        ),
        ({"store_faults": ["row 7 missing"]}, "store", "row 7 missing", "backup"),
        ({"store_refusal": ("schema 9", "use the newer one")}, "store", "schema 9", "use the newer one"),
        ({"disk": replace(DISK, free=100 << 20)}, "disk", "100 MiB", "retention"),
        ({"disk": replace(DISK, inodes_free=10)}, "disk", "10 of 1000 inodes", "fewer runs"),
        ({"disk": replace(DISK, log=300 << 20)}, "store", "300 MiB", "open beside"),
        ({"wall_seen": NOW + HOUR}, "clock", "1 h behind", "set-ntp"),
        ({"jobs": [job(problem={"code": "x", "message": "gone"})]}, "jobs", "broken: gone", "repair"),
        ({"jobs": [job(status="failed")]}, "jobs", "failed too often", "schedctl resume nightly"),
        ({"jobs": [job(pause=paused(8))]}, "pauses", "nightly is paused since", "schedctl resume nightly"),
        ({"status": {**STATUS, "paused": paused(8)}}, "pauses", "all jobs", "resume --all"),
        (
            {"lingering": [LingeringProcess(pid=9, command="sleep 600", run="r")]},
            "processes",
            "process 9 (sleep 600)",
            "kill 9",
        ),
        ({"unit_enabled": False}, "unit", "not enabled", "systemctl enable schedulerd.service"),
    ],
)
def test_each_fault_is_found_and_has_its_remedy(
    changes: dict[str, Any], check: str, words: str, remedy: str
) -> None:
    """One thing is wrong, and it alone is told."""
    [finding] = judge(replace(HEALTHY, **changes))

    assert finding.check == check
    assert words in finding.message
    assert remedy in finding.remedy
    assert not finding.is_note


@pytest.mark.parametrize(
    ("changes", "check"),
    [
        ({"is_synchronised": False}, "clock"),
        ({"unit": None}, "unit"),
        ({"status": {**STATUS, "draining": True}}, "daemon"),
    ],
)
def test_what_is_only_worth_knowing_is_a_note(changes: dict[str, Any], check: str) -> None:
    """It fails nothing."""
    [finding] = judge(replace(HEALTHY, **changes))

    assert (finding.check, finding.is_note) == (check, True)


@pytest.mark.parametrize("pause", [paused(6), paused(30, until="2100-01-01T00:00:00+00:00")])
def test_a_pause_that_is_new_or_ends_by_itself_is_not_forgotten(pause: dict[str, Any]) -> None:
    """Only those without an end that are older than a week are told."""
    assert list(judge(replace(HEALTHY, jobs=[job(pause=pause)]))) == []
