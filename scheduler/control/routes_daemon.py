"""The daemon itself: how it is, what a schedule would mean, reading the job files again, probes, metrics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, Final, Protocol

from fastapi import APIRouter, Query
from fastapi.responses import Response

from scheduler.clock import SECOND, Clock
from scheduler.control import models as api
from scheduler.control.asking import Administering, look
from scheduler.control.firetimes import times_after
from scheduler.control.keys import needing_none
from scheduler.control.ports import Operations, ParseDefinition, StatusFacts
from scheduler.control.requests import Nothing, PreviewBody
from scheduler.control.views import Views, reload_view, told
from scheduler.errors import Draining, Invalid, SchedulerError, StoreUnavailable
from scheduler.metrics import CONTENT_TYPE
from scheduler.model.jobs import JobId, Pause
from scheduler.model.triggers import Delay
from scheduler.store.protocol import Reads
from scheduler.store.values import Counts

SILENCE: Final = 90 * SECOND
"""A daemon whose last tick or renewal is older is not healthy: both come at least every 30 seconds."""

_TRIGGERS: Final = ("cron", "every", "at", "delay")
_PREVIEW: Final = JobId("preview")
_NOTHING: Final = Nothing()


class Unhealthy(SchedulerError):
    """The daemon does not do its work as it should."""

    code = "unhealthy"
    status = 503


class OpenMetricsResponse(Response):
    """The text of /metrics."""

    media_type = CONTENT_TYPE


class Needs(Protocol):
    """What these routes take from the services."""

    @property
    def operations(self) -> Operations: ...
    @property
    def reads(self) -> Reads: ...
    @property
    def parse_definition(self) -> ParseDefinition: ...
    @property
    def render_metrics(self) -> Callable[[], bytes]: ...
    @property
    def clock(self) -> Clock: ...


class DaemonRoutes:
    """/v1/status, /v1/preview, /v1/reload, /healthz, /readyz, /metrics."""

    def __init__(self, needs: Needs, views: Views) -> None:
        self._needs = needs
        self._views = views

    def register(self, router: APIRouter) -> None:
        """The routes are part of the router."""
        router.get("/v1/status")(self.status)
        router.post("/v1/preview")(self.preview)
        router.post("/v1/reload")(self.reload)
        router.get("/healthz")(self.healthz)
        router.get("/readyz")(self.readyz)
        router.get("/metrics", response_class=OpenMetricsResponse)(self.metrics)

    async def status(self, _: Annotated[Nothing, Query()]) -> api.Status:
        """How the daemon is; it answers also while its store does not."""
        await look(self._needs.operations)
        facts = self._needs.operations.status()
        counts: Counts | None
        paused: Pause | None = None
        try:
            counts = await self._needs.reads.counts()
            paused = await self._needs.reads.global_pause()
        except StoreUnavailable:
            counts = None
        ok = counts is not None and trouble_of(facts) is None
        return self._views.status(facts, counts, paused, self._needs.clock.now(), ok=ok)

    async def preview(self, _: Annotated[Nothing, Query()], body: PreviewBody) -> api.FireTimes:
        """What a trigger means, before it is used."""
        given = {key: value for key in _TRIGGERS if (value := getattr(body, key)) is not None}
        if not given:
            raise Invalid(f"a trigger is missing: write one of {', '.join(_TRIGGERS)}")
        table: dict[str, Any] = {**given, "shell": ":"}
        if body.timezone is not None:
            table["timezone"] = body.timezone
        try:
            definition = self._needs.parse_definition(_PREVIEW, table)
        except Invalid as error:  # of a job that nobody wrote: its name would only confuse
            faults = [replace(fault, job=None) for fault in error.faults]
            raise Invalid(error.message, faults=faults, hint=error.hint) from error
        after = self._needs.clock.now() if body.after is None else body.after
        # What comes after the first fire of a delay depends on when its run ends.
        count = 1 if isinstance(definition.schedule.trigger, Delay) else body.n
        async with self._views.one_list:
            times = await times_after(definition.schedule, after, count, self._breathe)
        zone = self._views.zone_of(definition.timezone)
        return api.FireTimes(items=[told(at, zone) for at in times])

    async def reload(
        self, _: Annotated[Nothing, Query()], peer: Administering, _body: Nothing = _NOTHING
    ) -> api.Reload:
        """The job files are read again; a file with faults keeps its old jobs."""
        return reload_view(await self._needs.operations.reload(needing_none(peer)))

    async def healthz(self, _: Annotated[Nothing, Query()]) -> api.Healthy:
        """The daemon does its work."""
        trouble = trouble_of(self._needs.operations.status())
        if trouble is not None:
            raise trouble
        return api.Healthy()

    async def readyz(self, _: Annotated[Nothing, Query()]) -> api.Healthy:
        """The daemon takes work."""
        facts = self._needs.operations.status()
        if facts.draining:
            raise Draining("the daemon is stopping")
        trouble = trouble_of(facts)
        if trouble is not None:
            raise trouble
        await self._needs.reads.counts()
        return api.Healthy()

    async def metrics(self, _: Annotated[Nothing, Query()]) -> Response:
        """Everything that is counted, as OpenMetrics text."""
        return OpenMetricsResponse(self._needs.render_metrics())

    async def _breathe(self) -> None:
        await self._needs.clock.sleep(0)


def trouble_of(facts: StatusFacts) -> SchedulerError | None:
    """What keeps the daemon from its work, or None."""
    if not facts.store_ok:
        return StoreUnavailable("the store cannot be written now")
    for what, age in (("tick", facts.last_tick_age), ("lease renewal", facts.last_renewal_age)):
        if age is not None and age > SILENCE:
            return Unhealthy(f"the last {what} was {age // SECOND} s ago")
    return None
