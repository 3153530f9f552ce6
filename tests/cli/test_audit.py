from __future__ import annotations

from typing import Any

import pytest

from tests.cli.conftest import Schedctl
from tests.cli.support.builders import RUN, job
from tests.cli.support.stub import StubDaemon

ENTRY: dict[str, Any] = {
    "at": "2026-10-01T00:00:00+00:00",
    "verb": "pause",
    "job": "nightly",
    "run": None,
    "by": {"uid": 1000, "gid": 1000, "pid": 4711, "command": "schedctl pause nightly"},
    "detail": {"mode": "drain", "reason": "disk\x1b[2J", "until": None},
}


def test_audit_tells_who_when_what_and_from_where(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """One line a deed, values escaped."""
    daemon.page(
        "/v1/jobs/nightly/audit", [ENTRY, {**ENTRY, "verb": "cancel", "run": RUN, "by": "schedulerd"}]
    )

    pause, cancel = schedctl("audit", "nightly").out.splitlines()[1:]

    assert "pause" in pause
    assert "uid 1000, gid 1000, pid 4711: schedctl pause nightly" in pause
    assert pause.endswith("mode drain, reason disk\\e[2J")
    assert f"run {RUN}" in cancel
    assert "schedulerd" in cancel


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("/opt/x/bin/python3.13 /opt/x/bin/schedctl pause nightly --reason /a b", "schedctl pause nightly"),
        ("/usr/bin/curl --unix-socket /run/x", "curl --unix-socket /run/x"),
        ("/usr/bin/python3 -c import os", "python3 -c import os"),
    ],
)
def test_audit_names_the_program_and_not_its_place(
    schedctl: Schedctl, daemon: StubDaemon, command: str, said: str
) -> None:
    """What was typed is seen at once; the whole line is in the JSON."""
    entry = {**ENTRY, "by": {**ENTRY["by"], "command": command}}
    daemon.page("/v1/jobs/nightly/audit", [entry])

    assert f"pid 4711: {said}" in schedctl("audit", "nightly").out
    assert schedctl("audit", "nightly", "--json").json == entry


def test_audit_as_json_is_one_line_each(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """Cut at `--limit`."""
    daemon.page("/v1/jobs/nightly/audit", [ENTRY] * 5)

    assert schedctl("audit", "nightly", "--json", "--limit", "2").lines == [ENTRY, ENTRY]


def test_audit_of_an_unknown_job_names_the_nearest(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """Exit 3."""
    daemon.jobs(job("nightly"))

    called = schedctl("audit", "nightli")

    assert called.code == 3
    assert "did you mean nightly?" in called.err


def test_an_empty_audit_says_so(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """It is no error."""
    daemon.page("/v1/jobs/nightly/audit", [])

    assert schedctl("audit", "nightly").out == "nothing was done to it\n"
