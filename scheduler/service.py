"""The daemon's life: started, watched, reloaded, stopped in order.

Order of the start: nobody else on the socket, store (migrated), identity on record, the wall clock looked
at, dead claims taken over (the state lock proves their owners dead), job files read, socket bound, ready;
only then the first tick.
Order of the stop (design part 6): claims stop, drain with the heartbeat on, cut, write back, end streams
and close the server, unlink the socket, close the store. The lock is let go by whoever took it.
"""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

from scheduler import __version__
from scheduler.clock import SECOND, Clock, Micros, rfc3339, seconds
from scheduler.composition import Edges, Machinery, Surface, make_edges, make_machinery
from scheduler.config.settings import Settings
from scheduler.control.binding import refuse_served
from scheduler.control.ports import StatusFacts
from scheduler.engine.alerting import FLUSH
from scheduler.engine.eventring import EventRing, Tee
from scheduler.engine.health import StoreHealth
from scheduler.errors import SchedulerError
from scheduler.executors.spawn import Spawner
from scheduler.metrics import Metrics
from scheduler.model.jobs import JobStatus
from scheduler.model.runs import new_owner_id
from scheduler.model.triggers import load_zone
from scheduler.store.sqlite import FILE_NAME, SqliteStore
from scheduler.store.values import own_peer
from scheduler.systemd import Lifeline, Notifier, watchdog_interval
from scheduler.telemetry import Event, Logger

_REPEATED_DEATHS: Final = 2
_BROKEN_LOOK: Final[Micros] = 30 * SECOND
_RETENTION_LOOK: Final[Micros] = 60 * SECOND
_OVERDUE_LOOK: Final[Micros] = 30 * SECOND
_CENSUS: Final[Micros] = 5 * SECOND
_HEALTHY_TICK: Final[Micros] = 90 * SECOND
_HEALTHY_BEATS: Final[Micros] = 30 * SECOND
"""What three beats may take beyond their pauses: each waits for the store as long as that is patient."""
_LOOK_FOR_STATUS: Final = 2.0
"""Seconds that the store has to say what the status line tells; pings do not wait longer for it."""


_GARBAGE: Final = (4_000, 5, 200)
"""New objects, and rounds, between looks for garbage. A run makes hundreds and leaves hardly any in circles:
to look as often as Python does by itself was a sixth of what a plain fire cost. A look takes up to a
microsecond for each object, so that of five rounds' new ones holds the loop for some 20 ms at most (I15)."""


