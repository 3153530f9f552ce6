from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Iterator

import pytest

from scheduler.executors.readiness import Readiness
from tests.support.executors import until


@pytest.fixture
def readiness() -> Iterator[Readiness]:
    made = Readiness()
    yield made
    made.close()


async def test_data_and_the_end_of_a_pipe_are_told_apart(readiness: Readiness) -> None:
    """Who watches a pipe hears once that there is something, or that it is closed and empty."""
    told: list[tuple[str, int]] = []
    (full, writing), (empty, closing) = os.pipe(), os.pipe()
    readiness.watch(full, lambda events: told.append(("full", events)))
    readiness.watch(empty, lambda events: told.append(("empty", events)))

    os.write(writing, b"x")
    os.close(closing)
    await until(lambda: len(told) == 2)
    for _ in range(3):
        await asyncio.sleep(0)

    assert sorted(told) == [("empty", select.EPOLLHUP), ("full", select.EPOLLIN)]
    for descriptor in (full, writing, empty):
        os.close(descriptor)


async def test_what_was_told_of_a_number_is_not_told_of_its_successor(readiness: Readiness) -> None:
    """A copy of a closed descriptor elsewhere says nothing in the name of a new one of that number."""
    told: list[str] = []
    reading, writing = os.pipe()
    copy = os.dup(reading)  # as a process that is being started has one
    readiness.watch(reading, lambda _events: told.append("old"))
    os.write(writing, b"x")
    await until(lambda: told)
    os.close(reading)

    other, quiet = os.pipe()
    assert other == reading
    readiness.watch(other, lambda _events: told.append("new"))
    os.write(writing, b"y")
    await asyncio.wait_for(_turned(readiness), 30)

    assert told == ["old"]
    for descriptor in (copy, writing, other, quiet):
        os.close(descriptor)


async def _turned(readiness: Readiness) -> None:
    """What was ready before has been told."""
    reading, writing = os.pipe()
    os.close(writing)
    await readiness.ready(reading)
    os.close(reading)


async def test_nobody_is_called_for_what_was_forgotten(readiness: Readiness) -> None:
    """Also where both became ready at the same time, and the one's call forgets the other."""
    told: list[int] = []
    pipes = [os.pipe(), os.pipe()]

    def forget_all(descriptor: int) -> None:
        told.append(descriptor)
        for reading, _ in pipes:
            readiness.forget(reading)

    for reading, writing in pipes:
        os.close(writing)
        readiness.watch(reading, lambda _events, reading=reading: forget_all(reading))  # type: ignore[misc]
    await until(lambda: told)
    await _turned(readiness)

    assert len(told) == 1
    for reading, _ in pipes:
        os.close(reading)


async def test_cancelled_wait_leaves_nothing_watched(readiness: Readiness) -> None:
    """Who does not wait any more for a descriptor may close it and use its number again."""
    reading, writing = os.pipe()
    waiting = asyncio.create_task(readiness.ready(reading))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    readiness.watch(reading, lambda _events: None)

    os.close(reading)
    os.close(writing)


async def test_closed_twice_is_closed() -> None:
    """Nobody is called after the end, and a second one is no error."""
    readiness = Readiness()
    reading, writing = os.pipe()
    readiness.watch(reading, lambda _events: pytest.fail("called after the end"))
    readiness.close()
    readiness.close()

    os.close(writing)
    await asyncio.sleep(0)
    os.close(reading)
