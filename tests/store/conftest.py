"""The conformance suite's stores: each test runs on every kind, through the protocol alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from scheduler.store.protocol import Store
from tests.support.clock import FakeClock
from tests.support.desk import Desk
from tests.support.stores import OPENERS, Opener


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=sorted(OPENERS))
async def opener(request: Any, tmp_path: Path, clock: FakeClock) -> AsyncIterator[Opener]:
    """Opens further handles on the data of this test's store."""
    async with OPENERS[request.param](tmp_path, clock) as open_one:
        yield open_one


@pytest.fixture
async def store(opener: Opener) -> Store:
    return await opener()


@pytest.fixture
def desk(store: Store, clock: FakeClock) -> Desk:
    """A daemon and an operator at the store."""
    return Desk(store, clock)
