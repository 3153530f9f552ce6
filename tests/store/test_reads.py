"""Reads: pages, single rows, counts; they see what has committed and change nothing."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from scheduler.clock import HOUR, MINUTE
from scheduler.errors import NotFound
from scheduler.model.jobs import JobId, Origin
from scheduler.model.runs import RunId, RunState
from scheduler.rules.reconcile import Ending
from scheduler.store.protocol import Store
from tests.support.builders import JOB, make_definition
from tests.support.clock import START, FakeClock
from tests.support.desk import Desk
from tests.support.stores import Opener


async def test_jobs_come_in_pages_by_id(desk: Desk) -> None:
    """Pages follow each other without gap or repetition."""
    for number in range(7):
        await desk.add(make_definition(f"job-{number}"))

    seen, after = [], None
    while page := await desk.store.jobs(after=after, limit=3):
        seen += [job.id for job in page]
        after = page[-1].id

    assert seen == [f"job-{number}" for number in range(7)]


async def test_jobs_are_found_by_status_group_label_and_words(desk: Desk) -> None:
    """Each filter gives the jobs that it names; words are looked for in id and description, in any case."""
    await desk.add(make_definition("a", group="exports", description="The Nightly export"))
    await desk.add(make_definition("b-nightly", labels=["billing", "paid"]))
    await desk.add(make_definition("c"))
    await desk.pause(JobId("c"))

    async def found(**filters: str) -> list[str]:
        return [job.id for job in await desk.store.jobs(after=None, limit=10, **filters)]

    assert await found(status="paused") == ["c"]
    assert await found(group="exports") == ["a"]
    assert await found(label="paid") == ["b-nightly"]
    assert await found(label="pai") == []
    assert await found(search="NIGHTLY") == ["a", "b-nightly"]
    assert await found(search="%") == []
    assert await found(status="active", search="nightly") == ["a", "b-nightly"]


async def test_jobs_that_are_due_next_are_told_in_their_order(desk: Desk) -> None:
    """Those that are paused, disabled or gone are due at no time."""
    for number, name in enumerate(["late", "paused", "early", "off", "gone"]):
        await desk.add(make_definition(name, at=START + (10 - number) * HOUR, enabled=name != "off"))
    await desk.pause(JobId("paused"))
    await desk.remove(JobId("gone"))

    due = {name: (await desk.store.job(JobId(name))).job.due_at for name in ("early", "late")}
    assert list((await desk.store.next_fires(10)).items()) == list(due.items())
    assert list(await desk.store.next_fires(1)) == ["early"]


async def test_a_job_shows_its_last_and_its_live_runs(desk: Desk) -> None:
    """The last run is the newest executed one, skips do not hide it."""
    await desk.add(make_definition(overlap="queue", queue_limit=1))
    done = await desk.fired()
    await desk.finish(done)
    running = await desk.fired()
    queued = (await desk.fire()).queued[0]
    await desk.fire()

    view = await desk.store.job(JOB)

    assert view.last_run is not None
    assert view.last_run.id == queued.id
    assert [run.id for run in view.live_runs] == [running.id, queued.id]
    assert (await desk.runs())[-1].state is RunState.SKIPPED


async def test_removed_jobs_are_left_out(desk: Desk) -> None:
    """A tombstone is in no list."""
    await desk.add(make_definition("a"))
    await desk.add(make_definition("b"), origin=Origin.API, file=None)
    await desk.remove(JobId("a"))
    await desk.remove(JobId("b"), origin=Origin.API)

    assert await desk.store.jobs(after=None, limit=9) == []
    assert await desk.store.file_definitions() == {}
    assert await desk.store.api_ids([JobId("a"), JobId("b")]) == set()
    assert (await desk.store.counts()).jobs == {}


async def test_runs_come_newest_first_in_pages(desk: Desk) -> None:
    """The cursor is the run's seq; pages follow each other without gap or repetition."""
    await desk.add(make_definition())
    ids = []
    for _ in range(5):
        run = await desk.fired()
        ids.append(run.id)
        await desk.finish(run)

    seen: list[RunId] = []
    before = None
    while page := await desk.store.runs(before=before, limit=2):
        seen += [run.id for run in page]
        before = page[-1].seq

    assert seen == ids[::-1]


