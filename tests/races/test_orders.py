"""Every pair of writers in every order: an operator's word and the end of a run (I4, I5, I6).

The expectation is written a second time, as a small model of design part 4: what each of the two does to
job and run when it commits alone. Whatever the interleaving, the store must end where one after the other
ends: in the order in which their transactions began.

In two of the orders nothing overlaps. In the two others a gate holds one transaction between what it read
and what it writes, while the other writer, a second daemon on the same file, tries to get in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from scheduler.clock import MINUTE, SECOND, Micros
from scheduler.errors import Conflict, NotFound
from scheduler.model.jobs import JobDefinition, PauseReason
from scheduler.model.runs import Run
from scheduler.rules.reconcile import Ending, Standing, reconcile
from scheduler.store.values import Finished
from tests.support.builders import make_claimant, make_definition
from tests.support.clock import START, FakeClock
from tests.support.desk import Desk
from tests.support.gates import Gate, HeldQueries, held_decide
from tests.support.stores import pragma, sqlite_store

OPERATOR = "uid:1000"
FIRED = START + MINUTE
RACE = FIRED + 10 * SECOND
PERIOD, EDITED = MINUTE, 90 * SECOND
RETRY_AFTER = 10 * SECOND


# --- the two sides ---
@dataclass(frozen=True, slots=True)
class Verdict:
    """How the run ends, and what its job's definition says about such an end."""

    ending: Ending
    keys: dict[str, Any] = field(default_factory=dict)
    said: dict[str, Any] = field(default_factory=dict)


VERDICTS = {
    "success": Verdict(Ending.SUCCEEDED),
    "failure": Verdict(Ending.FAILED),
    "retry left": Verdict(Ending.FAILED, {"retry": {"attempts": 1, "delay": 10, "backoff": "constant"}}),
    "crash": Verdict(Ending.CRASHED),
    "completed": Verdict(Ending.SUCCEEDED, said={"completed": True}),
    "last failure": Verdict(Ending.FAILED, {"max_failures": 1}),
    "last crash": Verdict(Ending.CRASHED, {"max_crashes": 1}),
}

# Each verb of the operator, and the statement before which a gate can hold its transaction.
OPERATIONS = {
    "pause": "pause_job",
    "resume": "resume_job",
    "pause, resume": "pause_job",
    "edit": "change_job",
    "edit, pause": "change_job",
    "disable": "change_job",
    "remove": "remove_job",
    "remove, add": "remove_job",
    "cancel": "wish_run",
}


def definition(kind: str, verdict: Verdict, *, period: Micros = PERIOD, **keys: Any) -> JobDefinition:
    changes: dict[str, Any] = {kind: period, **verdict.keys, **keys}
    return make_definition(**changes)


async def operate(desk: Desk, operation: str, kind: str, verdict: Verdict, run: Run) -> None:
    """The verbs of the operation, one after another; a refusal of one is no end of the others."""
    for verb in operation.split(", "):
        try:
            match verb:
                case "pause":
                    await desk.pause(note="by hand")
                case "resume":
                    await desk.resume()
                case "edit":
                    await desk.edit(definition(kind, verdict, period=EDITED))
                case "disable":
                    await desk.edit(definition(kind, verdict, enabled=False))
                case "remove":
                    await desk.remove()
                case "add":
                    await desk.add(definition(kind, verdict))
                case _:
                    await desk.cancel(run)
        except Conflict:
            continue


