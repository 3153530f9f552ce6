"""One item's call: started, watched, and ended with everything that it has started."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from scheduler.clock import SECOND, Clock, Micros
from scheduler.engine.ports import AttemptHooks, Ended, Execution, Executor, Heeds, ProgressReport
from scheduler.errors import HandlerBroken, SpawnFailed
from scheduler.executors.item_outcome import ItemCut, not_called, outcome_of
from scheduler.model.items import BegunItem, ItemState
from scheduler.model.runs import Grant, Progress, Wish
from scheduler.store.values import ItemOutcome

_STUCK_AGAIN: Final[Micros] = 5 * SECOND


class ItemCall:
    """The call of a begun item. Fulfils `engine.ports.AttemptHooks` for its execution.

    Attributes:
        item: durably begun before this was made.
        deadline: when its `item_timeout` is over, on the batch's stopwatch.
        broken: why the handler cannot be called at all, or None.
        child: pid and start ticks of its main process, once it has one.
    """

    def __init__(
        self,
        grant: Grant,
        item: BegunItem,
        *,
        executor: Executor,
        hooks: AttemptHooks,
        clock: Clock,
        deadline: Micros,
        on_end: Callable[[ItemCall, ItemOutcome], None],
    ) -> None:
        self.item = item
        self.deadline = deadline
        self.broken: str | None = None
        self.child: tuple[int, int] | None = None
        run = grant.run
        if run.attempt != item.attempts:
            run = replace(run, attempt=item.attempts)
        self._grant = Grant(run=run, definition=grant.definition, item=item)
        self._executor = executor
        self._hooks = hooks
        self._clock = clock
        self._on_end = on_end
        self._cost: float | None = None
        self._cut: ItemCut | None = None
        self._grace: Micros = 0
        self._ends: list[asyncio.Task[None]] = []
        self._execution: Execution | None = None
        self._task = asyncio.create_task(self._run(), name=f"item:{grant.run.id}:{item.key[:40]}")

    # --- what the batch tells it ---

    def cut(self, cause: ItemCut, grace: Micros) -> None:
        """The call is ended; a shorter grace than before hurries it."""
        first = self._cut is None
        if first:
            self._cut = cause
        if self._execution is None:
            self._grace = grace
        elif first or grace < self._grace:
            self._grace = grace
            self._ends.append(asyncio.create_task(self._end(self._execution)))

    @property
    def is_cut(self) -> bool:
        """It was told to end."""
        return self._cut is not None

    def heed(self, wish: Wish) -> None:
        """`freeze` and `run` reach the call, where it can be frozen."""
        if isinstance(self._execution, Heeds):
            self._execution.heed(wish)

    # --- what its execution tells (AttemptHooks) ---

    def child_started(self, pid: int, start_ticks: int) -> None:
        """One of many: the run's row names no child of a batch, its environment does."""
        self.child = (pid, start_ticks)

    def progressed(self, report: ProgressReport) -> None:
        if report.cost is not None:
            self._cost = report.cost
        message = report.progress.message
        told = None if message is None else f"{self.item.key}: {message}"
        self._hooks.progressed(ProgressReport(progress=Progress(message=told)))

    def output_seen(self, size: int) -> None:
        self._hooks.output_seen(size)

    def wish(self) -> str:
        return self._hooks.wish()

    # --- its life ---

    async def _run(self) -> None:
        outcome = await self._outcome()
        self._on_end(self, outcome)

    async def _outcome(self) -> ItemOutcome:
        grant, spread = self._grant, random.random()  # noqa: S311 - spreads retries
        try:
            execution = await self._executor.start(grant, self)
        except SpawnFailed as error:
            broken = isinstance(error, HandlerBroken)
            self.broken = error.message if broken else None
            return not_called(
                grant.run.id, self.item, grant.definition, error.message, broken=broken, spread=spread
            )
        self._execution = execution
        if self._hooks.wish() == Wish.FREEZE:
            self.heed(Wish.FREEZE)
        ended = await self._supervise(execution)
        outcome = outcome_of(
            grant.run.id, self.item, grant.definition, ended, self._cut, cost=self._cost, spread=spread
        )
        if outcome.state is ItemState.PENDING and self._cut is None:
            await self._end(execution)  # nothing of this try runs beside the next one (I11)
        return outcome

    async def _supervise(self, execution: Execution) -> Ended:
        """The end of the call, by itself or because it was cut; then nothing of it runs any more."""
        if self._cut is not None:  # while it was started
            await self._end(execution)
        ended = await execution.wait()
        for ending in self._ends:
            await ending
        return ended

    async def _end(self, execution: Execution) -> None:
        """Nothing of the call runs any more; what does not end is ended again and again."""
        while not await execution.end(
            self._grace if self._cut is not None else self._grant.definition.kill_grace
        ):
            await self._clock.sleep(_STUCK_AGAIN)
