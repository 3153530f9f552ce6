"""Jobs and runs as the control API shows them; a test names what it cares about."""

from __future__ import annotations

from typing import Any

RUN = "0193f2c4-7a1b-7abc-8000-0123456789ab"
OTHER_RUN = "0193f2c5-0000-7abc-8000-0123456789ab"


def job(id: str = "nightly", **changes: Any) -> dict[str, Any]:
    """An active job of a file, with nothing going on."""
    return {
        "id": id,
        "description": "",
        "status": "active",
        "revision": 7,
        "definition_revision": 3,
        "trigger": {"kind": "cron", "expression": "30 2 * * *", "timezone": "Europe/Berlin"},
        "action": {"kind": "command", "argv": ["/bin/true"]},
        "next_fire_at": "2037-01-01T01:30:00+00:00",
        "last_run": None,
        "live_runs": [],
        "pause": None,
        "enabled": True,
        "problem": None,
        "group": None,
        "labels": [],
        "origin": "file",
        "definition": {"command": ["/bin/true"], "cron": "30 2 * * *"},
        **changes,
    }


def run(id: str = RUN, job: str = "nightly", **changes: Any) -> dict[str, Any]:
    """A run that fired by schedule and succeeded after a minute."""
    return {
        "id": id,
        "job": job,
        "state": "succeeded",
        "reason": None,
        "message": None,
        "trigger": "schedule",
        "fire_time": "2026-10-01T00:30:00+00:00",
        "attempt": 1,
        "claim": 1,
        "queued_at": None,
        "started_at": "2026-10-01T00:30:00.250000+00:00",
        "finished_at": "2026-10-01T00:31:00.250000+00:00",
        "exit_code": 0,
        "signal": None,
        "result": None,
        "progress": None,
        "cost": None,
        "pid": None,
        "wish": "run",
        "ready_at": None,
        "fire_time_last": None,
        "count": 1,
        "attempts": [],
        **changes,
    }
