"""The proof that guards guard: each race runs against the product, and against it with one guard taken out.

Without the guard the loss really happens, and is asserted here: a guard that goes missing turns the first
half of its test red, a test that could not notice turns the second half red.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from scheduler.clock import HOUR, MINUTE, SECOND, Micros
from scheduler.errors import IllegalTransition, SchedulerError
from scheduler.model.jobs import JobStatus, Overlap, PauseMode
from scheduler.model.runs import Progress, Run, RunState, Wish
from scheduler.rules.reconcile import Decision, Ending, JobWrite, LiveRows, Standing, Verdict, reconcile
from scheduler.store.finishing import Decide
from scheduler.store.schema import load_queries
from scheduler.store.values import ClaimRef, Report, Started
from tests.support.builders import make_claimant, make_definition
from tests.support.clock import START, FakeClock
from tests.support.desk import Desk
from tests.support.gates import Gate, held_decide
from tests.support.stores import dump, sqlite_store, weakened


@asynccontextmanager
async def opened(
    path: Path, queries: Mapping[str, str] | None = None, decide: Decide = reconcile
) -> AsyncIterator[Desk]:
    clock = FakeClock()
    async with sqlite_store(path, clock, queries=queries, decide=decide, busy_timeout_ms=0) as store:
        yield Desk(store, clock)


# --- the stomped pause ---
def stomping(verdict: Verdict, live: LiveRows, now: Micros) -> Decision:
    """What the write-back of the story did: the status that the run had read comes back with its end."""
    decision = reconcile(verdict, live, now)
    assert decision.job is not None
    as_read = JobWrite(
        status=JobStatus.ACTIVE,
        failures=0,
        crashes=0,
        fires_done=1,
        sets_next=False,
        next_fire_at=None,
        due_at=None,
    )
    return replace(decision, job=as_read)


async def pause_during_run(desk: Desk) -> JobStatus:
    await desk.add(make_definition())
    run = await desk.fired()
    await desk.pause()
    await desk.finish(run)
    return (await desk.job()).status


async def test_a_pause_during_the_run_survives_only_a_reconciled_write_back(path: Path) -> None:
    """I4: the stomped pause: a write-back of what the run had read loses the pause, and nothing throws."""
    async with opened(path) as desk:
        assert await pause_during_run(desk) is JobStatus.PAUSED


async def test_the_stomped_pause_is_lost_without_reconciliation(path: Path) -> None:
    """I4: the same story against the write-back as it was: the job is active, the pause is gone."""
    async with opened(path, decide=stomping) as desk:
        assert await pause_during_run(desk) is JobStatus.ACTIVE
        assert (await desk.job()).pause is None


# --- the transaction ---
UNLOCKED = {
    **load_queries(),
    **dict.fromkeys(
        ("begin", "commit", "rollback", "savepoint", "release_savepoint", "rollback_to_savepoint"), "SELECT 1"
    ),
}
"""The named queries without any transaction: every statement commits by itself."""


async def pause_between_read_and_write(path: Path, queries: Mapping[str, str] | None) -> tuple[bool, object]:
    """A pause that comes while FINISH is between read and write: did it get in, and what became of FINISH."""
    gate = Gate()
    async with opened(path, queries, held_decide(gate)) as worker, opened(path) as operator:
        await worker.add(make_definition(delay=MINUTE))
        run = await worker.fired()
        finishing = asyncio.create_task(worker.finish(run))
        await gate.reached()
        pausing = asyncio.create_task(operator.pause())
        asleep = asyncio.create_task(operator.clock.asleep())  # it met the lock, and waits for another try
        await asyncio.wait((pausing, asleep), return_when=asyncio.FIRST_COMPLETED)
        asleep.cancel()
        got_in = pausing.done()
        gate.open()
        (outcome,) = await asyncio.gather(finishing, return_exceptions=True)
        await operator.clock.advance(SECOND)
        await pausing
        return got_in, outcome


async def test_no_pause_gets_between_what_finish_reads_and_writes(path: Path) -> None:
    """I4: FINISH holds the writing lock from its first read, so that the pause waits, and then wins."""
    got_in, outcome = await pause_between_read_and_write(path, None)

    assert not got_in
    assert not isinstance(outcome, BaseException)
    (job,), (run,) = dump(path)["jobs"], dump(path)["runs"]
    assert (job["status"], job["next_fire_at"], job["fires_done"]) == ("paused", None, 1)
    assert run["state"] == "succeeded"


async def test_without_the_transaction_the_pause_gets_in_and_the_end_is_half_written(path: Path) -> None:
    """I4: without the lock the revision still saves the pause, but the end of the run is torn in two."""
    got_in, outcome = await pause_between_read_and_write(path, UNLOCKED)

    assert got_in
    assert isinstance(outcome, IllegalTransition)
    (job,), (run,) = dump(path)["jobs"], dump(path)["runs"]
    assert (run["state"], run["job_counted"], job["fires_done"]) == ("succeeded", 1, 0)
    assert job["status"] == "paused"


async def test_without_transaction_and_revision_the_end_writes_over_the_pause(path: Path) -> None:
    """I4: with the revision gone too the counters of a row that was not the one read are written."""
    name, clause = "write_counters", "AND jobs.revision = counted.seen_revision"
    queries = {**UNLOCKED, name: weakened(name, clause)[name]}

    got_in, outcome = await pause_between_read_and_write(path, queries)

    assert got_in
    assert not isinstance(outcome, BaseException)
    (job,) = dump(path)["jobs"]
    assert job["fires_done"] == 1


# --- I3: claim and state in finish_run ---
def blind(verdict: Verdict, live: LiveRows, now: Micros) -> Decision:
    """A reconcile that believes whatever the writer believes."""
    return reconcile(replace(verdict, claim=live.run.claim, expects=live.run.state), live, now)


async def late_worker(desk: Desk, *, taken_again: bool) -> tuple[Run, object]:
    """The first worker writes after its claim was taken: by the next claim, or by recovery only."""
    await desk.add(make_definition(on_crash="retry"))
    run = await desk.fired()
    if taken_again:
        await desk.crash(run)
        assert len(await desk.claim()) == 1
    else:
        await desk.take(run)
    (outcome,) = await asyncio.gather(desk.finish(run), return_exceptions=True)
    return await desk.run(run), outcome


CLAIM, STATE = "AND runs.claim = ended.claim", "AND +runs.state = ended.expects"


@pytest.mark.parametrize(("taken_again", "clause"), [(True, CLAIM), (False, STATE)])
async def test_a_late_worker_is_fenced_twice(path: Path, taken_again: bool, clause: str) -> None:
    """I3: reconcile fences it, and were reconcile blind, the statement would."""
    async with opened(path, weakened("finish_run", clause)) as desk:
        run, outcome = await late_worker(desk, taken_again=taken_again)
        assert not isinstance(outcome, BaseException)
        assert outcome.decision.standing is Standing.FENCED  # type: ignore[attr-defined]
        assert run.state is (RunState.RUNNING if taken_again else RunState.RECOVERING)


@pytest.mark.parametrize("taken_again", [True, False])
async def test_a_late_worker_is_fenced_by_the_statement_alone(path: Path, taken_again: bool) -> None:
    """I3: with a blind reconcile the WHERE of finish_run still refuses, and nothing is written."""
    async with opened(path, decide=blind) as desk:
        run, outcome = await late_worker(desk, taken_again=taken_again)
        assert isinstance(outcome, IllegalTransition)
        assert run.state is (RunState.RUNNING if taken_again else RunState.RECOVERING)


@pytest.mark.parametrize(("taken_again", "clause"), [(True, CLAIM), (False, STATE)])
async def test_without_both_fences_a_late_worker_overwrites(
    path: Path, taken_again: bool, clause: str
) -> None:
    """I3: the loss that the two fences are there for: another claim's run, or a recovery, is overwritten."""
    async with opened(path, weakened("finish_run", clause), blind) as desk:
        run, outcome = await late_worker(desk, taken_again=taken_again)
        assert not isinstance(outcome, BaseException)
        assert run.state is RunState.SUCCEEDED


