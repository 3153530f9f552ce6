"""Items inside a transaction: the list, frozen once it is whole, and the sums that follow its items.

Begins stand in `beginning`, outcomes in `ending`, an operator's word in `settling`. All of them change the
sums on the run's row and in `spend` in the transaction that changes the items, through `Sums`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from scheduler.clock import Micros, from_micros
from scheduler.errors import Conflict, Invalid
from scheduler.model.items import ItemCounts
from scheduler.model.jobs import JobId
from scheduler.model.runs import RunId
from scheduler.model.zones import load_zone
from scheduler.store.rows import Row
from scheduler.store.transaction import Transaction
from scheduler.store.values import ItemSlice


def clear_items(tx: Transaction, run_id: RunId, claim: int, limit: int) -> bool:
    """A slice of an unfinished list is gone; True: nothing of it is left."""
    return tx.execute("clear_items", run=run_id, claim=claim, limit=limit) < limit


def put_items(tx: Transaction, piece: ItemSlice) -> None:
    """The slice is part of the list.

    Raises:
        Invalid: a key stands twice; both places are named.
        Conflict: the claim moved on, or the list is whole already.
    """
    rows = [[item.index, item.key, item.payload] for item in piece.items]
    text = json.dumps(rows, ensure_ascii=False)
    written = tx.execute("put_items", run=piece.run_id, claim=piece.claim, rows=text)
    if written == len(rows):
        return
    twice = _twice(tx, piece)
    if twice:
        raise Invalid(
            f"keys stand twice in the list: {'; '.join(twice[:10])}", hint="give each item its own key"
        )
    raise Conflict(f"the list of run {piece.run_id} is not this claim's to write")


def _twice(tx: Transaction, piece: ItemSlice) -> list[str]:
    keys = json.dumps([item.key for item in piece.items], ensure_ascii=False)
    first = {row["key"]: row["seq"] for row in tx.all("items_of_keys", run=piece.run_id, keys=keys)}
    return [
        f"{item.key} (items {first[item.key]} and {item.index})"
        for item in piece.items
        if first.get(item.key, item.index) != item.index
    ]


def complete_items(tx: Transaction, run_id: RunId, claim: int, total: int) -> None:
    """The list is whole and frozen.

    Raises:
        Conflict: the claim moved on, or rows are missing.
    """
    if tx.execute("complete_items", run=run_id, claim=claim, total=total) != 1:
        raise Conflict(f"the list of run {run_id} is not this claim's to complete")


def counts_of(row: Row) -> ItemCounts:
    """The counts in a row of `item_counts`."""
    begun = row["done"] + row["failed"] + row["unknown"] + row["running"]
    return ItemCounts(
        total=row["total"],
        done=row["done"],
        failed=row["failed"],
        unknown=row["unknown"],
        running=row["running"],
        in_a_row=row["in_a_row"],
        spent=row["spent"],
        chosen=row["total"] - begun if row["chosen"] is None else row["chosen"],
    )


def item_counts(tx: Transaction, run_id: RunId) -> ItemCounts | None:
    """How the items of a run stand; None where it has no whole list."""
    row = tx.one("item_counts", run=run_id)
    return None if row is None else counts_of(row)


@dataclass(slots=True)
class Sums:
    """By how much the sums of a run change, collected item by item and written once.

    Attributes:
        spent: in millionths; `by_day` says on which days of the job's zone.
        in_a_row: how many items have failed since the last done one; None = as before.
    """

    done: int = 0
    failed: int = 0
    unknown: int = 0
    spent: int = 0
    in_a_row: int | None = None
    by_day: dict[str, int] | None = None

    def spend(self, amount: int, day: str) -> None:
        """The items cost so much more (or less) on this day."""
        if amount:
            self.spent += amount
            self.by_day = self.by_day or {}
            self.by_day[day] = self.by_day.get(day, 0) + amount

    def write(self, tx: Transaction, run: RunId, job: JobId) -> None:
        """The sums on the run's row and of the days have changed."""
        tx.execute(
            "count_items",
            run=run,
            done=self.done,
            failed=self.failed,
            unknown=self.unknown,
            in_a_row=self.in_a_row,
            spent=self.spent,
            now=tx.now,
        )
        for day, amount in (self.by_day or {}).items():
            tx.execute("count_spend", job=job, day=day, amount=amount)


def day_of(instant: Micros, timezone: str) -> str:
    """The date of the instant in the zone, as ISO 8601 text."""
    return from_micros(instant, load_zone(timezone).info).date().isoformat()
