"""The daemon's care for its store: history that nobody keeps goes, with its output, and room is given back.

All in small steps that wait for their turn at the store, so that nothing else waits long for one of them.

A look takes a bounded amount; a long backlog is worked off over several. It looks at the jobs that the
history has new rows of since the look before, so what it costs follows from what ran, not from how many jobs
there are; and at a few of all the others in turn, whose rows grow old, or whose definition keeps less now.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from scheduler.clock import Clock, Micros
from scheduler.errors import StoreUnavailable
from scheduler.model.jobs import JobId, Retention
from scheduler.model.runs import RunId
from scheduler.store.protocol import Store
from scheduler.telemetry import Event, Logger

SLICE: Final = 100
"""Runs in one step."""

_ROWS: Final = 1_000
"""Items or entries of the audit in one step."""

_STEPS_A_LOOK: Final = 2_000
_STEPS_A_WALK: Final = 20
"""Of these on jobs that need not have run; a step looks at 50 of them."""

_JOBS_AT_ONCE: Final = 50
LARGE_LOG: Final = 256 << 20
"""Bytes of write-ahead log at which somebody is told: a reader keeps it from being written back."""


class RetentionWatch:
    """Prunes what is not kept.

    Args:
        runs_per_job: executed runs that stay of a job which does not say it itself; None = all.
        age: how long history stays; None = for ever.
        remove_outputs: takes the output of runs off the disk.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        log: Logger,
        *,
        runs_per_job: int | None,
        age: Micros | None,
        remove_outputs: Callable[[Sequence[RunId]], Awaitable[None]],
    ) -> None:
        self._store = store
        self._clock = clock
        self._log = log
        self._runs_per_job = runs_per_job
        self._age = age
        self._remove_outputs = remove_outputs
        self._after = ""
        self._seen: int | None = None
        self._steps = 0
        self._told = False

    async def look(self) -> None:
        """A step nearer to what is kept; a store that cannot commit has it at the next look."""
        self._look_at_log()
        before = None if self._age is None else self._clock.now() - self._age
        kept = Retention(runs_per_job=self._runs_per_job, before=before)
        self._steps = _STEPS_A_LOOK
        try:
            await self._clear()
            await self._prune_what_ran(kept)
            await self._prune_in_turn(kept)
            await self._prune_records(before)
            await self._give_back()
        except StoreUnavailable:
            return

    async def _prune_what_ran(self, kept: Retention) -> None:
        """Jobs with new rows since the last look have no more history than they keep."""
        if self._seen is None:  # what was before is the walk's
            self._seen = await self._store.newest_run()
        while self._steps > 0:
            jobs, until = await self._store.ran_since(self._seen, limit=_ROWS)
            for start in range(0, len(jobs), _JOBS_AT_ONCE):
                await self._prune_jobs(kept, jobs[start : start + _JOBS_AT_ONCE])
            if until == self._seen or self._steps <= 0:
                return
            self._seen = until

    async def _prune_jobs(self, kept: Retention, jobs: Sequence[JobId]) -> None:
        while self._steps > 0:
            self._steps -= 1
            runs = await self._store.surplus_of(kept, jobs, limit=SLICE)
            await self._prune(runs)
            if len(runs) < SLICE:
                return

    async def _prune_in_turn(self, kept: Retention) -> None:
        """The next stretch of all jobs has no more history than it keeps."""
        idle = _STEPS_A_WALK
        while self._steps > 0 and idle > 0:
            self._steps -= 1
            runs, after = await self._store.surplus(kept, after=self._after, limit=SLICE)
            await self._prune(runs)
            idle -= not runs  # a backlog is worked off at once, a walk that finds nothing takes its time
            self._after = after or ""
            if after is None:
                return

    async def _prune(self, runs: Sequence[RunId]) -> None:
        if runs:
            await self._store.prune(runs)
            await self._clear()

    async def _clear(self) -> None:
        """Nothing is left of runs that have left the history, unless they have very many items."""
        for _ in range(_STEPS_A_LOOK):
            runs = await self._store.pruned(limit=SLICE)
            if not runs:
                return
            await self._remove_outputs(runs)
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
