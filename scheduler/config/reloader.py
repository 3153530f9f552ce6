"""A reload: the job files read again, what changed applied in one transaction, all of it told.

At the start of the daemon the same happens, so that a change made while it was down is an edit like any
other. A pause is never lifted by it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol

from scheduler.config.jobdirs import load_job_dirs
from scheduler.config.reload import Changes, diff, new_ids
from scheduler.config.settings import Settings
from scheduler.errors import Fault, SchedulerError
from scheduler.store.protocol import Store
from scheduler.store.values import ChangeKind, DefinitionChange, Operated, Peer
from scheduler.telemetry import Event, Logger

_TOLD_AT_ONCE: Final = 50
"""Changes that are told before others have their turn on the loop (I15)."""


class TellChange(Protocol):
    """Tells of one changed definition and lets the engine look again."""

    def __call__(self, kind: ChangeKind, done: Operated, peer: Peer) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Reloaded:
    """What came of a reload: what was applied, and what is wrong with the files now."""

    changes: Changes
    faults: tuple[Fault, ...]


class Reloader:
    """Brings the store into line with the job files.

    Args:
        breathe: lets others have their turn on the loop.
    """

    def __init__(
        self,
        *,
        store: Store,
        settings: Settings,
        tell: TellChange,
        log: Logger,
        refuse: Callable[[], None],
        breathe: Callable[[], Awaitable[None]],
    ) -> None:
        self._store = store
        self._settings = settings
        self._tell = tell
        self._log = log
        self._refuse = refuse
        self._breathe = breathe
        self._one_at_a_time = asyncio.Lock()
        self.faults: tuple[Fault, ...] = ()

    async def reload(self, peer: Peer) -> Reloaded:
        """Valid changes are in force; files with faults kept their jobs and are told.

        Raises:
            Draining: the daemon is stopping and takes no new definitions.
        """
        self._refuse()
        async with self._one_at_a_time:
            return await self._reload(peer)

    async def _reload(self, peer: Peer) -> Reloaded:
        loaded = await asyncio.to_thread(load_job_dirs, self._settings.jobs, self._settings)
        live = await self._store.file_definitions()
        taken = await self._store.api_ids(await asyncio.to_thread(new_ids, live, loaded))
        changes = await asyncio.to_thread(diff, live, loaded, api_ids=taken)
        refused = await self._apply(await asyncio.to_thread(changes.for_store, peer), peer)
        self.faults = (*changes.faults, *refused)
        for fault in self.faults:
            self._log.error(
                Event.CONFIG_REJECTED,
                file=fault.file,
                line=fault.line,
                job=fault.job,
                key=fault.key,
                message=fault.message,
            )
        self._log.info(
            Event.CONFIG_RELOADED,
            added=len(changes.added),
            changed=len(changes.changed),
            removed=len(changes.removed),
            unchanged=len(changes.unchanged),
            kept=len(changes.kept),
            faults=len(self.faults),
        )
        return Reloaded(changes=changes, faults=self.faults)

    async def _apply(self, changes: list[DefinitionChange], peer: Peer) -> list[Fault]:
        """All changes in one transaction; what the store refused is a fault of its job."""
        if not changes:
            return []
        refused: list[Fault] = []
        results = await self._store.apply(changes)
        for number, (change, done) in enumerate(zip(changes, results, strict=True), start=1):
            if number % _TOLD_AT_ONCE == 0:
                await self._breathe()
            if isinstance(done, SchedulerError):
                refused.append(Fault(message=done.message, file=change.origin_file, job=change.job_id))
            else:
                self._tell(change.kind, done, peer)
        return refused
