"""One attempt: what ended it is recorded, measured by monotonic time, and nothing of it is forgotten."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from scheduler.clock import MINUTE, SECOND
from scheduler.engine.judging import Cause
from scheduler.engine.ports import Ended, EndKind, ProgressReport
from scheduler.errors import HandlerBroken, SpawnFailed
from scheduler.executors.dispatch import Executors
from scheduler.model.jobs import PauseMode
from scheduler.model.runs import Progress, Run, RunState
from scheduler.store.values import Missed
from scheduler.telemetry import Event
from tests.support.builders import make_definition
from tests.support.engine import Bench, bench
from tests.support.executors import surroundings

pytestmark = pytest.mark.asyncio

gate: asyncio.Event


async def at_the_gate(_: object) -> None:
    """A handler that returns once the gate is open."""
    await gate.wait()


async def started(here: Bench, **definition: Any) -> Run:
    await here.desk.add(make_definition(manual=True, **definition))
    run = await here.by_hand()
    await here.settle()
    return run


@pytest.mark.parametrize(
    ("ended", "state", "reason"),
    [
        (Ended(kind=EndKind.EXITED, exit_code=0), "succeeded", None),
        (Ended(kind=EndKind.EXITED, exit_code=3), "failed", "exit_code"),
        (Ended(kind=EndKind.SIGNALLED, signal=9), "failed", "signal"),
        (Ended(kind=EndKind.RAISED, message="ValueError: no"), "failed", "exception"),
        (Ended(kind=EndKind.RETURNED, result={"n": 1}), "succeeded", None),
        (Ended(kind=EndKind.EXITED, exit_code=None), "failed", "exit_code"),
    ],
)
async def test_end_by_itself_is_recorded_as_what_it_was(
    tmp_path: Path, ended: Ended, state: str, reason: str | None
) -> None:
    """Exit code, signal, exception and result are told apart; an unknown exit is not a success."""
    async with bench(tmp_path) as here:
        run = await started(here)
        await here.end(ended=ended)
        row = await here.desk.run(run)
        assert (row.state, row.reason, row.exit_code, row.signal) == (
            state,
            reason,
            ended.exit_code,
            ended.signal,
        )


async def test_timeout_ends_it_with_its_grace_and_is_the_verdict(tmp_path: Path) -> None:
    """The cause that we committed to stands, whatever the exit code that follows from it."""
    async with bench(tmp_path) as here:
        run = await started(here, timeout=60, kill_grace=7)
        (execution,) = here.executor.live()
        await here.pass_time(MINUTE - SECOND)
        assert execution.graces == []
        await here.pass_time(SECOND)
        row = await here.desk.run(run)
        assert execution.graces[0] == 7 * SECOND
        assert (row.state, row.reason, row.signal) == (RunState.FAILED, "timeout", 15)


async def test_stall_counts_from_the_last_sign_of_life(tmp_path: Path) -> None:
    """I8: output and progress both put it off; silence for `stall_timeout` ends the attempt."""
    async with bench(tmp_path) as here:
        run = await started(here, stall_timeout=30)
        (execution,) = here.executor.live()
        for _ in range(5):
            await here.pass_time(25 * SECOND)
            execution.hooks.output_seen(1)
            await here.pass_time(25 * SECOND)
            execution.hooks.progressed(ProgressReport(progress=Progress(done=1)))
        assert (await here.desk.run(run)).state is RunState.RUNNING
        await here.pass_time(31 * SECOND)
        row = await here.desk.run(run)
        assert (row.state, row.reason) == (RunState.FAILED, "stalled")


async def test_end_that_came_before_our_signal_counts_as_itself(tmp_path: Path) -> None:
    """A success at the very moment of a cancel, a timeout or a stop is a success."""
    async with bench(tmp_path) as here:
        run = await started(here)
        (execution,) = here.executor.live()
        here.executor.finish(execution)
        await here.operations.cancel(run.id, here.desk.peer)
        await here.settle()
        row = await here.desk.run(run)
        assert row.state is RunState.SUCCEEDED
        assert execution.graces == []


@pytest.mark.parametrize("cut_comes", ["before", "after"])
async def test_handler_that_returns_in_the_turn_of_a_cut_has_returned(tmp_path: Path, cut_comes: str) -> None:
    """An end that came before our signal counts as itself, however close the cause was."""
    global gate  # noqa: PLW0603 - each case has a loop of its own
    gate = asyncio.Event()
    async with bench(tmp_path) as here:
        executors = Executors(surroundings(tmp_path / "out"))
        here.executor.start = executors.start  # type: ignore[method-assign]
        run = await started(here, python=f"{__name__}:at_the_gate")
        if cut_comes == "after":
            gate.set()
        asyncio.get_running_loop().call_soon(here.runner.cut_all, Cause.SHUTDOWN)
        gate.set()
        await here.settle()
        executors.close()
        assert (await here.desk.run(run)).state is RunState.SUCCEEDED


async def test_cancel_before_the_start_is_the_verdict_of_a_handler_that_returns_at_once(
    tmp_path: Path,
) -> None:
    """The first cause that we committed to stands: it came before the end."""
    global gate  # noqa: PLW0603 - each case has a loop of its own
    gate = asyncio.Event()
    gate.set()
    async with bench(tmp_path) as here:
        executors = Executors(surroundings(tmp_path / "out"))

        async def start(grant: Any, hooks: Any) -> Any:
            await here.operations.cancel(grant.run.id, here.desk.peer)
            return await executors.start(grant, hooks)

        here.executor.start = start  # type: ignore[method-assign]
        run = await started(here, python=f"{__name__}:at_the_gate")
        executors.close()
        assert (await here.desk.run(run)).state is RunState.CANCELLED


async def test_clocks_of_a_frozen_attempt_stand_still_and_go_on(tmp_path: Path) -> None:
    """Timeout and stall count the time that the work has really had."""
    async with bench(tmp_path) as here:
        run = await started(here, timeout=60, stall_timeout=50)
        await here.pass_time(30 * SECOND)
        await here.operations.pause(run.job, PauseMode.FREEZE, "", here.desk.peer)
        await here.pass_time(2 * MINUTE)
        await here.operations.resume(run.job, Missed.SKIP, here.desk.peer)
        await here.pass_time(19 * SECOND)
        assert (await here.desk.run(run)).state is RunState.RUNNING
        await here.pass_time(SECOND)
        assert (await here.desk.run(run)).reason == "stalled"


async def test_ended_attempt_leaves_no_alarm(tmp_path: Path) -> None:
    """A million runs with a timeout of a day do not wait for it."""
    async with bench(tmp_path) as here:
        before = here.clock.sleepers
        await started(here, timeout=86400)
        assert here.clock.sleepers == before + 1
        await here.end()
        assert here.clock.sleepers == before


async def test_cancel_while_it_is_being_started_ends_it(tmp_path: Path) -> None:
    """I12: a wish that comes between claim and start is not lost."""
    async with bench(tmp_path) as here:
        await here.desk.add(make_definition(manual=True))
        gate = asyncio.Event()
        real = here.executor.start

        async def slow(grant: Any, hooks: Any) -> Any:
            await gate.wait()
            return await real(grant, hooks)

        here.executor.start = slow  # type: ignore[method-assign]
        run = await here.by_hand()
        await here.operations.cancel(run.id, here.desk.peer)
        gate.set()
        await here.settle()
        assert (await here.desk.run(run)).state is RunState.CANCELLED


@pytest.mark.parametrize(
    ("error", "reason", "broken"),
    [(SpawnFailed("no such program"), "spawn_failed", False), (HandlerBroken("no module"), "broken", True)],
)
async def test_what_cannot_be_started_has_failed_and_says_why(
    tmp_path: Path,
    error: Exception,
    reason: str,
    broken: bool,
) -> None:
    """A program that is not there is a failure; a handler that cannot be imported breaks its job too."""
    async with bench(tmp_path) as here:

        async def refuse(*_: object) -> Any:
            raise error

        here.executor.start = refuse  # type: ignore[method-assign, assignment]
        run = await started(here)
        row = await here.desk.run(run)
        assert (row.state, row.reason, row.message) == (RunState.FAILED, reason, str(error))
        assert ((await here.desk.job()).problem_code is not None) is broken
        assert (len(here.runner), len(here.claims)) == (0, 0)


async def test_worker_of_a_fenced_claim_ends_its_work_and_writes_nothing(tmp_path: Path) -> None:
    """I3: when the row is another's, the work is ended, told as fenced, and the row is left as it is."""
    async with bench(tmp_path) as here:
        run = await started(here)
        (execution,) = here.executor.live()
        await here.desk.take(await here.desk.run(run))
        await here.pass_time(here.heartbeat)
        assert execution.ended.done()
        assert here.log.of(Event.LEASE_LOST)
        assert here.log.of(Event.RUN_FENCED)
        assert (await here.desk.run(run)).state in (RunState.RECOVERING, RunState.CRASHED)


