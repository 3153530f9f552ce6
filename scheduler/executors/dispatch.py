"""The executor that the engine is given: sends each attempt to the one for its kind of action."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import assert_never

from scheduler.engine.ports import AttemptHooks, Execution, Executor
from scheduler.errors import SpawnFailed
from scheduler.executors.command import CommandExecutor
from scheduler.executors.output import Output
from scheduler.executors.python import PythonExecutor
from scheduler.executors.spawn import Spawner
from scheduler.executors.surroundings import Surroundings
from scheduler.executors.unit_command import UnitExecutor
from scheduler.executors.units import Units
from scheduler.model.jobs import CommandAction, JobDefinition, PythonAction, ShellAction
from scheduler.model.runs import Grant


class Executors:
    """Starts attempts of every kind. Fulfils `engine.ports.Executor`.

    Make it early in the life of the process: the progress pipe gets the lowest descriptor free now.

    Args:
        units: of attempts that have one of their own; None: none can be started.

    Attributes:
        around: what every attempt is given.
    """

    def __init__(
        self, around: Surroundings, spawner: Spawner | None = None, units: Units | None = None
    ) -> None:
        self.around = around
        self._units = units
        self._isolated = None if units is None else UnitExecutor(around, units)
        self._spawner = spawner or Spawner()
        self._commands = CommandExecutor(around, self._spawner)
        self._handlers = PythonExecutor(around, self._spawner)

    async def start(self, grant: Grant, hooks: AttemptHooks) -> Execution:
        action = grant.definition.action
        if grant.unit_claim is not None or grant.definition.isolate == "unit":
            if self._isolated is None:
                raise SpawnFailed("no units can be started here")
            return await self._isolated.start(grant, hooks)
        match action:
            case CommandAction() | ShellAction():
                return await self._commands.start(grant, hooks)
            case PythonAction():
                return await self._handlers.start(grant, hooks)
            case _:
                assert_never(action)

    def with_output(self, output: Callable[[Grant], Output]) -> Executors:
        """The same, with the output of every attempt going where `output` says."""
        return Executors(replace(self.around, output=output), self._spawner, self._units)

    async def prepared(self, grant: Grant) -> Executor:
        """An executor for many attempts of this grant's action, whose handler is imported once.

        Raises:
            SpawnFailed: it cannot be; HandlerBroken where its handler cannot be imported or called.
        """
        if isinstance(grant.definition.action, PythonAction):
            return await self._handlers.prepared(grant)
        return self._commands

    async def check(self, definition: JobDefinition) -> None:
        """A broken action could be started again.

        Raises:
            SpawnFailed: it could not; HandlerBroken where a handler cannot be imported or called.
        """
        await self._handlers.check(definition)

    def close(self) -> None:
        """Nothing can be started any more; what runs goes on."""
        self._spawner.close()
