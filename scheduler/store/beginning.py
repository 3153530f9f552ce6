"""BEGIN_ITEM inside a transaction: the intent is durable before the call (I10).

The claim and the operator's wish are judged in the statement that begins an item; thresholds and budget
from rows read in the same transaction.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from secrets import token_hex
from typing import Final

from scheduler.clock import Micros
from scheduler.model.items import BegunItem, ItemCounts
from scheduler.model.jobs import Job, PauseMode, PauseReason
from scheduler.model.runs import RunId, RunState, Wish
from scheduler.rules.batch import affordable, budget_words, failed_enough
from scheduler.store.items import Sums, day_of, item_counts
from scheduler.store.rows import Row, job_of
from scheduler.store.transaction import Transaction
from scheduler.store.values import BeginItems, Begun, Claimant, NoBegin, own_peer

_BY: Final = "schedulerd"
_STOP_OF: Final = {
    Wish.HOLD: NoBegin.HELD,
    Wish.FREEZE: NoBegin.FROZEN,
    Wish.CANCEL: NoBegin.CANCELLED,
}


def begin_items(tx: Transaction, who: Claimant, requests: Sequence[BeginItems]) -> list[Begun]:
    """BEGIN_ITEM for each request: as many as claim, operator, thresholds and budget allow.

    # INVARIANT: I12, a draining daemon begins no item.
    """
    if who.draining:
        return [Begun(stop=NoBegin.DRAINING) for _ in requests]
    return [_begin(tx, request) for request in requests]


def _begin(tx: Transaction, request: BeginItems) -> Begun:
    run = tx.one("live_run", id=request.run_id)
    counts = item_counts(tx, request.run_id)
    if run is None or counts is None:
        return Begun(stop=NoBegin.FENCED)
    return replace(_begin_of(tx, request, run, counts), counts=counts)


def _begin_of(tx: Transaction, request: BeginItems, run: Row, counts: ItemCounts) -> Begun:
    job = _job_of(tx, run)
    policy = job.definition.batch
    enough = failed_enough(policy, counts) if policy is not None else None
    if enough is not None:
        return Begun(stop=NoBegin.FAILED_ENOUGH, message=enough)
    purse = _purse_of(tx, job, run)
    limit = purse.allows(request.limit)
    begun = _begin_each(tx, request, _candidates(tx, run, limit), purse)
    if len(begun) == request.limit:
        return Begun(items=tuple(begun))
    if limit == 0 and counts.chosen and _may_begin(tx, request):
        return _unaffordable(tx, purse, counts)
    return _explained(tx, request, begun)


def _job_of(tx: Transaction, run: Row) -> Job:
    row = tx.one("live_job", id=run["job"])
    assert row is not None  # noqa: S101 - a job's row outlives its runs
    return job_of(row)


@dataclass(frozen=True, slots=True)
class _Purse:
    """What the job may still spend for this run, today."""

    job: Job
    day: str
    run_spent: int
    day_spent: int

    def allows(self, wanted: int) -> int:
        """How many of so many items may be begun."""
        budget = self.job.definition.budget
        if budget is None:
            return wanted
        return affordable(budget, wanted, run_spent=self.run_spent, day_spent=self.day_spent)

    @property
    def reserve(self) -> int:
        """What one begin reserves."""
        budget = self.job.definition.budget
        return 0 if budget is None else budget.cost_estimate

    @property
    def words(self) -> str:
        """Which cap is in the way."""
        budget = self.job.definition.budget
        return budget_words(budget, run_spent=self.run_spent, day_spent=self.day_spent) if budget else ""


def _purse_of(tx: Transaction, job: Job, run: Row) -> _Purse:
    if job.definition.budget is None:
        return _Purse(job, "", 0, 0)
    day = day_of(tx.now, job.definition.timezone)
    return _Purse(job, day, run["spent"], tx.value("spent_on", job=job.id, day=day) or 0)


def _candidates(tx: Transaction, run: Row, limit: int) -> list[int]:
    """Places in the list: items that wait for another try first, then fresh ones, unless some were chosen."""
    if limit == 0:
        return []
    due = [row["seq"] for row in tx.all("due_items", run=run["id"], now=tx.now, limit=limit)]
    if run["items_chosen"] or len(due) == limit:
        return due
    return due + [row["seq"] for row in tx.all("fresh_items", run=run["id"], limit=limit - len(due))]


def _begin_each(
    tx: Transaction, request: BeginItems, candidates: Sequence[int], purse: _Purse
) -> list[BegunItem]:
    if not candidates:
        return []
    rows = tx.all(
        "begin_items",
        run=request.run_id,
        places=json.dumps(candidates),
        claim=request.claim,
        nonce=token_hex(8),
        reserve=purse.reserve,
        now=tx.now,
    )
    place_of = {seq: place for place, seq in enumerate(candidates)}
    begun = [
        BegunItem(
            index=row["seq"],
            key=row["key"],
            payload=row["payload"],
            nonce=row["nonce"],
            attempts=row["attempts"],
            tries=row["tries"],
        )
        for row in sorted(rows, key=lambda row: place_of[row["seq"]])
    ]
    if begun and purse.reserve:
        sums = Sums()
        sums.spend(len(begun) * purse.reserve, purse.day)
        sums.write(tx, request.run_id, purse.job.id)
    return begun


def _may_begin(tx: Transaction, request: BeginItems) -> bool:
    """Nothing but money is in the way."""
    row = tx.one("live_run", id=request.run_id)
    return (
        row is not None
        and row["state"] == RunState.RUNNING
        and row["claim"] == request.claim
        and row["wish"] == Wish.RUN
    )


def _unaffordable(tx: Transaction, purse: _Purse, counts: ItemCounts) -> Begun:
    """Items under way may turn out cheaper than estimated; once none is, the cap pauses the job."""
    if counts.running:
        return Begun(stop=NoBegin.WAITING)
    paused = _pause_for_budget(tx, purse.job, purse.words)
    return Begun(stop=NoBegin.BUDGET, message=purse.words, paused=paused)


def _pause_for_budget(tx: Transaction, job: Job, note: str) -> Job:
    """The job is paused by the daemon, through the operator's statements; its runs get the wish to hold."""
    written = tx.execute(
        "pause_job",
        id=job.id,
        reason=PauseReason.BUDGET,
        mode=PauseMode.ITEM,
        by=_BY,
        note=note,
        now=tx.now,
        until=None,
        revision=tx.next_revision(),
        seen_revision=job.revision,
    )
    if written != 1:
        tx.execute("add_pause_evidence", id=job.id, note=note, seen_revision=job.revision)
    tx.record("pause", own_peer(), job=job.id, detail=json.dumps({"mode": PauseMode.ITEM, "reason": note}))
    for row in tx.all("unfinished_runs", job=job.id):
        if row["state"] in (RunState.RUNNING, RunState.RECOVERING):
            tx.execute("wish_run", id=row["id"], wish=Wish.HOLD)
    live = tx.one("live_job", id=job.id)
    assert live is not None  # noqa: S101 - read a moment ago
    return job_of(live)


def _explained(tx: Transaction, request: BeginItems, begun: list[BegunItem]) -> Begun:
    """Why they are fewer than wanted."""
    run = tx.one("live_run", id=request.run_id)
    if run is None or run["state"] != RunState.RUNNING or run["claim"] != request.claim:
        return Begun(items=tuple(begun), stop=NoBegin.FENCED)
    wish = Wish(run["wish"])
    if wish is not Wish.RUN:
        return Begun(items=tuple(begun), stop=_STOP_OF[wish])
    ready_at: Micros | None = tx.value("next_item_ready", run=RunId(run["id"]), now=tx.now)
    counts = item_counts(tx, request.run_id)
    left = counts is not None and (counts.chosen or counts.running)
    stop = NoBegin.WAITING if left else NoBegin.EMPTY
    return Begun(items=tuple(begun), stop=stop, next_ready_at=ready_at)