async def test_bug_in_a_worker_does_not_wedge_its_job(tmp_path: Path) -> None:
    """I7: a worker that breaks is told; its row is recovered by the sweep, and the job can run again."""
    async with bench(tmp_path) as here:

        async def broken(*_: object) -> Any:
            raise ZeroDivisionError("a bug")

        real, here.executor.start = here.executor.start, broken  # type: ignore[method-assign, assignment]
        run = await started(here)
        assert "a bug" in str(here.log.of(Event.RUN_STUCK)[0]["message"])
        here.executor.start = real  # type: ignore[method-assign]
        await here.pass_time(4 * here.heartbeat)
        assert (await here.desk.run(run)).state is RunState.CRASHED
        await here.by_hand()
        await here.settle()
        assert len(here.executor.live()) == 1


async def test_before_another_try_what_the_last_one_left_is_ended(tmp_path: Path) -> None:
    """I11: background processes of a failed try are ended before the next; those of a last one are told."""
    async with bench(tmp_path) as here:
        retry = {"attempts": 1, "delay": 1, "backoff": "constant"}
        await started(here, retry=retry)
        (first,) = here.executor.live()
        await here.end(ended=Ended(kind=EndKind.EXITED, exit_code=1, left_behind=2))
        assert len(first.graces) == 1
        await here.pass_time(SECOND)
        (second,) = here.executor.live()
        await here.end(ended=Ended(kind=EndKind.EXITED, exit_code=0, left_behind=2))
        assert second.graces == []
        assert any(told.get("left_behind") == 2 for told in here.log.of(Event.RUN_PROGRESSED))


