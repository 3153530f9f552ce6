from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping

from scheduler.engine.eventring import Chunk, EventRing, Tee
from scheduler.telemetry import Event
from tests.support.clock import FakeClock
from tests.support.engine import ToldLog


async def told(ring: EventRing) -> list[tuple[int, Mapping[str, object]]]:
    """Number and fields of all that the ring still has."""
    chunks = [chunk async for chunk in ring.follow(None, tail=1_000, goes_on=False)]
    return [(e.number, e.fields) for chunk in chunks if isinstance(chunk, Chunk) for e in chunk.entries]


async def test_what_is_logged_is_in_the_ring_with_what_was_bound() -> None:
    """One call tells both, with the bound fields first; a traceback is for the log alone."""
    log, ring = ToldLog(), EventRing("me", FakeClock())
    tee = Tee(log, ring)
    bound = tee.bind(job="a").bind(run_id="r")

    tee.info(Event.ALL_PAUSED)
    bound.warning(Event.RUN_FAILED, reason="timeout")
    bound.error(Event.RUN_STUCK, exc_info=ValueError("x"))

    assert await told(ring) == [
        (1, {}),
        (2, {"job": "a", "run_id": "r", "reason": "timeout"}),
        (3, {"job": "a", "run_id": "r"}),
    ]
    assert [list(fields) for _, fields in log.lines] == [
        [],
        ["job", "run_id", "reason"],
        ["job", "run_id", "exc_info"],
    ]


async def test_the_newest_are_kept_under_the_numbers_that_they_had() -> None:
    """A full ring forgets the oldest, and the numbers of the others stay."""
    ring = EventRing("me", FakeClock(), size=3)

    for number in range(1, 8):
        ring.append(Event.JOB_CHANGED, {"n": number})

    assert await told(ring) == [(5, {"n": 5}), (6, {"n": 6}), (7, {"n": 7})]
    assert ring.last_id == "me-7"


async def test_a_destructor_that_tells_does_not_stop_the_daemon() -> None:
    """What is destroyed in the midst of a telling may tell as well, in the same thread."""
    ring = EventRing("me", FakeClock(), size=1)

    class Task:
        def __del__(self) -> None:
            ring.append(Event.LOOP_BLOCKED, {"message": "a task was lost"})

    ring.append(Event.JOB_CHANGED, {"task": Task()})
    ring.append(Event.JOB_CHANGED, {})

    assert await told(ring) == [(3, {"message": "a task was lost"})]


async def test_events_of_any_thread_are_numbered_without_a_gap() -> None:
    """Each transition has one number, however many threads tell at once."""
    ring = EventRing("me", FakeClock(), size=100_000)

    def tell() -> None:
        for _ in range(500):
            ring.append(Event.JOB_CHANGED, {})

    threads = [threading.Thread(target=tell) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)

    assert ring.last_id == "me-2000"


async def test_a_follower_is_not_woken_for_each_event() -> None:
    """What is told within some milliseconds costs one wake-up, though the loop turns in between."""
    ring = EventRing("me", FakeClock())
    chunks: list[Chunk] = []

    async def follow() -> None:
        async for chunk in ring.follow(None):
            assert isinstance(chunk, Chunk)
            chunks.append(chunk)
            if chunk.until == "me-21":
                return

    following = asyncio.create_task(follow())
    await asyncio.sleep(0)
    ring.append(Event.JOB_CHANGED, {})
    for _ in range(20):
        for _ in range(5):
            await asyncio.sleep(0)
        ring.append(Event.JOB_CHANGED, {})
    async with asyncio.timeout(30):
        await following

    assert sum(len(chunk.entries) for chunk in chunks) == 21
    assert len(chunks) < 21
