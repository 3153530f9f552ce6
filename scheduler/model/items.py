"""The words for the items of a batch run: states, the frozen item, counts, and the row.

An item is frozen when its list is: its key, its place and its value never change afterwards, so that the
same key always stands for the same call. Nothing here reads a clock or a file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final

from scheduler.clock import Micros
from scheduler.errors import Invalid
from scheduler.model.jobs import JsonValue

LARGEST_ITEM: Final = 64 * 1024
"""Bytes of an item as JSON: it travels in an environment variable."""

LONGEST_KEY: Final = 512
MOST_ITEMS: Final = 1_000_000
MONEY: Final = 1_000_000
"""Costs are kept as whole millionths of the unit, so that sums are exact in any order."""

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class ItemState(StrEnum):
    """Where an item stands."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """Begun, and we do not know how it ended: owner died, timed out, cancelled, killed."""
    SKIPPED = "skipped"


class Chosen(IntEnum):
    """Which of its items a run has to begin. `retry` only says so; the worker turns failed items pending."""

    ALL = 0
    """Every pending one."""
    MARKED = 1
    """Only those pending ones that have a `ready_at`."""
    FAILED_TOO = 2
    """As `ALL`, but the failed ones are to be turned pending first."""
    UNMARKING = 3
    """As `MARKING`, but what is marked now is to lose its mark first."""
    MARKING = 4
    """As `MARKED`, but the failed ones are to be turned pending first, with a mark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenItem:
    """An item as it was listed.

    Attributes:
        index: its place in the list, from 0.
        payload: the value as compact JSON.
    """

    index: int
    key: str
    payload: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunItem:
    """An item whose begin has durably committed: it may be called now (I10).

    Attributes:
        nonce: names this begin; the outcome is written under it and no other.
        attempts: begins so far, this one included.
        tries: failures charged to the item's `retry` before this begin.
    """

    index: int
    key: str
    payload: str
    nonce: str
    attempts: int
    tries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """An item's row.

    Attributes:
        ready_at: when a pending item may be tried again; 0 = it was not begun yet, or waits for nothing.
        result: JSON text of what the call returned, or None.
        cost: what its calls have cost, estimates included, in millionths of the unit.
    """

    index: int
    key: str
    state: ItemState
    attempts: int
    ready_at: Micros
    error: str | None
    result: str | None
    cost: int
    started_at: Micros | None
    finished_at: Micros | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemCounts:
    """The items of a run by state, all read in one statement.

    Attributes:
        total: 0 or more once the list is whole.
        chosen: pending items that this run still has to begin (all of them, unless `retry` chose some).
        in_a_row: items that failed since the last one that was done.
        spent: what the items have cost, estimates included, in millionths of the unit.
    """

    total: int
    done: int = 0
    failed: int = 0
    unknown: int = 0
    skipped: int = 0
    running: int = 0
    chosen: int = 0
    in_a_row: int = 0
    spent: int = 0

    @property
    def ended(self) -> int:
        """Items that are done, failed or in doubt."""
        return self.done + self.failed + self.unknown

    @property
    def pending(self) -> int:
        """Items that were not begun, or wait to be begun again."""
        return self.total - self.done - self.failed - self.unknown - self.skipped - self.running


def freeze(index: int, value: JsonValue) -> FrozenItem:
    """The item at this place of its list.

    Its key is its `key` where it is an object that has one, else the text itself, else a number's JSON,
    else its place.

    Raises:
        Invalid: it is too large, or its key is no key; the message names the item.
    """
    payload = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    key = _key_of(index, value)
    if not key.strip() or len(key) > LONGEST_KEY or _CONTROL.search(key):
        raise Invalid(
            f"item {index} has no usable key ({key[:40]!a}): a key is 1 to {LONGEST_KEY} characters without"
            " control characters"
        )
    size = len(payload.encode("utf-8", "replace"))
    if size > LARGEST_ITEM:
        raise Invalid(
            f"item {key[:80]} has {size} bytes, an item has {LARGEST_ITEM} at most",
            hint="keep what is large in a file and let the item name the file",
        )
    return FrozenItem(index=index, key=key, payload=payload)


def _key_of(index: int, value: JsonValue) -> str:
    if isinstance(value, Mapping):
        value = value.get("key", index)
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, (list, dict)):
        return str(index)
    return json.dumps(value)
