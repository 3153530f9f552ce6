"""Follows the transitions as they are told, and puts what somebody wants to hear of on its way.

It reads the ring of events as a client does: whoever tells a transition knows nothing of alerts, is not
slowed by them and cannot be broken by them. What each job wants is kept in memory, read from the store once
and again after each change of a definition; a job that wants nothing costs a look into a dictionary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from scheduler.clock import SECOND, Clock, Micros, rfc3339
from scheduler.engine.alerts import (
    TOLD,
    Alert,
    facts_of,
    failed_before,
    hook_for,
    kind_of,
    ping_of,
)
from scheduler.engine.deliveries import Deliveries
from scheduler.engine.eventring import Chunk, Entry, EventRing, Gap
from scheduler.errors import NotFound
from scheduler.metrics import Metrics
from scheduler.model.alerts import Alerts
from scheduler.model.jobs import Job, JobId
from scheduler.model.runs import RunId
from scheduler.store.protocol import Reads
from scheduler.telemetry import Event, Logger, told

FLUSH: Final[Micros] = 5 * SECOND
"""How long a stop waits for notices on their way."""

_PAGE: Final = 50
_HISTORY: Final = 50
"""Rows that are looked at for the end before this one; skips in a row are one row."""

_DEFINED: Final = frozenset({Event.JOB_ADDED, Event.JOB_CHANGED, Event.JOB_REMOVED})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wish:
    """Who is to be told of a job, and whom its commands run as."""

    alerts: Alerts
    user: str | None


class Alerting:
    """What is told to the world outside; made before the first event, run beside the engine."""

    def __init__(
        self,
        *,
        ring: EventRing,
        reads: Reads,
        deliveries: Deliveries,
        clock: Clock,
        log: Logger,
        metrics: Metrics,
    ) -> None:
        self._ring = ring
        self._reads = reads
        self._deliveries = deliveries
        self._clock = clock
        self._log = log
        self._metrics = metrics
        self._wishes: dict[JobId, _Wish] = {}
        self._changing: set[object] = set()
        """Jobs whose definition has changed, until it has been read again."""
        self._known_until = 0
        self._position: str | None = ring.last_id

    @property
    def watched(self) -> list[JobId]:
        """Jobs that somebody wants to hear of when they are overdue."""
        return [job for job, wish in self._wishes.items() if wish.alerts.on_overdue is not None]

    async def run(self) -> None:
        """Follows until the ring is closed and everything in it was seen."""
        while True:
            try:
                await self._load()
                if await self._follow():
                    return
            except Exception as error:  # noqa: BLE001 - alerts may fail, they may not stay away
                self._log.error(
                    Event.ALERT_UNDELIVERED,
                    message=f"following failed, it begins anew: {error!r}",
                    exc_info=error,
                )
            await self._clock.sleep(SECOND)

    async def close(self) -> None:
        """What was put on its way had a few seconds to arrive."""
        await self._deliveries.close(FLUSH)

    async def _load(self) -> None:
        """What every job wants is known."""
        self._known_until = int(self._ring.last_id.rpartition("-")[2])
        self._wishes.clear()
        after: JobId | None = None
        while page := await self._reads.telling_jobs(after=after, limit=_PAGE):
            for job in page:
                self._know(job)
            after = page[-1].id
            await self._clock.sleep(0)

    async def _follow(self) -> bool:
        """True: the daemon stops. False: events have passed unseen, what jobs want is to be read again."""
        async for got in self._ring.follow(self._position, wants=self._concerns):
            if isinstance(got, Chunk):
                for entry in got.entries:
                    self._position = self._ring.id_of(entry.number)
                    await self._guarded(entry)
                self._position = got.until
                continue
            if got is Gap.CLOSED:
                return True
            self._position = self._ring.last_id
            self._log.warning(
                Event.ALERT_UNDELIVERED,
                message="more happened at once than could be followed: some transitions were told to nobody",
            )
            return False
        return False

    def _concerns(self, event: Event, fields: Mapping[str, object]) -> bool:
        """Somebody may want to hear of it, or what a job wants has changed: most runs concern nobody."""
        job = fields.get("job")
        if event in _DEFINED:
            self._changing.add(job)
            return True
        return event in TOLD and (job in self._wishes or job in self._changing)

    async def _guarded(self, entry: Entry) -> None:
        """The entry is dealt with; a fault in it is told and stays alone."""
        try:
            await self._take(entry)
        except Exception as error:  # noqa: BLE001 - the next entry has nothing to do with it
            self._log.error(
                Event.ALERT_UNDELIVERED,
                job=entry.fields.get("job"),
                message=f"it was not told: {error!r}",
                exc_info=error,
            )

    async def _take(self, entry: Entry) -> None:
        job = JobId(str(entry.fields.get("job")))
        if entry.event in _DEFINED:
            if entry.number > self._known_until:
                await self._read_again(job)
            self._changing.discard(job)
            return
        wish = self._wishes.get(job)
        if wish is not None:
            await self._tell(entry, job, wish)

    async def _tell(self, entry: Entry, job: JobId, wish: _Wish) -> None:
        ping = ping_of(entry.event, job, entry.fields, wish.alerts)
        if ping is not None:
            self._deliveries.put(ping)
        was_failing = wish.alerts.on_recovery is not None and await self._was_failing(entry)
        kind = kind_of(entry.event, entry.fields, wish.alerts, was_failing=was_failing)
        hook = None if kind is None else hook_for(kind, wish.alerts)
        if kind is not None and hook is not None:
            facts = facts_of(kind, entry.event, job, rfc3339(entry.at) or "", told(entry.fields))
            self._deliveries.put(Alert(job=job, kind=kind, hook=hook, facts=facts, user=wish.user))

    async def _was_failing(self, entry: Entry) -> bool:
        """The success that this entry tells of came after a failure."""
        if entry.event is not Event.RUN_SUCCEEDED:
            return False
        try:
            run = await self._reads.run(RunId(str(entry.fields.get("run_id"))))
        except NotFound:
            return False
        attempts = await self._reads.attempts(run.id)
        earlier = await self._reads.runs(before=run.seq, limit=_HISTORY, job=run.job)
        return failed_before(run, attempts, earlier)

    async def _read_again(self, job_id: JobId) -> None:
        self._wishes.pop(job_id, None)
        try:
            self._know((await self._reads.job(job_id)).job)
        except NotFound:
            self._metrics.job_removed(job_id)

    def _know(self, job: Job) -> None:
        definition = job.definition
        if job.removed_at is None and definition.alerts.tells_anything:
            self._wishes[job.id] = _Wish(alerts=definition.alerts, user=definition.user)
