"""A store on a fake clock for the stories that need one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from scheduler.store.sqlite import FILE_NAME, SqliteStore
from tests.support.clock import FakeClock
from tests.support.desk import Desk
from tests.support.stores import sqlite_store


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / FILE_NAME


@pytest.fixture
async def store(path: Path, clock: FakeClock) -> AsyncIterator[SqliteStore]:
    async with sqlite_store(path, clock) as opened:
        yield opened


@pytest.fixture
def desk(store: SqliteStore, clock: FakeClock) -> Desk:
    """A daemon and an operator at the store."""
    return Desk(store, clock)
