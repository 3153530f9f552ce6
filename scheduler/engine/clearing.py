"""Before a run is attempted again, nothing of its earlier attempts is left (I11).

Recovery and a cut end what they know of. This is for what they left alone on purpose: the background
processes of a main process that ended by itself, when an operator retries the run later.
"""

from __future__ import annotations

from dataclasses import replace

from scheduler.engine.ports import AttemptHooks, Execution, Executor, Undertaker
from scheduler.errors import SpawnFailed
from scheduler.model.runs import Grant


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
