"""Coming fire times: of a job as it stands, and of a trigger before it is used."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from scheduler.clock import Micros
from scheduler.model.jobs import Job
from scheduler.model.triggers import Delay, Schedule

_SLICE: Final = 50


async def coming(job: Job, count: int, breathe: Callable[[], Awaitable[None]]) -> list[Micros]:
    """The job's next fire times, up to `count`: those that it will fire at if nobody does anything to it.

    A `delay` has one at most: the one after it depends on the end of a run.
    """
    first = job.next_fire_at
    if first is None:
        return []
    if isinstance(job.definition.schedule.trigger, Delay):
        return [first]
    return [first, *await times_after(job.definition.schedule, first, count - 1, breathe)]


async def times_after(
    schedule: Schedule, after: Micros, count: int, breathe: Callable[[], Awaitable[None]]
) -> list[Micros]:
    """Up to `count` fire times after an instant; the loop is let go in between."""
    times: list[Micros] = []
    while len(times) < count:
        at = schedule.next_fire(times[-1] if times else after)
        if at is None:
            break
        times.append(at)
        if len(times) % _SLICE == 0:
            await breathe()
    return times
