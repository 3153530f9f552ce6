"""History stays within what a job keeps and within its age, and nothing that is still needed goes."""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.clock import DAY, HOUR, MINUTE
from scheduler.model.items import ItemState
from scheduler.model.jobs import Overlap, Retention
from scheduler.model.runs import Run, RunId
from scheduler.rules.reconcile import Ending
from tests.store.test_items import make_batch
from tests.support.builders import JOB, make_definition
from tests.support.clock import FakeClock
from tests.support.desk import Desk

ALL = Retention(runs_per_job=None, before=None)


async def _ended(desk: Desk, count: int, overlap: Overlap | None = None) -> list[Run]:
    """So many runs of the job, ended, oldest first."""
    runs = []
    for _ in range(count):
        started = await desk.start(overlap=overlap)
        assert started.grant is not None
        runs.append((await desk.finish(started.grant.run)).run)
    return runs


async def _surplus(desk: Desk, kept: Retention = ALL, *, limit: int = 100) -> list[RunId]:
    """What one walk over all jobs finds."""
    runs, after = await desk.store.surplus(kept, after="", limit=limit)
    assert after is None or len(runs) == limit or not await _more(desk, kept, after)
    return list(runs)


async def _more(desk: Desk, kept: Retention, after: str) -> Sequence[RunId]:
    return (await desk.store.surplus(kept, after=after, limit=100))[0]


async def _prune(desk: Desk, kept: Retention = ALL) -> list[RunId]:
    """What went, with all that belonged to it."""
    runs = await _surplus(desk, kept)
    await desk.store.prune(runs)
    gone = await desk.store.pruned(limit=1_000)
    await desk.store.clear(gone, limit=1_000)
    return gone


async def test_runs_beyond_keep_runs_go_oldest_first(desk: Desk) -> None:
    """The newest `keep_runs` executed runs stay, with their attempts; the others go in steps."""
    await desk.add(make_definition(manual=True, keep_runs=2))
    runs = await _ended(desk, 5)

    first = await _surplus(desk, limit=2)
    assert await desk.store.prune(first) == 2
    second = await _surplus(desk, limit=2)
    assert await desk.store.prune(second) == 1

    assert (first, second) == ([runs[0].id, runs[1].id], [runs[2].id])
    assert [run.id for run in await desk.store.runs(before=None, limit=9)] == [runs[4].id, runs[3].id]
    assert await desk.store.attempts(runs[0].id) == []
    assert len(await desk.store.attempts(runs[4].id)) == 1


async def test_the_jobs_own_number_beats_the_daemons(desk: Desk) -> None:
    """`runs_per_job` counts for jobs without `keep_runs`."""
    await desk.add(make_definition(manual=True))
    await desk.add(make_definition("own", manual=True, keep_runs=3))
    runs = await _ended(desk, 3)
    for _ in range(3):
        started = await desk.start(make_definition("own", manual=True).id)
        assert started.grant is not None
        await desk.finish(started.grant.run)

    assert await _surplus(desk, Retention(runs_per_job=1, before=None)) == [run.id for run in runs[:2]]


async def test_a_walk_over_many_jobs_goes_on_where_it_stopped(desk: Desk) -> None:
    """I15: one look takes a bounded number of jobs and runs, and says after which job to look on."""
    ids = [f"job-{number:03}" for number in range(120)]
    for job in ids:
        await desk.add(make_definition(job, manual=True))
    found, after, looks = list[RunId](), "", 0
    while True:
        runs, following = await desk.store.surplus(ALL, after=after, limit=10)
        found += runs
        looks += 1
        if following is None:
            break
        assert following > after
        after = following

    assert (found, looks) == ([], 4)


async def test_a_live_run_is_never_pruned(desk: Desk, clock: FakeClock) -> None:
    """A run that is older than all that are kept stays as long as it has not ended, by count and by age."""
    await desk.add(make_definition(manual=True, overlap="allow", max_running=5))
    live = await desk.start()
    ended = await _ended(desk, 3, Overlap.ALLOW)
    clock.move(DAY)

    gone = await _prune(desk, Retention(runs_per_job=1, before=clock.now()))

    assert set(gone) == {run.id for run in ended[:2]}
    assert live.run.id in [run.id for run in await desk.store.runs(before=None, limit=9)]


async def test_a_run_with_unknown_items_is_never_pruned(desk: Desk, clock: FakeClock) -> None:
    """An item in doubt may have been billed: its run stays, by count, by age and by name, until settled."""
    batch = await make_batch(desk, 2)
    await batch.begin_one()
    await desk.crash(batch.run)
    await batch.reclaim()
    await batch.work(ItemState.DONE)
    await batch.finish()
    await desk.edit(make_definition(manual=True, keep_runs=1))
    await _ended(desk, 2)
    clock.move(DAY)
    kept = Retention(runs_per_job=1, before=clock.now())

    assert batch.run.id not in await _surplus(desk, kept)
    assert await desk.store.prune([batch.run.id]) == 0
    (item,) = await desk.store.items(batch.run.id, state="unknown", after=None, limit=9)
    await batch.settle(item.key, ItemState.DONE)
    assert batch.run.id in await _prune(desk, kept)
    assert await desk.store.items(batch.run.id, state=None, after=None, limit=9) == []


async def test_many_items_go_in_steps(desk: Desk) -> None:
    """I15: a step removes a bounded number of rows; the run is listed until the last item has gone."""
    batch = await make_batch(desk, 5)
    await batch.work(*[ItemState.DONE] * 5)
    await batch.finish()
    await desk.store.prune([batch.run.id])

    left = []
    while runs := await desk.store.pruned(limit=9):
        await desk.store.clear(runs, limit=2)
        left.append(len(await desk.store.items(batch.run.id, state=None, after=None, limit=9)))

    assert left == [3, 1, 0]


