"""What the tests of the control API share."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
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


@pytest.fixture(scope="session")
def standing() -> Iterator[Client]:
    """The client of one daemon, in a thread, for all tests that leave nothing behind in it: most refusals."""
    up: Future[Client] = Future()
    over = threading.Event()

    async def live(folder: Path) -> None:
        async with daemon_in(folder) as daemon:
            await daemon.define(NIGHTLY)
            up.set_result(daemon.client)
            await asyncio.to_thread(over.wait)

    with TemporaryDirectory(prefix="control-") as folder, ThreadPoolExecutor(1) as thread:
        life = thread.submit(lambda: asyncio.run(live(Path(folder))))
        life.add_done_callback(lambda ended: None if up.done() else up.set_exception(ended.exception()))
        try:
            yield up.result(timeout=40)
        finally:
            over.set()
            life.result(timeout=40)


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
