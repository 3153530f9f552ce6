"""The tick: what is due fires, what waits is claimed, the next wake-up is set.

The loop clears its event before it looks, so that no wake-up is lost: whatever changes after the look has set
the event again. A tick works in slices, so that nothing else waits long for it. One that raises is told and
tried again; it does not end the daemon.
"""

from __future__ import annotations

import asyncio
from typing import Final

from scheduler.clock import MINUTE, SECOND, Clock, Micros
from scheduler.engine.backlog import SLICE, STEP, Backlog
from scheduler.engine.claims import Claims
from scheduler.engine.pauses import PauseEnds
from scheduler.engine.ports import Timer
from scheduler.engine.runner import Runner
from scheduler.engine.start_rate import StartRate
from scheduler.errors import StoreUnavailable
from scheduler.metrics import Metrics
from scheduler.model.jobs import Job, JobId
from scheduler.model.runs import RunId, Wish, new_run_id
from scheduler.rules.planning import FirePlan, SkippedSpan, plan_fire
from scheduler.store.protocol import Store
from scheduler.store.values import Claimant, DueLook, Fired
from scheduler.telemetry import Event, Logger

_LATE: Final[Micros] = MINUTE
"""Fires later than this draw on the start rate."""

_AFTER_ERROR: Final[Micros] = SECOND


