"""From the bare facts of an item's end to the outcome that is written. Pure."""

from __future__ import annotations

import json
from enum import StrEnum
from signal import Signals

from scheduler.engine.ports import Ended, EndKind
from scheduler.model.items import MONEY, BegunItem, ItemState
from scheduler.model.jobs import BatchPolicy, JobDefinition
from scheduler.model.runs import RunId
from scheduler.rules.batch import ItemNext, after_cut, after_failure
from scheduler.store.values import ItemOutcome


class ItemCut(StrEnum):
    """Why we ended an item's call; the words are what its row says."""

    TIMEOUT = "ran longer than item_timeout; whether the call had its effect is not known"
    STOPPED = "was stopped with its run; whether the call had its effect is not known"


def outcome_of(
    run_id: RunId,
    item: BegunItem,
    definition: JobDefinition,
    ended: Ended,
    cut: ItemCut | None,
    *,
    cost: float | None,
    spread: float,
) -> ItemOutcome:
    """What came of a call.

    Args:
        cut: why we ended it, or None if it ended by itself.
        cost: what the call told that it cost, or None.
        spread: in [0, 1), for the backoff.
    """
    policy = definition.batch or BatchPolicy()
    following, error = _judged(policy, item, definition, ended, cut, spread)
    return ItemOutcome(
        run_id=run_id,
        index=item.index,
        nonce=item.nonce,
        state=following.state,
        result=_result(ended) if following.state is ItemState.DONE else None,
        error=error,
        wait=following.wait,
        charged=following.charged,
        cost=None if cost is None else round(cost * MONEY),
    )


def not_called(
    run_id: RunId, item: BegunItem, definition: JobDefinition, message: str, *, broken: bool, spread: float
) -> ItemOutcome:
    """The outcome of an item whose call never began; it cost nothing, and a broken handler charges no try."""
    if broken:
        following = ItemNext(state=ItemState.PENDING)
    else:
        following = after_failure(definition.batch or BatchPolicy(), item.tries, None, spread)
    return ItemOutcome(
        run_id=run_id,
        index=item.index,
        nonce=item.nonce,
        state=following.state,
        error=message,
        wait=following.wait,
        charged=following.charged,
        cost=0,
    )


def _judged(
    policy: BatchPolicy,
    item: BegunItem,
    definition: JobDefinition,
    ended: Ended,
    cut: ItemCut | None,
    spread: float,
) -> tuple[ItemNext, str | None]:
    if cut is not None:
        return after_cut(policy, item.tries), cut.value
    match ended.kind:
        case EndKind.RETURNED:
            return ItemNext(state=ItemState.DONE), None
        case EndKind.EXITED if ended.exit_code is None:
            return after_cut(policy, item.tries), ended.message
        case EndKind.EXITED if ended.exit_code in definition.success_exit_codes:
            return ItemNext(state=ItemState.DONE), None
        case EndKind.EXITED:
            said = ended.message or f"exited with code {ended.exit_code}"
            return after_failure(policy, item.tries, ended.exit_code, spread), said
        case EndKind.SIGNALLED:
            said = f"killed by {_name(ended.signal)}; whether the call had its effect is not known"
            return after_cut(policy, item.tries), said
        case EndKind.RETRY_ASKED:
            return ItemNext(state=ItemState.PENDING, wait=ended.retry_after or 0), ended.message
        case _:
            said = ended.message or "the handler cancelled itself"
            return after_failure(policy, item.tries, ended.exit_code, spread), said


def _result(ended: Ended) -> str | None:
    return None if ended.result is None else json.dumps(ended.result, ensure_ascii=False)


def _name(number: int | None) -> str:
    try:
        return Signals(number or 0).name
    except ValueError:
        return f"signal {number}"
