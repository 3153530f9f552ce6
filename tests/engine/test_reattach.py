"""Runs in units of their own: taken back in recovery, left at a stop, and never beside another attempt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from scheduler.clock import MINUTE, SECOND, Micros
from scheduler.engine.ports import AttemptHooks, Ended, EndKind, Execution
from scheduler.engine.reattach import Reattacher
from scheduler.errors import SchedulerError
from scheduler.metrics import Metrics
from scheduler.model.jobs import JobId
from scheduler.model.runs import Grant, Run, RunState
from scheduler.telemetry import Event
from tests.support.builders import make_claimant, make_definition
from tests.support.engine import Bench, ScriptedExecution, bench
from tests.support.executors import until

pytestmark = pytest.mark.asyncio


@dataclass
class Units:
    """`UnitDesk` as a test wants it."""

    claim: int | None = 1
    fails: bool = False
    there: list[tuple[str, int]] = field(default_factory=list)
    ended: list[tuple[str, int]] = field(default_factory=list)

    async def find(self, run: Run) -> int | None:
        if self.fails:
            raise SchedulerError("the manager does not answer")
        return self.claim

    async def started(self) -> Sequence[tuple[str, int]]:
        return self.there

    async def end(self, run_id: str, claim: int, grace: Micros) -> bool:
        self.ended.append((run_id, claim))
        return True


class UnitExecution(ScriptedExecution):
    """An attempt in a unit that had worked for `before` when it was followed first."""

    def __init__(self, grant: Grant, hooks: AttemptHooks, before: Micros) -> None:
        super().__init__(grant, hooks)
        self.before = before
        self.collected = False

    def worked(self) -> Micros:
        return self.before

    async def collect(self) -> None:
        self.collected = True


@asynccontextmanager
async def bench_with(tmp_path: Path, units: Units) -> AsyncIterator[tuple[Bench, Reattacher]]:
    """A bench whose recoveries ask for units first."""
    async with bench(tmp_path, started=False) as here:
        reattacher = Reattacher(
            here.store, here.desk.who, here.claims, here.runner, units, here.log, Metrics()
        )
        here.recoverer.ask_first(reattacher.take_back)
        yield here, reattacher


async def crashed(here: Bench) -> Run:
    """The run of another daemon, which is dead."""
    await here.desk.add(make_definition(manual=True, isolate="unit"))
    own, here.desk.who = here.desk.who, make_claimant()
    run = await here.desk.start(JobId("job"))
    here.desk.who = own
    return run.run


async def test_a_run_whose_unit_goes_on_gets_a_worker_and_nothing_is_ended(tmp_path: Path) -> None:
    """It runs on under the next claim, followed where it was started; its end is recorded as any other."""
    async with bench_with(tmp_path, Units(claim=1)) as (here, _):
        run = await crashed(here)
        await here.start()

        (grant,) = here.starts()
        assert (grant.unit_claim, grant.run.claim, grant.run.id) == (1, 2, run.id)
        assert here.undertaker.sent == []
        assert here.log.of(Event.RUN_RESUMED)
        assert not here.log.of(Event.RUN_STARTED)
        await here.pass_time(5 * MINUTE)  # its lease is renewed: no sweep takes it
        await here.end()
        assert (await here.desk.run(run)).state is RunState.SUCCEEDED


async def test_a_run_without_a_unit_is_recovered_as_ever(tmp_path: Path) -> None:
    """What is left of it is ended, then it is a crash."""
    async with bench_with(tmp_path, Units(claim=None)) as (here, _):
        run = await crashed(here)

        await here.start()

        assert [sent.id for sent in here.undertaker.sent] == [run.id]
        assert (await here.desk.run(run)).state is RunState.CRASHED


async def test_while_the_manager_does_not_answer_nothing_is_decided(tmp_path: Path) -> None:
    """The run stays in recovery, told as stuck, and is taken back once it is known how its unit is (I8)."""
    units = Units(fails=True)
    async with bench_with(tmp_path, units) as (here, _):
        run = await crashed(here)
        await here.start()
        assert (await here.desk.run(run)).state is RunState.RECOVERING
        assert here.undertaker.sent == []
        assert here.log.of(Event.RUN_STUCK)

        units.fails = False
        await here.pass_time(MINUTE)

        assert (await here.desk.run(run)).state is RunState.RUNNING


async def test_a_daemon_that_stops_leaves_it_to_the_next(tmp_path: Path) -> None:
    """No claim commits during a drain, and nothing of the run is ended instead (I12)."""
    async with bench_with(tmp_path, Units(claim=1)) as (here, _):
        run = await crashed(here)
        here.desk.who.draining = True

        await here.start()

        assert (await here.desk.run(run)).state is RunState.RECOVERING
        assert here.undertaker.sent == []
        await asyncio.wait_for(here.claims.answered(), 30)


async def test_a_stop_leaves_units_running_and_waits_for_the_rest(tmp_path: Path) -> None:
    """The drain waits for a plain run, not for one in a unit, whose row says that it goes on (I12)."""
    async with bench(tmp_path) as here:
        await here.desk.add(make_definition("plain", manual=True))
        await here.desk.add(make_definition("unit", manual=True, isolate="unit"))
        plain, unit = await here.by_hand("plain"), await here.by_hand("unit")
        await here.settle()

        draining = asyncio.create_task(here.drain.run())
        await here.settle()
        assert not draining.done()
        await here.end("plain")
        await asyncio.wait_for(draining, 30)

        assert (await here.desk.run(plain)).state is RunState.SUCCEEDED
        left = await here.desk.run(unit)
        assert left.state is RunState.RUNNING
        assert "its unit goes on" in (left.message or "")
        assert here.executor.live("unit")[0].graces == []


async def test_a_stop_waits_for_a_unit_that_is_being_ended(tmp_path: Path) -> None:
    """A cancel under way is carried out and recorded; at the drain's end the unit is cut like any run."""
    async with bench(tmp_path) as here:
        await here.desk.add(make_definition("unit", manual=True, isolate="unit"))
        run = await here.by_hand("unit")
        await here.settle()
        (execution,) = here.executor.live("unit")
        execution.stubborn = True
        await here.operations.cancel(run.id, here.desk.peer)
        await here.settle()

        draining = asyncio.create_task(here.drain.run())
        await here.settle()
        assert not draining.done()
        execution.stubborn = False
        here.executor.finish(execution)
        await asyncio.wait_for(draining, 30)

        assert (await here.desk.run(run)).state is RunState.CANCELLED


