"""Taking runs back that went on without a daemon, in units of their own.

A recovery asks here first. Where the run's unit goes on, or has ended and tells how, the run is claimed
anew, from `recovering`, and its worker follows the unit instead of starting anything. Else it is recovered
like any other.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

from scheduler.clock import SECOND, Micros
from scheduler.engine.claims import Claims
from scheduler.engine.ports import UnitDesk
from scheduler.engine.runner import Runner
from scheduler.errors import NotFound, SchedulerError
from scheduler.metrics import Metrics
from scheduler.model.runs import Run, RunId, RunState
from scheduler.store.protocol import Store
from scheduler.store.values import Claimant
from scheduler.telemetry import Event, Logger

_GRACE: Final[Micros] = 10 * SECOND
"""What a unit gets whose run is not known to be under way."""


class Reattacher:
    """Gives runs in recovery back to a worker."""

    def __init__(
        self,
        store: Store,
        claimant: Claimant,
        claims: Claims,
        runner: Runner,
        units: UnitDesk,
        log: Logger,
        metrics: Metrics,
    ) -> None:
        self._store = store
        self._claimant = claimant
        self._claims = claims
        self._runner = runner
        self._units = units
        self._log = log
        self._metrics = metrics
        self._clearing: asyncio.Task[None] | None = None

    async def take_back(self, run: Run) -> bool:
        """The run has a worker again, or is left for the next start; False: there is nothing to go on with.

        Raises:
            SchedulerError: it is not known what became of its unit; nothing was done.
        """
        unit_claim = await self._units.find(run)
        if unit_claim is None:
            return False
        self._claims.expect(run.id)
        try:
            grant = await self._store.reattach(self._claimant, run.id, run.claim)
        except BaseException:
            self._claims.forget(run.id)
            raise
        if grant is None:
            self._claims.forget(run.id)
            return True
        self._metrics.recovered(grant.run.state)
        self._log.info(
            Event.RUN_RECOVERED,
            job=run.job,
            run_id=run.id,
            claim=grant.run.claim,
            state=grant.run.state,
            message="its unit is followed again",
        )
        self._runner.start(replace(grant, unit_claim=unit_claim))
        return True

    def start(self) -> None:
        """Units whose runs are over, or were never recorded, are being ended; nobody waits for that."""
        self._clearing = asyncio.create_task(self._clear(), name="unknown-units")

    async def stop(self) -> None:
        """What was not ended yet is left for the next start; safe to call before `start`."""
        if self._clearing is not None:
            self._clearing.cancel()
            await asyncio.gather(self._clearing, return_exceptions=True)

    async def _clear(self) -> None:
        try:
            await self._end_unknown()
        except SchedulerError as error:
            self._log.warning(
                Event.RUN_RECOVERED, message=f"unknown units are looked for at the next start: {error}"
            )

    async def _end_unknown(self) -> None:
        for run_id, claim in await self._units.started():
            if await self._is_under_way(run_id, claim):
                continue
            if await self._units.end(run_id, claim, _GRACE):
                message = "a unit was ended whose run is not under way"
                self._log.warning(Event.RUN_RECOVERED, run_id=run_id, claim=claim, message=message)

    async def _is_under_way(self, run_id: str, claim: int) -> bool:
        """The unit is of the run's claim in force, or of one that it was taken up from.

        One row is one moment: between two looks at many rows it could have gone from one state to another.
        """
        try:
            run = await self._store.run(RunId(run_id))
        except NotFound:
            return False
        return run.state in (RunState.RUNNING, RunState.RECOVERING) and claim <= run.claim