class Service:
    """One daemon, from its first line to its last."""

    def __init__(
        self,
        settings: Settings,
        state: Path,
        socket: Path,
        clock: Clock,
        log: Logger,
        *,
        activated: int | None = None,
        lines_lost: Callable[[], int] = lambda: 0,
    ) -> None:
        notifier = Notifier(clock)
        owner = new_owner_id()
        ring = EventRing(owner, clock)
        log = Tee(log, ring)
        self._given = Surface(
            settings=settings,
            state=state,
            socket=socket,
            activated=activated,
            clock=clock,
            log=log,
            notifier=notifier,
            owner=owner,
            ring=ring,
            spawner=Spawner(),
            metrics=Metrics(lines_lost),
        )
        self._lifeline = Lifeline(
            notifier,
            clock,
            is_well=self._is_well,
            describe=self._describe,
            interval=watchdog_interval(),
        )
        self._started_at = clock.now()
        self._stop = asyncio.Event()
        self._failed = False
        self._reload_wanted = False
        self._reloading: asyncio.Task[None] | None = None
        self._health = StoreHealth(log)
        self._store: SqliteStore
        self._parts: Machinery
        self._edges: Edges
        self._serves = False
        self._is_ready = False

    # --- what signals ask for ---

    def stop(self) -> None:
        """An orderly stop: no claim commits from now (I12); a second call hurries it."""
        if self._serves:
            self._parts.claimant.draining = True
            if self._stop.is_set():
                self._parts.drain.hurry()
        self._stop.set()

    def reload(self) -> None:
        """The job files are read again (SIGHUP); before the daemon is ready, its start does that.

        One that comes during a reload is carried out after it: what changed may have been read already, and
        systemd waits for an answer to each. A daemon that stops reads nothing any more.
        """
        self._reload_wanted = True
        if self._is_ready and not self._stop.is_set() and (self._reloading is None or self._reloading.done()):
            self._reloading = asyncio.create_task(self._reload(), name="reload")

    async def _reload(self) -> None:
        while self._reload_wanted:
            self._reload_wanted = False
            self._given.notifier.reloading()
            try:
                await self._edges.reloader.reload(own_peer())
            except SchedulerError as error:
                self._given.log.error(Event.CONFIG_REJECTED, message=str(error))  # noqa: TRY400 - no bug of ours
            finally:
                self._given.notifier.ready()
            await self._lifeline.tell()

    # --- its life ---

    async def run(self) -> int:
        """The exit code, once all is closed: 0 for an orderly stop, 1 when something essential ended."""
        log, clock = self._given.log, self._given.clock
        log.info(Event.DAEMON_STARTED, version=__version__, pid=os.getpid(), state=str(self._given.state))
        async with AsyncExitStack() as closing:
            async with self._lifeline.more_time():
                await self._assemble(closing)
                await self._begin()
            self._is_ready = True
            essentials = self._start_essentials()
            log.info(
                Event.DAEMON_READY,
                socket=str(self._edges.server.path),
                owner=self._parts.claimant.owner.id,
            )
            self._given.notifier.ready()
            gc.freeze()  # what was imported and wired stays; looking through it held the loop for 50 ms
            gc.set_threshold(*_GARBAGE)
            gc.enable()  # the door has it disabled while there is nothing but what stays
            if self._reload_wanted:
                self.reload()
            await self._until_stopped(essentials)
            async with self._lifeline.more_time():
                await self._finish(essentials)
        log.info(Event.DAEMON_STOPPED, seconds=seconds(clock.now() - self._started_at))
        return 1 if self._failed else 0

    async def _assemble(self, closing: AsyncExitStack) -> None:
        """Every part is made; what is opened is closed again, also if a later part fails."""
        given = self._given
        if given.activated is None:
            refuse_served(given.socket)
        path = given.state / FILE_NAME
        self._store = await SqliteStore.open(
            path,
            given.clock,
            on_trouble=self._health,
            on_commit=given.metrics.committed,
            on_checked=self._health.tell_check,
        )
        closing.push_async_callback(self._store.close)
        self._parts = make_machinery(given, self._store)
        closing.callback(self._parts.executors.close)
        closing.push_async_callback(self._parts.warden.stop)
        self._edges = make_edges(given, self._store, self._parts, self._facts)
        closing.push_async_callback(self._edges.server.stop)

    async def _begin(self) -> None:
        """The store is brought up to the moment (identity, clock, claims, job files); then the socket."""
        parts = self._parts
        await parts.warden.start()
        deaths = await self._store.register(parts.claimant.owner)
        parts.claimant.serial = deaths >= _REPEATED_DEATHS
        await parts.wall_watch.start()
        await parts.claims.take_over()
        parts.reattacher.start()
        await self._edges.reloader.reload(own_peer())
        self._serves = True
        parts.claimant.draining = self._stop.is_set()
        await self._edges.server.start()
        parts.timer.start()
        parts.timer.every("broken-jobs", _BROKEN_LOOK, parts.broken_watch.look)
        parts.timer.every("census", _CENSUS, parts.census.take)
        # Who wants quick leases wants quick eyes, here as in the look at the wall clock.
        overdue_look = max(SECOND, min(_OVERDUE_LOOK, self._given.settings.heartbeat))
        parts.timer.every("overdue-jobs", overdue_look, parts.overdue_watch.look)
        parts.timer.every("retention", _RETENTION_LOOK, parts.retention_watch.look)

    def _start_essentials(self) -> list[asyncio.Task[None]]:
        """The loops without which the daemon is none: if one ends, the process does, with an error."""
        parts = self._parts
        work: dict[str, Coroutine[Any, Any, None]] = {
            "engine": parts.engine.run(),
            "heartbeat": parts.claims.run(),
            "reporter": parts.reporter.run(),
            "wall-watch": parts.wall_watch.run(),
            "loop-watch": parts.loop_watch.run(),
            "lifeline": self._lifeline.run(),
            "alerting": parts.alerting.run(),
        }
        return [asyncio.create_task(loop, name=name) for name, loop in work.items()]

    async def _until_stopped(self, essentials: list[asyncio.Task[None]]) -> None:
        stop = asyncio.create_task(self._stop.wait())
        done, _ = await asyncio.wait({stop, *essentials}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        for task in done - {stop}:
            self._failed = True
            error = None if task.cancelled() else task.exception()
            self._given.log.error(
                Event.LOOP_BLOCKED, task=task.get_name(), message=f"it ended: {error!r}", exc_info=error
            )
        self._stop.set()

    async def _finish(self, essentials: list[asyncio.Task[None]]) -> None:
        """The orderly stop; the heartbeat goes on until every outcome is recorded."""
        parts = self._parts
        self._given.notifier.stopping()
        await self._lifeline.tell()
        parts.timer.stop()
        await parts.drain.run()
        await parts.recoverer.stop()
        await parts.reattacher.stop()
        await self._edges.server.stop()
        await self._tell_the_rest(essentials)
        for task in essentials:
            task.cancel()
        await asyncio.gather(*essentials, return_exceptions=True)
        try:
            await self._store.sign_off(parts.claimant.owner.id)
        except SchedulerError as error:
            self._given.log.error(Event.STORE_UNAVAILABLE, message=str(error))  # noqa: TRY400 - told as it is

    async def _tell_the_rest(self, essentials: list[asyncio.Task[None]]) -> None:
        """The last outcomes are told outside too, within bounds."""
        self._given.ring.close()
        following = [task for task in essentials if task.get_name() == "alerting"]
        await asyncio.wait(following, timeout=seconds(FLUSH))
        await self._parts.alerting.close()

    # --- what it tells ---

    def _facts(self) -> StatusFacts:
        now, parts = self._given.clock.monotonic(), self._parts
        return StatusFacts(
            version=__version__,
            instance=parts.claimant.owner.id,
            pid=os.getpid(),
            started_at=self._started_at,
            draining=parts.claimant.draining,
            last_tick_age=now - parts.engine.last_tick,
            last_renewal_age=now - parts.claims.last_beat,
            store_ok=self._health.is_ok,
            loop_lag=parts.loop_watch.lag,
            faults=self._edges.reloader.faults,
        )

    async def _describe(self) -> str:
        """The line that `systemctl status` shows; what the store does not say in time is left out."""
        faults = len(self._edges.reloader.faults)
        words = [
            "draining" if self._stop.is_set() else "",
            _number(len(self._parts.runner), "run") + " live",
            await self._described_jobs(),
            "" if self._health.is_ok else "the store cannot be written, nothing new starts",
            _number(faults, "fault") + " in job files" if faults else "",
        ]
        return ", ".join(word for word in words if word)

    async def _described_jobs(self) -> str:
        now = self._given.clock.now()
        try:
            async with asyncio.timeout(_LOOK_FOR_STATUS):
                counts = (await self._store.counts()).jobs
                wake = await self._store.next_wake(now)
        except (SchedulerError, TimeoutError):
            return ""
        told = _number(sum(counts.values()), "job")
        if paused := counts.get(JobStatus.PAUSED, 0):
            told += f" ({paused} paused)"
        zone = load_zone(self._given.settings.timezone).info
        return told if wake is None else f"{told}, next at {rfc3339(wake // SECOND * SECOND, zone)}"

    def _is_well(self) -> bool:
        """Whether the watchdog hears of us: the loop turns, ticks and beats come to an end.

        A store that cannot be written is no reason to be ended: a new process could not write it either, and
        runs would be cut for nothing (I14). One that does not even answer with an error is.
        """
        now, parts = self._given.clock.monotonic(), self._parts
        self._parts.engine.wake()
        tick_ok = self._stop.is_set() or now - parts.engine.last_tick < _HEALTHY_TICK
        return tick_ok and now - parts.claims.last_try < _HEALTHY_BEATS + 3 * self._given.settings.heartbeat


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
