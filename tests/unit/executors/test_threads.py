from __future__ import annotations

import asyncio
import threading

import pytest

from scheduler.executors.threads import NoThread, Workers, off_loop, start_thread
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


async def test_idle_thread_is_used_again() -> None:
    """Calls one after the other run in one thread, prepared once."""
    prepared: list[int] = []
    workers = Workers("again", prepare=lambda: prepared.append(threading.get_ident()), at_once=1)

    first = await workers.run(threading.get_ident)
    second = await workers.run(threading.get_ident)

    assert first == second
    assert prepared == [first]
    workers.close()


async def test_calls_at_the_same_time_share_few_threads() -> None:
    """What is more than enough at once waits for the next free thread, and all of it is done."""
    workers = Workers("few", at_once=2)

    used = await asyncio.gather(*(workers.run(threading.get_ident) for _ in range(50)))

    assert len(used) == 50
    workers.close()


async def test_call_that_hangs_takes_no_thread_from_the_others() -> None:
    """Where all threads that are enough hang, one more does what waits."""
    gate = threading.Event()
    workers = Workers("hung", at_once=2)
    hanging = [asyncio.create_task(workers.run(gate.wait)) for _ in range(4)]
    await asyncio.sleep(0)

    answers = await asyncio.wait_for(asyncio.gather(*(workers.run(lambda: 7) for _ in range(5))), 30)

    assert answers == [7] * 5
    assert not any(task.done() for task in hanging)
    gate.set()
    await asyncio.gather(*hanging)
    workers.close()


async def test_after_a_burst_few_threads_are_kept_and_at_the_end_none() -> None:
    """Threads of a burst end with it but for a few, and those end when nobody needs them any more."""
    gate = threading.Event()
    workers = Workers("burst")
    waiting = [asyncio.create_task(workers.run(gate.wait)) for _ in range(12)]
    await asyncio.sleep(0)
    assert sum(thread.name == "burst" for thread in threading.enumerate()) == 12

    gate.set()
    await asyncio.gather(*waiting)
    await until(lambda: sum(thread.name == "burst" for thread in threading.enumerate()) == 4)
    workers.close()

    await until(lambda: all(thread.name != "burst" for thread in threading.enumerate()))


async def test_work_that_waits_is_done_though_no_further_thread_is_to_be_had(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where a thread more is refused the work waits on for one that is there."""
    gate = threading.Event()
    workers = Workers("scarce", at_once=1)
    hanging = asyncio.create_task(workers.run(gate.wait))
    await asyncio.sleep(0)
    refused = asyncio.Event()
    loop = asyncio.get_running_loop()

    def refuse(_self: threading.Thread) -> None:
        loop.call_soon(refused.set)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    waiting = asyncio.create_task(workers.run(lambda: 7))
    await asyncio.wait_for(refused.wait(), 30)
    gate.set()

    assert await waiting == 7
    await hanging
    workers.close()
