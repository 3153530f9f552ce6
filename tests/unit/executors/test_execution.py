from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler.errors import SpawnFailed
from scheduler.executors.dispatch import Executors
from scheduler.executors.processes import Belonging
from scheduler.model.jobs import Action
from tests.support.executors import (
    STORE,
    Told,
    command,
    grant,
    handler,
    open_descriptors,
    surroundings,
    until,
)


@pytest.fixture
def executors(tmp_path: Path) -> Iterator[Executors]:
    made = Executors(surroundings(tmp_path))
    yield made
    made.close()


def refuse_threads(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    start = threading.Thread.start

    def starts(self: threading.Thread) -> None:
        if self.name == name:
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", starts)


@pytest.mark.parametrize("thread", ["off-loop", "pump"])
@pytest.mark.parametrize("action", [command("sleep", "60"), handler("math:sin", process=True)])
async def test_attempt_that_cannot_be_watched_is_not_left_running(
    executors: Executors, monkeypatch: pytest.MonkeyPatch, thread: str, action: Action
) -> None:
    """Where no thread is to be had, the start fails, and no process and no descriptor is left of it."""
    refuse_threads(monkeypatch, thread)
    granted = grant(action)
    before = open_descriptors()

    with pytest.raises(SpawnFailed, match="can't start new thread"):
        await executors.start(granted, Told())

    left = Belonging(store_id=STORE, run_id=granted.run.id, claim=1)
    await until(lambda: not left.processes())
    assert open_descriptors() == before