# --- I4, I6: what reconcile asks of the job ---
def forgetting(field: str) -> Decide:
    """A reconcile for which the job's row is always the one that the run was claimed under."""

    def decide(verdict: Verdict, live: LiveRows, now: Micros) -> Decision:
        assert live.job is not None
        run = replace(live.run, **{field: getattr(live.job, field)})
        return reconcile(verdict, replace(live, run=run), now)

    return decide


@pytest.mark.parametrize(
    ("decide", "status"), [(reconcile, "active"), (forgetting("definition_revision"), "completed")]
)
async def test_completed_is_the_word_of_the_definition_that_ran(
    path: Path, decide: Decide, status: str
) -> None:
    """I4: an edit during the run makes its `Completed` void; without the revision the edited job is ended."""
    async with opened(path, decide=decide) as desk:
        await desk.add(make_definition())
        run = await desk.fired()
        await desk.edit(make_definition(every=HOUR))
        await desk.finish(run, completed=True)

        assert (await desk.job()).status == status


@pytest.mark.parametrize(
    ("decide", "status"), [(reconcile, "active"), (forgetting("added_revision"), "failed")]
)
async def test_an_old_run_is_not_charged_to_the_job_that_was_added_again(
    path: Path, decide: Decide, status: str
) -> None:
    """I6: a run of the job before fails the new one, were its incarnation not looked at."""
    async with opened(path, decide=decide) as desk:
        await desk.add(make_definition(max_failures=1))
        run = await desk.fired()
        await desk.remove()
        await desk.add(make_definition(max_failures=1))
        await desk.finish(run, Ending.FAILED)

        assert (await desk.job()).status == status


