"""What `--json` prints is what docs/schemas says, for every verb against a real daemon."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from scheduler.cli import shapes
from scheduler.control import models
from tests.cli.support.living import schedctl
from tests.support.daemon import Daemon

JOBS = """
[jobs.nightly]
cron = "30 2 * * *"
command = ["true"]
[jobs.quick]
manual = true
shell = "echo one; echo two >&2"
[jobs.slow]
manual = true
command = ["sleep", "600"]
[jobs.narrate]
manual = true
shell = 'test "$SCHEDULER_ITEM_KEY" = good'
[jobs.narrate.batch]
items = ["good", "bad"]
"""


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with Daemon(JOBS) as daemon:
        yield daemon


def test_what_is_printed_fits_its_schema(daemon: Daemon, tmp_path: Path) -> None:
    """No member is missing, none is unknown, and each has its type."""
    table = tmp_path / "mine.toml"
    table.write_text('every = "1h"\ncommand = ["true"]\n')
    quick, batch, slow = daemon.run("quick"), daemon.run("narrate"), daemon.run("slow")
    for run in (quick, batch):
        daemon.ended(run)
    asked: list[tuple[Any, list[str]]] = [
        (models.Status, ["status"]),
        (models.Job, ["list"]),
        (models.Job, ["show", "nightly"]),
        (models.Run, ["show", batch]),
        (models.Run, ["runs"]),
        (models.Item, ["items", batch]),
        (models.FireTimes, ["next", "nightly"]),
        (models.Why, ["why", "slow"]),
        (models.JobAndRuns, ["pause", "nightly", "slow"]),
        (models.JobAndRuns, ["resume", "nightly"]),
        (models.JobAndRuns, ["skip-next", "nightly"]),
        (models.AuditEntry, ["audit", "nightly"]),
        (models.Run, ["run", "quick"]),
        (models.Run, ["cancel", slow]),
        (models.Run, ["retry", batch]),
        (models.Job, ["add", "mine", "--file", str(table)]),
        (models.Job, ["edit", "mine", "--file", str(table)]),
        (models.Reload, ["reload"]),
        (shapes.OutputText, ["output", quick]),
        (shapes.OutputLine, ["output", quick, "--timestamps"]),
        (shapes.Doctor, ["doctor"]),
        (shapes.Backup, ["backup", str(tmp_path / "b.db")]),
    ]

    for shape, arguments in asked:
        called = schedctl(daemon, *arguments, "--json")
        assert called.lines, (arguments, called.err)
        for line in called.lines:
            TypeAdapter(shape).validate_python(line)
    daemon.ended(slow)


def test_what_the_store_alone_says_fits_too(daemon: Daemon) -> None:
    """The same schemas hold without a daemon."""
    quick = daemon.run("quick")
    daemon.ended(quick)
    daemon.stop()

    for shape, arguments in (
        (models.Job, ["list"]),
        (models.Job, ["show", "nightly"]),
        (models.Run, ["runs"]),
        (models.Run, ["show", quick]),
        (models.FireTimes, ["next", "nightly"]),
        (models.Why, ["why", "nightly"]),
        (shapes.OutputText, ["output", quick]),
        (shapes.OutputLine, ["output", quick, "--timestamps"]),
    ):
        lines = schedctl(daemon, *arguments, "--json").lines
        assert lines
        for line in lines:
            TypeAdapter(shape).validate_python(line)
