"""`Operations` as the routes see them: the engine's verbs, the reload, the reason why, the daemon's state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from scheduler.clock import Clock, Micros
from scheduler.config.reloader import Reloader
from scheduler.control.explaining import explained, explained_then
from scheduler.control.ports import ReloadReport, StatusFacts, Why
from scheduler.engine.operations import Operations
from scheduler.engine.pauses import AllJobs
from scheduler.model.items import Item, ItemState
from scheduler.model.jobs import Job, JobId, Overlap, PauseMode
from scheduler.model.runs import Run, RunId
from scheduler.rules.why import Limits, why
from scheduler.store.pausevalues import AllOperated
from scheduler.store.protocol import Store
from scheduler.store.values import Claimant, DefinitionChange, Missed, Operated, Peer, Started

_CLAIMED: Final = ("running", "recovering")


class Facade:
    """Everything the control API can ask of the daemon."""

    def __init__(
        self,
        *,
        operations: Operations,
        all_jobs: AllJobs,
        reloader: Reloader,
        store: Store,
        claimant: Claimant,
        clock: Clock,
        facts: Callable[[], StatusFacts],
    ) -> None:
        self._operations = operations
        self._all_jobs = all_jobs
        self._reloader = reloader
        self._store = store
        self._claimant = claimant
        self._clock = clock
        self._facts = facts

    async def look(self) -> None:
        await self._operations.look()

    async def pause(
        self, job_id: JobId, mode: PauseMode, note: str, peer: Peer, *, until: Micros | None
    ) -> Operated:
        return await self._operations.pause(job_id, mode, note, peer, until=until)

    async def pause_all(self, mode: PauseMode, note: str, peer: Peer, *, until: Micros | None) -> AllOperated:
        return await self._all_jobs.pause(mode, note, peer, until=until)

    async def resume_all(self, peer: Peer) -> AllOperated:
        return await self._all_jobs.resume(peer)

    async def resume(self, job_id: JobId, missed: Missed, peer: Peer) -> Operated:
        return await self._operations.resume(job_id, missed, peer)

    async def run(
        self, job_id: JobId, peer: Peer, *, args: str | None, overlap: Overlap | None, new: bool = False
    ) -> Started:
        return await self._operations.run(job_id, peer, args=args, overlap=overlap, new=new)

    async def cancel(self, run_id: RunId, peer: Peer, *, force: bool = False) -> Run:
        return await self._operations.cancel(run_id, peer, force=force)

    async def retry(
        self, run_id: RunId, peer: Peer, *, keys: Sequence[str] | None = None, failed_only: bool = False
    ) -> Run:
        return await self._operations.retry(run_id, peer, keys=keys, failed_only=failed_only)

    async def settle_item(self, run_id: RunId, key: str, state: ItemState, peer: Peer) -> tuple[Item, Run]:
        return await self._operations.settle_item(run_id, key, state, peer)

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
            kept=list(changes.kept),
            faults=list(self._reloader.faults),
        )

    async def why(self, job_id: JobId, at: Micros | None) -> Why:
        view = await self._store.job(job_id)
        if at is not None:
            return await explained_then(self._store, view.job, at, self._clock.now())
        found = why(
            view.job,
            view.live_runs,
            await self._limits(view.job),
            self._clock.now(),
            draining=self._claimant.draining,
            global_pause=await self._store.global_pause(),
            serial=self._claimant.serial,
            stuck=self._operations.stuck(),
        )
        return explained(job_id, found)

    async def _limits(self, job: Job) -> Limits:
        group = job.definition.group
        counts = await self._store.counts()
        return Limits(
            claimed=sum(counts.runs.get(state, 0) for state in _CLAIMED),
            max_running=self._claimant.max_running,
            group_claimed=0 if group is None else await self._store.claimed_in_group(group),
            group_max=None if group is None else self._claimant.groups.get(group),
        )

    def status(self) -> StatusFacts:
        return self._facts()
