from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler.errors import SpawnFailed
from scheduler.executors import execution as watching
from scheduler.executors.dispatch import Executors
from scheduler.executors.execution import ProcessExecution
from scheduler.executors.processes import Belonging, ProcessId, Session, session_survivors
from scheduler.model.jobs import Action
from scheduler.model.runs import Wish
from tests.support.executors import (
    STORE,
    Told,
    command,
    finish,
    grant,
    handler,
    open_descriptors,
    shell,
    surroundings,
    until,
    written,
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


@pytest.mark.parametrize(
    ("thread", "action"),
    [
        ("spawn", command("sleep", "60")),
        ("spawn", handler("math:sin", process=True)),
        ("pump", handler("math:sin", process=True)),
    ],
)
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
    assert open_descriptors() <= before


async def test_output_waits_for_a_thread_that_reads_it(
    executors: Executors, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A command that writes while no thread is to be had is not ended, and nothing that it wrote is lost."""
    granted = grant(shell("echo early; sleep 0.5; echo late"))
    with monkeypatch.context() as patch:
        refuse_threads(patch, "pump")
        execution = await executors.start(granted, Told())
        await asyncio.sleep(0.1)

    ended = await execution.wait()

    assert ended.exit_code == 0
    assert written(tmp_path, granted) == b"early\nlate\n"


async def test_command_that_says_nothing_needs_no_thread(executors: Executors) -> None:
    """Where nothing is written no thread reads, neither during the run nor after it."""
    of_others = set(threading.enumerate())  # one of the test before may be about to end
    execution = await executors.start(grant(shell("sleep 0.1")), Told())
    reading = [thread for thread in threading.enumerate() if thread.name == "pump"]
    ended = await execution.wait()
    reading += [thread for thread in threading.enumerate() if thread.name == "pump"]

    assert (ended.exit_code, ended.left_behind) == (0, 0)
    assert set(reading) <= of_others


async def test_who_stays_in_the_session_is_counted_in_whatever_group(executors: Executors) -> None:
    """A background process that left the process group, but not the session, is told as left behind."""
    granted = grant(command("bash", "-c", "set -m; sleep 60 >/dev/null 2>&1 3>&- & exit 0"))
    execution = await executors.start(granted, Told())

    ended = await execution.wait()
    assert ended.left_behind == 1
    await finish(execution)

    assert not Belonging(store_id=STORE, run_id=granted.run.id, claim=1).processes()


async def test_freeze_after_the_end_reaches_nobody(
    executors: Executors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the main process is reaped its group is not signalled, also while who is left is counted."""
    reaped = asyncio.Event()
    loop = asyncio.get_running_loop()

    def count(session: Session) -> list[ProcessId]:
        loop.call_soon_threadsafe(reaped.set)
        return session_survivors(session)

    monkeypatch.setattr(watching, "session_survivors", count)
    execution = await executors.start(grant(shell("sleep 60 >/dev/null 2>&1 & exit 0")), Told())
    assert isinstance(execution, ProcessExecution)
    await asyncio.wait_for(reaped.wait(), 30)
    signalled: list[int] = []

    with monkeypatch.context() as patch:
        patch.setattr(os, "killpg", lambda group, _number: signalled.append(group))
        execution.heed(Wish.FREEZE)

    assert signalled == []
    assert (await execution.wait()).left_behind == 1
    await finish(execution)
