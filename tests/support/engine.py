"""The engine on a real store, with a fake clock, a fake timer and attempts that end when a test says so.

    async with bench(tmp_path) as bench:
        await bench.desk.add(make_definition(every=MINUTE))
        await bench.pass_time(MINUTE)
        bench.executor.end(bench.executor.live("job"))

What happens is the product's own; only time, the wake-up and the work itself are the test's. `pass_time`
moves the clock from moment to moment: sleepers and the wake-up act at theirs, and everything settles before
time goes on. `look_back` is all that was told, as (event, fields).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scheduler.clock import SECOND, Micros
from scheduler.engine.claims import Claims
from scheduler.engine.drain import Drain
from scheduler.engine.engine import Engine
from scheduler.engine.operations import Operations
from scheduler.engine.ports import AttemptHooks, Ended, EndKind, Execution, Liveness
from scheduler.engine.recovery import Recoverer
from scheduler.engine.reporting import Reporter
from scheduler.engine.runner import Runner
from scheduler.engine.start_rate import StartRate
from scheduler.engine.wallwatch import WallWatch
from scheduler.engine.writeback import WriteBack
from scheduler.metrics import Metrics
from scheduler.model.jobs import JobId, Overlap
from scheduler.model.runs import Grant, Run
from scheduler.store.protocol import Reads, Store
from scheduler.telemetry import Event
from tests.support.builders import make_claimant
from tests.support.clock import START, FakeClock
from tests.support.desk import Desk
from tests.support.stores import pragma, sqlite_store

_REAL_SECONDS = 30.0
_QUIET_TURNS = 8
_READS = {name for name in vars(Reads) if not name.startswith("_")} | {"due", "look", "next_wake", "surplus"}


class ToldLog:
    """A logger that remembers events; bound fields are part of each."""

    def __init__(self, lines: list[tuple[Event, dict[str, object]]] | None = None, **bound: object) -> None:
        self.lines = [] if lines is None else lines
        self._bound = bound

    def bind(self, **fields: object) -> ToldLog:
        return ToldLog(self.lines, **{**self._bound, **fields})

    def debug(self, event: Event, **fields: object) -> None:
        self._tell(event, fields)

    def info(self, event: Event, **fields: object) -> None:
        self._tell(event, fields)

    def warning(self, event: Event, **fields: object) -> None:
        self._tell(event, fields)

    def error(self, event: Event, **fields: object) -> None:
        self._tell(event, fields)

    def _tell(self, event: Event, fields: Mapping[str, object]) -> None:
        self.lines.append((event, {**self._bound, **fields}))

    def of(self, event: Event) -> list[dict[str, object]]:
        """The fields of each such event, oldest first."""
        return [fields for told, fields in self.lines if told is event]


class FakeTimer:
    """`Timer` whose moment the bench looks at."""

    def __init__(self) -> None:
        self.at: Micros | None = None

    def arm(self, at: Micros | None) -> None:
        self.at = at


class ScriptedExecution:
    """An attempt that ends when it is told to; `end` obeys unless it is `stubborn`."""

    def __init__(self, grant: Grant, hooks: AttemptHooks) -> None:
        self.grant = grant
        self.hooks = hooks
        self.stubborn = False
        self.graces: list[Micros] = []
        self.ended: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()

    async def wait(self) -> Ended:
        return await asyncio.shield(self.ended)

    async def end(self, grace: Micros) -> bool:
        self.graces.append(grace)
        if not self.stubborn and not self.ended.done():
            self.ended.set_result(Ended(kind=EndKind.SIGNALLED, signal=15))
        return not self.stubborn


class ScriptedExecutor:
    """Starts attempts that a test ends; `script` may end one at its start (None: it goes on)."""

    def __init__(self) -> None:
        self.started: list[ScriptedExecution] = []
        self.script: Callable[[Grant], Ended | None] = lambda _: None

    async def start(self, grant: Grant, hooks: AttemptHooks) -> Execution:
        execution = ScriptedExecution(grant, hooks)
        self.started.append(execution)
        at_once = self.script(grant)
        if at_once is not None:
            execution.ended.set_result(at_once)
        return execution

    def live(self, job: str | None = None) -> list[ScriptedExecution]:
        """Attempts under way, of one job or of all."""
        return [
            execution
            for execution in self.started
            if not execution.ended.done() and job in (None, execution.grant.run.job)
        ]

    def finish(self, execution: ScriptedExecution, ended: Ended | None = None) -> None:
        """The attempt ended; by default well."""
        execution.ended.set_result(ended or Ended(kind=EndKind.EXITED, exit_code=0))


class Undertaken:
    """`Undertaker` that remembers whom it was sent to; `works` False: something could not be killed."""

    def __init__(self) -> None:
        self.sent: list[Run] = []
        self.works = True

    async def end_leftovers(self, run: Run, grace: Micros) -> bool:
        self.sent.append(run)
        return self.works


class Watched:
    """A store whose calls under way are counted, so that a test knows when nothing is going on."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.under_way = 0
        self.reading = 0
        self.is_blocked: Callable[[], bool] = lambda: False
        """Writes under way wait for the fake clock: nothing comes of them before time passes."""
        self.fail: dict[str, BaseException] = {}

    @property
    def is_busy(self) -> bool:
        """Something is going on in the store."""
        return self.reading > 0 or (self.under_way > 0 and not self.is_blocked())

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._store, name)
        if not asyncio.iscoroutinefunction(verb):
            return verb

        async def counted(*args: Any, **values: Any) -> Any:
            if name in self.fail:
                raise self.fail[name]
            self.under_way += 1
            self.reading += name in _READS
            try:
                return await verb(*args, **values)
            finally:
                self.under_way -= 1
                self.reading -= name in _READS

        return counted


