"""Before a run is attempted again, nothing of its earlier attempts is left (I11).

Recovery and a cut end what they know of. This is for what they left alone on purpose: the background
processes of a main process that ended by itself, when an operator retries the run later.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from scheduler.clock import Micros
from scheduler.engine.ports import AttemptHooks, Execution, Executor, Undertaker
from scheduler.errors import SpawnFailed
from scheduler.model.runs import Grant, Run

_REMEMBERED: Final = 1_000


class ClearingExecutor:
    """An `Executor` that ends leftovers of earlier claims first."""

    def __init__(self, executor: Executor, undertaker: Undertaker) -> None:
        self._executor = executor
        self._undertaker = undertaker

    async def start(self, grant: Grant, hooks: AttemptHooks) -> Execution:
        run = grant.run
        if run.claim > 1 and grant.unit_claim is None:
            earlier = replace(run, claim=run.claim - 1, pid=None, pid_ticks=None)
            if not await self._undertaker.end_leftovers(earlier, grant.definition.kill_grace):
                raise SpawnFailed(
                    f"a process of an earlier attempt of run {run.id} could not be ended",
                    hint="end it by hand, then retry the run",
                )
        return await self._executor.start(grant, hooks)


class Remembering:
    """An `Undertaker` that looks once for what another has left.

    Nothing begins under a claim of the past, so what recovery found gone is not looked for when its run
    starts again: hundreds may, and each look goes through all processes.
    """

    def __init__(self, undertaker: Undertaker) -> None:
        self._undertaker = undertaker
        self._cleared: dict[tuple[str, int], None] = {}

    async def end_leftovers(self, run: Run, grace: Micros) -> bool:
        if (run.id, run.claim) in self._cleared:
            return True
        is_cleared = await self._undertaker.end_leftovers(run, grace)
        if is_cleared:
            self._cleared[run.id, run.claim] = None
            if len(self._cleared) > _REMEMBERED:
                del self._cleared[next(iter(self._cleared))]
        return is_cleared
