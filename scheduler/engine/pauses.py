"""Pauses of all jobs, and pauses that lift themselves: the store's transaction, then what follows of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from scheduler.clock import Micros
from scheduler.engine.claims import Claims
from scheduler.engine.writeback import WriteBack
from scheduler.model.jobs import Job, PauseMode
from scheduler.model.runs import RunId, Wish
from scheduler.rules.planning import SkippedSpan
from scheduler.store.pausevalues import AllOperated, PauseAllRequest, PauseExpired, ResumeAllRequest
from scheduler.store.protocol import Store
from scheduler.store.values import Peer, own_peer
from scheduler.telemetry import Event, Logger


class TellSkipped(Protocol):
    """Tells of fire times without a run."""

    def __call__(self, job: Job, span: SkippedSpan) -> None: ...


class PauseEnds:
    """Lifts timed pauses when their time has come; the tick asks for it."""

    def __init__(self, store: Store, claims: Claims, log: Logger, tell_skipped: TellSkipped) -> None:
        self._store = store
        self._claims = claims
        self._log = log
        self._tell_skipped = tell_skipped
        self._peer = own_peer()

    async def lift(self) -> None:
        """What was over is lifted, a bounded number of jobs at once; the next look finds the others."""
        expired = await self._store.expire_pauses(self._peer)
        if expired.all is not None and expired.all.changed:
            _wish(self._claims, expired.all.wishes)
            self._log.info(Event.ALL_RESUMED, by="schedulerd", until_at=expired.all.lifted_at)
        for found in expired.jobs:
            self._tell(found)

    def _tell(self, found: PauseExpired) -> None:
        done = found.done
        _wish(self._claims, done.wishes)
        self._log.info(
            Event.PAUSE_EXPIRED, job=found.job_id, until_at=found.until, next_fire_at=done.job.next_fire_at
        )
        for span in done.spans:
            self._tell_skipped(done.job, span)
        if done.completed:
            self._log.info(Event.JOB_COMPLETED, job=done.job.id)


class AllJobs:
    """What an operator can do to all jobs at once."""

    def __init__(
        self, *, store: Store, claims: Claims, writeback: WriteBack, wake: Callable[[], None], log: Logger
    ) -> None:
        self._store = store
        self._claims = claims
        self._writeback = writeback
        self._wake = wake
        self._log = log

    async def pause(self, mode: PauseMode, note: str, peer: Peer, *, until: Micros | None) -> AllOperated:
        """All jobs are paused."""
        request = PauseAllRequest(mode=mode, peer=peer, note=note, until=until)
        done = await self._store.pause_all(request)
        self._follow(done)
        if done.changed:
            self._log.info(
                Event.ALL_PAUSED,
                by=str(peer),
                mode=mode,
                message=note or None,
                until_at=until,
                in_flight=len(done.in_flight),
            )
        return done

    async def resume(self, peer: Peer) -> AllOperated:
        """The pause of all jobs is over."""
        done = await self._store.resume_all(ResumeAllRequest(peer=peer))
        self._follow(done)
        if done.changed:
            self._log.info(Event.ALL_RESUMED, by=str(peer))
        return done

    def _follow(self, done: AllOperated) -> None:
        """Workers learn of their wishes, ended runs are told, and the tick looks again."""
        _wish(self._claims, done.wishes)
        for run in done.cancelled:
            self._writeback.tell_ended(run)
        self._wake()


def _wish(claims: Claims, wishes: Iterable[tuple[RunId, Wish]]) -> None:
    for run_id, wish in wishes:
        claims.wish(run_id, wish)