@dataclass
class Bench:
    """A daemon's machinery without its edges."""

    clock: FakeClock
    store: Any
    desk: Desk
    executor: ScriptedExecutor
    undertaker: Undertaken
    timer: FakeTimer
    log: ToldLog
    claims: Claims
    runner: Runner
    engine: Engine
    operations: Operations
    recoverer: Recoverer
    reporter: Reporter
    writeback: WriteBack
    wall_watch: WallWatch
    drain: Drain
    heartbeat: Micros
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def start(self) -> None:
        """The loops run, as in the daemon; what is due has fired."""
        await self.store.register(self.desk.who.owner)
        await self.wall_watch.start()
        await self.claims.take_over()
        for loop in (self.engine.run(), self.claims.run(), self.wall_watch.run(), self.reporter.run()):
            self.tasks.append(asyncio.create_task(loop))
        await self.settle()

    async def settle(self) -> None:
        """Nothing goes on any more until time passes or somebody asks for something."""
        quiet = 0
        async with asyncio.timeout(_REAL_SECONDS):
            while quiet < _QUIET_TURNS:
                if self.timer.at is not None and self.timer.at <= self.clock.now():
                    self.timer.at = None
                    self.engine.wake()
                await asyncio.sleep(0.0005 if self.store.is_busy else 0)
                quiet = 0 if self.store.is_busy else quiet + 1
        for task in self.tasks:
            if task.done() and not task.cancelled() and task.exception() is not None:
                raise AssertionError("a loop of the engine broke") from task.exception()

    async def pass_time(self, duration: Micros) -> None:
        """Time passed, moment by moment; everything that acts by itself did so at its moment."""
        until = self.clock.monotonic() + duration
        while True:
            await self.settle()
            left = until - self.clock.monotonic()
            step = min([left, *self._moments()])
            await self.clock.advance(max(0, step))
            await self.settle()
            if left <= 0 or (step == left and self.clock.monotonic() >= until):
                return

    def _moments(self) -> list[Micros]:
        """How long until each that waits for time: the wake-up by the wall clock, sleepers by the other."""
        waits = [] if self.timer.at is None else [max(1, self.timer.at - self.clock.now())]
        nearest = self.clock.nearest()
        return waits if nearest is None else [*waits, max(0, nearest)]

    async def end(self, job: str = "job", ended: Ended | None = None) -> None:
        """The one live attempt of the job ended."""
        (execution,) = self.executor.live(job)
        self.executor.finish(execution, ended)
        await self.settle()

    def wake_up_at(self) -> Micros | None:
        """The wall time that the wake-up is set to."""
        return self.timer.at

    def starts(self, job: str = "job") -> list[Grant]:
        """Every attempt that was begun, oldest first."""
        return [execution.grant for execution in self.executor.started if execution.grant.run.job == job]

    def fire_times(self, job: str = "job") -> list[Micros | None]:
        """The fire time of each attempt."""
        return [grant.run.fire_time for grant in self.starts(job)]

    async def by_hand(self, job: str = "job", *, overlap: Overlap | None = None) -> Run:
        """The run of a start by hand, as it was answered."""
        return (await self.operations.run(JobId(job), self.desk.peer, args=None, overlap=overlap)).run


