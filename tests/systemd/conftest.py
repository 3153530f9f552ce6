"""One sandbox for each module of these tests, and a clean service in it for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.systemd.support.sandbox import Machine, make_environment, required_tool


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment for the sandbox."""
    required_tool()
    return make_environment(tmp_path_factory.mktemp("environment") / "venv")


@pytest.fixture(scope="module")
def booted(environment: Path) -> Iterator[Machine]:
    """A machine with schedulerd installed."""
    machine = Machine(required_tool(), environment)
    try:
        machine.install()
        yield machine
    finally:
        machine.down()


@pytest.fixture
def machine(booted: Machine) -> Iterator[Machine]:
    """The machine; no service of the test outlives it."""
    yield booted
    booted.clear()
