"""Broken jobs, looked at again: a handler that can be imported again makes its job whole by itself."""

from __future__ import annotations

from typing import Protocol

from scheduler.errors import HandlerBroken, SpawnFailed
from scheduler.model.jobs import JobDefinition
from scheduler.store.protocol import Store
from scheduler.telemetry import Event, Logger


class Check(Protocol):
    """Tries whether an action could be started, without starting it. Raises HandlerBroken."""

    async def __call__(self, definition: JobDefinition) -> None: ...


class BrokenWatch:
    """Looks at the jobs whose handler could not be imported."""

    def __init__(self, store: Store, check: Check, log: Logger) -> None:
        self._store = store
        self._check = check
        self._log = log

    async def look(self) -> None:
        """Jobs whose handler works again are no longer broken."""
        for job in await self._store.broken_jobs():
            try:
                await self._check(job.definition)
            except (HandlerBroken, SpawnFailed):
                continue
            await self._store.set_problem(job.id, None, None)
            self._log.info(Event.JOB_CHANGED, job=job.id, message="its handler can be imported again")
