from __future__ import annotations

import asyncio
import threading

import pytest

from scheduler.executors.threads import NoThread, off_loop, start_thread
from tests.support.executors import until


async def test_result_and_error_arrive_where_the_call_is_awaited() -> None:
    """A call off the loop returns and raises as if it had been made here."""

    def fail() -> None:
        raise KeyError("k")

    assert await off_loop(lambda: threading.current_thread().name) == "off-loop"
    with pytest.raises(KeyError):
        await off_loop(fail)


async def test_result_nobody_waits_for_is_discarded() -> None:
    """The result of a cancelled call goes to `discard`, so that what it made is not lost."""
    gate = threading.Event()
    discarded: list[int] = []

    def call() -> int:
        gate.wait()
        return 7

    calling = asyncio.create_task(off_loop(call, discard=discarded.append))
    await asyncio.sleep(0)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    gate.set()
    await until(lambda: discarded)

    assert discarded == [7]


def test_loop_that_closed_in_the_meantime_is_no_error() -> None:
    """A call that outlives its loop ends in silence."""
    gate = threading.Event()
    errors: list[object] = []
    before = threading.excepthook
    threading.excepthook = errors.append

    async def begin() -> None:
        calling = asyncio.create_task(off_loop(gate.wait))
        await asyncio.sleep(0)
        calling.cancel()

    try:
        asyncio.run(begin())
        gate.set()
        for thread in threading.enumerate():
            if thread.name == "off-loop":
                thread.join()
    finally:
        threading.excepthook = before

    assert errors == []


def test_thread_that_cannot_be_started_is_our_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a further thread is told as `NoThread`, with the reason."""

    def refuse(_self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)

    with pytest.raises(NoThread, match="can't start new thread"):
        start_thread(lambda: None, name="x")
