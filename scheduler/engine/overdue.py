"""Overdue: a fire time has passed by more than the job allows, and no run has started since.

It does not ask why: a run that was skipped because the one before it hangs, one that waits in a queue and one
that the tick never reached are all work that does not happen. What an operator took away on purpose is not
missed: a job that is paused or disabled, and a fire time skipped for such a reason. One alert for each such
time without a run: it ends with the next run that starts. Fire times from before this daemon, this
definition or the end of a pause are not held against a job.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from scheduler.clock import Clock, Micros, rfc3339
from scheduler.errors import NotFound, StoreUnavailable
from scheduler.metrics import Metrics
from scheduler.model.jobs import Job, JobId
from scheduler.model.runs import Run, RunState, SkipReason
from scheduler.store.protocol import Reads
from scheduler.telemetry import Event, Logger

_TAKEN_AWAY: Final = frozenset(
    {SkipReason.PAUSED, SkipReason.GLOBAL_PAUSE, SkipReason.DISABLED, SkipReason.EDITED, SkipReason.EXCLUDED}
)
_NEWEST: Final = 20


def expected_slot(job: Job, now: Micros, since: Micros) -> Micros | None:
    """The newest fire time that should have begun by now; None: nothing was to happen.

    Args:
        since: fire times before it do not count, but for the one that the row still waits for.
    """
    allowed = job.definition.alerts.overdue_after
    latest = now - (job.definition.late_after if allowed is None else allowed)
    if job.due_at is not None and job.due_at <= latest:
        return job.next_fire_at
    schedule = job.definition.schedule
    slot = schedule.last_fire(latest)
    if slot is None or slot < since or schedule.due_at(slot) > latest:
        return None
    return slot


def has_begun(slot: Micros, explained: Run | None, newest: list[Run]) -> bool:
    """The fire time had its run, or was taken away on purpose, or a later run stands for it.

    Args:
        explained: the row of that fire time.
        newest: the newest rows of the job.
    """
    if explained is not None:
        if explained.state is RunState.SKIPPED and explained.reason in _TAKEN_AWAY:
            return True
        if explained.claimed_at is not None:
            return True
    return any(run.claimed_at is not None and run.claimed_at >= slot for run in newest)


@dataclass(slots=True)
class _Watch:
    """What is known of one job.

    Attributes:
        revision: of the definition that is watched.
        since: fire times before it do not count.
        told: nothing has begun since it was told.
    """

    revision: int
    since: Micros
    told: bool = False


class OverdueWatch:
    """Looks at the jobs that somebody wants to hear of."""

    def __init__(
        self, *, watched: Callable[[], list[JobId]], reads: Reads, clock: Clock, log: Logger, metrics: Metrics
    ) -> None:
        self._watched = watched
        self._reads = reads
        self._clock = clock
        self._log = log
        self._metrics = metrics
        self._watches: dict[JobId, _Watch] = {}

    async def look(self) -> None:
        """What is overdue was told, once."""
        try:
            await self._look()
        except StoreUnavailable:
            return  # that is told by its own watcher; the next look comes

    async def _look(self) -> None:
        watched = self._watched()
        for job_id in self._watches.keys() - set(watched):
            del self._watches[job_id]
        if await self._reads.global_pause() is not None:
            self._watches.clear()
        else:
            for job_id in watched:
                await self._look_at(job_id)
        self._metrics.overdue_counted(sum(watch.told for watch in self._watches.values()))

    async def _look_at(self, job_id: JobId) -> None:
        try:
            job = (await self._reads.job(job_id)).job
        except NotFound:
            self._watches.pop(job_id, None)
            return
        now = self._clock.now()
        if not job.may_fire or job.definition_error is not None:
            self._watches.pop(job_id, None)
            return
        watch = self._watches.get(job_id)
        if watch is None or watch.revision != job.definition_revision:
            watch = self._watches[job_id] = _Watch(revision=job.definition_revision, since=now)
        slot = expected_slot(job, now, watch.since)
        if slot is None:
            return
        newest = await self._reads.runs(before=None, limit=_NEWEST, job=job_id)
        if has_begun(slot, await self._reads.run_at(job_id, slot), newest):
            watch.told = False
        elif not watch.told:
            watch.told = True
            self._tell(job, slot)

    def _tell(self, job: Job, slot: Micros) -> None:
        self._log.warning(
            Event.JOB_OVERDUE,
            job=job.id,
            fire_time=slot,
            message=f"the run of {rfc3339(slot)} has not started",
        )
