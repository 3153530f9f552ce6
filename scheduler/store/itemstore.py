"""The verbs of a batch's worker on SQLite: wiring; bodies in `items`, `beginning`, `ending`, `settling`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from scheduler.clock import Micros
from scheduler.model.runs import RunId
from scheduler.store import beginning, ending, items, settling
from scheduler.store.transaction import Transaction
from scheduler.store.values import BeginItems, Begun, Claimant, ItemOutcome, ItemSlice

T = TypeVar("T")


class _HasVerb(Protocol):
    async def _verb(
        self, work: Callable[[Transaction], T], *, patience: Micros | None = ..., ahead: bool = ...
    ) -> T: ...


class SqliteItemVerbs:
    """`ItemVerbs`, mixed into the store."""

    async def clear_items(self: _HasVerb, run_id: RunId, claim: int, *, limit: int) -> bool:
        return await self._verb(lambda tx: items.clear_items(tx, run_id, claim, limit))

    async def put_items(self: _HasVerb, piece: ItemSlice) -> None:
        await self._verb(lambda tx: items.put_items(tx, piece))

    async def complete_items(self: _HasVerb, run_id: RunId, claim: int, total: int) -> None:
        await self._verb(lambda tx: items.complete_items(tx, run_id, claim, total))

    async def follow_choice(self: _HasVerb, run_id: RunId, claim: int, *, limit: int) -> bool:
        return await self._verb(lambda tx: settling.follow_choice(tx, run_id, claim, limit))

    async def begin_items(self: _HasVerb, who: Claimant, requests: Sequence[BeginItems]) -> list[Begun]:
        return await self._verb(lambda tx: beginning.begin_items(tx, who, requests))

    async def end_items(self: _HasVerb, outcomes: Sequence[ItemOutcome]) -> list[bool]:
        return await self._verb(lambda tx: ending.end_items(tx, outcomes), patience=None, ahead=True)

    async def settle_wedged(self: _HasVerb, run_id: RunId) -> list[str]:
        return await self._verb(lambda tx: ending.settle_wedged(tx, run_id))
