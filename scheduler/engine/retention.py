"""The daemon's care for its store: history that nobody keeps goes, with its output, and room is given back.

All in small steps that wait for their turn at the store, so that nothing else waits long for one of them. A
look takes a bounded amount; a long backlog is worked off over several, and the walk over the jobs goes on
where the look before it ended.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from scheduler.clock import Clock, Micros
from scheduler.errors import StoreUnavailable
from scheduler.model.jobs import Retention
from scheduler.model.runs import RunId
from scheduler.store.protocol import Store
from scheduler.telemetry import Event, Logger

SLICE: Final = 100
"""Runs in one step."""

_ROWS: Final = 1_000
"""Items or entries of the audit in one step."""

_STEPS_A_LOOK: Final = 100
LARGE_LOG: Final = 256 << 20
"""Bytes of write-ahead log at which somebody is told: a reader keeps it from being written back."""


class RetentionWatch:
    """Prunes what is not kept.

    Args:
        runs_per_job: executed runs that stay of a job which does not say it itself; None = all.
        age: how long history stays; None = for ever.
        remove_output: takes the output of a run off the disk.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        log: Logger,
        *,
        runs_per_job: int | None,
        age: Micros | None,
        remove_output: Callable[[RunId], Awaitable[None]],
    ) -> None:
        self._store = store
        self._clock = clock
        self._log = log
        self._runs_per_job = runs_per_job
        self._age = age
        self._remove_output = remove_output
        self._after = ""
        self._told = False

    async def look(self) -> None:
        """A step nearer to what is kept; a store that cannot commit has it at the next look."""
        self._look_at_log()
        before = None if self._age is None else self._clock.now() - self._age
        try:
            await self._clear()
            await self._prune(Retention(runs_per_job=self._runs_per_job, before=before))
            await self._prune_records(before)
            await self._give_back()
        except StoreUnavailable:
            return

    async def _prune(self, kept: Retention) -> None:
        """The next stretch of jobs has no more history than it keeps."""
        for _ in range(_STEPS_A_LOOK):
            runs, after = await self._store.surplus(kept, after=self._after, limit=SLICE)
            if runs:
                await self._store.prune(runs)
                await self._clear()
            self._after = after or ""
            if after is None:
                return

    async def _clear(self) -> None:
        """Nothing is left of runs that have left the history, unless they have very many items."""
        for _ in range(_STEPS_A_LOOK):
            runs = await self._store.pruned(limit=SLICE)
            if not runs:
                return
            for run in runs:
                await self._remove_output(run)
            await self._store.clear(runs, limit=_ROWS)

    async def _prune_records(self, before: Micros | None) -> None:
        for _ in range(_STEPS_A_LOOK):
            if await self._store.prune_records(before, limit=_ROWS) < _ROWS:
                return

    async def _give_back(self) -> None:
        for _ in range(_STEPS_A_LOOK):
            if not await self._store.give_back():
                return

    def _look_at_log(self) -> None:
        """A log that a reader keeps from being written back was told, once."""
        size = self._store.log_size()
        if size < LARGE_LOG:
            self._told = False
        elif not self._told:
            self._told = True
            self._log.warning(
                Event.STORE_LOG_GREW,
                bytes=size,
                message=f"the store's write-ahead log has {size >> 20} MiB: something reads the store for"
                " long (an open sqlite3 shell?); it shrinks by itself when that ends",
            )