async def test_runs_are_found_by_job_state_and_time(desk: Desk, clock: FakeClock) -> None:
    """Each filter gives the runs that it names, alone and with others."""
    for name in ("a", "b"):
        await desk.add(make_definition(name, manual=True))
        await desk.finish((await desk.start(JobId(name))).run)
    clock.move(HOUR)
    late = (await desk.start(JobId("a"))).run
    await desk.finish(late, Ending.FAILED)

    async def found(**filters: object) -> list[tuple[str, str]]:
        runs = await desk.store.runs(before=None, limit=10, **filters)  # type: ignore[arg-type]
        return [(run.job, run.state) for run in runs]

    assert await found(job=JobId("a")) == [("a", "failed"), ("a", "succeeded")]
    assert await found(state="succeeded") == [("b", "succeeded"), ("a", "succeeded")]
    assert await found(since=START + 1) == [("a", "failed")]
    assert await found(job=JobId("b"), since=START + 1) == []
    assert await found(job=JobId("a"), state="failed") == [("a", "failed")]


async def test_a_fire_time_is_explained_by_its_row(desk: Desk, clock: FakeClock) -> None:
    """I13: for a fire time the store answers its run, or the skip whose span holds it, or nothing."""
    await desk.add(make_definition())
    run = await desk.fired()
    await desk.fire()
    await desk.fire()

    first = await desk.store.run_at(JOB, START + MINUTE)
    skip = await desk.store.run_at(JOB, START + 2 * MINUTE)

    assert first is not None
    assert first.id == run.id
    assert skip is not None
    assert (skip.state, skip.count) == (RunState.SKIPPED, 2)
    assert await desk.store.run_at(JOB, START + 3 * MINUTE) == skip
    assert await desk.store.run_at(JOB, START + 4 * MINUTE) is None
    assert await desk.store.run_at(JobId("nothing"), START) is None


async def test_counts_are_of_jobs_by_status_and_unfinished_runs_by_state(desk: Desk) -> None:
    """The status page's numbers come from rows."""
    await desk.add(make_definition("a", overlap="queue"))
    await desk.add(make_definition("b"))
    await desk.fired(JobId("a"))
    await desk.fire(JobId("a"))
    await desk.pause(JobId("b"))

    counts = await desk.store.counts()

    assert counts.jobs == {"active": 1, "paused": 1}
    assert counts.runs == {"running": 1, "queued": 1}


async def test_jobs_are_counted_with_every_change(desk: Desk, clock: FakeClock) -> None:
    """The kept numbers are those of the rows: added, paused, ended, removed, put back, refused, resumed."""

    async def counts_are(**expected: int) -> None:
        counted = Counter([str(job.status) for job in await desk.store.jobs(after=None, limit=9)])
        assert (await desk.store.counts()).jobs == counted == expected

    await counts_are()
    for name in ("a", "b", "c"):
        await desk.add(make_definition(name))
    await counts_are(active=3)
    await desk.pause(JobId("a"))
    await desk.pause(JobId("b"))
    await desk.pause(JobId("b"), note="again")
    await counts_are(active=1, paused=2)
    await desk.remove(JobId("a"))
    await desk.remove(JobId("c"))
    await counts_are(paused=1)
    await desk.add(make_definition("a"))
    await desk.add(make_definition("c"))
    await counts_are(active=1, paused=2)
    await desk.resume(JobId("b"))
    await desk.add(make_definition("once", at=clock.now() + MINUTE))
    await desk.finish(await desk.fired(JobId("once")))
    await counts_are(active=2, paused=1, completed=1)


