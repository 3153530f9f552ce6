"""The operator's verbs from the outside: the store's transaction, then what follows from it in memory.

After the commit the workers concerned learn of their wish at once (a heartbeat would tell them anyway),
the transition is told, and the tick looks again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from scheduler.clock import Clock, Micros
from scheduler.engine.claims import Claims
from scheduler.engine.engine import Engine
from scheduler.engine.runner import Runner
from scheduler.engine.writeback import WriteBack
from scheduler.errors import Draining, SchedulerError, StoreUnavailable
from scheduler.model.items import Item, ItemState
from scheduler.model.jobs import JobId, Overlap, PauseMode
from scheduler.model.runs import Run, RunId, Wish, new_run_id
from scheduler.store.protocol import Store
from scheduler.store.values import (
    Cancelled,
    ChangeKind,
    Claimant,
    DefinitionChange,
    Missed,
    Operated,
    PauseRequest,
    Peer,
    ResumeRequest,
    SettleItem,
    Started,
    StartRequest,
)
from scheduler.telemetry import Event, Logger

_LOOK_PATIENCE: Final = 1.0
"""Seconds that a read waits for what its look found to be taken over."""

_CHANGE_EVENT = {
    ChangeKind.ADD: Event.JOB_ADDED,
    ChangeKind.CHANGE: Event.JOB_CHANGED,
    ChangeKind.MOVE: Event.JOB_CHANGED,
    ChangeKind.REMOVE: Event.JOB_REMOVED,
}


_SETTLED = {
    ItemState.DONE: Event.ITEM_DONE,
    ItemState.FAILED: Event.ITEM_FAILED,
    ItemState.PENDING: Event.ITEM_UNKNOWN,
}


class Operations:
    """What an operator can do to jobs and runs."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        claimant: Claimant,
        claims: Claims,
        runner: Runner,
        engine: Engine,
        writeback: WriteBack,
        log: Logger,
    ) -> None:
        self._store = store
        self._clock = clock
        self._claimant = claimant
        self._claims = claims
        self._runner = runner
        self._engine = engine
        self._writeback = writeback
        self._log = log

    def stuck(self) -> set[RunId]:
        """Runs that were told to end and do not, with a worker or in recovery."""
        return self._runner.stuck() | self._claims.stuck_recoveries()

    async def look(self) -> None:
        """Dead claims found on a read are being recovered; no process or full disk is waited for."""
        try:
            async with asyncio.timeout(_LOOK_PATIENCE):
                await self._claims.sweep()
        except (TimeoutError, StoreUnavailable):
            return  # what it found is taken up by the next sweep

    async def pause(
        self, job_id: JobId, mode: PauseMode, note: str, peer: Peer, *, until: Micros | None = None
    ) -> Operated:
        """The job is paused."""
        request = PauseRequest(job_id=job_id, mode=mode, peer=peer, note=note, until=until)
        done = _result(await self._store.pause([request]))
        self._follow(done)
        if done.changed:
            self._log.info(
                Event.JOB_PAUSED,
                job=job_id,
                by=str(peer),
                mode=mode,
                message=note or None,
                until_at=until,
                in_flight=len(done.in_flight),
            )
        return done

    async def resume(self, job_id: JobId, missed: Missed, peer: Peer) -> Operated:
        """The job is active from now."""
        request = ResumeRequest(job_id=job_id, peer=peer, missed=missed)
        done = _result(await self._store.resume([request]))
        self._follow(done)
        if done.changed:
            next_fire_at = done.job.next_fire_at
            self._log.info(
                Event.JOB_RESUMED, job=job_id, by=str(peer), missed=missed, next_fire_at=next_fire_at
            )
        return done

    async def run(
        self, job_id: JobId, peer: Peer, *, args: str | None, overlap: Overlap | None, new: bool = False
    ) -> Started:
        """A manual run is claimed, or queued."""
        await self._claims.sweep()
        run_id = new_run_id(self._clock.now())
        request = StartRequest(job_id=job_id, run_id=run_id, peer=peer, overlap=overlap, args=args, new=new)
        self._claims.expect(run_id)
        granted = False
        try:
            started = (await self._store.start(self._claimant, [request]))[0]
            if isinstance(started, SchedulerError):
                raise started
            if started.grant is not None:
                self._runner.start(started.grant)
                granted = True
        finally:
            if not granted:
                self._claims.forget(run_id)
        self._tell_started(started)
        return started

    def _tell_started(self, started: Started) -> None:
        if started.grant is None:
            self._log.info(Event.RUN_QUEUED, job=started.run.job, run_id=started.run.id, trigger="manual")
            self._engine.wake()
        for run_id in started.cancel:
            self._claims.wish(run_id, Wish.CANCEL)
        for run in started.cancelled:
            self._writeback.tell_ended(run)

    async def cancel(self, run_id: RunId, peer: Peer, *, force: bool = False) -> Run:
        """The run is asked to end; one without a worker has ended, and so has one released by `force`."""
        if force:
            released = await self._store.release(run_id, peer)
            self._claims.wish(run_id, Wish.CANCEL)
            self._writeback.tell_ended(released.run)
            self._engine.wake()
            return released.run
        done: Cancelled = await self._store.cancel(run_id, peer)
        if done.tell_worker:
            self._claims.wish(run_id, Wish.CANCEL)
        else:
            self._writeback.tell_ended(done.run)
        self._engine.wake()
        return done.run

    async def retry(
        self, run_id: RunId, peer: Peer, *, keys: Sequence[str] | None = None, failed_only: bool = False
    ) -> Run:
        """A run that did not succeed is queued again; a batch for what is not done, or some of it."""
        self._refuse_while_draining()
        run = await self._store.retry(run_id, peer, keys=keys, failed_only=failed_only)
        self._log.info(Event.RUN_REQUEUED, job=run.job, run_id=run.id, by=str(peer))
        self._engine.wake()
        return run

    async def settle_item(self, run_id: RunId, key: str, state: ItemState, peer: Peer) -> tuple[Item, Run]:
        """The item is what the operator says; a run that ended may be another one for it."""
        item, run = await self._store.settle_item(SettleItem(run_id=run_id, key=key, state=state, peer=peer))
        self._log.info(
            _SETTLED[item.state],
            job=run.job,
            run_id=run.id,
            item=key,
            by=str(peer),
            message="settled by hand",
        )
        self._claims.nudge(run_id)
        return item, run

    async def retry_now(self, run_id: RunId, peer: Peer) -> Run:
        """A waiting run waits no longer."""
        self._refuse_while_draining()
        run = await self._store.retry_now(run_id, peer)
        self._log.info(Event.RUN_REQUEUED, job=run.job, run_id=run.id, by=str(peer))
        self._engine.wake()
        return run

    async def skip_next(self, job_id: JobId, count: int, peer: Peer) -> Operated:
        """The next `count` fire times are passed over."""
        done = await self._store.skip_next(job_id, count, peer)
        self._follow(done)
        return done

    async def apply(self, change: DefinitionChange) -> Operated:
        """A job made through the API is created, replaced or removed."""
        self._refuse_while_draining()
        done = _result(await self._store.apply([change]))
        self.tell_change(change.kind, done, change.peer)
        return done

    def tell_change(self, kind: ChangeKind, done: Operated, peer: Peer) -> None:
        """What a changed definition did is told, and the tick looks again."""
        self._follow(done)
        if done.changed:
            job = done.job
            self._log.info(
                _CHANGE_EVENT[kind],
                job=job.id,
                by=str(peer),
                origin=job.origin,
                next_fire_at=job.next_fire_at,
            )

    def _follow(self, done: Operated) -> None:
        """Workers learn of their wishes; ended runs, skipped fires and an end of the job are told."""
        for run_id, wish in done.wishes:
            self._claims.wish(run_id, wish)
        for run in done.cancelled:
            self._writeback.tell_ended(run)
        for span in done.spans:
            self._engine.tell_skipped(done.job, span)
        if done.completed:
            self._log.info(Event.JOB_COMPLETED, job=done.job.id)
        self._engine.wake()

    def _refuse_while_draining(self) -> None:
        if self._claimant.draining:
            raise Draining("the daemon is stopping: it takes no new work or definitions")


def _result(results: list[Operated | SchedulerError]) -> Operated:
    """The one result of a verb on one job, or the error that refused it."""
    result = results[0]
    if isinstance(result, SchedulerError):
        raise result
    return result
