"""The units of isolated runs: found after a restart, ended where nobody wants them, forgotten when done.

Of a run that was never isolated there is no file, and nothing is asked of the service manager.
"""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import Final

from scheduler.clock import Clock, Micros
from scheduler.engine.ports import Undertaker
from scheduler.executors.ending import end_processes
from scheduler.executors.orphans import Orphans
from scheduler.executors.processes import members_of_unit
from scheduler.executors.threads import NoThread, off_loop
from scheduler.executors.unit_files import Kept, UnitFolder, UnitName
from scheduler.executors.unit_manager import ManagerFailed, Scope, Shown, UnitManager, own_scope
from scheduler.model.runs import Run

_LOG: Final = logging.getLogger("scheduler.units")


def may_be_taken_back(shown: Shown | None, kept: Kept | None) -> bool:
    """There is a run to go on with, or its outcome to be had. Pure.

    A word of the end is believed also where the manager has forgotten the unit, as it has after a boot.
    """
    if kept is not None and kept.is_over:
        return True
    return shown is not None and (kept is not None or shown.is_active)


def make_units(place: Path, store_id: str, clock: Clock) -> Units:
    """The units of that store, with their files in `place`, under the manager that this process may use."""
    scope = own_scope()
    manager = UnitManager(scope) if isinstance(scope, Scope) else None
    return Units(UnitFolder(place), store_id, manager, orphans=Orphans(store_id, clock), clock=clock)


class Units:
    """Every unit of one store's runs. Fulfils `engine.ports.Undertaker` and `engine.ports.UnitDesk`.

    Args:
        folder: the files of the units.
        store_id: of the store that the runs are recorded in; another store's units are never touched.
        manager: None: none may be asked, so no unit can be started, nor taken back.
        orphans: ends the processes of runs without a unit.
    """

    def __init__(
        self,
        folder: UnitFolder,
        store_id: str,
        manager: UnitManager | None,
        *,
        orphans: Undertaker,
        clock: Clock,
    ) -> None:
        self.folder = folder
        self.manager = manager
        self.store_id = store_id
        self._orphans = orphans
        self._clock = clock

    async def find(self, run: Run) -> int | None:
        names = await self._named(run)
        if self.manager is None or not names:
            return None
        begun = [name for name in names if not await off_loop(partial(self.folder.withdraw, name))]
        known = {shown.name: shown for shown in await self.manager.units(self.store_id, run.id)}
        for name in sorted(begun, key=lambda name: name.claim, reverse=True):
            if may_be_taken_back(known.get(name), await off_loop(partial(self.folder.kept, name))):
                return name.claim
        return None

    async def end_leftovers(self, run: Run, grace: Micros) -> bool:
        if not await self._orphans.end_leftovers(run, grace):
            return False
        ended = [await self._end(name, grace) for name in await self._named(run)]
        return all(ended)

    async def started(self) -> list[tuple[str, int]]:
        return [(name.run_id, name.claim) for name in await self._all()]

    async def end(self, run_id: str, claim: int, grace: Micros) -> bool:
        name = UnitName(store_id=self.store_id, run_id=run_id, claim=claim)
        living = await off_loop(lambda: members_of_unit(name.service))
        await self._end(name, grace)
        return bool(living)

    async def look(self, name: UnitName) -> Shown | None:
        """What the manager knows of the unit now.

        Raises:
            ManagerFailed: it does not say.
        """
        if self.manager is None:
            return None
        shown = await self.manager.units(self.store_id, name.run_id)
        return next((one for one in shown if one.name == name), None)

    async def collect(self, name: UnitName) -> None:
        """Manager and disk forget the unit; where one does not, the next start tries again. Never raises."""
        try:
            if self.manager is not None:
                await self.manager.collect(name)
            await off_loop(lambda: self.folder.forget(name))
        except (ManagerFailed, NoThread) as error:
            _LOG.warning("unit %s is not collected yet: %s", name.service, error)

    async def _end(self, name: UnitName, grace: Micros) -> bool:
        """Nothing runs in the unit, nor will; it is forgotten."""
        await off_loop(lambda: self.folder.withdraw(name))
        if not await end_processes(lambda: members_of_unit(name.service), clock=self._clock, grace=grace):
            return False
        await self.collect(name)
        return True

    async def _named(self, run: Run) -> list[UnitName]:
        found = await off_loop(lambda: self.folder.units(run.id))
        return [name for name in found if name.store_id == self.store_id and name.claim <= run.claim]

    async def _all(self) -> set[UnitName]:
        """Those with a file, and those that were started on this folder, not on that of a copied store."""
        named = {name for name in await off_loop(self.folder.units) if name.store_id == self.store_id}
        if self.manager is None:
            return named
        try:
            shown = await self.manager.units(self.store_id)
        except ManagerFailed as error:
            _LOG.warning("units of earlier runs are not looked for: %s", error)
            return named
        return named | {one.name for one in shown if f" {self.folder.place} " in one.order}
