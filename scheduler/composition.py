"""The composition root: every part of a daemon is made here and wired to the others, nothing is started."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scheduler.clock import SECOND, Clock, Micros
from scheduler.config.jobfile import parse_definition
from scheduler.config.reloader import Reloader
from scheduler.config.settings import Settings
from scheduler.control.app import ControlApp, Services
from scheduler.control.facade import Facade
from scheduler.control.peer import Gatekeeper
from scheduler.control.ports import OutputFiles, StatusFacts
from scheduler.control.server import ControlServer
from scheduler.engine.alerting import Alerting
from scheduler.engine.brokenwatch import BrokenWatch
from scheduler.engine.census import Census
from scheduler.engine.claims import Claims
from scheduler.engine.clearing import ClearingExecutor, Remembering
from scheduler.engine.deliveries import Deliveries
from scheduler.engine.drain import Drain
from scheduler.engine.engine import Engine
from scheduler.engine.eventring import EventRing
from scheduler.engine.itemdesk import StoreDesk
from scheduler.engine.loopwatch import LoopWatch
from scheduler.engine.operations import Operations
from scheduler.engine.overdue import OverdueWatch
from scheduler.engine.pauses import AllJobs
from scheduler.engine.ports import Executor, Liveness
from scheduler.engine.reattach import Reattacher
from scheduler.engine.recovery import Recoverer, grace_of
from scheduler.engine.reporting import Reporter
from scheduler.engine.retention import RetentionWatch
from scheduler.engine.runner import Runner
from scheduler.engine.start_rate import StartRate
from scheduler.engine.timer import ApschedulerTimer
from scheduler.engine.wallwatch import WallWatch
from scheduler.engine.writeback import WriteBack
from scheduler.errors import Draining
from scheduler.executors.batch import BatchExecutor
from scheduler.executors.delivery import Messenger
from scheduler.executors.dispatch import Executors
from scheduler.executors.output import remove_output
from scheduler.executors.processes import this_owner
from scheduler.executors.spawn import Spawner
from scheduler.executors.surroundings import Surroundings
from scheduler.executors.units import make_units
from scheduler.executors.warden import Warden
from scheduler.executors.wards import Guard
from scheduler.metrics import Metrics
from scheduler.model.runs import OwnerId, RunId
from scheduler.model.triggers import load_zone
from scheduler.store.protocol import Store
from scheduler.store.values import Claimant
from scheduler.systemd import Notifier, service_group
from scheduler.telemetry import Logger, mask

_OUTPUT: Final = "output"
_UNITS: Final = "units"
_WALL_LOOK: Final[Micros] = 15 * SECOND


@dataclass(frozen=True, slots=True, kw_only=True)
class Surface:
    """What a daemon is given from outside.

    Attributes:
        activated: descriptor of the control socket, where the service manager has opened it.
    """

    settings: Settings
    state: Path
    socket: Path
    activated: int | None
    clock: Clock
    log: Logger
    notifier: Notifier
    owner: OwnerId
    ring: EventRing
    spawner: Spawner
    metrics: Metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Machinery:
    """What fires, runs, recovers and writes back."""

    claimant: Claimant
    executors: Executors
    batches: BatchExecutor
    warden: Warden
    writeback: WriteBack
    reporter: Reporter
    recoverer: Recoverer
    reattacher: Reattacher
    claims: Claims
    runner: Runner
    engine: Engine
    timer: ApschedulerTimer
    drain: Drain
    wall_watch: WallWatch
    loop_watch: LoopWatch
    broken_watch: BrokenWatch
    retention_watch: RetentionWatch
    alerting: Alerting
    overdue_watch: OverdueWatch
    census: Census


@dataclass(frozen=True, slots=True, kw_only=True)
class Edges:
    """What meets the world: operators, job files, the control socket."""

    operations: Operations
    reloader: Reloader
    server: ControlServer


def make_machinery(given: Surface, store: Store) -> Machinery:
    """The machinery on this store; nothing of it runs yet."""
    clock, log, metrics = given.clock, given.log, given.metrics
    claimant = _make_claimant(given)
    warden = Warden(store.store_id, clock)
    units = make_units(given.state / _UNITS, store.store_id, clock)
    executors = Executors(_surroundings(given, store.store_id, warden), given.spawner, units)
    writeback = WriteBack(store, log, metrics)
    undertaker = Remembering(units)
    recoverer = Recoverer(
        undertaker=undertaker, writeback=writeback, grace_of=grace_of(store), log=log, metrics=metrics
    )
    claims = _make_claims(given, store, claimant, recoverer)
    reporter = Reporter(store, clock, log)
    desk = StoreDesk(store, claimant, log)
    batches = BatchExecutor(executors, desk, clock)
    executor = ClearingExecutor(batches, undertaker)
    runner = _make_runner(given, executor, claims, writeback, reporter)
    reattacher = Reattacher(store, claimant, claims, runner, units, log, metrics)
    recoverer.ask_first(reattacher.take_back)
    engine = _make_engine(given, store, claimant, claims, runner, metrics)
    writeback.slots = engine
    timer = ApschedulerTimer(clock, engine.wake)
    engine.attach(timer)
    alerting = _make_alerting(given, store)
    return Machinery(
        claimant=claimant,
        executors=executors,
        batches=batches,
        warden=warden,
        writeback=writeback,
        reporter=reporter,
        recoverer=recoverer,
        reattacher=reattacher,
        claims=claims,
        runner=runner,
        engine=engine,
        timer=timer,
        drain=_make_drain(given, engine, claims, runner),
        wall_watch=_make_wall_watch(given, store, engine, timer),
        loop_watch=LoopWatch(clock, log, metrics),
        broken_watch=BrokenWatch(store, executors.check, log),
        retention_watch=_make_retention_watch(given, store),
        alerting=alerting,
        overdue_watch=OverdueWatch(
            watched=lambda: alerting.watched, reads=store, clock=clock, log=log, metrics=metrics
        ),
        census=Census(store, metrics),
    )


def _make_claimant(given: Surface) -> Claimant:
    settings = given.settings
    return Claimant(
        owner=this_owner(given.owner),
        lease=settings.lease,
        max_running=settings.max_running,
        groups=dict(settings.groups),
    )


def _make_claims(given: Surface, store: Store, claimant: Claimant, recoverer: Recoverer) -> Claims:
    return Claims(
        store=store,
        clock=given.clock,
        claimant=claimant,
        heartbeat=given.settings.heartbeat,
        liveness=lambda _owner: Liveness.DEAD,  # the state lock is ours, so every other owner is dead
        recoverer=recoverer,
        log=given.log,
        metrics=given.metrics,
    )


def _make_runner(
    given: Surface, executor: Executor, claims: Claims, writeback: WriteBack, reporter: Reporter
) -> Runner:
    return Runner(
        executor=executor,
        writeback=writeback,
        reporter=reporter,
        claims=claims,
        clock=given.clock,
        log=given.log,
        default_timeout=given.settings.default_timeout,
    )


def _make_alerting(given: Surface, store: Store) -> Alerting:
    return Alerting(
        ring=given.ring,
        reads=store,
        deliveries=Deliveries(Messenger(socket=str(given.socket)), given.clock, given.log),
        clock=given.clock,
        log=given.log,
        metrics=given.metrics,
    )


def _make_retention_watch(given: Surface, store: Store) -> RetentionWatch:
    return RetentionWatch(
        store,
        given.clock,
        given.log,
        runs_per_job=given.settings.runs_per_job,
        age=given.settings.history_age,
        remove_outputs=_output_remover(given),
    )


def _output_remover(given: Surface) -> Callable[[Sequence[RunId]], Awaitable[None]]:
    def remove(runs: Sequence[RunId]) -> None:
        for run_id in runs:
            with contextlib.suppress(OSError):  # what stays is a file without a run: looked for by `doctor`
                remove_output(given.state / _OUTPUT, run_id)

    return lambda runs: asyncio.to_thread(remove, runs)


def _make_engine(
    given: Surface, store: Store, claimant: Claimant, claims: Claims, runner: Runner, metrics: Metrics
) -> Engine:
    return Engine(
        store=store,
        clock=given.clock,
        claimant=claimant,
        claims=claims,
        runner=runner,
        start_rate=StartRate(given.settings.start_rate, given.clock.monotonic()),
        log=given.log,
        metrics=metrics,
    )


def _make_drain(given: Surface, engine: Engine, claims: Claims, runner: Runner) -> Drain:
    return Drain(
        engine=engine,
        claims=claims,
        runner=runner,
        clock=given.clock,
        log=given.log,
        timeout=given.settings.drain_timeout,
        extend=given.notifier.extend_timeout,
    )


def _make_wall_watch(given: Surface, store: Store, engine: Engine, timer: ApschedulerTimer) -> WallWatch:
    def follow() -> None:
        timer.rearm()
        engine.wake()

    # Who wants quick leases wants quick eyes; each look is a commit, so not more than one a second.
    period = max(SECOND, min(_WALL_LOOK, given.settings.heartbeat))
    return WallWatch(store, given.clock, given.log, period=period, on_step=follow)


def make_edges(given: Surface, store: Store, parts: Machinery, facts: Callable[[], StatusFacts]) -> Edges:
    """The edges of this machinery; the socket is not bound yet."""
    operations = Operations(
        store=store,
        clock=given.clock,
        claimant=parts.claimant,
        claims=parts.claims,
        runner=parts.runner,
        engine=parts.engine,
        writeback=parts.writeback,
        log=given.log,
    )
    reloader = Reloader(
        store=store,
        settings=given.settings,
        tell=operations.tell_change,
        log=given.log,
        refuse=_refusal(parts.claimant),
        breathe=lambda: given.clock.sleep(0),
    )
    facade = Facade(
        operations=operations,
        all_jobs=AllJobs(
            store=store, claims=parts.claims, writeback=parts.writeback, wake=parts.engine.wake, log=given.log
        ),
        reloader=reloader,
        store=store,
        claimant=parts.claimant,
        clock=given.clock,
        facts=facts,
    )
    return Edges(
        operations=operations,
        reloader=reloader,
        server=ControlServer(
            _make_app(given, store, parts, facade),
            given.socket,
            activated=given.activated,
            group=given.settings.socket_group,
        ),
    )


def _make_app(given: Surface, store: Store, parts: Machinery, facade: Facade) -> ControlApp:
    settings = given.settings
    return ControlApp(
        Services(
            operations=facade,
            reads=store,
            outputs=OutputFiles(given.state / _OUTPUT),
            parse_definition=lambda job_id, table: parse_definition(job_id, table, settings),
            render_metrics=given.metrics.render,
            gatekeeper=_make_gatekeeper(given, store, parts),
            ring=given.ring,
            clock=given.clock,
            zone=load_zone(settings.timezone).info,
        )
    )


def _make_gatekeeper(given: Surface, store: Store, parts: Machinery) -> Gatekeeper:
    async def controllers() -> Mapping[int, int]:
        await parts.reporter.recorded()  # a run that asks at once is known by then
        return {**await store.controllers(), **parts.batches.controllers()}

    return Gatekeeper(
        store_id=store.store_id,
        own_uid=os.geteuid(),
        daemon_pid=os.getpid(),
        service=service_group(),
        roles=given.settings.roles,
        controllers=controllers,
        log=given.log,
    )


def _surroundings(given: Surface, store_id: str, guard: Guard) -> Surroundings:
    settings = given.settings
    return Surroundings(
        clock=given.clock,
        output_dir=given.state / _OUTPUT,
        output_limit=settings.output_limit,
        socket_path=str(given.socket),
        store_id=store_id,
        python_path=tuple(str(path) for path in settings.python_path),
        mask=mask,
        timezone=settings.timezone,
        guard=guard,
    )


def _refusal(claimant: Claimant) -> Callable[[], None]:
    def refuse_while_draining() -> None:
        if claimant.draining:
            raise Draining("the daemon is stopping: it takes no new work or definitions")

    return refuse_while_draining
