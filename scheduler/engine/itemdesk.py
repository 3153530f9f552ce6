"""Items between a batch's worker and the store: each begin and outcome durable before it is told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from scheduler.model.items import MONEY, BegunItem, FrozenItem, ItemState
from scheduler.model.jobs import Job
from scheduler.model.runs import Run
from scheduler.store.protocol import ItemVerbs
from scheduler.store.values import BeginItems, Begun, Claimant, ItemOutcome, ItemSlice
from scheduler.telemetry import Event, Logger

_CLEARED_AT_ONCE: Final = 5_000
_CHOSEN_AT_ONCE: Final = 2_000


class StoreDesk:
    """The items of this daemon's batches. Fulfils `engine.ports.ItemDesk`."""

    def __init__(self, store: ItemVerbs, claimant: Claimant, log: Logger) -> None:
        self._store = store
        self._claimant = claimant
        self._log = log

    async def clear(self, run: Run) -> None:
        while not await self._store.clear_items(run.id, run.claim, limit=_CLEARED_AT_ONCE):
            continue

    async def put(self, run: Run, items: Sequence[FrozenItem]) -> None:
        await self._store.put_items(ItemSlice(run_id=run.id, claim=run.claim, items=tuple(items)))

    async def complete(self, run: Run, total: int) -> None:
        await self._store.complete_items(run.id, run.claim, total)

    async def follow_choice(self, run: Run) -> bool:
        return await self._store.follow_choice(run.id, run.claim, limit=_CHOSEN_AT_ONCE)

    async def begin(self, run: Run, limit: int) -> Begun:
        request = BeginItems(run_id=run.id, claim=run.claim, limit=limit)
        begun = (await self._store.begin_items(self._claimant, [request]))[0]
        log = self._log_of(run)
        for item in begun.items:
            log.debug(Event.ITEM_STARTED, item=item.key, index=item.index, item_attempt=item.attempts)
        if begun.paused is not None:
            self._tell_budget(run, begun.paused, begun.message)
        return begun

    async def end(self, run: Run, outcomes: Sequence[tuple[BegunItem, ItemOutcome]]) -> None:
        kept = await self._store.end_items([outcome for _, outcome in outcomes])
        log = self._log_of(run)
        for (item, outcome), was_kept in zip(outcomes, kept, strict=True):
            if was_kept:
                _tell(log, item, outcome)

    def _log_of(self, run: Run) -> Logger:
        """Bound once for a slice of items: an event for each of them costs what it says, and no more."""
        return self._log.bind(job=run.job, run_id=run.id, claim=run.claim)

    def _tell_budget(self, run: Run, job: Job, message: str | None) -> None:
        self._log.warning(Event.BUDGET_REACHED, job=job.id, run_id=run.id, message=message)
        if job.pause is not None:
            self._log.warning(
                Event.JOB_PAUSED, job=job.id, reason=job.pause.reason, by=job.pause.by, message=job.pause.note
            )


def _tell(log: Logger, item: BegunItem, outcome: ItemOutcome) -> None:
    about: dict[str, object] = {"item": item.key, "index": item.index, "item_attempt": item.attempts}
    if outcome.cost:
        about["cost"] = outcome.cost / MONEY
    match outcome.state:
        case ItemState.DONE:
            log.info(Event.ITEM_DONE, **about)
        case ItemState.UNKNOWN:
            log.warning(Event.ITEM_UNKNOWN, **about, message=outcome.error)
        case ItemState.PENDING:
            again = outcome.wait / 1_000_000
            log.info(Event.ITEM_FAILED, **about, message=outcome.error, again_in=again)
        case _:
            log.warning(Event.ITEM_FAILED, **about, message=outcome.error)
