"""An operator's word on items inside a transaction: what one was, which of them a run begins again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final

from scheduler.errors import AlreadyRunning, Conflict, NotFound
from scheduler.model.items import Chosen, Item, ItemCounts, ItemState
from scheduler.model.jobs import BatchPolicy
from scheduler.model.runs import Run, RunId, RunReason, RunState, require_transition
from scheduler.rules.batch import AGAIN, BatchEnd, batch_end, resting, retold, tally
from scheduler.store.items import Sums, item_counts
from scheduler.store.rows import item_of, job_of, run_of
from scheduler.store.transaction import Transaction
from scheduler.store.values import SettleItem

_NEIGHBOURS: Final = 50

_FOLLOWING: Final = {
    Chosen.UNMARKING: Chosen.MARKING,
    Chosen.MARKING: Chosen.MARKED,
    Chosen.FAILED_TOO: Chosen.ALL,
}
"""What a choice is once its first step is done."""

_ENDED = (
    RunState.PARTIAL,
    RunState.FAILED,
    RunState.CANCELLED,
    RunState.CRASHED,
    RunState.INTERRUPTED,
)


def settle_item(tx: Transaction, request: SettleItem) -> tuple[Item, Run]:
    """The item is as the operator says; a run that ended is judged anew where nothing is left to run.

    Raises:
        NotFound: no such run, or no such item in its list.
        Conflict: the item is done, or at work.
    """
    run = _batch_run(tx, request.run_id)
    row = tx.one("item_of_key", run=run.id, key=request.key)
    if row is None:
        raise NotFound(f"run {run.id} has no item {request.key}", hint=_meant(tx, run, request.key))
    before = ItemState(row["state"])
    if before is request.state:
        return item_of(row), run
    note = f"settled by {request.peer}"
    written = tx.execute(
        "settle_item",
        run=run.id,
        seq=row["seq"],
        seen_state=before,
        state=request.state,
        ready_at=AGAIN if request.state is ItemState.PENDING else 0,
        error=note if request.state is ItemState.FAILED else None,
        now=tx.now,
    )
    if written != 1:
        raise Conflict(_unsettleable(request.key, before))
    sums = Sums()
    for sum_of, state in (
        ("done", ItemState.DONE),
        ("failed", ItemState.FAILED),
        ("unknown", ItemState.UNKNOWN),
    ):
        setattr(sums, sum_of, (request.state is state) - (before is state))
    sums.write(tx, run.id, run.job)
    detail = {"item": request.key, "state": request.state, "was": before}
    tx.record("settle-item", request.peer, job=run.job, run=run.id, detail=json.dumps(detail))
    settle_ended_run(tx, run.id)
    after = tx.one("item_of_key", run=run.id, key=request.key)
    assert after is not None  # noqa: S101 - written a moment ago
    return item_of(after), _batch_run(tx, run.id)


def _meant(tx: Transaction, run: Run, key: str) -> str:
    """The key that was likely meant, looked for among those that begin alike; else where they are listed."""
    known: list[str] = []
    for start in (key, key[: len(key) // 2]):
        for query in ("keys_after", "keys_before"):
            known += [row["key"] for row in tx.all(query, run=run.id, key=start, limit=_NEIGHBOURS)]
    near = get_close_matches(key, known, n=1)
    return f"did you mean {near[0]}?" if near else f"`schedctl items {run.id}` lists its items"


def _unsettleable(key: str, state: ItemState) -> str:
    if state is ItemState.DONE:
        return f"item {key} is done: a done item is never run again"
    return f"item {key} is {state}: its worker says what becomes of it"


def _batch_run(tx: Transaction, run_id: RunId) -> Run:
    row = tx.one("live_run", id=run_id)
    if row is None:
        raise NotFound(f"there is no run {run_id}")
    run = run_of(row)
    if run.items_total is None:
        raise Conflict(f"run {run_id} has no items: it is no batch, or its list was never whole")
    return run


def settle_ended_run(tx: Transaction, run_id: RunId) -> None:
    """A run that ended is what its items say, once nothing of them is left to run.

    While something is, its state stays; what is said of it follows its items.
    """
    row = tx.one("live_run", id=run_id)
    counts = item_counts(tx, run_id)
    if row is None or counts is None or row["state"] not in _ENDED or counts.running:
        return
    run = run_of(row)
    job_row = tx.one("live_job", id=run.job)
    policy = job_of(job_row).definition.batch if job_row is not None else None
    end = _at_rest(policy, counts, run) if counts.pending else batch_end(policy, counts)
    if end is None or (end.state, end.reason, end.message) == (run.state, run.reason, run.message):
        return
    if end.state is not run.state:
        require_transition(run.state, end.state)
    tx.execute(
        "settle_run",
        run=run.id,
        seen_state=run.state,
        seen_claim=run.claim,
        state=end.state,
        reason=end.reason,
        message=end.message,
    )


def _at_rest(policy: BatchPolicy | None, counts: ItemCounts, run: Run) -> BatchEnd:
    """The run in its state, with what is left to run; another cause than its items stays what ended it."""
    before = RunReason(run.reason) if run.reason is not None else None
    if run.state is not RunState.PARTIAL and before is not RunReason.ITEMS_FAILED:
        told = None if run.message is None else retold(run.message, counts)
        return BatchEnd(state=run.state, reason=before, message=told)
    reason, message = resting(policy, counts, before)
    return BatchEnd(state=run.state, reason=reason, message=message)


def choose_items(tx: Transaction, run: Run, wanted: Sequence[str] | None, *, failed_only: bool) -> int:
    """The items that a retried run begins: all that is not done, only the failed ones, or those named.

    Unknown ones are never among them: an operator settles those first.

    Returns:
        How many there are to begin.

    Raises:
        AlreadyRunning: the run is live or queued: its items are being run.
        Conflict: there is nothing to begin, or a named item cannot be.
        NotFound: a named item is not in the list.
    """
    counts = item_counts(tx, run.id)
    if counts is None:
        return 0
    if run.state not in (*_ENDED, RunState.SUCCEEDED):
        raise AlreadyRunning(f"run {run.id} is {run.state}: its items are being run", run_id=run.id)
    named_failed = 0
    if wanted is not None:
        tx.execute("choose_none", run=run.id)
        named_failed, number, chosen = _choose_keys(tx, run, wanted), len(set(wanted)), Chosen.MARKED
    elif failed_only:
        number, chosen = run.progress.failed or 0, Chosen.UNMARKING
    else:
        number, chosen = counts.failed + counts.pending, Chosen.FAILED_TOO
    if number == 0:
        hint = (
            "settle the unknown items first: schedctl item RUN KEY --done|--retry|--fail"
            if counts.unknown
            else None
        )
        raise Conflict(f"run {run.id} has nothing to retry: {tally(counts)}", hint=hint)
    tx.execute("choose_items", run=run.id, failed=named_failed, chosen=chosen)
    return number


def follow_choice(tx: Transaction, run_id: RunId, claim: int, limit: int) -> bool:
    """A slice of the failed items that `retry` chose is pending; True: nothing is left to be done first.

    Raises:
        Conflict: the claim moved on.
    """
    row = tx.one("live_run", id=run_id)
    if row is None or row["state"] != RunState.RUNNING or row["claim"] != claim:
        raise Conflict(f"run {run_id} is not this claim's to prepare")
    chosen = Chosen(row["items_chosen"])
    following = _FOLLOWING.get(chosen)
    if following is None:
        return True
    statement = "unmark_items" if chosen is Chosen.UNMARKING else "choose_failed"
    changed = tx.execute(statement, run=run_id, claim=claim, limit=limit)
    if statement == "choose_failed" and changed:
        sums = Sums()
        sums.failed = -changed
        sums.write(tx, run_id, row["job"])
    if changed < limit:
        tx.execute("follow_choice", run=run_id, claim=claim, seen_chosen=chosen, next=following)
    return False


def _choose_keys(tx: Transaction, run: Run, wanted: Sequence[str]) -> int:
    """The named items are pending; how many of them had failed."""
    found = {key: tx.one("item_of_key", run=run.id, key=key) for key in wanted}
    gone = [key for key, row in found.items() if row is None]
    if gone:
        message = f"run {run.id} has no item {', '.join(gone[:10])}: its list was frozen when it began"
        raise NotFound(message, hint=_meant(tx, run, gone[0]))
    states = {key: ItemState(row["state"]) for key, row in found.items() if row is not None}
    refused = [
        f"{key} is {state}"
        for key, state in states.items()
        if state not in (ItemState.FAILED, ItemState.PENDING)
    ]
    if refused:
        raise Conflict(
            f"not to be retried: {', '.join(refused[:10])}",
            hint="a done item is never run again; an unknown one is settled first: schedctl item",
        )
    written = tx.execute("choose_keys", run=run.id, keys=json.dumps(list(states), ensure_ascii=False))
    if written != len(states):
        raise Conflict(f"items of run {run.id} changed while they were chosen", hint="look again")
    return sum(state is ItemState.FAILED for state in states.values())