async def test_skips_do_not_count_and_stay(desk: Desk) -> None:
    """I13: rows that explain fire times are no executed runs: `keep_runs` neither counts nor takes them."""
    await desk.add(make_definition(every=MINUTE, keep_runs=1))
    run = await desk.fired()
    await desk.fire()
    await desk.finish(run)
    assert len(await desk.skips()) == 1

    assert await _prune(desk) == []
    assert len(await desk.skips()) == 1


async def test_what_is_old_goes_but_the_newest_run_of_a_job(desk: Desk, clock: FakeClock) -> None:
    """By age go runs and skips; the last executed run of a job stays, however old."""
    await desk.add(make_definition(every=MINUTE))
    old = await desk.fired()
    await desk.fire()
    await desk.finish(old)
    last = await desk.fired()
    await desk.finish(last)
    clock.move(HOUR)

    assert await _surplus(desk, Retention(runs_per_job=None, before=old.claimed_at)) == []
    gone = await _prune(desk, Retention(runs_per_job=None, before=clock.now()))

    assert old.id in gone
    assert [run.id for run in await desk.runs()] == [last.id]


async def test_a_pruned_fire_time_does_not_fire_again(desk: Desk, clock: FakeClock) -> None:
    """I1: the row is gone, but the job is past its fire time."""
    await desk.add(make_definition(every=MINUTE, keep_runs=1))
    first = await desk.fired()
    await desk.finish(first)
    second = await desk.fired()
    await desk.finish(second)
    assert await _prune(desk) == [first.id]

    third = await desk.fired()

    assert third.fire_time == (second.fire_time or 0) + MINUTE


async def test_a_run_that_was_begun_again_since_the_look_stays(desk: Desk) -> None:
    """I8: what an operator did between look and step counts; the step says how many really went."""
    await desk.add(make_definition(manual=True, keep_runs=1))
    started = await desk.start()
    assert started.grant is not None
    failed = (await desk.finish(started.grant.run, Ending.FAILED)).run
    await _ended(desk, 1)
    runs = await _surplus(desk)
    assert runs == [failed.id]
    await desk.store.retry(failed.id, desk.peer)

    assert await desk.store.prune(runs) == 0
    assert (await desk.run(failed.id)).id == failed.id


async def test_what_a_crash_left_of_a_pruned_run_is_found_again(desk: Desk) -> None:
    """A run that left the history is listed until its output and items are gone too."""
    await desk.add(make_definition(manual=True, keep_runs=1))
    runs = await _ended(desk, 2)
    await desk.store.prune(await _surplus(desk))

    assert await desk.store.pruned(limit=9) == [runs[0].id]
    assert await desk.store.pruned(limit=9) == [runs[0].id]
    await desk.store.clear([runs[0].id], limit=9)
    assert await desk.store.pruned(limit=9) == []


async def test_a_job_without_bounds_keeps_all(desk: Desk) -> None:
    """Without a number and an age everything stays."""
    await desk.add(make_definition(manual=True))
    await _ended(desk, 3)

    assert await _surplus(desk) == []


async def test_the_audit_goes_by_age_in_steps(desk: Desk, clock: FakeClock) -> None:
    """Entries older than the history are removed, a bounded number at a time; younger ones stay."""
    await desk.add(make_definition())
    await desk.pause()
    clock.move(DAY)
    await desk.resume()

    steps = [await desk.store.prune_records(clock.now(), limit=1) for _ in range(3)]

    assert steps == [1, 1, 0]
    assert [entry.verb for entry in await desk.store.audit(JOB, before=None, limit=9)] == ["resume"]


async def test_what_is_left_of_a_removed_job_goes_by_age(desk: Desk, clock: FakeClock) -> None:
    """Its runs, the last one too, and after them the job; added again later, it is as one that never was."""
    await desk.add(make_definition(manual=True))
    await _ended(desk, 2)
    await desk.remove()
    clock.move(DAY)
    audited = len(await desk.store.audit(JOB, before=None, limit=99))

    assert await desk.store.prune_records(clock.now(), limit=99) == audited
    assert await _gone(desk, clock.now()) == (2, 1)
    assert (await desk.add(make_definition(manual=True))).job.removed_at is None
    assert await desk.runs() == []


async def test_a_removed_job_keeps_its_pause(desk: Desk, clock: FakeClock) -> None:
    """I4: put back, however late, it is paused."""
    await desk.add(make_definition(manual=True))
    await desk.pause()
    await desk.remove()
    clock.move(DAY)

    assert await _gone(desk, clock.now()) == (0, 0)
    assert (await desk.add(make_definition(manual=True))).job.pause is not None


async def test_a_job_that_there_is_never_goes_by_age(desk: Desk, clock: FakeClock) -> None:
    """Also without a run, and when it was removed once."""
    await desk.add(make_definition(manual=True))
    await desk.remove()
    await desk.add(make_definition(manual=True))
    clock.move(DAY)

    assert await _gone(desk, clock.now()) == (0, 0)
    assert (await desk.store.job(JOB)).job.id == JOB


async def _gone(desk: Desk, before: int) -> tuple[int, int]:
    """How many runs and removed jobs have gone, with the audit, for being older than this."""
    runs = await _prune(desk, Retention(runs_per_job=None, before=before))
    audited = len(await desk.store.audit(JOB, before=None, limit=99))
    gone = await desk.store.prune_records(before, limit=99)
    return len(runs), gone - audited + len(await desk.store.audit(JOB, before=None, limit=99))
