"""What the tests of the control API share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.control.support.client import Client
from tests.control.support.serving import Daemon, daemon_in


@pytest.fixture
def folder() -> Iterator[Path]:
    """A private directory with a path short enough for sockets."""
    with TemporaryDirectory(prefix="control-") as path:
        yield Path(path)


@pytest.fixture
async def daemon(folder: Path) -> AsyncIterator[Daemon]:
    """A whole daemon, with the job `nightly` (hourly, never due in a test) from a file."""
    async with daemon_in(folder) as started:
        await started.define(NIGHTLY)
        yield started


@pytest.fixture
def client(daemon: Daemon) -> Client:
    return daemon.client


NIGHTLY = """
    [jobs.nightly]
    cron = "30 2 29 2 *"
    timezone = "Europe/Berlin"
    shell = "echo done"
    labels = ["billing"]
    description = "Export"
"""
