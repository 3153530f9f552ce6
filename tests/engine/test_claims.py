"""Heartbeat and recovery: slow is not dead, dead is not wedged, and only the dead are taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler.clock import HOUR, MINUTE, SECOND
from scheduler.engine.ports import Ended, EndKind
from scheduler.errors import StoreUnavailable
from scheduler.model.jobs import JobStatus
from scheduler.model.runs import Run, RunState
from scheduler.telemetry import Event
from tests.support.builders import JOB, make_definition
from tests.support.clock import FakeClock
from tests.support.engine import Bench, bench

pytestmark = pytest.mark.asyncio


async def started(here: Bench, job: str = "job") -> Run:
    run = await here.by_hand(job)
    await here.settle()
    return run


async def die(here: Bench) -> None:
    """The daemon is gone without a word: its tasks end, nothing is written."""
    for task in [*here.tasks, *here.runner._tasks.values()]:  # noqa: SLF001 - a death asks nobody
        task.cancel()
    await here.settle()
    here.tasks.clear()
    here.executor.started.clear()


async def test_old_run_that_renews_is_never_taken(tmp_path: Path) -> None:
    """I8: days of run time mean nothing while its owner beats."""
    async with bench(tmp_path) as here:
        await here.desk.add(make_definition(manual=True))
        run = await started(here)
        await here.pass_time(6 * HOUR)
        assert (await here.desk.run(run)).state is RunState.RUNNING
        assert here.undertaker.sent == []


async def test_wedged_run_is_recovered_at_the_start_and_the_job_runs_at_once(tmp_path: Path) -> None:
    """I7: the rows of a dead daemon are `crashed` before anything waits for a lease, and the job is free."""
    clock = FakeClock()
    async with bench(tmp_path, clock=clock) as first:
        await first.desk.add(make_definition(manual=True))
        run = await started(first)
        await die(first)
        async with bench(tmp_path, clock=clock) as here:
            assert (await here.desk.run(run)).state is RunState.CRASHED
            assert [sent.id for sent in here.undertaker.sent] == [run.id]
            again = await started(here)
            assert (await here.desk.run(again)).state is RunState.RUNNING


async def test_claim_whose_caller_vanished_is_released_after_two_beats(tmp_path: Path) -> None:
    """I7: a row of ours that memory has not known for two beats is recovered, and not before."""
    async with bench(tmp_path) as here:
        await here.desk.add(make_definition(manual=True))
        lost = (await here.desk.start()).run
        await here.pass_time(here.heartbeat + SECOND)
        assert (await here.desk.run(lost)).state is RunState.RUNNING
        await here.pass_time(2 * here.heartbeat)
        assert (await here.desk.run(lost)).state is RunState.CRASHED


async def test_what_cannot_be_killed_keeps_its_slot_and_is_tried_at_each_sweep(tmp_path: Path) -> None:
    """I11: told as stuck, tried again, and the job is free as soon as it could be ended."""
    clock = FakeClock()
    async with bench(tmp_path, clock=clock) as first:
        await first.desk.add(make_definition(manual=True))
        run = await started(first)
        await die(first)
        async with bench(tmp_path, clock=clock, started=False) as here:
            here.undertaker.works = False
            await here.start()
            await here.pass_time(3 * here.heartbeat)
            assert (await here.desk.run(run)).state is RunState.RECOVERING
            assert len(here.log.of(Event.RUN_STUCK)) >= 3
            queued = await started(here)
            assert (await here.desk.run(queued)).state is RunState.QUEUED
            here.undertaker.works = True
            await here.pass_time(here.heartbeat)
            assert (await here.desk.run(run)).state is RunState.CRASHED
            assert (await here.desk.run(queued)).state is RunState.RUNNING


async def test_recovery_that_breaks_is_told_and_tried_again(tmp_path: Path) -> None:
    """I7: a bug in ending what is left does not wedge the job: the next sweep takes it up again."""
    clock = FakeClock()
    async with bench(tmp_path, clock=clock) as first:
        await first.desk.add(make_definition(manual=True))
        run = await started(first)
        await die(first)
        async with bench(tmp_path, clock=clock, started=False) as here:
            works = here.undertaker.end_leftovers

            async def broken(*_: object) -> bool:
                raise ZeroDivisionError("a bug")

            here.undertaker.end_leftovers = broken  # type: ignore[method-assign, assignment]
            await here.start()
            assert "a bug" in str(here.log.of(Event.RUN_STUCK)[0]["message"])
            here.undertaker.end_leftovers = works  # type: ignore[method-assign]
            await here.pass_time(here.heartbeat)
            assert (await here.desk.run(run)).state is RunState.CRASHED


async def test_beat_that_fails_is_told_and_comes_again(tmp_path: Path) -> None:
    """I14: neither a full store nor a bug ends the heartbeat; it renews before it reaps."""
    async with bench(tmp_path) as here:
        await here.desk.add(make_definition(manual=True))
        run = await started(here)
        here.store.fail["renew"] = RuntimeError("a bug")
        await here.pass_time(2 * MINUTE)
        assert "a bug" in str(here.log.of(Event.LOOP_BLOCKED)[0]["message"])
        here.store.fail["renew"] = StoreUnavailable("full")
        await here.pass_time(2 * MINUTE)
        here.store.fail.clear()
        await here.pass_time(MINUTE)
        assert (await here.desk.run(run)).state is RunState.RUNNING
        await here.end()
        assert (await here.desk.run(run)).state is RunState.SUCCEEDED


async def test_outcome_that_could_not_be_recorded_is_kept_until_it_can(tmp_path: Path) -> None:
    """I10, I14: progress that cannot be written costs neither the run nor its result."""
    async with bench(tmp_path) as here:
        await here.desk.add(make_definition(manual=True))
        run = await started(here)
        here.store.fail["report"] = RuntimeError("a bug")
        here.executor.live()[0].hooks.output_seen(10)
        await here.pass_time(2 * SECOND)
        here.executor.live()[0].hooks.output_seen(10)
        await here.end()
        assert (await here.desk.run(run)).state is RunState.SUCCEEDED


async def test_max_crashes_pauses_the_job_with_evidence(tmp_path: Path) -> None:
    """Three deaths in a row under one run pause its job; a success starts at zero (issue 3, 6)."""
    clock = FakeClock()
    async with bench(tmp_path, clock=clock) as first:
        await first.desk.add(make_definition(manual=True, on_crash="retry", max_crashes=3))
        run = await started(first)
        await die(first)
    for claim in (2, 3):
        async with bench(tmp_path, clock=clock) as here:
            await here.pass_time(SECOND)
            assert (await here.desk.run(run)).claim == claim
            await die(here)
    async with bench(tmp_path, clock=clock) as here:
        await here.pass_time(SECOND)
        job = await here.desk.job()
        assert job.status is JobStatus.PAUSED
        assert job.pause is not None
        assert (job.pause.reason, job.pause.by) == ("crashes", "schedulerd")
        assert "3 crashes in a row" in job.pause.note
        assert here.executor.started == []
        assert (await here.desk.run(run)).state is RunState.WAITING
        await here.desk.resume()
        here.engine.wake()
        await here.settle()
        await here.end(ended=Ended(kind=EndKind.RETURNED))
        assert (await here.desk.job(JOB)).crashes == 0


async def test_read_does_not_fail_because_a_dead_claim_cannot_be_released_now(tmp_path: Path) -> None:
    """I14: what a look finds is left to the next sweep while the store cannot commit; the read goes on."""
    clock = FakeClock()
    async with bench(tmp_path, clock=clock) as first:
        await first.desk.add(make_definition(manual=True))
        run = await started(first)
        await die(first)
        async with bench(tmp_path, clock=clock, started=False) as here:
            here.store.fail["recover"] = StoreUnavailable("locked")
            await here.operations.look()
            assert (await here.desk.run(run)).state is RunState.RUNNING
            here.store.fail.clear()
            await here.operations.look()
            await here.settle()
            assert (await here.desk.run(run)).state is RunState.CRASHED


async def test_run_that_was_not_alone_at_the_death_is_not_charged_because_its_processes_were_slow_to_end(
    tmp_path: Path,
) -> None:
    """Who was alone is decided once, at the first look, not when others have been recorded (issue 3, 6)."""
    clock = FakeClock()
    async with bench(tmp_path, clock=clock) as first:
        runs = {}
        for job in ("quick", "slow"):
            await first.desk.add(make_definition(job, manual=True))
            runs[job] = await started(first, job)
        await die(first)
        async with bench(tmp_path, clock=clock, started=False) as here:
            real = here.undertaker.end_leftovers

            async def some(run: Run, grace: int) -> bool:
                return run.job == "quick" and await real(run, grace)

            here.undertaker.end_leftovers = some  # type: ignore[method-assign]
            await here.start()
            await here.pass_time(2 * here.heartbeat)
            assert (await here.desk.run(runs["quick"])).state is RunState.CRASHED
            here.undertaker.end_leftovers = real  # type: ignore[method-assign]
            await here.pass_time(here.heartbeat)
            assert (await here.desk.run(runs["slow"])).state is RunState.CRASHED
            counts = [(await here.store.job(job)).job.crashes for job in ("quick", "slow")]
            assert counts == [0, 0]
