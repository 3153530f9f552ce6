"""`keep_runs`: history stays within what a job asks for, and nothing that is still needed goes."""

from __future__ import annotations

from scheduler.clock import MINUTE
from scheduler.model.jobs import Overlap, Retention
from scheduler.model.runs import Run
from tests.support.builders import JOB, make_definition
from tests.support.desk import Desk


async def _ended(desk: Desk, count: int, overlap: Overlap | None = None) -> list[Run]:
    """So many runs of the job, ended, oldest first."""
    runs = []
    for _ in range(count):
        started = await desk.start(overlap=overlap)
        assert started.grant is not None
        runs.append((await desk.finish(started.grant.run)).run)
    return runs


async def test_runs_beyond_keep_runs_go_oldest_first(desk: Desk) -> None:
    """The newest `keep_runs` executed runs stay, with their attempts; the others go in steps."""
    await desk.add(make_definition(manual=True, keep_runs=2))
    runs = await _ended(desk, 5)
    (retention,) = await desk.store.retentions(after="", limit=10)

    first = await desk.store.prune(retention, limit=2)
    second = await desk.store.prune(retention, limit=2)

    assert (first, second) == ([runs[0].id, runs[1].id], [runs[2].id])
    assert [run.id for run in await desk.store.runs(before=None, limit=9)] == [runs[4].id, runs[3].id]
    assert await desk.store.attempts(runs[0].id) == []
    assert len(await desk.store.attempts(runs[4].id)) == 1


async def test_a_live_run_is_never_pruned(desk: Desk) -> None:
    """A run that is older than all that are kept stays as long as it has not ended."""
    await desk.add(make_definition(manual=True, overlap="allow", max_running=5))
    live = await desk.start()
    await _ended(desk, 3, Overlap.ALLOW)

    gone = await desk.store.prune(Retention(job_id=JOB, keep_runs=1), limit=9)

    assert len(gone) == 2
    assert live.run.id in [run.id for run in await desk.store.runs(before=None, limit=9)]


async def test_skips_do_not_count_and_stay(desk: Desk) -> None:
    """I13: rows that explain fire times are no executed runs: `keep_runs` neither counts nor takes them."""
    await desk.add(make_definition(every=MINUTE, keep_runs=1))
    run = await desk.fired()
    await desk.fire()
    await desk.finish(run)
    assert len(await desk.skips()) == 1

    gone = await desk.store.prune(Retention(job_id=JOB, keep_runs=1), limit=9)

    assert gone == []
    assert len(await desk.skips()) == 1


async def test_a_job_without_keep_runs_keeps_all(desk: Desk) -> None:
    """Only jobs that ask for it are looked at."""
    await desk.add(make_definition(manual=True))

    assert await desk.store.retentions(after="", limit=9) == []
