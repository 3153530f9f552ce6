"""The composition root and the daemon's life: everything is made here, started, watched and stopped.

Order of the start: store (migrated), identity on record, the wall clock looked at, dead claims taken over
(the state lock proves their owners dead), job files read, socket bound, ready; only then the first tick.
Order of the stop (design part 6): claims stop, drain with the heartbeat on, cut, write back, end streams
and close the server, unlink the socket, close the store, let go of the lock.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

from scheduler import __version__
from scheduler.clock import SECOND, Clock, Micros, seconds
from scheduler.config.jobfile import parse_definition
from scheduler.config.reloader import Reloader
from scheduler.config.settings import Settings
from scheduler.control.app import ControlApp
from scheduler.control.facade import Facade
from scheduler.control.ports import OutputFiles, StatusFacts
from scheduler.control.server import ControlServer
from scheduler.engine.brokenwatch import BrokenWatch
from scheduler.engine.claims import Claims
from scheduler.engine.drain import Drain
from scheduler.engine.engine import Engine
from scheduler.engine.health import StoreHealth
from scheduler.engine.loopwatch import LoopWatch
from scheduler.engine.operations import Operations
from scheduler.engine.ports import Liveness
from scheduler.engine.recovery import Recoverer
from scheduler.engine.reporting import Reporter
from scheduler.engine.runner import Runner
from scheduler.engine.start_rate import StartRate
from scheduler.engine.timer import ApschedulerTimer
from scheduler.engine.wallwatch import WallWatch
from scheduler.engine.writeback import WriteBack
from scheduler.errors import Draining, SchedulerError
from scheduler.executors.dispatch import Executors
from scheduler.executors.orphans import Orphans
from scheduler.executors.processes import this_owner
from scheduler.executors.surroundings import Surroundings
from scheduler.metrics import Metrics
from scheduler.model.jobs import JobId
from scheduler.model.runs import new_owner_id
from scheduler.store.protocol import Claimant, Peer
from scheduler.store.sqlite import FILE_NAME, SqliteStore
from scheduler.systemd import Notifier, watchdog_interval
from scheduler.telemetry import Event, Logger, mask

_WALL_LOOK: Final[Micros] = 15 * SECOND
_HEALTHY_TICK: Final[Micros] = 90 * SECOND


class Service:
    """One daemon, from its first line to its last."""

    def __init__(self, settings: Settings, state: Path, socket: Path, clock: Clock, log: Logger) -> None:
        self._settings = settings
        self._state = state
        self._socket = socket
        self._clock = clock
        self._log = log
        self._started_at = clock.now()
        self._notifier = Notifier(clock)
        self._stop = asyncio.Event()
        self._failed = False
        self._drain: Drain | None = None
        self._reloading: asyncio.Task[None] | None = None

    # --- what signals ask for ---

    def stop(self) -> None:
        """An orderly stop; a second call hurries it."""
        if self._stop.is_set() and self._drain is not None:
            self._drain.hurry()
        self._stop.set()

    def reload(self) -> None:
        """The job files are read again (SIGHUP)."""
        if self._reloading is None or self._reloading.done():
            self._reloading = asyncio.create_task(self._reload(), name="reload")

    async def _reload(self) -> None:
        self._notifier.reloading()
        try:
            await self._reloader.reload(_own_peer())
        except SchedulerError as error:
            self._log.error(Event.CONFIG_REJECTED, message=str(error))
        finally:
            self._notifier.ready()
            self._notify_status()

    # --- its life ---

    async def run(self) -> int:
        """The exit code, after everything is closed: 0 for an orderly stop, 1 when something essential ended."""
        self._log.info(Event.DAEMON_STARTED, version=__version__, pid=os.getpid(), state=str(self._state))
        async with AsyncExitStack() as closing:
            await self._assemble(closing)
            await self._begin()
            essentials = self._start_essentials()
            self._log.info(Event.DAEMON_READY, socket=str(self._server.path), owner=self._claimant.owner.id)
            self._notifier.ready()
            self._notify_status()
            await self._until_stopped(essentials)
            await self._finish(essentials)
        self._log.info(Event.DAEMON_STOPPED, seconds=seconds(self._clock.now() - self._started_at))
        return 1 if self._failed else 0

    async def _assemble(self, closing: AsyncExitStack) -> None:
        """Every part is made and wired; what is opened is closed again, also if a later part fails."""
        self._health = StoreHealth(self._log)
        self._store = await SqliteStore.open(
            self._state / FILE_NAME, self._clock, on_trouble=self._health
        )
        closing.push_async_callback(self._store.close)
        self._metrics = Metrics()
        self._claimant = self._make_claimant()
        self._executors = Executors(self._surroundings())
        closing.callback(self._executors.close)
        self._make_engine()
        self._make_edges()
        closing.push_async_callback(self._server.stop)

    def _make_claimant(self) -> Claimant:
        return Claimant(
            owner=this_owner(new_owner_id()),
            lease=self._settings.lease,
            max_running=self._settings.max_running,
            groups=dict(self._settings.groups),
        )

    def _surroundings(self) -> Surroundings:
        return Surroundings(
            clock=self._clock,
            output_dir=self._state / "output",
            output_limit=self._settings.output_limit,
            socket_path=str(self._socket),
            store_id=self._store.store_id,
            python_path=tuple(str(path) for path in self._settings.python_path),
            mask=mask,
            timezone=self._settings.timezone,
        )

    def _make_engine(self) -> None:
        store, clock, log, metrics = self._store, self._clock, self._log, self._metrics
        self._writeback = WriteBack(store, log, metrics, wake=self._wake)
        self._reporter = Reporter(store, clock, log)
        self._recoverer = Recoverer(
            undertaker=Orphans(store.store_id, clock),
            writeback=self._writeback,
            grace_of=self._grace_of,
            log=log,
            metrics=metrics,
        )
        self._claims = Claims(
            store=store,
            clock=clock,
            claimant=self._claimant,
            heartbeat=self._settings.heartbeat,
            liveness=lambda _owner: Liveness.DEAD,  # the state lock is ours, so every other owner is dead
            recoverer=self._recoverer,
            log=log,
            metrics=metrics,
        )
        self._runner = Runner(
            executor=self._executors,
            writeback=self._writeback,
            reporter=self._reporter,
            claims=self._claims,
            clock=clock,
            log=log,
            default_timeout=self._settings.default_timeout,
        )
        self._engine = Engine(
            store=store,
            clock=clock,
            claimant=self._claimant,
            claims=self._claims,
            runner=self._runner,
            start_rate=StartRate(self._settings.start_rate, clock.monotonic()),
            log=log,
            metrics=metrics,
        )
        self._timer = ApschedulerTimer(clock, self._engine.wake)
        self._engine.attach(self._timer)
        self._broken = BrokenWatch(store, self._executors.check, log)
        self._loop_watch = LoopWatch(clock, log, metrics)
        self._wall_watch = WallWatch(store, clock, log, period=_WALL_LOOK, on_step=self._follow_clock)
        self._drain = Drain(
            engine=self._engine,
            runner=self._runner,
            clock=clock,
            log=log,
            timeout=self._settings.drain_timeout,
            extend=self._notifier.extend_timeout,
        )

    def _make_edges(self) -> None:
        self._operations = Operations(
            store=self._store,
            clock=self._clock,
            claimant=self._claimant,
            claims=self._claims,
            runner=self._runner,
            engine=self._engine,
            writeback=self._writeback,
            log=self._log,
        )
        self._reloader = Reloader(
            store=self._store,
            settings=self._settings,
            tell=self._operations.tell_change,
            log=self._log,
            refuse=self._refuse_while_draining,
        )
        facade = Facade(
            operations=self._operations,
            reloader=self._reloader,
            store=self._store,
            claimant=self._claimant,
            clock=self._clock,
            facts=self._facts,
        )
        self._server = ControlServer(self._make_app(facade), self._socket)

    async def _begin(self) -> None:
        """The store is brought up to the moment: identity, wall clock, dead claims, job files; then the socket."""
        await self._store.register(self._claimant.owner)
        await self._wall_watch.start()
        await self._claims.sweep()
        await self._reloader.reload(_own_peer())
        await self._server.start()
        self._timer.start()
        self._timer.every("broken-jobs", 30 * SECOND, self._broken.look)

    def _start_essentials(self) -> list[asyncio.Task[None]]:
        """The loops without which the daemon is none: if one ends, the process does, with an error."""
        work: dict[str, Coroutine[Any, Any, None]] = {
            "engine": self._engine.run(),
            "heartbeat": self._claims.run(),
            "reporter": self._reporter.run(),
            "wall-watch": self._wall_watch.run(),
            "loop-watch": self._loop_watch.run(),
            "watchdog": self._watchdog(),
        }
        return [asyncio.create_task(loop, name=name) for name, loop in work.items()]

    async def _until_stopped(self, essentials: list[asyncio.Task[None]]) -> None:
        stop = asyncio.create_task(self._stop.wait())
        done, _ = await asyncio.wait({stop, *essentials}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        for task in done - {stop}:
            self._failed = True
            error = None if task.cancelled() else task.exception()
            self._log.error(
                Event.LOOP_BLOCKED, task=task.get_name(), message=f"it ended: {error!r}", exc_info=error
            )
        self._stop.set()

    async def _finish(self, essentials: list[asyncio.Task[None]]) -> None:
        """The orderly stop; the heartbeat goes on until every outcome is recorded."""
        self._notifier.stopping()
        self._timer.stop()
        if self._drain is not None:
            await self._drain.run()
        await self._recoverer.stop()
        await self._server.stop()
        for task in essentials:
            task.cancel()
        await asyncio.gather(*essentials, return_exceptions=True)
        try:
            await self._store.sign_off(self._claimant.owner.id)
        except SchedulerError as error:
            self._log.error(Event.STORE_UNAVAILABLE, message=str(error))

    # --- what parts ask of each other ---

    def _wake(self) -> None:
        self._engine.wake()

    def _follow_clock(self) -> None:
        self._timer.rearm()
        self._engine.wake()

    async def _grace_of(self, job_id: JobId) -> Micros:
        try:
            return (await self._store.job(job_id)).job.definition.kill_grace
        except SchedulerError:
            return 10 * SECOND

    def _refuse_while_draining(self) -> None:
        if self._claimant.draining:
            raise Draining("the daemon is stopping: it takes no new work or definitions")

    def _facts(self) -> StatusFacts:
        now = self._clock.monotonic()
        return StatusFacts(
            version=__version__,
            instance=self._claimant.owner.id,
            pid=os.getpid(),
            started_at=self._started_at,
            draining=self._claimant.draining,
            last_tick_age=now - self._engine.last_tick,
            last_renewal_age=now - self._claims.last_beat,
            store_ok=self._health.is_ok,
            loop_lag=self._loop_watch.lag,
            faults=self._reloader.faults,
        )

    def _notify_status(self) -> None:
        faults = len(self._reloader.faults)
        word = f"; {faults} faults in job files" if faults else ""
        self._notifier.status(f"{len(self._runner)} runs live{word}")

    async def _watchdog(self) -> None:
        """Pings the service manager while loop, tick and heartbeat are well, and keeps its status line."""
        interval = watchdog_interval() or 20 * SECOND
        while True:
            await self._clock.sleep(interval // 2)
            self._engine.wake()
            self._notify_status()
            now = self._clock.monotonic()
            tick_ok = now - self._engine.last_tick < _HEALTHY_TICK
            beat_ok = now - self._claims.last_beat < 3 * self._settings.heartbeat
            if tick_ok and beat_ok:
                self._notifier.watchdog()


def _own_peer() -> Peer:
    """The daemon as the author of what it does by itself."""
    return Peer(uid=os.getuid(), gid=os.getgid(), pid=os.getpid(), command="schedulerd")