@asynccontextmanager
async def bench(
    folder: Path,
    *,
    clock: FakeClock | None = None,
    started: bool = True,
    start_rate: float = 20.0,
    heartbeat: Micros = 20 * SECOND,
    drain_timeout: Micros = 30 * SECOND,
    **claimant: Any,
) -> AsyncIterator[Bench]:
    """A bench on the store in `folder`, started unless a test wants to prepare rows first."""
    clock = clock or FakeClock(START)
    async with sqlite_store(folder / "store.db", clock) as real:
        await pragma(real, "synchronous = OFF")  # what is tested here is not whether a disk keeps its word
        made = assemble(real, clock, start_rate, heartbeat, drain_timeout, claimant)
        try:
            if started:
                await made.start()
            yield made
        finally:
            await _end(made)


async def _end(made: Bench) -> None:
    for execution in made.executor.live():
        execution.stubborn = False
        made.executor.finish(execution)
    made.engine.stop()
    await made.recoverer.stop()
    tasks = [*made.tasks, *made.runner._tasks.values()]  # noqa: SLF001 - whatever a test left under way
    for task in made.tasks:
        task.cancel()
    with suppress(TimeoutError):
        async with asyncio.timeout(30):
            await asyncio.gather(*tasks, return_exceptions=True)


def assemble(
    real: Store,
    clock: FakeClock,
    start_rate: float,
    heartbeat: Micros,
    drain_timeout: Micros,
    claimant: dict[str, Any],
    scripted: ScriptedExecutor | None = None,
) -> Bench:
    """Wired as `scheduler.service` does it."""
    store: Any = Watched(real)
    who = make_claimant(**claimant)
    log, metrics = ToldLog(), Metrics()
    executor, undertaker, timer = scripted or ScriptedExecutor(), Undertaken(), FakeTimer()

    async def grace_of(_: str) -> Micros:
        return SECOND

    writeback = WriteBack(store, log, metrics)
    reporter = Reporter(store, clock, log)
    recoverer = Recoverer(
        undertaker=undertaker, writeback=writeback, grace_of=grace_of, log=log, metrics=metrics
    )
    claims = Claims(
        store=store,
        clock=clock,
        claimant=who,
        heartbeat=heartbeat,
        liveness=lambda _: Liveness.DEAD,
        recoverer=recoverer,
        log=log,
        metrics=metrics,
    )
    runner = Runner(
        executor=executor,
        writeback=writeback,
        reporter=reporter,
        claims=claims,
        clock=clock,
        log=log,
        default_timeout=None,
    )
    engine = Engine(
        store=store,
        clock=clock,
        claimant=who,
        claims=claims,
        runner=runner,
        start_rate=StartRate(start_rate, clock.monotonic()),
        log=log,
        metrics=metrics,
    )
    engine.attach(timer)
    writeback.slots = engine
    operations = Operations(
        store=store,
        clock=clock,
        claimant=who,
        claims=claims,
        runner=runner,
        engine=engine,
        writeback=writeback,
        log=log,
    )
    return Bench(
        clock=clock,
        store=store,
        desk=Desk(store, clock, who),
        executor=executor,
        undertaker=undertaker,
        timer=timer,
        log=log,
        claims=claims,
        runner=runner,
        engine=engine,
        operations=operations,
        recoverer=recoverer,
        reporter=reporter,
        writeback=writeback,
        wall_watch=WallWatch(store, clock, log, period=15 * SECOND, on_step=engine.wake),
        drain=Drain(
            engine=engine,
            claims=claims,
            runner=runner,
            clock=clock,
            log=log,
            timeout=drain_timeout,
            extend=lambda _: None,
        ),
        heartbeat=heartbeat,
    )
