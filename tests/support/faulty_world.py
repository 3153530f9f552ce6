"""A daemon's machinery on a store that fails, through several lives, with an operator and a ledger.

Time is fake and the work is a script; engine, batches and store are the product's own. What happens is a
fixed story (`live_through`), in which every kind of write comes up; a `Fault` says which of them fails, and
how. Afterwards the store is held against the ledger of what was executed and against what the operator was
told (`World.findings`).
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from scheduler.clock import SECOND, Alarm, Micros
from scheduler.engine.itemdesk import StoreDesk
from scheduler.engine.ports import AttemptHooks, Ended, EndKind, Execution
from scheduler.errors import SchedulerError
from scheduler.executors.batch import BatchExecutor
from scheduler.model.jobs import JobId, JobStatus, PauseMode
from scheduler.model.runs import TERMINAL, Grant, Run, RunId
from scheduler.store.pausevalues import PauseAllRequest, ResumeAllRequest
from scheduler.store.sqlite import FILE_NAME, SqliteStore
from scheduler.store.values import Missed
from scheduler.telemetry import Event
from tests.support.clock import FakeClock
from tests.support.engine import Bench, ScriptedExecution, ScriptedExecutor, assemble
from tests.support.executors import surroundings
from tests.support.faulty_sqlite import faulty_connections, sqlite_error
from tests.support.promises import Executed, broken_promises
from tests.support.stores import pragma

T = TypeVar("T")
_REAL_SECONDS: Final = 20.0
_LONGEST_VERB: Final = 20
"""Seconds of fake time in which every verb is answered, one way or the other."""

_REFUSED: Final = object()
"""The verb was not carried out, and its operator knows that."""


class Died(BaseException):
    """The process of the store's thread is gone: nothing that was under way comes back."""


@dataclass
class Fault:
    """What goes wrong, at the n-th time that a point is reached; by default nothing does.

    Attributes:
        point: a point of `faulty_sqlite`.
        do: `kill`, or the name of an error of SQLite.
        for_good: every write from then on fails, until the next life.
    """

    point: str = ""
    do: str = "kill"
    nth: int = 1
    for_good: bool = False
    reached: Counter[str] = field(default_factory=Counter)
    has_struck: bool = False
    is_dead: bool = False

    def __call__(self, point: str) -> None:
        if self.is_dead:
            raise Died
        self.reached[point] += 1
        strikes = point == self.point and self.reached[point] == self.nth and not self.has_struck
        if strikes and self.do == "kill":
            self.has_struck = self.is_dead = True
            raise Died
        if strikes or (self.has_struck and self.for_good and point.startswith("before:")):
            self.has_struck = True
            raise sqlite_error(self.do)

    def disarm(self) -> None:
        """Nothing goes wrong any more."""
        self.point, self.for_good = "", False

    def rest(self) -> None:
        """A new life begins: what failed for good is mended, who died is born again."""
        self.is_dead = self.for_good = False


class _StoreClock:
    """The store's view of the clock: tells whether the writer waits for time to pass."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.waits = 0

    def now(self) -> Micros:
        return self._clock.now()

    def monotonic(self) -> Micros:
        return self._clock.monotonic()

    async def sleep(self, duration: Micros) -> None:
        self.waits += 1
        try:
            await self._clock.sleep(duration)
        finally:
            self.waits -= 1

    def call_later(self, duration: Micros, call: Callable[[], object]) -> Alarm:
        return self._clock.call_later(duration, call)


class _Workers(ScriptedExecutor):
    """Writes every start into the ledger, and looks whether its claim is durable (I10)."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self.batches: BatchExecutor

    async def start(self, grant: Grant, hooks: AttemptHooks) -> Execution:
        if self._world.fault.is_dead:
            await asyncio.Event().wait()  # the dead start nothing
        if grant.item is not None:
            return self._called(grant, hooks)
        self._world.executed(Executed(grant.run.id, grant.run.claim))
        if grant.definition.batch is not None:
            return await self.batches.start(grant, hooks)
        return await super().start(grant, hooks)

    def _called(self, grant: Grant, hooks: AttemptHooks) -> Execution:
        assert grant.item is not None
        self._world.executed(Executed(grant.run.id, grant.run.claim, grant.item.key))
        execution = ScriptedExecution(grant, hooks)
        execution.ended.set_result(Ended(kind=EndKind.EXITED, exit_code=0))
        return execution


class _ItemWorkers:
    """What a batch asks of the executors of its items."""

    def __init__(self, workers: _Workers, folder: Path) -> None:
        self._workers = workers
        self.around = surroundings(folder / "output")

    def with_output(self, output: object) -> _ItemWorkers:
        return self

    async def prepared(self, grant: Grant) -> _Workers:
        return self._workers


