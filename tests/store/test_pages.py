"""Pages of jobs and runs: whole and without repeats, whatever comes and goes between two of them."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.clock import MINUTE
from scheduler.model.jobs import JobId, JobStatus
from scheduler.store import paging
from tests.support.builders import make_definition
from tests.support.clock import START, FakeClock
from tests.support.desk import Desk


async def ids(desk: Desk, limit: int = 7, **wanted: Any) -> list[str]:
    """The ids of all pages, one after another."""
    found: list[str] = []
    after: JobId | None = None
    while True:
        page = [job.id for job in await desk.store.jobs(after=after, limit=limit, **wanted)]
        assert len(page) <= limit
        if not page:
            return found
        found += page
        after = page[-1]


@pytest.fixture
async def forty(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Forty jobs: every fourth is in a group, every fifth has a label, every tenth is paused."""
    monkeypatch.setattr(paging, "_JOBS_AT_ONCE", 3)
    monkeypatch.setattr(paging, "_RUNS_AT_ONCE", 3)
    for number in range(40):
        name = f"job-{number:02}"
        keys: dict[str, Any] = {"description": f"Number {number}"}
        keys |= {"group": "fours"} if number % 4 == 0 else {}
        keys |= {"labels": ["five"]} if number % 5 == 0 else {}
        await desk.add(make_definition(name, **keys))
        if number % 10 == 0:
            await desk.pause(JobId(name))
    return desk


@pytest.mark.parametrize(
    ("wanted", "numbers"),
    [
        ({}, range(40)),
        ({"status": JobStatus.PAUSED}, range(0, 40, 10)),
        ({"group": "fours"}, range(0, 40, 4)),
        ({"label": "five"}, range(0, 40, 5)),
        ({"status": "paused", "group": "fours"}, range(0, 40, 20)),
        ({"label": "five", "group": "fours"}, range(0, 40, 20)),
        ({"search": "number 3"}, [3, *range(30, 40)]),
        ({"search": "JOB-1"}, range(10, 20)),
        ({"search": "nothing like it"}, []),
    ],
)
async def test_filters_find_all_of_theirs(forty: Desk, wanted: dict[str, Any], numbers: Any) -> None:
    """In the order of ids, over any number of pages, also where they are found stretch by stretch."""
    for limit in (1, 4, 100):
        assert await ids(forty, limit, **wanted) == [f"job-{number:02}" for number in numbers]


@pytest.mark.parametrize("wanted", [{}, {"search": "number"}, {"status": "active"}])
async def test_what_is_there_all_the_time_is_shown_once(forty: Desk, wanted: dict[str, Any]) -> None:
    """Jobs that come and go between two pages move nobody else."""
    found = [job.id for job in await forty.store.jobs(after=None, limit=15, **wanted)]
    staying = {f"job-{number:02}" for number in range(40) if number % 10} - {"job-03", "job-33"}
    await forty.remove(JobId("job-03"))
    await forty.remove(JobId("job-33"))
    await forty.add(make_definition("job-00-again", description="number"))
    await forty.add(make_definition("job-35-again", description="number"))

    while page := await forty.store.jobs(after=found[-1], limit=15, **wanted):
        found += [job.id for job in page]

    assert len(set(found)) == len(found)
    assert staying <= set(found)
    assert "job-35-again" in found
    assert "job-33" not in found


async def test_runs_are_found_by_state_and_time(forty: Desk, clock: FakeClock) -> None:
    """Newest first, by an index or stretch by stretch, without a repeat while new ones come."""
    names = [JobId(f"job-{number:02}") for number in (1, 2, 3, 6)]
    for number, name in enumerate(names):
        clock.move(MINUTE)
        run = await forty.fired(name)
        if number % 2:
            await forty.finish(run)
    read = forty.store.runs

    running = await read(before=None, limit=10, state="running")
    since = await read(before=None, limit=10, since=START + 3 * MINUTE)
    both = await read(before=None, limit=10, state="succeeded", since=START + 3 * MINUTE)
    first = await read(before=None, limit=3)
    await forty.fired(JobId("job-07"))
    rest = await read(before=first[-1].seq, limit=10)

    assert [run.job for run in running] == [names[2], names[0]]
    assert [run.job for run in since if run.state != "skipped"] == [names[3], names[2]]
    assert [run.job for run in both] == [names[3]]
    assert {run.seq for run in first}.isdisjoint(run.seq for run in rest)
    everything = await read(before=None, limit=100)
    assert len(everything) == len(first) + len(rest) + 1 + sum(
        run.state == "skipped" and run.job == "job-07" for run in everything
    )