# --- FIRE ---
REVISION, SLOT, STATUS, ENABLED, REMOVED = (
    "AND jobs.revision = plan.seen_revision",
    "AND jobs.next_fire_at = plan.seen_fire_at",
    "AND +jobs.status = 'active'",
    "AND jobs.enabled = 1",
    "AND jobs.removed_at IS NULL",
)


@pytest.mark.parametrize(("clauses", "fired"), [((), False), ((REVISION,), True)])
async def test_an_edit_voids_the_plan_by_its_revision(
    path: Path, clauses: tuple[str, ...], fired: bool
) -> None:
    """I4: the edited policy would tell the late fire as missed; the old plan, unguarded, runs it."""
    async with opened(path, weakened("move_job", *clauses)) as desk:
        await desk.add(make_definition(every=HOUR))
        desk.clock.move(HOUR + 10 * MINUTE)
        plan = await desk.plan()
        assert plan is not None
        await desk.edit(make_definition(every=HOUR, catch_up="skip"))

        assert (await desk.store.fire(desk.who, [plan]))[0].fired is fired
        assert len(await desk.executed()) == int(fired)


@pytest.mark.parametrize(("clauses", "moved_back"), [((), False), ((SLOT,), True)])
async def test_a_plan_of_a_slot_that_is_past_does_not_move_the_job_back(
    path: Path, clauses: tuple[str, ...], moved_back: bool
) -> None:
    """I1: two daemons planned one slot; the slower one, unguarded, sets the job back to it."""
    async with opened(path, weakened("move_job", *clauses)) as desk:
        await desk.add(make_definition())
        desk.clock.move(MINUTE)
        slow = await desk.plan()
        assert slow is not None
        await desk.finish(await desk.fired())
        await desk.finish(await desk.fired())

        fired = (await desk.store.fire(desk.who, [slow]))[0]

        assert fired.fired is moved_back
        assert (await desk.job()).last_fire_at == START + (1 if moved_back else 2) * MINUTE


@pytest.mark.parametrize(("verb", "clause"), [("pause", STATUS), ("disable", ENABLED), ("remove", REMOVED)])
@pytest.mark.parametrize("guarded", [True, False])
async def test_a_job_that_may_not_fire_does_not(path: Path, verb: str, clause: str, guarded: bool) -> None:
    """I4: with revision and slot gone the operator's own column still stops the fire, and nothing else."""
    clauses = (REVISION, SLOT) if guarded else (REVISION, SLOT, clause)
    async with opened(path, weakened("move_job", *clauses)) as desk:
        await desk.add(make_definition(at=START + MINUTE))
        desk.clock.move(MINUTE)
        plan = await desk.plan()
        assert plan is not None
        match verb:
            case "pause":
                await desk.pause()
            case "disable":
                await desk.edit(make_definition(at=START + MINUTE, enabled=False))
            case _:
                await desk.remove()

        fired = (await desk.store.fire(desk.who, [plan]))[0]

        assert fired.fired is not guarded
        assert len(await desk.executed()) == int(not guarded)


# --- I8: recovery ---
@pytest.mark.parametrize(
    ("event", "clause", "kept"),
    [
        ("renewed", "AND lease_until = :lease_until", RunState.RUNNING),
        ("claimed again", "AND claim = :claim", RunState.RUNNING),
        ("finished", "AND state = 'running'", RunState.SUCCEEDED),
    ],
)
@pytest.mark.parametrize("guarded", [True, False])
async def test_recovery_backs_off_from_whatever_landed_after_its_look(
    path: Path, event: str, clause: str, kept: RunState, guarded: bool
) -> None:
    """I8: a beat, a next claim or an outcome between look and write wins; unguarded, a live run is taken."""
    queries = None if guarded else weakened("take_for_recovery", clause)
    async with opened(path, queries) as desk:
        await desk.add(make_definition(on_crash="retry"))
        run = await desk.fired()
        seen = (await desk.store.look()).running
        match event:
            case "renewed":
                desk.clock.move(SECOND)
                await desk.store.renew(desk.who, [ClaimRef(run_id=run.id, claim=1)])
            case "claimed again":
                await desk.crash(run)
                assert len(await desk.claim()) == 1
            case _:
                await desk.finish(run)

        taken = await desk.store.recover(seen)

        assert len(taken) == int(not guarded)
        assert (await desk.run(run)).state is (kept if guarded else RunState.RECOVERING)


# --- I3: signs of life ---
RENEW_PAIR = "(id, claim) IN (SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]')"
RENEW_ID = "id IN (SELECT json_extract(value, '$[0]')"