async def test_coroutine_that_does_not_end_keeps_its_slot_until_it_does(tmp_path: Path) -> None:
    """I11: told once as stuck, ended again and again, and recorded by its cause when it has ended."""
    async with bench(tmp_path) as here:
        run = await started(here, timeout=10)
        (execution,) = here.executor.live()
        execution.stubborn = True
        await here.pass_time(2 * MINUTE)
        assert (await here.desk.run(run)).state is RunState.RUNNING
        assert len(here.log.of(Event.RUN_STUCK)) == 1
        assert len(execution.graces) > 2
        execution.stubborn = False
        here.executor.finish(execution, Ended(kind=EndKind.CANCELLED))
        await here.settle()
        row = await here.desk.run(run)
        assert (row.state, row.reason) == (RunState.FAILED, "timeout")


async def test_second_stop_signal_cuts_the_grace_that_has_begun(tmp_path: Path) -> None:
    """I12: who hurries in the middle of a long grace gets the kill at once."""
    async with bench(tmp_path, drain_timeout=0) as here:
        run = await started(here, kill_grace=600)
        (execution,) = here.executor.live()
        real = execution.end

        async def patient(grace: int) -> bool:
            await here.clock.sleep(grace)
            return await real(grace)

        execution.end = patient  # type: ignore[method-assign]
        draining = asyncio.create_task(here.drain.run())
        await here.pass_time(SECOND)
        assert not draining.done()
        here.drain.hurry()
        await here.settle()
        await draining
        assert execution.graces == [0]
        assert (await here.desk.run(run)).state is RunState.INTERRUPTED
