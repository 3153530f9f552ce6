"""A stub daemon on a real socket, and schedctl called against it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from scheduler.cli.main import run
from tests.cli.support.client import Called
from tests.cli.support.stub import StubDaemon

Schedctl = Callable[..., Called]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory with a path short enough for sockets."""
    with TemporaryDirectory(prefix="schedctl-") as path:
        yield Path(path)


@pytest.fixture
def daemon(folder: Path) -> Iterator[StubDaemon]:
    stub = StubDaemon(folder / "control.sock")
    yield stub
    stub.close()


@pytest.fixture
def environ(daemon: StubDaemon) -> dict[str, str]:
    """The environment of a process that finds the stub, in UTC and without colours of its own choice."""
    kept = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS", "LINES")}
    return {**kept, "SCHEDULER_SOCKET": str(daemon.socket), "TZ": "UTC"}


@pytest.fixture
def schedctl(
    daemon: StubDaemon, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Schedctl:
    """Calls schedctl in this process, against the stub."""
    monkeypatch.setenv("SCHEDULER_SOCKET", str(daemon.socket))

    def call(*arguments: str) -> Called:
        capfd.readouterr()
        code = run(arguments)
        out, err = capfd.readouterr()
        return Called(code=code, out=out, err=err)

    return call