@pytest.mark.parametrize(("before", "left"), [(50 * SECOND, 10 * SECOND), (0, MINUTE)])
async def test_a_timeout_counts_what_was_worked_under_other_daemons(
    tmp_path: Path, before: Micros, left: Micros
) -> None:
    """Who had worked 50 of his 60 seconds has 10 left; the unit is collected after the outcome."""
    async with bench(tmp_path) as here:
        made: list[UnitExecution] = []

        async def start(grant: Grant, hooks: AttemptHooks) -> Execution:
            made.append(UnitExecution(grant, hooks, before))
            return made[0]

        here.executor.start = start  # type: ignore[method-assign] # another kind of execution
        await here.desk.add(make_definition("unit", manual=True, isolate="unit", timeout=60))
        run = await here.by_hand("unit")
        await here.pass_time(left - SECOND)
        assert (await here.desk.run(run)).state is RunState.RUNNING
        assert not made[0].collected

        await here.pass_time(SECOND)

        assert (await here.desk.run(run)).reason == "timeout"
        await until(lambda: made[0].collected)


async def test_a_stop_of_the_unit_from_outside_is_no_failure(tmp_path: Path) -> None:
    """It is an interruption, as a stop of the daemon would be, unless the command ended well all the same."""
    async with bench(tmp_path) as here:
        await here.desk.add(make_definition("unit", manual=True, isolate="unit"))
        states = []
        for end in (Ended(kind=EndKind.STOPPED, signal=15), Ended(kind=EndKind.STOPPED, exit_code=0)):
            run = await here.by_hand("unit")
            await here.settle()
            await here.end("unit", end)
            states.append((await here.desk.run(run)).state)

        assert states == [RunState.INTERRUPTED, RunState.SUCCEEDED]


async def test_only_units_of_runs_under_way_are_spared(tmp_path: Path) -> None:
    """A unit of a run that is over, of a later claim, or of no run is ended and told; a live one is not."""
    units = Units(claim=1)
    async with bench_with(tmp_path, units) as (here, reattacher):
        live = await crashed(here)
        await here.start()
        nobody = "01a22de0-433c-7a01-b549-000000000000"
        units.there = [(live.id, 1), (live.id, 3), (nobody, 1)]

        reattacher.start()
        await until(lambda: len(units.ended) == 2)
        await reattacher.stop()

        assert units.ended == [(live.id, 3), (nobody, 1)]
        told = [
            fields["run_id"] for fields in here.log.of(Event.RUN_RECOVERED) if "not under way" in str(fields)
        ]
        assert told == [live.id, nobody]
