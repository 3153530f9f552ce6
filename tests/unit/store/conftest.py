from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from scheduler.store.sqlite import FILE_NAME, SqliteStore
from tests.support.clock import FakeClock
from tests.support.desk import Desk
from tests.support.stores import Trouble, sqlite_store


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def trouble() -> Trouble:
    return Trouble()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store of this test is, or will be."""
    return tmp_path / FILE_NAME


@pytest.fixture
async def store(path: Path, clock: FakeClock, trouble: Trouble) -> AsyncIterator[SqliteStore]:
    """A store that does not wait for a lock in real time: the fake clock says how long it tries."""
    async with sqlite_store(path, clock, trouble=trouble, busy_timeout_ms=0) as opened:
        yield opened


@pytest.fixture
def desk(store: SqliteStore, clock: FakeClock) -> Desk:
    return Desk(store, clock)
