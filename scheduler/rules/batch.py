"""What becomes of items, and of a batch whose attempt came to its end, decided from counts. Pure.

A batch ends when none of its items is left to begin and none is under way; what it is then follows from
how many are done, failed and unknown, and from nothing that anybody remembers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from scheduler.clock import Micros
from scheduler.model.items import ItemCounts, ItemState
from scheduler.model.jobs import BatchPolicy, Budget, UnknownItems
from scheduler.model.runs import RunReason, RunState
from scheduler.rules.retry import backoff, may_retry

AGAIN: Final[Micros] = 1
"""`ready_at` of an item that may be begun again at once; 0 is one that was never begun."""

_LEFT: Final = "left to run"
_SETTLE: Final = "settle the unknown ones: schedctl item RUN KEY --done|--retry|--fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchEnd:
    """What a batch is, once nothing of it is to be begun any more."""

    state: RunState
    reason: RunReason | None
    message: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemNext:
    """What an item is after a begin.

    Attributes:
        wait: how long a pending one waits for its next begin.
        charged: this end counts as one of its tries.
    """

    state: ItemState
    wait: Micros = 0
    charged: bool = False


def after_failure(policy: BatchPolicy, tries: int, exit_code: int | None, spread: float) -> ItemNext:
    """An item that failed: tried again while its retry lasts.

    Args:
        tries: failures charged before this one.
    """
    if may_retry(policy.retry, tries + 1, exit_code):
        wait = backoff(policy.retry, tries + 1, spread)
        return ItemNext(state=ItemState.PENDING, wait=wait, charged=True)
    return ItemNext(state=ItemState.FAILED, charged=True)


def after_cut(policy: BatchPolicy, tries: int) -> ItemNext:
    """An item that was ended by timeout, cancel or signal: the call may have had its effect.

    With `unknown = "retry"` it is repeated under the same key, once at least and as often as `retry` has
    attempts; an item that never ends in time must not be repeated for ever.
    """
    if policy.unknown is UnknownItems.FAIL:
        return ItemNext(state=ItemState.FAILED, charged=True)
    if policy.unknown is UnknownItems.RETRY and tries < max(1, policy.retry.attempts):
        return ItemNext(state=ItemState.PENDING, charged=True)
    return ItemNext(state=ItemState.UNKNOWN)


def after_crash(policy: BatchPolicy | None) -> ItemState:
    """An item whose worker is gone: nobody knows how it ended. None: the job is no batch any more."""
    match policy.unknown if policy is not None else UnknownItems.HOLD:
        case UnknownItems.HOLD:
            return ItemState.UNKNOWN
        case UnknownItems.RETRY:
            return ItemState.PENDING
        case UnknownItems.FAIL:
            return ItemState.FAILED


def failed_enough(policy: BatchPolicy, counts: ItemCounts) -> str | None:
    """Which threshold stops the batch from beginning further items, in words; None if none does."""
    if 0 < policy.max_failed <= counts.failed:
        return f"max_failed = {policy.max_failed} is reached"
    percent = policy.max_failed_percent
    if percent > 0 and counts.failed and counts.failed * 100 >= percent * counts.total:
        return f"max_failed_percent = {percent:g} is reached"
    if 0 < policy.max_consecutive_failed <= counts.in_a_row:
        return f"max_consecutive_failed = {policy.max_consecutive_failed} is reached"
    return None


def batch_end(policy: BatchPolicy | None, counts: ItemCounts) -> BatchEnd | None:
    """What the batch is; None while items are left to begin or under way."""
    stopped = failed_enough(policy, counts) if policy is not None else None
    if stopped is not None and not counts.running:
        message = f"{stopped}: {tally(counts)}"
        return BatchEnd(state=RunState.FAILED, reason=RunReason.ITEMS_FAILED, message=message)
    if counts.chosen or counts.running:
        return None
    if counts.done == counts.total:
        return BatchEnd(state=RunState.SUCCEEDED, reason=None, message=None)
    if counts.unknown:
        message = f"{tally(counts)}; {_SETTLE}"
        return BatchEnd(state=RunState.PARTIAL, reason=RunReason.UNKNOWN_ITEMS, message=message)
    if counts.failed == counts.total:
        return BatchEnd(state=RunState.FAILED, reason=RunReason.ITEMS_FAILED, message=tally(counts))
    reason = RunReason.ITEMS_FAILED if counts.failed else RunReason.CANCELLED
    return BatchEnd(state=RunState.PARTIAL, reason=reason, message=tally(counts))


def resting(
    policy: BatchPolicy | None, counts: ItemCounts, before: RunReason | None
) -> tuple[RunReason | None, str]:
    """Reason and message of a batch that its items had ended, and of which some are to be run after all.

    Its state stays until an operator's `retry`. What was given up is called again only by one who says so,
    hence the hint at `--items` where anything failed.

    Args:
        before: the reason up to now; it stays where neither a failed nor an unknown item gives another.
    """
    stopped = failed_enough(policy, counts) if policy is not None else None
    told = tally(counts, _LEFT)
    if stopped is not None:
        return RunReason.ITEMS_FAILED, f"{stopped}: {told}"
    if counts.unknown:
        return RunReason.UNKNOWN_ITEMS, f"{told}; {_SETTLE}"
    if counts.failed:
        return RunReason.ITEMS_FAILED, f"{told}; schedctl retry RUN --items KEY,... runs those alone"
    reason = RunReason.ITEMS_FAILED if before is RunReason.UNKNOWN_ITEMS else before
    return reason, f"{told}; schedctl retry RUN goes on with it"


def retold(message: str, counts: ItemCounts) -> str:
    """The message of a run that ended, with the tally in it as it is now."""
    old = re.compile(rf"\d+ of {counts.total} done\b")
    return "; ".join(tally(counts, _LEFT) if old.match(part) else part for part in message.split("; "))


def tally(counts: ItemCounts, pending: str = "not started") -> str:
    """`7 of 10 done, 2 failed, 1 not started`; `pending` says what the pending ones are."""
    parts = [f"{counts.done} of {counts.total} done"]
    parts += [f"{counts.failed} failed"] if counts.failed else []
    parts += [f"{counts.unknown} unknown"] if counts.unknown else []
    parts += [f"{counts.pending} {pending}"] if counts.pending else []
    return ", ".join(parts)


def affordable(budget: Budget, wanted: int, *, run_spent: int, day_spent: int) -> int:
    """How many of `wanted` items may be begun: each reserves the estimate, no cap may be passed.

    Without an estimate an item may be begun as long as the cap is not reached.
    """
    for cap, spent in ((budget.per_run, run_spent), (budget.per_day, day_spent)):
        if cap is None:
            continue
        if spent >= cap:
            return 0
        if budget.cost_estimate > 0:
            wanted = min(wanted, (cap - spent) // budget.cost_estimate)
    return wanted


def budget_words(budget: Budget, *, run_spent: int, day_spent: int) -> str:
    """Which cap is in the way, and how much is spent."""
    unit = f" {budget.unit}" if budget.unit else ""
    full = [
        f"budget.{name} = {cap / 1_000_000:g}{unit} is reached: {spent / 1_000_000:g}{unit} spent {what}"
        for name, cap, spent, what in (
            ("per_run", budget.per_run, run_spent, "by this run"),
            ("per_day", budget.per_day, day_spent, "today"),
        )
        if cap is not None and (spent >= cap or spent + budget.cost_estimate > cap)
    ]
    return "; ".join(full)
