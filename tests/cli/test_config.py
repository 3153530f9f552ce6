from __future__ import annotations

from tests.cli.conftest import Schedctl
from tests.cli.support.stub import StubDaemon

CLEAN = {"added": ["a"], "changed": ["b"], "removed": ["c"], "unchanged": 4, "faults": []}


def test_reload_prints_what_changed(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """One line a job, and how many stayed as they were."""
    daemon.on("POST", "/v1/reload", CLEAN)

    called = schedctl("reload")

    assert called.code == 0
    assert called.out.splitlines() == ["added a", "changed b", "removed c", "unchanged 4"]


def test_reload_with_faults_is_exit_one(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """Each fault names file, line, job and key; what was sound has been applied."""
    fault = {"file": "jobs.d/x.toml", "line": 3, "job": "x", "key": "cron", "message": "minute 61"}
    daemon.on("POST", "/v1/reload", {**CLEAN, "faults": [fault]})

    called = schedctl("reload")

    assert called.code == 1
    assert "added a" in called.out
    assert called.err == "schedctl: jobs.d/x.toml:3: job x: cron: minute 61\n"
    assert schedctl("reload", "--json").json == {**CLEAN, "faults": [fault]}
