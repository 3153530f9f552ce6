"""Runs whose units outlive a daemon: taken up under the next claim, and left with a word on the row."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.clock import SECOND
from scheduler.model.jobs import JobId
from scheduler.model.runs import OwnerId, Run, RunState
from scheduler.rules.reconcile import Ending, Standing
from scheduler.store.values import ClaimRef
from tests.support.builders import make_claimant, make_definition, make_owner, make_verdict
from tests.support.clock import FakeClock
from tests.support.desk import Desk

pytestmark = pytest.mark.asyncio


async def recovering(desk: Desk) -> Run:
    """A run whose owner is gone."""
    await desk.add(make_definition(isolate="unit"))
    return await desk.take(await desk.fired())


async def test_a_run_in_recovery_is_taken_up_under_the_next_claim(desk: Desk, clock: FakeClock) -> None:
    """It is running again, ours, with a claim one higher, and the verdict of the old claim is fenced (I3)."""
    run = await recovering(desk)
    who = make_claimant()
    clock.move(SECOND)

    grant = await desk.store.reattach(who, run.id, run.claim)

    assert grant is not None
    assert grant.definition.isolate == "unit"
    assert grant.run == await desk.run(run)
    assert (grant.run.state, grant.run.claim, grant.run.owner) == (RunState.RUNNING, 2, who.owner.id)
    assert grant.run.lease_until == clock.now() + who.lease
    assert (grant.run.started_at, grant.run.claimed_at, grant.run.attempt) == (
        run.started_at,
        run.claimed_at,
        run.attempt,
    )
    late = (await desk.store.finish([make_verdict(run, Ending.SUCCEEDED)]))[0]
    assert late.decision.standing is Standing.FENCED
    done = (await desk.store.finish([make_verdict(grant.run, Ending.SUCCEEDED)]))[0]
    assert done.run.state is RunState.SUCCEEDED


@pytest.mark.parametrize(
    ("orderly", "told"),
    [(True, ("interrupted", "shutdown")), (False, ("crashed", "owner_died"))],
    ids=["orderly", "dead"],
)
async def test_the_claim_that_was_given_up_is_told_in_the_attempts(
    desk: Desk, clock: FakeClock, *, orderly: bool, told: tuple[str, str]
) -> None:
    """Each claim has its row: the old one says how its own daemon went, the new one is open."""
    others = [replace(make_owner(), id=OwnerId(name)) for name in ("a", "z")]
    for owner in (others[0], desk.who.owner, others[1]):
        await desk.store.register(owner)
    run = await recovering(desk)
    for stopped in [desk.who.owner] if orderly else others:
        await desk.store.sign_off(stopped.id)
    clock.move(SECOND)

    await desk.store.reattach(make_claimant(), run.id, run.claim)

    old, new = await desk.store.attempts(run.id)
    assert (old.claim, old.state, old.reason, old.finished_at) == (1, *told, clock.now())
    assert "claim 2 took it up" in (old.message or "")
    assert (new.claim, new.state, new.finished_at) == (2, None, None)


@pytest.mark.parametrize("case", ["another claim", "running", "ended", "draining"])
async def test_a_run_that_moved_on_is_not_taken_up(desk: Desk, case: str) -> None:
    """Only the row as it was seen is taken up, and never by a daemon that stops (I12)."""
    run = await recovering(desk)
    who, claim = make_claimant(), run.claim
    match case:
        case "another claim":
            claim = 2
        case "running":
            await desk.store.reattach(who, run.id, run.claim)
        case "ended":
            await desk.store.finish([make_verdict(run, Ending.CRASHED)])
        case _:
            who.draining = True
    before = await desk.rows()

    assert await desk.store.reattach(who, run.id, claim) is None

    assert await desk.rows() == before


async def test_a_run_of_a_removed_job_is_taken_up_too(desk: Desk) -> None:
    """The definition outlives the job as a tombstone, and the result of its run is kept (I6)."""
    run = await recovering(desk)
    await desk.remove(JobId("job"))

    grant = await desk.store.reattach(make_claimant(), run.id, run.claim)

    assert grant is not None
    assert grant.definition.isolate == "unit"


async def test_a_run_that_is_left_says_so_until_it_is_taken_up(desk: Desk) -> None:
    """The row of a run that goes on without its daemon says so; one whose claim moved on is not touched."""
    await desk.add(make_definition(isolate="unit"))
    run = await desk.fired()
    stranger = make_claimant()
    await desk.store.leave(stranger, [ClaimRef(run_id=run.id, claim=run.claim)])
    await desk.store.leave(desk.who, [ClaimRef(run_id=run.id, claim=run.claim + 1)])
    assert (await desk.run(run)).message is None

    await desk.store.leave(desk.who, [ClaimRef(run_id=run.id, claim=run.claim)])

    left = await desk.run(run)
    assert (left.state, left.claim) == (RunState.RUNNING, run.claim)
    assert "its unit goes on" in (left.message or "")
    grant = await desk.store.reattach(make_claimant(), run.id, (await desk.take(left)).claim)
    assert grant is not None
    assert grant.run.message is None


async def test_a_run_that_has_ended_is_not_left(desk: Desk) -> None:
    """Its own words stay, though it ended under the very claim that is let go."""
    await desk.add(make_definition(isolate="unit"))
    run = await desk.fired()
    await desk.finish(run, Ending.FAILED)

    await desk.store.leave(desk.who, [ClaimRef(run_id=run.id, claim=run.claim)])

    assert (await desk.run(run)).message == "exit code 1"


async def test_attempts_before_the_claim_that_was_given_up_stay_as_they_are(
    desk: Desk, clock: FakeClock
) -> None:
    """Only the row of that claim is ended by the one that takes it up."""
    await desk.add(make_definition(isolate="unit", on_crash="retry"))
    await desk.crash(await desk.fired())
    (again,) = await desk.claim()
    before = (await desk.store.attempts(again.run.id))[0]
    clock.move(SECOND)

    run = await desk.take(again.run)
    await desk.store.reattach(make_claimant(), run.id, run.claim)

    first, second, _ = await desk.store.attempts(run.id)
    assert first == before
    assert second.finished_at == clock.now()