# --- the model: what each side does when it commits alone ---
@dataclass(slots=True)
class Model:
    """Job and run as design part 4 says."""

    kind: str
    verdict: Verdict
    status: str = "active"
    pause: tuple[str, str, Micros] | None = None
    evidence: bool = False
    enabled: bool = True
    removed: bool = False
    readded: bool = False
    edited: bool = False
    period: Micros = PERIOD
    next_fire_at: Micros | None = None
    failures: int = 0
    crashes: int = 0
    fires_done: int = 0
    run: str = "running"
    wish: str = "run"
    ready_at: Micros | None = None

    # the operator
    def operate(self, operation: str, now: Micros) -> None:
        for verb in operation.split(", "):
            getattr(self, f"_{verb}")(now)

    def _pause(self, now: Micros) -> None:
        if self.status == "active":
            self.status, self.pause, self.next_fire_at = "paused", (OPERATOR, "operator", now), None
        elif self.pause is not None:
            self.pause, self.evidence = (OPERATOR, "operator", self.pause[2]), False

    def _resume(self, now: Micros) -> None:
        if self.status in ("paused", "failed"):
            self.status, self.pause, self.evidence = "active", None, False
            self.failures = self.crashes = 0
            self.next_fire_at = self._from_now(now)

    def _edit(self, now: Micros) -> None:
        self.edited, self.period = True, EDITED
        if self.status == "completed":
            self.status, self.fires_done = "active", 0
        if self.status == "active":
            self.next_fire_at = self._from_now(now)

    def _disable(self, now: Micros) -> None:
        self.edited, self.enabled, self.next_fire_at = True, False, None

    def _remove(self, now: Micros) -> None:
        self.removed, self.next_fire_at = True, None
        if self.run == "waiting":
            self.run, self.ready_at = "cancelled", None

    def _add(self, now: Micros) -> None:
        self.removed, self.readded, self.enabled = False, True, True
        self.failures = self.crashes = self.fires_done = 0
        if self.status != "paused":
            self.status = "active"
            self.next_fire_at = now + PERIOD if self.kind == "delay" else self._grid(now)

    def _cancel(self, now: Micros) -> None:
        if self.run in ("running", "recovering"):
            self.wish = "cancel"
        elif self.run == "waiting":
            self.run, self.ready_at = "cancelled", None
            self._ended(now)

    # the run
    def finish(self, now: Micros) -> None:
        ending, theirs = self.verdict.ending, self.removed or self.readded
        cancelled = self.wish == "cancel" and ending is not Ending.SUCCEEDED
        retried = "retry" in self.verdict.keys and not theirs and not cancelled
        plain = {Ending.SUCCEEDED: "succeeded", Ending.FAILED: "failed", Ending.CRASHED: "crashed"}[ending]
        self.run = "cancelled" if cancelled else "waiting" if retried else plain
        if theirs:
            return
        if ending is Ending.SUCCEEDED:
            self.failures = self.crashes = 0
        self.failures += self.run == "failed"
        self.crashes += ending is Ending.CRASHED
        if self.run == "waiting":
            self.ready_at = now + RETRY_AFTER
            return
        if "completed" in self.verdict.said and not self.edited:
            self._end("completed")
        elif "max_failures" in self.verdict.keys and self.failures:
            self._end("failed")
        elif "max_crashes" in self.verdict.keys and self.crashes:
            self.evidence = True
            if self.status == "active":
                self.status, self.pause, self.next_fire_at = "paused", ("schedulerd", "crashes", now), None
        self._ended(now)

    def _end(self, status: str) -> None:
        self.status, self.pause, self.next_fire_at, self.evidence = status, None, None, False

    def _ended(self, now: Micros) -> None:
        self.fires_done += 1
        if self.kind == "delay" and self.status == "active" and self.enabled:
            self.next_fire_at = now + self.period

    def _from_now(self, now: Micros) -> Micros | None:
        if not self.enabled:
            return None
        if self.kind == "every":
            return self._grid(now)
        return None if self.run in ("running", "recovering", "waiting") else now + self.period

    def _grid(self, now: Micros) -> Micros:
        return (now // self.period + 1) * self.period


# --- the race ---
@dataclass(slots=True)
class Race:
    """Two daemons on one file: one holds the run, the other hears the operator."""

    worker: Desk
    operator: Desk
    run: Run
    model: Model
    operation: str

    async def operate(self) -> None:
        await operate(self.operator, self.operation, self.model.kind, self.model.verdict, self.run)

    async def finish(self) -> Finished:
        verdict = self.model.verdict
        return await self.worker.finish(self.run, verdict.ending, **verdict.said)


@asynccontextmanager
async def race(
    path: Path,
    operation: str,
    verdict: str,
    kind: str,
    *,
    finish_at: Gate | None = None,
    verb_at: Gate | None = None,
) -> AsyncIterator[Race]:
    """A run in flight of a job that fires again later, and both sides ready."""
    clocks = FakeClock(), FakeClock()
    wanted = VERDICTS[verdict]
    decide = reconcile if finish_at is None else held_decide(finish_at)
    queries = None if verb_at is None else HeldQueries(verb_at, OPERATIONS[operation])
    async with (
        sqlite_store(path, clocks[0], busy_timeout_ms=0, decide=decide) as mine,
        sqlite_store(path, clocks[1], busy_timeout_ms=0, queries=queries) as theirs,
    ):
        for store in (mine, theirs):
            await pragma(store, "synchronous = OFF")  # these races are about order, not about power cuts
        worker, operator = Desk(mine, clocks[0], make_claimant()), Desk(theirs, clocks[1])
        await worker.add(definition(kind, wanted))
        run = await worker.fired()
        model = Model(kind, wanted)
        model.next_fire_at = (await worker.job()).next_fire_at
        for clock in clocks:
            clock.move(RACE - clock.now())
        if operation == "resume":
            await worker.pause(note="before")
            model.operate("pause", RACE)
        if wanted.ending is Ending.CRASHED:
            run = await worker.take(run)
            model.run = "recovering"
        yield Race(worker, operator, run, model, operation)


async def check(race: Race) -> None:
    """Rows and model agree."""
    model, run = race.model, await race.worker.run(race.run)
    assert (run.state, run.wish, run.ready_at) == (model.run, model.wish, model.ready_at)
    if model.removed:
        with pytest.raises(NotFound):
            await race.worker.job()
        return
    job = await race.worker.job()
    assert (job.status, job.enabled) == (model.status, model.enabled)
    pause = None if job.pause is None else (job.pause.by, job.pause.reason, job.pause.since)
    assert pause == model.pause
    assert job.next_fire_at == job.due_at == model.next_fire_at
    assert (job.failures, job.crashes, job.fires_done) == (model.failures, model.crashes, model.fires_done)
    if job.pause is not None:
        assert ("crashes" in job.pause.note) is model.evidence
        assert ("hand" in job.pause.note or "before" in job.pause.note) is (job.pause.by == OPERATOR)


def pairs(*kinds: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Every operation against every verdict, for these kinds of trigger."""

    def over_all(test: Callable[..., Any]) -> Callable[..., Any]:
        for name, values in (("verdict", VERDICTS), ("operation", OPERATIONS), ("kind", kinds)):
            test = pytest.mark.parametrize(name, list(values))(test)
        return test

    return over_all


@pairs("every", "delay")
async def test_the_operator_comes_first(path: Path, operation: str, verdict: str, kind: str) -> None:
    """I4, I5, I6: what an operator committed during the run stands after its write-back."""
    async with race(path, operation, verdict, kind) as two:
        await two.operate()
        two.model.operate(operation, RACE)
        finished = await two.finish()
        two.model.finish(RACE)

        assert finished.decision.standing is Standing.WRITTEN
        assert finished.decision.met_pause is (
            two.model.status == "paused" and two.model.pause != crash_pause()
        )
        await check(two)


def crash_pause() -> tuple[str, str, Micros]:
    return "schedulerd", PauseReason.CRASHES, RACE


@pairs("every", "delay")
async def test_the_run_ends_first(path: Path, operation: str, verdict: str, kind: str) -> None:
    """I4, I5, I6: an operator's word after the end meets the job as the end left it."""
    async with race(path, operation, verdict, kind) as two:
        await two.finish()
        two.model.finish(RACE)
        await two.operate()
        two.model.operate(operation, RACE)

        await check(two)


@pairs("delay")
async def test_the_operator_comes_while_the_end_is_being_written(
    path: Path, operation: str, verdict: str, kind: str
) -> None:
    """I4, I5: no operator gets between what FINISH read and what it writes: he waits, then has his way."""
    gate = Gate()
    async with race(path, operation, verdict, kind, finish_at=gate) as two:
        finishing = asyncio.create_task(two.finish())
        await gate.reached()
        operating = asyncio.create_task(two.operate())
        await two.operator.clock.asleep()
        assert not operating.done()
        gate.open()
        await finishing
        two.model.finish(RACE)
        await two.operator.clock.advance(two.operator.clock.nearest() or 0)
        await operating
        two.model.operate(operation, two.operator.clock.now())

        await check(two)


@pairs("delay")
async def test_the_run_ends_while_the_operators_word_is_being_written(
    path: Path, operation: str, verdict: str, kind: str
) -> None:
    """I4, I5: no write-back gets between what a verb read and what it writes: it waits, and sees the verb."""
    gate = Gate()
    async with race(path, operation, verdict, kind, verb_at=gate) as two:
        operating = asyncio.create_task(two.operate())
        await gate.reached()
        finishing = asyncio.create_task(two.finish())
        await two.worker.clock.asleep()
        assert not finishing.done()
        gate.open()
        await operating
        two.model.operate(operation, RACE)
        await two.worker.clock.advance(two.worker.clock.nearest() or 0)
        await finishing
        two.model.finish(two.worker.clock.now())

        await check(two)