class Engine:
    """Fires and claims, as the store says what is due."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        claimant: Claimant,
        claims: Claims,
        runner: Runner,
        start_rate: StartRate,
        log: Logger,
        metrics: Metrics,
    ) -> None:
        self._store = store
        self._clock = clock
        self._claimant = claimant
        self._claims = claims
        self._runner = runner
        self._rate = start_rate
        self._log = log
        self._metrics = metrics
        self._wanted = asyncio.Event()
        self._over = asyncio.Event()
        self._nap: asyncio.Task[None] | None = None
        self._timer: Timer | None = None
        self._stopped = False
        self._backlog = Backlog(
            store=store,
            clock=clock,
            claimant=claimant,
            runner=runner,
            log=log,
            metrics=metrics,
            look=self._wanted.set,
            look_later=lambda: self._again_after(_AFTER_ERROR),
        )
        self._unreadable: set[JobId] = set()
        self._pause_ends = PauseEnds(store, claims, log, self.tell_skipped)
        self.last_tick = clock.monotonic()

    def wake(self) -> None:
        """Something may be due earlier than thought, or wait for a slot: there will be a tick."""
        self._backlog.something_waits = True
        self._wanted.set()

    def ending(self) -> bool:
        """A run is about to give its slot back; see `Backlog.ending`."""
        return self._backlog.ending()

    def freed(self, *, claimed_along: bool) -> None:
        """A run gave its slot back; see `Backlog.freed`."""
        self._backlog.freed(claimed_along=claimed_along)

    def attach(self, timer: Timer) -> None:
        """The wake-up is armed on this timer."""
        self._timer = timer

    def stop(self) -> None:
        """The tick under way is the last one."""
        self._stopped = True
        self._claimant.draining = True
        self._wanted.set()

    async def run(self) -> None:
        """Ticks until `stop`."""
        self._wanted.set()
        try:
            while True:
                await self._wanted.wait()
                self._wanted.clear()
                if self._stopped:
                    await self._backlog.settled()
                    return
                await self._guarded_tick()
        finally:
            self._over.set()
            if self._nap is not None:
                self._nap.cancel()

    async def ended(self) -> None:
        """The last tick is over: everything that it claimed is under way."""
        await self._over.wait()

    async def _guarded_tick(self) -> None:
        try:
            await self.tick()
            self.last_tick = self._clock.monotonic()
        except StoreUnavailable:
            self.last_tick = self._clock.monotonic()  # the loop is well; the store is told by its own watcher
            self._again_after(_AFTER_ERROR)
        except Exception as error:  # noqa: BLE001 - one bad tick must not be the last one
            self._log.error(
                Event.LOOP_BLOCKED, message=f"a tick failed and is tried again: {error!r}", exc_info=error
            )
            self._again_after(_AFTER_ERROR)

    async def tick(self) -> None:
        """What may start has started, in one slice each; the wake-up stands at the next moment.

        Whatever moves that moment after the look has woken us again, but for what we write ourselves.
        """
        late_limit = min(SLICE, self._rate.available(self._clock.monotonic()))
        look = await self._store.due(limit=SLICE, late_after=_LATE, late_limit=late_limit)
        self._backlog.seen(claimable=look.claimable)
        claimed_all = not look.claimable or await self._backlog.claim()
        planned, fired_all = await self._fire_due(look, late_limit)
        if not (claimed_all and fired_all):
            self._wanted.set()
        if self._timer is not None:
            self._timer.arm(min((at for at in (look.next_wake, *planned) if at is not None), default=None))

    async def _fire_due(self, look: DueLook, late_limit: int) -> tuple[list[Micros | None], bool]:
        """One slice of due jobs fires; when they are due next, and whether that was all."""
        if look.pause_over:
            await self._pause_ends.lift()
        late = {job.id for job in look.jobs if job.due_at is not None and look.now - job.due_at > _LATE}
        plans = await self._plans(look)
        starting = sum(1 for plan in plans if plan.slots and plan.job_id in late)
        self._rate.spend(starting)  # late times that are only told cost nothing
        if plans:
            await self._fire(plans)
        if len(late) >= late_limit:
            self._again_after(self._rate.pause if starting or not plans else 0)
        has_next = all(plan.due_at is not None for plan in plans)
        fired_all = len(look.jobs) - len(late) < SLICE or not plans
        return [plan.due_at for plan in plans], fired_all and has_next and not look.pause_over

    async def _plans(self, look: DueLook) -> list[FirePlan]:
        """A plan for each due job; one whose definition breaks the planning is told and put aside."""
        plans: list[FirePlan] = []
        for job in sorted(look.jobs, key=lambda job: (-job.definition.priority, job.due_at)):
            if job.definition_error is not None:
                self._tell_unreadable(job)
                continue
            try:
                plan = plan_fire(job, look.now, lambda: new_run_id(look.now), look.paused)
            except Exception as error:  # noqa: BLE001 - one job must not keep the others from firing
                await self._put_aside(job, error)
                continue
            if plan is not None:
                plans.append(plan)
        return plans

    def _tell_unreadable(self, job: Job) -> None:
        """The job stays due until its definition can be read again; told once in this process's life."""
        if job.id not in self._unreadable:
            self._unreadable.add(job.id)
            self._log.error(Event.JOB_BROKEN, job=job.id, message=job.definition_error)

    async def _put_aside(self, job: Job, error: Exception) -> None:
        """The job is shown as broken, and told once; each tick plans it again, so it heals by itself."""
        if job.problem_code is not None:
            return
        message = f"its next fire time cannot be planned: {error!r}"
        await self._store.set_problem(job.id, "broken", message)
        self._log.error(Event.JOB_BROKEN, job=job.id, message=message, exc_info=error)

    async def _fire(self, plans: list[FirePlan]) -> None:
        expected = [slot.run_id for plan in plans for slot in plan.slots]
        for run_id in expected:
            self._claims.expect(run_id)
        granted: set[RunId] = set()
        frees = self._backlog.frees
        try:
            fired = await self._store.fire(self._claimant, plans)
            for count, (plan, came) in enumerate(zip(plans, fired, strict=True), start=1):
                granted |= self._take(plan.job, came)
                if count % STEP == 0:
                    await self._clock.sleep(0)
        finally:
            for run_id in expected:
                if run_id not in granted:
                    self._claims.forget(run_id)
        if self._backlog.something_waits and self._backlog.frees != frees:
            self._wanted.set()  # the slot that a run was queued for came free before we had heard of that run

    def _take(self, job: Job, fired: Fired) -> set[RunId]:
        """What FIRE did for one job is under way and told; the runs it claimed."""
        for grant in fired.grants:
            self._runner.start(grant)
            if grant.run.fire_time is not None and grant.run.claimed_at is not None:
                self._metrics.fired(grant.run.trigger, max(0, grant.run.claimed_at - grant.run.fire_time))
        for run in fired.queued:
            self._backlog.something_waits = True
            self._log.info(Event.RUN_QUEUED, job=job.id, run_id=run.id, fire_time=run.fire_time)
        for span in fired.skips:
            self.tell_skipped(job, span)
        for run_id in fired.cancel:
            self._claims.wish(run_id, Wish.CANCEL)
        for run in fired.cancelled:
            self._log.info(
                Event.RUN_CANCELLED, job=job.id, run_id=run.id, reason=run.reason, message=run.message
            )
        if fired.completed:
            self._log.info(Event.JOB_COMPLETED, job=job.id)
        return {grant.run.id for grant in fired.grants}

    def tell_skipped(self, job: Job, span: SkippedSpan) -> None:
        """Fire times without a run, in one line."""
        self._metrics.skipped(span.reason, span.count)
        self._metrics.job_skipped(job.id, span.reason, span.count)
        self._log.warning(
            Event.FIRE_SKIPPED,
            job=job.id,
            reason=span.reason,
            fire_time=span.first,
            last_at=span.last,
            count=span.count,
            message=span.note or None,
        )

    def _again_after(self, wait: Micros) -> None:
        """There will be a tick after this wait, whatever the wake-up says."""
        if self._nap is not None:
            self._nap.cancel()
        self._nap = asyncio.create_task(self._wake_after(wait), name="next-tick")

    async def _wake_after(self, wait: Micros) -> None:
        await self._clock.sleep(wait)
        self._wanted.set()
