"""END_ITEM inside a transaction: outcomes are kept under the begin they name; what is lost is told so."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Final

from scheduler.errors import NotFound, SchedulerError
from scheduler.model.items import ItemState
from scheduler.model.jobs import Job
from scheduler.model.runs import Run, RunId, RunState
from scheduler.rules.batch import AGAIN, after_crash
from scheduler.store.items import Sums, day_of
from scheduler.store.rows import Row, job_of
from scheduler.store.settling import settle_ended_run
from scheduler.store.transaction import Transaction
from scheduler.store.values import ItemOutcome

_LOST: Final = "its worker was gone, or was stopped, before its outcome was known"


def end_items(tx: Transaction, outcomes: Sequence[ItemOutcome]) -> list[bool]:
    """Each outcome is on record; False: its begin is not the item's last one, or was settled otherwise."""
    kept = [False] * len(outcomes)
    by_run: dict[RunId, list[int]] = {}
    for place, outcome in enumerate(outcomes):
        by_run.setdefault(outcome.run_id, []).append(place)
    for run_id, places in by_run.items():
        for place, was_kept in zip(
            places, _end_of_run(tx, run_id, [outcomes[p] for p in places]), strict=True
        ):
            kept[place] = was_kept
    return kept


def _end_of_run(tx: Transaction, run_id: RunId, outcomes: Sequence[ItemOutcome]) -> list[bool]:
    run = tx.one("live_run", id=run_id)
    if run is None:
        raise NotFound(f"there is no run {run_id}")
    timezone = _job_of(tx, run).definition.timezone
    sums = Sums(in_a_row=run["items_in_a_row"])
    kept = [False] * len(outcomes)
    for places in _slices(outcomes):
        ended = _end_each(tx, [outcomes[place] for place in places], sums, timezone)
        for place in places:
            kept[place] = outcomes[place].index in ended
    if any(kept):
        sums.write(tx, run_id, run["job"])
        if sums.done:
            tx.execute("forgive_crashes", job=run["job"])
        if run["state"] != RunState.RUNNING:
            settle_ended_run(tx, run_id)
    return kept


def _job_of(tx: Transaction, run: Row) -> Job:
    row = tx.one("live_job", id=run["job"])
    assert row is not None  # noqa: S101 - a job's row outlives its runs
    return job_of(row)


def _slices(outcomes: Sequence[ItemOutcome]) -> Iterator[list[int]]:
    """The places of the outcomes in their order; in no slice an item stands twice."""
    slice_of: dict[int, int] = {}
    for place, outcome in enumerate(outcomes):
        if outcome.index in slice_of:
            yield list(slice_of.values())
            slice_of = {}
        slice_of[outcome.index] = place
    yield list(slice_of.values())


def _end_each(tx: Transaction, outcomes: Sequence[ItemOutcome], sums: Sums, timezone: str) -> set[int]:
    """The outcomes of one run are on record where their begins still stand; the places of those items."""
    run_id = outcomes[0].run_id
    begins = json.dumps([[outcome.index, outcome.nonce] for outcome in outcomes])
    begun = {row["seq"]: row for row in tx.all("begun_items", run=run_id, begins=begins)}
    known = [outcome for outcome in outcomes if outcome.index in begun]
    prices = [_priced(outcome, begun[outcome.index]["reserved"]) for outcome in known]
    rows = [
        _columns(tx, outcome, begun[outcome.index], price)
        for outcome, price in zip(known, prices, strict=True)
    ]
    if tx.execute_many("end_item", rows) != len(rows):
        raise SchedulerError(f"items of run {run_id} changed between a read and a write of one transaction")
    for outcome, (_, change) in zip(known, prices, strict=True):
        row = begun[outcome.index]
        sums.spend(change, day_of(row["started_at"], timezone) if change else "")
        _count(sums, ItemState(row["state"]), outcome.state)
    return set(begun)


def _columns(tx: Transaction, outcome: ItemOutcome, begun: Row, price: tuple[int, int]) -> Row:
    """What `end_item` writes, and where."""
    reserved, change = price
    return {
        "run": outcome.run_id,
        "seq": outcome.index,
        "nonce": outcome.nonce,
        "state": outcome.state,
        "tries": begun["tries"] + outcome.charged,
        "ready_at": max(AGAIN, tx.now + outcome.wait) if outcome.state is ItemState.PENDING else 0,
        "error": outcome.error,
        "result": outcome.result,
        "spent": begun["spent"] + change,
        "reserved": reserved,
        "now": tx.now,
    }


def _priced(outcome: ItemOutcome, reserved: int) -> tuple[int, int]:
    """What stays reserved of the begin, and by how much the item's cost changes.

    The estimate gives way to the real cost; where none was told it stands for it. The cost of an unknown
    item may still be told, so its estimate stays one.
    """
    if outcome.state is ItemState.UNKNOWN:
        known = max(reserved, outcome.cost or 0)
        return known, known - reserved
    if outcome.cost is None:
        return 0, 0
    return 0, outcome.cost - reserved


def _count(sums: Sums, before: ItemState, after: ItemState) -> None:
    """The sums follow one item."""
    sums.unknown += (after is ItemState.UNKNOWN) - (before is ItemState.UNKNOWN)
    sums.done += after is ItemState.DONE
    sums.failed += after is ItemState.FAILED
    if after is ItemState.DONE:
        sums.in_a_row = 0
    elif after is ItemState.FAILED:
        sums.in_a_row = (sums.in_a_row or 0) + 1


def settle_begun(tx: Transaction, run: Run, job: Job | None, expects: RunState) -> list[Row]:
    """No item of this run is under way: those that were are what the job's policy makes of a lost outcome.

    Part of FINISH, so that no run is ever seen ended with an item at work. # INVARIANT: I9.
    """
    state = after_crash(job.definition.batch if job is not None else None)
    rows = tx.all(
        "settle_begun",
        run=run.id,
        claim=run.claim,
        expects=expects,
        state=state,
        ready_at=AGAIN if state is ItemState.PENDING else 0,
        error=None if state is ItemState.PENDING else _LOST,
        now=tx.now,
    )
    _write_settled(tx, run.id, run.job, state, rows)
    return rows


def settle_wedged(tx: Transaction, run_id: RunId) -> list[str]:
    """Items that were left begun although no claim in force stands for them; their keys."""
    row = tx.one("live_run", id=run_id)
    if row is None:
        return []
    state = after_crash(_job_of(tx, row).definition.batch)
    rows = tx.all(
        "settle_wedged",
        run=run_id,
        state=state,
        ready_at=AGAIN if state is ItemState.PENDING else 0,
        error=None if state is ItemState.PENDING else _LOST,
        now=tx.now,
    )
    _write_settled(tx, run_id, row["job"], state, rows)
    if rows:
        settle_ended_run(tx, run_id)
    return [settled["key"] for settled in rows]


def _write_settled(tx: Transaction, run_id: RunId, job: str, state: ItemState, rows: Sequence[Row]) -> None:
    if not rows:
        return
    sums = Sums()
    sums.unknown = len(rows) if state is ItemState.UNKNOWN else 0
    sums.failed = len(rows) if state is ItemState.FAILED else 0
    sums.write(tx, run_id, job)  # type: ignore[arg-type] # a job's id in a row
