"""What a call of schedctl does not pay for: measured by imports, which no busy machine changes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cli.support.builders import job
from tests.cli.support.stub import StubDaemon

HEAVY = (
    "asyncio",
    "ssl",
    "email",
    "pydantic",
    "fastapi",
    "uvicorn",
    "apscheduler",
    "structlog",
    "psutil",
    "zoneinfo",
    "tomllib",
)
PROGRAM = """
import sys
from scheduler.cli.main import run
try:
    code = run(sys.argv[1:])
finally:
    print(*sys.modules, file=sys.stderr)
sys.exit(code)
"""


def imported(environ: dict[str, str], *arguments: str) -> set[str]:
    """The modules that the call has imported."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], env=environ, capture_output=True, text=True, check=True
    )
    return set(done.stderr.split())


@pytest.mark.parametrize(
    "arguments", [["list"], ["list", "--json"], ["show", "nightly"], ["pause", "nightly"]]
)
def test_everyday_verbs_import_nothing_heavy(
    daemon: StubDaemon, environ: dict[str, str], arguments: list[str]
) -> None:
    """No loop, no models, no server, and in a pipe no rich."""
    daemon.jobs(job())
    daemon.on("POST", "/v1/jobs/nightly/pause", {"job": job(), "runs": []})

    modules = imported(environ, *arguments)

    assert not modules & {*HEAVY, "rich"}


def test_help_imports_no_verb(environ: dict[str, str]) -> None:
    """The list of verbs costs click alone."""
    assert "scheduler.cli.jobs" not in imported(environ, "--help")


def test_completing_a_verb_imports_no_verb(environ: dict[str, str]) -> None:
    """The shell waits for it at every key."""
    asked = {"_SCHEDCTL_COMPLETE": "bash_complete", "COMP_WORDS": "schedctl re", "COMP_CWORD": "1"}

    assert not imported({**environ, **asked}) & {"scheduler.cli.jobs", "pydantic", "http.client"}
