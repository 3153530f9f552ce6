"""`Operations` as the routes see them: the engine's verbs, the reload, the reason why, the daemon's state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from scheduler.clock import Clock, Micros
from scheduler.config.reloader import Reloader
from scheduler.control.ports import ReloadReport, StatusFacts, Why
from scheduler.engine.operations import Operations
from scheduler.model.jobs import Job, JobId, Overlap, PauseMode
from scheduler.model.runs import Run, RunId
from scheduler.rules.why import Limits, why
from scheduler.store.protocol import Store
from scheduler.store.values import Claimant, DefinitionChange, Missed, Operated, Peer, Started

_CLAIMED: Final = ("running", "recovering")


class Facade:
    """Everything the control API can ask of the daemon."""

    def __init__(
        self,
        *,
        operations: Operations,
        reloader: Reloader,
        store: Store,
        claimant: Claimant,
        clock: Clock,
        facts: Callable[[], StatusFacts],
    ) -> None:
        self._operations = operations
        self._reloader = reloader
        self._store = store
        self._claimant = claimant
        self._clock = clock
        self._facts = facts

    async def look(self) -> None:
        await self._operations.look()

    async def pause(self, job_id: JobId, mode: PauseMode, note: str, peer: Peer) -> Operated:
        return await self._operations.pause(job_id, mode, note, peer)

    async def resume(self, job_id: JobId, missed: Missed, peer: Peer) -> Operated:
        return await self._operations.resume(job_id, missed, peer)

    async def run(self, job_id: JobId, peer: Peer, *, args: str | None, overlap: Overlap | None) -> Started:
        return await self._operations.run(job_id, peer, args=args, overlap=overlap)

    async def cancel(self, run_id: RunId, peer: Peer, *, force: bool = False) -> Run:
        return await self._operations.cancel(run_id, peer, force=force)

    async def retry(self, run_id: RunId, peer: Peer) -> Run:
        return await self._operations.retry(run_id, peer)

    async def retry_now(self, run_id: RunId, peer: Peer) -> Run:
        return await self._operations.retry_now(run_id, peer)

    async def skip_next(self, job_id: JobId, count: int, peer: Peer) -> Operated:
        return await self._operations.skip_next(job_id, count, peer)

    async def apply(self, change: DefinitionChange) -> Operated:
        return await self._operations.apply(change)

    async def reload(self, peer: Peer) -> ReloadReport:
        changes = (await self._reloader.reload(peer)).changes
        return ReloadReport(
            added=[job.id for job in changes.added],
            changed=[job.id for job in (*changes.changed, *changes.moved)],
            removed=list(changes.removed),
            unchanged=len(changes.unchanged) + len(changes.kept),
            faults=list(self._reloader.faults),
        )

    async def why(self, job_id: JobId, at: Micros | None) -> Why:
        view = await self._store.job(job_id)
        if at is not None:
            return await self._why_then(view.job, at)
        found = why(
            view.job,
            view.live_runs,
            await self._limits(view.job),
            self._clock.now(),
            draining=self._claimant.draining,
            global_pause=await self._store.is_all_paused(),
        )
        return Why(
            job=job_id,
            blocked=found.is_blocked,
            code=found.code,
            message=found.message,
            since=found.since,
            next_possible_at=found.next_possible_at,
            run_id=None if found.run_id is None else RunId(found.run_id),
        )

    async def _limits(self, job: Job) -> Limits:
        group = job.definition.group
        counts = await self._store.counts()
        return Limits(
            claimed=sum(counts.runs.get(state, 0) for state in _CLAIMED),
            max_running=self._claimant.max_running,
            group_claimed=0 if group is None else await self._store.claimed_in_group(group),
            group_max=None if group is None else self._claimant.groups.get(group),
        )

    async def _why_then(self, job: Job, at: Micros) -> Why:
        """What became of one fire time, from the row that explains it."""
        run = await self._store.run_at(job.id, at)
        if run is None:
            return Why(job=job.id, blocked=False, code="no_record", message=_no_record(job, at))
        reason = f" ({run.reason})" if run.reason else ""
        note = f": {run.message}" if run.message else ""
        message = f"{run.state}{reason}{note}"
        return Why(
            job=job.id,
            blocked=run.state == "skipped",
            code=run.reason or run.state,
            message=message,
            since=run.started_at or run.queued_at,
            run_id=run.id,
        )

    def status(self) -> StatusFacts:
        return self._facts()


def _no_record(job: Job, at: Micros) -> str:
    if job.definition.schedule.last_fire(at) != at:
        return "this is no fire time of the job as it is defined now"
    if job.next_fire_at is not None and at >= job.next_fire_at:
        return "this fire time is still to come"
    return "nothing is recorded of this fire time: it lies before the job was added, or its row was pruned"