async def test_jobs_that_tell_somebody_are_found_among_all(desk: Desk) -> None:
    """In slices, by id; an edit that takes the hook away, or a removal, takes the job out."""
    hook: dict[str, Any] = {"on_failure": ["notify"]}
    for name in ("a", "b", "c", "d"):
        await desk.add(make_definition(name, **(hook if name != "b" else {})))

    async def telling(after: str | None, limit: int) -> list[str]:
        jobs = await desk.store.telling_jobs(after=None if after is None else JobId(after), limit=limit)
        return [job.id for job in jobs]

    assert await telling(None, 2) == ["a", "c"]
    assert await telling("c", 2) == ["d"]
    await desk.edit(make_definition("a"))
    await desk.edit(make_definition("b", **hook))
    await desk.remove(JobId("d"))
    assert await telling(None, 9) == ["b", "c"]


async def test_jobs_of_new_runs_are_told_once_each(desk: Desk) -> None:
    """Whoever looks through the history goes on where it stopped, and reads no row twice."""
    for name in ("a", "b"):
        await desk.add(make_definition(name))
        for _ in range(2):
            await desk.finish(await desk.fired(JobId(name)))

    jobs, until = await desk.store.ran_since(0, limit=3)
    rest, end = await desk.store.ran_since(until, limit=3)

    assert (sorted(jobs), rest) == (["a", "b"], ["b"])
    assert end == await desk.store.newest_run()
    assert await desk.store.ran_since(end, limit=3) == ([], end)


async def test_claims_in_a_group_are_counted(desk: Desk) -> None:
    """Only claims in force fill a group; what waits does not."""
    for name in ("a", "b"):
        await desk.add(make_definition(name, group="exports", retry={"attempts": 1}))
    await desk.fired(JobId("a"))
    await desk.finish(await desk.fired(JobId("b")), Ending.FAILED)

    assert await desk.store.claimed_in_group("exports") == 1
    assert await desk.store.claimed_in_group("imports") == 0


async def test_broken_jobs_are_listed(desk: Desk) -> None:
    """Jobs that cannot run are found without a walk over all jobs."""
    await desk.add(make_definition("a"))
    await desk.add(make_definition("b"))
    await desk.store.set_problem(JobId("b"), "broken", "no module named demo")

    assert [job.id for job in await desk.store.broken_jobs()] == ["b"]


async def test_the_audit_comes_newest_first_in_pages(desk: Desk, clock: FakeClock) -> None:
    """Every mutation of a job is there, with who and when."""
    await desk.add(make_definition())
    for _ in range(2):
        clock.move(MINUTE)
        await desk.pause()
        await desk.resume()

    first = await desk.store.audit(JOB, before=None, limit=3)
    rest = await desk.store.audit(JOB, before=first[-1].seq, limit=3)

    assert [entry.verb for entry in (*first, *rest)] == ["resume", "pause", "resume", "pause", "add"]
    assert [entry.at for entry in rest] == [START + MINUTE, START]


@pytest.mark.parametrize("read", ["job", "run"])
async def test_what_is_not_there_is_told(store: Store, read: str) -> None:
    """A single row that does not exist is an error of its own, not an empty answer."""
    with pytest.raises(NotFound, match="nothing"):
        await getattr(store, read)("nothing")


async def test_lists_of_nothing_are_empty(store: Store) -> None:
    """An unknown job has no runs, no audit, and a run no attempts."""
    assert await store.runs(before=None, limit=5, job=JobId("nothing")) == []
    assert await store.live_runs(JobId("nothing")) == []
    assert await store.audit(JobId("nothing"), before=None, limit=5) == []
    assert await store.attempts(RunId("nothing")) == []
    assert await store.global_pause() is None


async def test_another_handle_reads_what_was_answered(desk: Desk, opener: Opener) -> None:
    """I10: once a verb has answered, every other handle sees its rows."""
    other = await opener()

    await desk.add(make_definition())

    assert (await other.job(JOB)).job == await desk.job()
    assert other.store_id == desk.store.store_id


async def test_the_store_id_stays(desk: Desk, opener: Opener) -> None:
    """A store keeps its id over restarts: orphans are known by it."""
    before = desk.store.store_id
    await desk.store.close()

    assert (await opener()).store_id == before
