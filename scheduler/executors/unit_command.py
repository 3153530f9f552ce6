"""Commands with `isolate = "unit"`: each run in a transient unit of its own, which outlives the daemon.

The unit's main process is a keeper (`unit_keeper`) that starts the command as `command` would and does the
daemon's part beside it. What is looked up before the start (user, directory, program, variables) is looked up
here, so that what cannot be started is told in the same words. The unit is outside of the daemon's sandbox.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from typing import Final

from scheduler.clock import MILLISECOND, SECOND, Micros
from scheduler.engine.ports import AttemptHooks, Execution
from scheduler.errors import SpawnFailed
from scheduler.executors.command import argv_of, prepare
from scheduler.executors.processes import units_around
from scheduler.executors.surroundings import Surroundings
from scheduler.executors.threads import NoThread, off_loop
from scheduler.executors.unit_execution import UnitExecution
from scheduler.executors.unit_files import Kept, Order, UnitName
from scheduler.executors.unit_manager import ManagerFailed, UnitManager, own_scope
from scheduler.executors.units import Units
from scheduler.model.runs import Grant

_STOP_MORE: Final[Micros] = 5 * SECOND
"""Beyond `kill_grace`: the keeper notes the end before the manager loses patience."""

_FIRST_WORD: Final = 20.0
"""Seconds that a keeper which has its order may take to say what became of it."""

_LOOK_AGAIN: Final[Micros] = 20 * MILLISECOND
_ANY_DESCRIPTOR: Final = 3
"""The keeper writes the true number of the progress pipe over it."""


class UnitExecutor:
    """Starts command and shell actions in units, and takes up those that go on. Fulfils `Executor`."""

    def __init__(self, around: Surroundings, units: Units) -> None:
        self._around = around
        self._units = units

    async def start(self, grant: Grant, hooks: AttemptHooks) -> Execution:
        if grant.unit_claim is not None:
            return await self._attach(grant, hooks, grant.unit_claim)
        manager = self._units.manager
        if manager is None:
            raise SpawnFailed(f'isolate = "unit" {own_scope()}')
        name = UnitName(store_id=self._units.store_id, run_id=grant.run.id, claim=grant.run.claim)
        try:
            await off_loop(lambda: self._put_order(grant, name))
            await self._begin(grant, name, manager)
        except (NoThread, OSError) as error:
            raise SpawnFailed(f"its unit cannot be started: {error}") from error
        return await self._follow(name, hooks)

    async def _begin(self, grant: Grant, name: UnitName, manager: UnitManager) -> None:
        """The unit runs, or its keeper has said why not.

        Raises:
            SpawnFailed: nothing of it runs, nor will.
        """
        folder = self._units.folder
        argv = (sys.executable, "-P", "-m", "scheduler.executors.unit_keeper", str(folder.place), str(name))
        try:
            await manager.start(
                name,
                argv,
                description=f"Run {grant.run.id} of job {grant.run.job}",
                stop_timeout=grant.definition.kill_grace + _STOP_MORE,
                before=_own_unit(),
            )
        except ManagerFailed as error:
            if not await off_loop(lambda: folder.withdraw(name)):
                return  # it was begun all the same: what the keeper says counts
            await self._units.collect(name)
            raise SpawnFailed(f"systemd does not start its unit: {error.message}") from error

    async def _attach(self, grant: Grant, hooks: AttemptHooks, claim: int) -> Execution:
        name = UnitName(store_id=self._units.store_id, run_id=grant.run.id, claim=claim)
        with contextlib.suppress(SpawnFailed, NoThread):
            # Secrets of the `env_file` must not be printed by this daemon either.
            await off_loop(lambda: self._launch(grant))
        return await self._follow(name, hooks)

    async def _follow(self, name: UnitName, hooks: AttemptHooks) -> Execution:
        kept = await self._first_word(name)
        if kept is None or kept.refused is not None:
            await self._units.end(name.run_id, name.claim, 0)
            raise SpawnFailed("the keeper of its unit gave no sign" if kept is None else kept.refused or "")
        return UnitExecution(
            name,
            kept,
            folder=self._units.folder,
            hooks=hooks,
            clock=self._around.clock,
            collect=self._units.collect,
            look=self._units.look,
        )

    async def _first_word(self, name: UnitName) -> Kept | None:
        """The keeper's word on what became of the command; None: it gives none."""
        try:
            async with asyncio.timeout(_FIRST_WORD):
                while True:
                    kept = await off_loop(lambda: self._units.folder.kept(name))
                    if kept is not None and (kept.command is not None or kept.is_over):
                        return kept
                    await self._around.clock.sleep(_LOOK_AGAIN)
        except (TimeoutError, NoThread):
            return None

    def _put_order(self, grant: Grant, name: UnitName) -> None:
        self._units.folder.put_order(name, self._launch(grant))

    def _launch(self, grant: Grant) -> Order:
        around = self._around
        argv = argv_of(grant.definition.action)
        launch, account = prepare(grant, argv, around, progress_fd=_ANY_DESCRIPTOR)
        return Order(
            program=launch.program,
            argv=launch.argv,
            environment=launch.environment,
            cwd=launch.cwd,
            stdin=launch.stdin,
            identity=launch.identity,
            who=account.who,
            output_dir=str(around.output_dir),
            output_limit=around.output_limit,
        )


def _own_unit() -> str | None:
    """The service that this daemon runs in; None where it runs in none."""
    return next((unit for unit in reversed(units_around(os.getpid())) if unit.endswith(".service")), None)
