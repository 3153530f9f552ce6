"""A verb that names a run or a job changes that one: neighbours in the very same state stay as they were."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import pytest

from scheduler.clock import MINUTE, SECOND
from scheduler.model.jobs import Job, JobId, JobStatus, Origin, PauseMode
from scheduler.model.runs import Attempt, Progress, Run, RunState, Wish
from scheduler.rules.reconcile import Ending
from scheduler.store.values import ChangeKind, ClaimRef, DefinitionChange, Report
from tests.support.builders import make_claimant, make_definition
from tests.support.clock import FakeClock
from tests.support.desk import Desk

Step: TypeAlias = Callable[[Desk, Run], Awaitable[object]]

FIRST, MIDDLE, LAST = JobId("a"), JobId("b"), JobId("c")


async def as_it_is(desk: Desk, run: Run) -> None:
    """The run goes on."""


async def ended(desk: Desk, run: Run) -> None:
    await desk.finish(run, Ending.FAILED, retryable=False)


async def waiting(desk: Desk, run: Run) -> None:
    await desk.finish(run, Ending.RETRY_ASKED, retry_after=MINUTE)


async def held(desk: Desk, run: Run) -> None:
    await desk.pause(run.job, mode=PauseMode.ITEM)
    await desk.finish(run, Ending.FAILED)


async def progressed(desk: Desk, run: Run) -> None:
    told = Progress(done=9, total=10, failed=8, unknown=7, message="all")
    at = desk.clock.now() + SECOND
    await desk.store.report([Report(run_id=run.id, claim=run.claim, progress_at=at, progress=told, cost=3.0)])


async def spawned(desk: Desk, run: Run) -> None:
    await desk.store.report([Report(run_id=run.id, claim=run.claim, pid=7, pid_ticks=8)])


async def renewed(desk: Desk, run: Run) -> None:
    claims = [ClaimRef(run_id=run.id, claim=run.claim)]
    assert await desk.store.renew(desk.who, claims) == {run.id: Wish.RUN}


async def taken(desk: Desk, run: Run) -> None:
    await desk.take(run)


async def taken_up(desk: Desk, run: Run) -> None:
    assert await desk.store.reattach(make_claimant(), run.id, run.claim) is not None


async def left(desk: Desk, run: Run) -> None:
    await desk.store.leave(desk.who, [ClaimRef(run_id=run.id, claim=run.claim)])


async def finished(desk: Desk, run: Run) -> None:
    await desk.finish(run)


async def cancelled(desk: Desk, run: Run) -> None:
    await desk.cancel(run)


async def released(desk: Desk, run: Run) -> None:
    await desk.store.release(run.id, desk.peer)


async def hurried(desk: Desk, run: Run) -> None:
    await desk.store.retry_now(run.id, desk.peer)


async def retried(desk: Desk, run: Run) -> None:
    await desk.store.retry(run.id, desk.peer)


async def pruned(desk: Desk, run: Run) -> None:
    assert await desk.store.prune([run.id]) == 1


async def paused(desk: Desk, run: Run) -> None:
    await desk.pause(run.job, mode=PauseMode.ITEM, note="other words")


async def resumed(desk: Desk, run: Run) -> None:
    await desk.resume(run.job)


async def edited(desk: Desk, run: Run) -> None:
    await desk.edit(make_definition(run.job, every=7 * MINUTE))


async def moved(desk: Desk, run: Run) -> None:
    move = DefinitionChange(
        kind=ChangeKind.MOVE, job_id=run.job, origin=Origin.FILE, origin_file="other.toml", peer=desk.peer
    )
    await desk.store.apply([move])


async def removed(desk: Desk, run: Run) -> None:
    await desk.remove(run.job)


async def fired(desk: Desk, run: Run) -> None:
    await desk.fire(run.job)


async def passed_over(desk: Desk, run: Run) -> None:
    await desk.store.skip_next(run.job, 1, desk.peer)


async def broken(desk: Desk, run: Run) -> None:
    await desk.store.set_problem(run.job, "broken", "no such handler")


@pytest.mark.parametrize(
    ("before", "verb"),
    [
        *(
            (as_it_is, verb)
            for verb in (
                progressed,
                spawned,
                renewed,
                taken,
                left,
                finished,
                cancelled,
                fired,
                broken,
                released,
            )
        ),
        *((as_it_is, verb) for verb in (paused, edited, moved, removed, passed_over)),
        *((ended, verb) for verb in (retried, pruned)),
        *((waiting, verb) for verb in (hurried, cancelled)),
        *((held, verb) for verb in (resumed, paused, cancelled)),
        (taken, taken_up),
        (taken, finished),
    ],
)
async def test_a_verb_changes_only_what_it_names(
    desk: Desk, clock: FakeClock, before: Step, verb: Step
) -> None:
    """Rows, attempts and jobs beside it, before it and behind it, are untouched."""
    for job in (FIRST, MIDDLE, LAST):
        await desk.add(make_definition(job, retry={"attempts": 9}))
    for run in [await desk.fired(job) for job in (FIRST, MIDDLE, LAST)]:
        await before(desk, run)
    clock.move(SECOND)
    rows = await desk.rows()
    (run,) = await desk.executed(MIDDLE)

    await verb(desk, run)

    after = await desk.rows()
    assert beside(after) == beside(rows)
    assert after != rows


def beside(rows: tuple[list[Job], list[Run], list[Attempt]]) -> tuple[list[Job], list[Run], list[Attempt]]:
    jobs, runs, attempts = rows
    neighbours = [run for run in runs if run.job != MIDDLE]
    names = {run.id for run in neighbours}
    return (
        [job for job in jobs if job.id != MIDDLE],
        neighbours,
        [attempt for attempt in attempts if attempt.run in names],
    )


async def test_a_second_report_keeps_what_it_does_not_tell(desk: Desk, clock: FakeClock) -> None:
    """Each number of a progress stands alone: one that is left out stays, also beside others that come."""
    await desk.add(make_definition())
    run = await desk.fired()
    whole = Progress(done=1, total=2, failed=3, unknown=4, message="one")
    at = clock.now() + SECOND
    await desk.store.report([Report(run_id=run.id, claim=1, progress_at=at, progress=whole, cost=2.0)])

    await desk.store.report([Report(run_id=run.id, claim=1, progress_at=at + 1, cost=3.0)])

    row = await desk.run(run)
    assert (row.progress, row.cost, row.progress_at, row.state) == (whole, 3.0, at + 1, RunState.RUNNING)


async def test_the_child_of_a_later_claim_is_not_that_of_an_earlier_one(desk: Desk) -> None:
    """Of a run's attempts only the one under this claim gets the pid."""
    await desk.add(make_definition(on_crash="retry"))
    run = await desk.fired()
    await desk.crash(run)
    (again,) = await desk.claim()

    await spawned(desk, again.run)

    assert [attempt.pid for attempt in await desk.store.attempts(run.id)] == [None, 7]
    assert again.run.wish is Wish.RUN


async def test_a_job_that_is_active_again_is_the_only_one(desk: Desk) -> None:
    """An edit revives the job that it names; another one that completed with it stays so."""
    for job in (FIRST, MIDDLE, LAST):
        await desk.add(make_definition(job, max_runs=1))
    for run in [await desk.fired(job) for job in (FIRST, MIDDLE, LAST)]:
        await desk.finish(run)
    before = beside(await desk.rows())

    await desk.edit(make_definition(MIDDLE, max_runs=3))

    assert beside(await desk.rows()) == before
    assert [(await desk.job(job)).status for job in (FIRST, MIDDLE)] == [
        JobStatus.COMPLETED,
        JobStatus.ACTIVE,
    ]


async def test_runs_in_recovery_are_looked_at_in_their_order(desk: Desk) -> None:
    """A look names the oldest first."""
    for job in (LAST, FIRST, MIDDLE):
        await desk.add(make_definition(job))
        await desk.take(await desk.fired(job))

    assert [run.job for run in (await desk.store.look()).recovering] == [LAST, FIRST, MIDDLE]
