"""Items between a batch's worker and the store: each begin and outcome durable before it is told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from scheduler.model.items import BegunItem, FrozenItem, ItemState
from scheduler.model.jobs import Job
from scheduler.model.runs import Run
from scheduler.store.protocol import ItemVerbs
from scheduler.store.values import BeginItems, Begun, Claimant, ItemOutcome, ItemSlice
from scheduler.telemetry import Event, Logger

_CLEARED_AT_ONCE: Final = 5_000


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

    async def begin(self, run: Run, limit: int) -> Begun:
        request = BeginItems(run_id=run.id, claim=run.claim, limit=limit)
        begun = (await self._store.begin_items(self._claimant, [request]))[0]
        for item in begun.items:
            self._log.debug(Event.ITEM_STARTED, **_about(run, item))
        if begun.paused is not None:
            self._tell_budget(run, begun.paused, begun.message)
        return begun

    async def end(self, run: Run, outcomes: Sequence[tuple[BegunItem, ItemOutcome]]) -> None:
        kept = await self._store.end_items([outcome for _, outcome in outcomes])
        for (item, outcome), was_kept in zip(outcomes, kept, strict=True):
            if was_kept:
                self._tell(run, item, outcome)

    def _tell(self, run: Run, item: BegunItem, outcome: ItemOutcome) -> None:
        match outcome.state:
            case ItemState.DONE:
                self._log.info(Event.ITEM_DONE, **_about(run, item))
            case ItemState.UNKNOWN:
                self._log.warning(Event.ITEM_UNKNOWN, **_about(run, item), message=outcome.error)
            case ItemState.PENDING:
                again = outcome.wait / 1_000_000
                self._log.info(Event.ITEM_FAILED, **_about(run, item), message=outcome.error, again_in=again)
            case _:
                self._log.warning(Event.ITEM_FAILED, **_about(run, item), message=outcome.error)

    def _tell_budget(self, run: Run, job: Job, message: str | None) -> None:
        self._log.warning(Event.BUDGET_REACHED, job=job.id, run_id=run.id, message=message)
        if job.pause is not None:
            self._log.warning(
                Event.JOB_PAUSED, job=job.id, reason=job.pause.reason, by=job.pause.by, message=job.pause.note
            )


def _about(run: Run, item: BegunItem) -> dict[str, object]:
    return {
        "job": run.job,
        "run_id": run.id,
        "claim": run.claim,
        "item": item.key,
        "index": item.index,
        "item_attempt": item.attempts,
    }