class World:
    """One store file, a clock, an operator, and the lives of a daemon one after the other."""

    def __init__(self, folder: Path, fault: Fault) -> None:
        self.path = folder / FILE_NAME
        self.fault = fault
        self.clock = FakeClock()
        self.ledger: list[Executed] = []
        self.wrong: list[str] = []
        self.paused: dict[JobId, bool | None] = {}
        self.all_paused: bool | None = False
        self.told: list[str] = []
        self.pruned: set[str] = set()
        """Runs that history may have lost."""
        self._folder = folder
        self._life: Bench | None = None
        self._store: SqliteStore
        self._looking = None if not self.path.exists() else self._open_look()

    @property
    def bench(self) -> Bench:
        """The life that is under way."""
        assert self._life is not None
        return self._life

    # --- lives ---
    async def begin(self) -> None:
        """A daemon starts; one that cannot is started again without the fault."""
        if not await self._comes_up():
            await self.abandon()
            self.fault.rest()
            assert await self._comes_up(), "it does not start on a sound store"

    async def _comes_up(self) -> bool:
        try:
            await self._open()
        except (SchedulerError, Died):
            return False
        starting = asyncio.ensure_future(self.bench.start())
        for _ in range(_LONGEST_VERB):
            await self._do(self.bench.settle())
            if starting.done():
                break
            await self.clock.advance(SECOND)
        return starting.done() and not isinstance(starting.exception(), SchedulerError)

    async def _open(self) -> None:
        clock = _StoreClock(self.clock)
        with faulty_connections(self.fault):
            self._store = await SqliteStore.open(self.path, clock)
        await pragma(self._store, "synchronous = OFF")
        workers = _Workers(self)
        life = assemble(self._store, self.clock, 20.0, 20 * SECOND, 30 * SECOND, {}, workers)
        life.store.is_blocked = lambda: clock.waits > 0
        desk = StoreDesk(life.store, life.desk.who, life.log)
        items: Any = _ItemWorkers(workers, self._folder)
        workers.batches = BatchExecutor(items, desk, self.clock)
        self._life = life
        self._looking = self._looking or self._open_look()

    def _open_look(self) -> sqlite3.Connection:
        return sqlite3.connect(f"file:{self.path}?mode=ro", uri=True, isolation_level=None)

    async def abandon(self) -> None:
        """The process is gone without a word: tasks, memory, and what had not committed."""
        if self._life is None:
            return
        life, self._life = self._life, None
        self.fault.is_dead = True
        self.told += [
            str(fields["run_id"]) for event, fields in life.log.lines if event is Event.RUN_SUCCEEDED
        ]
        mine = asyncio.current_task()
        tasks = [task for task in asyncio.all_tasks() if task is not mine]
        tasks.append(self._store._writer._task)  # noqa: SLF001 - its death is not to be complained of
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in self._store._connections:  # noqa: SLF001 - a process that dies closes nothing
            with suppress(sqlite3.Error, ValueError):
                await connection.close()
        self.fault.is_dead = False

    async def next_life(self) -> None:
        """The daemon died, or is ended here, and another one has started."""
        await self.abandon()
        self.fault.rest()
        await self.begin()

    # --- the work ---
    def executed(self, line: Executed) -> None:
        """The work begins; its claim, or the begin of the item, is durable (I10)."""
        self.ledger.append(line)
        assert self._looking is not None
        query = "SELECT state FROM runs WHERE id = ? AND claim = ?"
        if line.item is not None:
            query = "SELECT state FROM items WHERE run = ? AND key = ?"
        row = self._looking.execute(query, (line.run, line.item or line.claim)).fetchone()
        if row is None or row[0] != "running":
            self.wrong.append(f"I10: {line} was started and is not on record: {row}")

    async def end_all(self, ended: Ended | None = None) -> None:
        """Every attempt under way has come to its end."""
        await self._do(self.bench.settle())
        for execution in self.bench.executor.live():
            self.bench.executor.finish(execution, ended)
        await self._do(self.bench.settle())

    async def pass_time(self, seconds: float) -> None:
        """Time passed, and what acts by itself did so at its moment."""
        await self._do(self.bench.pass_time(round(seconds * SECOND)))

    # --- the operator ---
    async def asks(self, verb: Coroutine[Any, Any, T]) -> T | None:
        """What the daemon answers; None where it refuses, or dies over it."""
        task = asyncio.ensure_future(verb)
        for _ in range(_LONGEST_VERB):
            await self._do(self.bench.settle())
            if task.done():
                break
            await self._do(self.bench.pass_time(SECOND))
        if not task.done():
            task.cancel()
            self.wrong.append(f"I14: {verb} was not answered")
            return None
        try:
            return task.result()
        except SchedulerError:
            return None

    async def pauses(self, job: str) -> None:
        """The job is paused, if the store says so."""
        verb = self.bench.operations.pause(JobId(job), PauseMode.DRAIN, "", self.bench.desk.peer)
        if (told := await self._told(verb, paused=True)) is not _REFUSED:
            self.paused[JobId(job)] = told

    async def resumes(self, job: str, missed: Missed) -> None:
        """The job is active, if the store says so."""
        verb = self.bench.operations.resume(JobId(job), missed, self.bench.desk.peer)
        if (told := await self._told(verb, paused=False)) is not _REFUSED:
            self.paused[JobId(job)] = told

    async def pauses_all(self) -> None:
        """No job fires, if the store says so."""
        request = PauseAllRequest(mode=PauseMode.DRAIN, peer=self.bench.desk.peer)
        if (told := await self._told(self.bench.store.pause_all(request), paused=True)) is not _REFUSED:
            self.all_paused = told

    async def resumes_all(self) -> None:
        """All jobs fire again, if the store says so."""
        request = ResumeAllRequest(peer=self.bench.desk.peer)
        if (told := await self._told(self.bench.store.resume_all(request), paused=False)) is not _REFUSED:
            self.all_paused = told

    async def _told(self, verb: Coroutine[Any, Any, object], *, paused: bool) -> Any:
        """What the operator knows now: that it is so; nothing (None), if the daemon died over it."""
        if await self.asks(verb) is not None:
            return paused
        return None if self.fault.is_dead else _REFUSED

    async def _do(self, work: Coroutine[Any, Any, None]) -> None:
        async with asyncio.timeout(_REAL_SECONDS):
            await work

    # --- afterwards ---
    async def findings(self) -> list[str]:
        """The daemon was started once more, without a fault; everything that is wrong now."""
        self.fault.disarm()
        await self.next_life()
        await self._all_go_on()
        for _ in range(8):
            await self.end_all()
            if not await self._unfinished():
                break
            await self.pass_time(31)
        for name in [job.id for job in await self.bench.store.jobs(after=None, limit=99)]:
            await self._runs_again(name)
        await self.end_all()
        await self._agrees_with_the_operator()
        await self.abandon()
        if self._looking is not None:
            self._looking.close()
        gone = self.pruned - self._kept("1")
        ledger = [line for line in self.ledger if line.run not in gone]
        return [*self.wrong, *broken_promises(self.path, ledger), *self._told_the_truth()]

    async def _unfinished(self) -> list[Run]:
        return [run for run in await self.bench.desk.runs(None) if run.state not in TERMINAL]

    async def _all_go_on(self) -> None:
        """All jobs are paused or not, as their operator was told; now they go on."""
        peer = self.bench.desk.peer
        with closing(sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)) as db:
            paused = bool(db.execute("SELECT 1 FROM global_pauses WHERE lifted_at IS NULL").fetchone())
        if self.all_paused is not None and paused is not self.all_paused:
            self.wrong.append(f"I4: all paused is {paused}, the operator was told otherwise")
        if paused:
            await self.bench.store.resume_all(ResumeAllRequest(peer=peer))
            self.bench.engine.wake()

    async def _runs_again(self, job: JobId) -> None:
        """I7: whatever happened, the job can be started by hand."""
        await self.end_all()
        bench = self.bench
        try:
            started = await bench.operations.run(job, bench.desk.peer, args=None, overlap=None, new=True)
        except SchedulerError as error:
            self.wrong.append(f"I7: {job} cannot be started: {error.message}")
            return
        row = await self._ended(started.run.id)
        if row.state != "succeeded":
            self.wrong.append(f"I7: {job} was started and is {row.state}: {row.message}")

    async def _ended(self, run: RunId) -> Run:
        """The run, once its end is on record, which may need a moment of time."""
        await self.end_all()
        row: Run = await self.bench.store.run(run)
        for _ in range(_LONGEST_VERB):
            if row.state in TERMINAL:
                break
            await self.pass_time(1)
            await self.end_all()
            row = await self.bench.store.run(run)
        return row

    async def _agrees_with_the_operator(self) -> None:
        for job, paused in self.paused.items():
            status = (await self.bench.store.job(job)).job.status
            if paused is not None and (status is JobStatus.PAUSED) is not paused:
                self.wrong.append(f"I4: {job} is {status}, the operator was told otherwise")

    def _told_the_truth(self) -> list[str]:
        """I10: what the log called succeeded is so on disk."""
        true = self._kept("state = 'succeeded'") | (self.pruned - self._kept("1"))
        return [f"I10: {run} was told as succeeded and is not" for run in self.told if run not in true]

    def _kept(self, condition: str) -> set[str]:
        with closing(sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)) as db:
            return {row[0] for row in db.execute(f"SELECT id FROM runs WHERE {condition}")}  # noqa: S608