@pytest.mark.parametrize("guarded", [True, False])
async def test_a_heartbeat_renews_its_own_claim_only(path: Path, guarded: bool) -> None:
    """I3: the beat of a worker that lost its claim gets no answer; unguarded, it believes that it lives."""
    queries = dict(load_queries())
    assert RENEW_PAIR in queries["renew_claims"]
    if not guarded:
        queries["renew_claims"] = queries["renew_claims"].replace(RENEW_PAIR, RENEW_ID)
    async with opened(path, queries) as desk:
        await desk.add(make_definition(on_crash="retry"))
        run = await desk.fired()
        await desk.crash(run)
        assert len(await desk.claim()) == 1

        answer = await desk.store.renew(desk.who, [ClaimRef(run_id=run.id, claim=1)])

        assert set(answer) == (set() if guarded else {run.id})


@pytest.mark.parametrize("guarded", [True, False])
async def test_a_heartbeat_renews_its_own_daemons_claims_only(path: Path, guarded: bool) -> None:
    """I3: the owner is part of a claim."""
    async with opened(path, None if guarded else weakened("renew_claims", "AND owner = :owner")) as desk:
        await desk.add(make_definition())
        run = await desk.fired()

        answer = await desk.store.renew(make_claimant(), [ClaimRef(run_id=run.id, claim=1)])

        assert set(answer) == (set() if guarded else {run.id})


@pytest.mark.parametrize("guarded", [True, False])
async def test_progress_of_a_lost_claim_is_not_told(path: Path, guarded: bool) -> None:
    """I3: the numbers of the worker before do not replace those of the one now."""
    async with opened(path, None if guarded else weakened("report_progress", "AND claim = :claim")) as desk:
        await desk.add(make_definition(on_crash="retry"))
        run = await desk.fired()
        await desk.crash(run)
        assert len(await desk.claim()) == 1

        await desk.store.report(
            [Report(run_id=run.id, claim=1, progress_at=desk.clock.now(), progress=Progress(done=99))]
        )

        assert (await desk.run(run)).progress.done == (None if guarded else 99)


@pytest.mark.parametrize("guarded", [True, False])
async def test_the_child_of_a_lost_claim_is_not_recorded(path: Path, guarded: bool) -> None:
    """I3, I11: the process of the worker before must not stand where the one of now is looked for."""
    weak = weakened("report_child", "AND runs.claim = child.claim")
    async with opened(path, None if guarded else weak) as desk:
        await desk.add(make_definition(on_crash="retry"))
        run = await desk.fired()
        await desk.crash(run)
        assert len(await desk.claim()) == 1

        await desk.store.report([Report(run_id=run.id, claim=1, pid=13, pid_ticks=1)])

        assert (await desk.run(run)).pid == (None if guarded else 13)


# --- wishes ---
@pytest.mark.parametrize("guarded", [True, False])
async def test_a_cancel_is_not_taken_back_by_a_later_wish(path: Path, guarded: bool) -> None:
    """`cancel` is never taken back: a pause that holds the runs in flight leaves a cancelled one so."""
    async with opened(path, None if guarded else weakened("wish_run", "AND wish <> 'cancel'")) as desk:
        await desk.add(make_definition())
        run = await desk.fired()
        await desk.cancel(run)

        await desk.pause(mode=PauseMode.ITEM)

        assert (await desk.run(run)).wish is (Wish.CANCEL if guarded else Wish.HOLD)


# --- I2 ---
COUNTED = "count(*) FILTER (WHERE runs.state <> 'queued')"
UNCOUNTED = "0 * count(*)"


async def start_many(desk: Desk) -> int:
    await desk.add(make_definition(manual=True))
    requests = [desk.start_request(overlap=Overlap.SKIP) for _ in range(20)]
    return sum(isinstance(result, Started) for result in await desk.store.start(desk.who, requests))


async def test_one_live_run_is_held_by_the_count_and_by_the_index(path: Path) -> None:
    """I2: without the count the index refuses the second run; without both there are twenty."""
    queries = dict(load_queries())
    assert COUNTED in queries["occupancy"]
    queries["occupancy"] = queries["occupancy"].replace(COUNTED, UNCOUNTED)
    async with opened(path, queries) as desk:
        assert await start_many(desk) == 1
        await desk.remove()
        with sqlite3.connect(path) as db:
            db.execute("DROP INDEX runs_solo")
        db.close()
        assert await start_many(desk) == 20


async def test_a_weakened_statement_must_have_had_its_guard() -> None:
    """These proofs take out what is there: a clause that a statement lacks is an error, not a proof."""
    with pytest.raises(AssertionError):
        weakened("finish_run", "AND moon = 'full'")
    assert issubclass(IllegalTransition, SchedulerError)
