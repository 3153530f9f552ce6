"""A daemon and an operator at one store: what they do to it, in the words of the protocol and no others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from scheduler.clock import MINUTE, Micros
from scheduler.errors import SchedulerError
from scheduler.model.jobs import Job, JobDefinition, JobId, Origin, Overlap, PauseMode
from scheduler.model.runs import Attempt, Grant, Run, RunId, RunState
from scheduler.rules.planning import FirePlan, plan_fire
from scheduler.rules.reconcile import Ending
from scheduler.store.protocol import Store
from scheduler.store.values import (
    Cancelled,
    ChangeKind,
    Claimant,
    DefinitionChange,
    Finished,
    Fired,
    Missed,
    Operated,
    PauseRequest,
    Peer,
    ResumeRequest,
    Started,
    StartRequest,
)
from tests.support.builders import JOB, make_claimant, make_peer, make_verdict
from tests.support.clock import FakeClock

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Told:
    """A skip row, as much of it as says which fire times it stands for."""

    reason: str
    first: Micros
    last: Micros
    count: int


class Desk:
    """One handle of a store with a claimant and a peer; a refused verb raises what it was refused with."""

    def __init__(
        self, store: Store, clock: FakeClock, who: Claimant | None = None, peer: Peer | None = None
    ) -> None:
        self.store = store
        self.clock = clock
        self.who = who or make_claimant()
        self.peer = peer or make_peer()

    # --- definitions ---
    async def add(
        self, definition: JobDefinition, *, origin: Origin = Origin.FILE, file: str | None = "jobs.toml"
    ) -> Operated:
        return await self._change(ChangeKind.ADD, definition.id, definition, origin=origin, origin_file=file)

    async def edit(
        self,
        definition: JobDefinition,
        *,
        origin: Origin = Origin.FILE,
        file: str | None = "jobs.toml",
        expects: int | None = None,
    ) -> Operated:
        return await self._change(
            ChangeKind.CHANGE, definition.id, definition, origin=origin, origin_file=file, expects=expects
        )

    async def remove(self, job: JobId = JOB, *, origin: Origin = Origin.FILE) -> Operated:
        return await self._change(ChangeKind.REMOVE, job, None, origin=origin)

    async def _change(
        self, kind: ChangeKind, job: JobId, definition: JobDefinition | None, **values: Any
    ) -> Operated:
        change = DefinitionChange(kind=kind, job_id=job, definition=definition, peer=self.peer, **values)
        return _one(await self.store.apply([change]))

    # --- operator ---
    async def pause(self, job: JobId = JOB, *, mode: PauseMode = PauseMode.DRAIN, note: str = "") -> Operated:
        return _one(await self.store.pause([PauseRequest(job_id=job, mode=mode, peer=self.peer, note=note)]))

    async def resume(self, job: JobId = JOB, *, missed: Missed = Missed.SKIP) -> Operated:
        return _one(await self.store.resume([ResumeRequest(job_id=job, peer=self.peer, missed=missed)]))

    async def start(
        self, job: JobId = JOB, *, overlap: Overlap | None = None, args: str | None = None
    ) -> Started:
        return _one(await self.store.start(self.who, [self.start_request(job, overlap=overlap, args=args)]))

    def start_request(
        self, job: JobId = JOB, *, overlap: Overlap | None = None, args: str | None = None
    ) -> StartRequest:
        return StartRequest(
            job_id=job, run_id=self.clock.run_id(), peer=self.peer, overlap=overlap, args=args
        )

    async def cancel(self, run: Run) -> Cancelled:
        return await self.store.cancel(run.id, self.peer)

    # --- engine ---
    async def plan(self, job: JobId = JOB) -> FirePlan | None:
        """What a look at this job says now."""
        return plan_fire(await self.job(job), self.clock.now(), self.clock.run_id)

    async def fire(self, job: JobId = JOB, *, now: bool = False) -> Fired:
        """FIRE of one job: at the moment when it is due, or at once if that is past or `now` is said."""
        due_at = (await self.job(job)).due_at
        assert due_at is not None, f"{job} has no next fire time"
        if not now:
            self.clock.move(max(0, due_at - self.clock.now()))
        plan = await self.plan(job)
        assert plan is not None, f"{job} is not due"
        return (await self.store.fire(self.who, [plan]))[0]

    async def fired(self, job: JobId = JOB) -> Run:
        """The running run of the next fire time."""
        fired = await self.fire(job)
        assert len(fired.grants) == 1, fired
        return fired.grants[0].run

    async def tick(self, *, late_after: Micros = MINUTE) -> list[Fired]:
        """Everything that is due is fired, as an engine would."""
        look = await self.store.due(limit=1_000, late_after=late_after, late_limit=1_000)
        plans = [plan_fire(job, look.now, self.clock.run_id) for job in look.jobs]
        return await self.store.fire(self.who, [plan for plan in plans if plan is not None])

    async def claim(self, limit: int = 1_000) -> list[Grant]:
        """Queued and waiting runs that may start now, claimed."""
        grants, _ = await self.store.claim(self.who, limit=limit)
        return grants

    async def finish(self, run: Run, ending: Ending = Ending.SUCCEEDED, **said: Any) -> Finished:
        """FINISH by the writer that holds `run` as it was granted."""
        return (await self.store.finish([make_verdict(run, ending, **said)]))[0]

    async def take(self, run: Run) -> Run:
        """The run is `recovering`: a look found its owner dead."""
        look = await self.store.look()
        taken = await self.store.recover([seen for seen in look.running if seen.run_id == run.id])
        assert len(taken) == 1, f"{run.id} was not there to be taken"
        return taken[0]

    async def crash(self, run: Run, **said: Any) -> Finished:
        """The owner died, and recovery records it through FINISH."""
        return await self.finish(await self.take(run), Ending.CRASHED, **said)

    # --- rows ---
    async def job(self, job: JobId = JOB) -> Job:
        return (await self.store.job(job)).job

    async def run(self, run: Run | RunId) -> Run:
        return await self.store.run(run.id if isinstance(run, Run) else run)

    async def runs(self, job: JobId | None = JOB) -> list[Run]:
        """All rows, skips too, oldest first."""
        return (await self.store.runs(before=None, limit=1_000_000, job=job))[::-1]

    async def executed(self, job: JobId = JOB) -> list[Run]:
        """All rows but the skips, oldest first."""
        return [run for run in await self.runs(job) if run.state is not RunState.SKIPPED]

    async def skips(self, job: JobId = JOB) -> list[Told]:
        """What the skip rows tell, oldest first."""
        return [
            Told(run.reason or "", run.fire_time or 0, run.fire_time_last or run.fire_time or 0, run.count)
            for run in await self.runs(job)
            if run.state is RunState.SKIPPED
        ]

    async def live(self, job: JobId = JOB) -> list[Run]:
        """Runs that take a slot."""
        return [run for run in await self.store.live_runs(job) if run.state is not RunState.QUEUED]

    async def rows(self) -> tuple[list[Job], list[Run], list[Attempt]]:
        """Everything known of jobs, runs and attempts: equal before and after where nothing changed."""
        listed = await self.store.jobs(after=None, limit=1_000_000)
        jobs = [(await self.store.job(job.id)).job for job in listed]
        runs = await self.runs(None)
        attempts = [attempt for run in runs for attempt in await self.store.attempts(run.id)]
        return jobs, runs, attempts


def _one(results: Sequence[T | SchedulerError]) -> T:
    """The one result, or the error in its place."""
    (result,) = results
    if isinstance(result, SchedulerError):
        raise result
    return result
