"""Runs that wait in the store for a slot: claimed when a tick has seen them, and along with each end.

An end and the claim of what waits for its slot are one commit: the store carries outcomes out first, so a
claim that is asked for beside an outcome finds the slot free. Otherwise each slot would stand empty for a
look at the store and another commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from scheduler.clock import SECOND, Clock
from scheduler.engine.runner import Runner
from scheduler.errors import StoreUnavailable
from scheduler.metrics import Metrics
from scheduler.model.runs import Run
from scheduler.store.protocol import Store
from scheduler.store.values import Claimant
from scheduler.telemetry import Event, Logger

SLICE: Final = 100
"""Due jobs, or waiting runs, in one transaction: more at once cost more each, and hold others longer."""

STEP: Final = 25
"""Runs that are started before the loop is let go: bounds how long it is held (I15)."""

_UNDER_WAY: Final = 2
"""Claims asked for along with ends: one in the transaction that is being written, one for the next."""


class Backlog:
    """What waits, as far as is known, and how it starts.

    Args:
        look: there will be a tick.
        look_later: there will be one after a moment: something went wrong.
    """

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        claimant: Claimant,
        runner: Runner,
        log: Logger,
        metrics: Metrics,
        look: Callable[[], None],
        look_later: Callable[[], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._claimant = claimant
        self._runner = runner
        self._log = log
        self._metrics = metrics
        self._look = look
        self._look_later = look_later
        self._looked_at = clock.monotonic()
        self._claims: set[asyncio.Task[None]] = set()
        self._missed = False
        """A run has ended since, and a claim of its own was not asked for."""
        self.something_waits = True
        self.frees = 0
        """Slots given back so far."""

    def seen(self, *, claimable: bool) -> None:
        """A look at the store, taken just now, says whether anything waits."""
        self.something_waits, self._looked_at = claimable, self._clock.monotonic()

    def ending(self) -> bool:
        """A run is about to give its slot back; whether what waits is claimed in the commit of its end."""
        if not self.something_waits or self._claimant.draining:
            return False
        if len(self._claims) < _UNDER_WAY:
            self._ask()
        else:
            self._missed = True
        return True

    def freed(self, *, claimed_along: bool = False) -> None:
        """A run gave its slot back: there will be a tick if anything may be waiting for one.

        Who makes a run wait wakes us when it has committed, so after a look that found none there is none. A
        caller may have been cancelled in between, so a look is not believed for long.
        """
        self.frees += 1
        if not claimed_along and (self.something_waits or self._is_look_old()):
            self._look()

    async def claim(self) -> bool:
        """Waiting and queued runs that may start are started; True if this look found none.

        A slice that is full of runs whose group has no room hides those behind it, so who started something
        looks again: by then the group counts as full.
        """
        grants, expired = await self._store.claim(self._claimant, limit=SLICE)
        for count, grant in enumerate(grants, start=1):
            self._runner.start(grant)
            if count % STEP == 0:
                await self._clock.sleep(0)
        for run in expired:
            self._tell_expired(run)
        return not grants and not expired

    async def settled(self) -> None:
        """No claim is under way."""
        while self._claims:
            await asyncio.wait(self._claims)

    def _ask(self) -> None:
        task = asyncio.create_task(self._claim_along(), name="claim-along")
        self._claims.add(task)
        task.add_done_callback(self._answered)

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._claims.discard(task)
        if self._missed:
            self._missed = False
            self._ask()

    async def _claim_along(self) -> None:
        try:
            found_none = await self.claim()
        except StoreUnavailable:
            self._look_later()
        except Exception as error:  # noqa: BLE001 - one bad claim must not be the last one
            message = f"a claim failed and is tried again: {error!r}"
            self._log.error(Event.LOOP_BLOCKED, message=message, exc_info=error)
            self._look_later()
        else:
            if found_none and self._is_look_old():
                self._look()  # perhaps nothing waits any more

    def _is_look_old(self) -> bool:
        return self._clock.monotonic() - self._looked_at > SECOND

    def _tell_expired(self, run: Run) -> None:
        self._metrics.skipped("expired")
        self._metrics.job_skipped(run.job, "expired")
        self._log.warning(
            Event.FIRE_SKIPPED, job=run.job, run_id=run.id, fire_time=run.fire_time, reason="expired"
        )
