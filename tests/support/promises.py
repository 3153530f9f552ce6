"""What must hold of a store whatever happened: the promises that rows and a ledger of executions can tell.

    assert broken_promises(database, ledger) == []

A ledger is what the work itself wrote: one line per execution of a run, one per call of an item, written
outside of the store, so that rows can be held against what really happened.
"""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from scheduler.clock import Micros
from scheduler.model.definitions import decode
from scheduler.model.runs import LIVE, TERMINAL, RunState

Row: TypeAlias = sqlite3.Row
_LIVE: Final = {str(state) for state in LIVE}
_TERMINAL: Final = {str(state) for state in TERMINAL}


@dataclass(frozen=True, slots=True)
class Executed:
    """One line of the ledger: the work of this claim began; of this item, if it was an item's."""

    run: str
    claim: int
    item: str | None = None


def read_ledger(path: Path) -> list[Executed]:
    """The lines `RUN CLAIM` and `RUN CLAIM ITEM` of a file that may not be there yet."""
    if not path.exists():
        return []
    lines = [line.split() for line in path.read_text().splitlines()]
    return [Executed(words[0], int(words[1]), words[2] if words[2:] else None) for words in lines]


def broken_promises(database: Path, ledger: Sequence[Executed]) -> list[str]:
    """Every promise that is broken, one line each; nothing is at work while it looks."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as db:
        db.row_factory = sqlite3.Row
        store = _Store(db)
        return [
            *_file_is_whole(db),
            *_runs_are_whole(store),
            *_slots_are_kept(store),
            *_claims_are_in_order(store),
            *_executions_were_claimed(store, ledger),
            *_items_are_whole(store, ledger),
            *_fires_are_explained(store),
        ]


class _Store:
    """All rows that the promises are about."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.jobs: list[Row] = db.execute("SELECT * FROM jobs JOIN definitions USING (id)").fetchall()
        self.runs: list[Row] = db.execute("SELECT * FROM runs ORDER BY seq").fetchall()
        self.attempts: list[Row] = db.execute("SELECT * FROM attempts ORDER BY run, claim").fetchall()
        self.items: list[Row] = db.execute("SELECT * FROM items").fetchall()

    def definition(self, job: Row) -> Any:
        return decode(job["id"], job["definition"])


def _file_is_whole(db: sqlite3.Connection) -> Iterator[str]:
    for (told,) in db.execute("PRAGMA integrity_check"):
        if told != "ok":
            yield f"I14: {told}"
    for row in db.execute("PRAGMA foreign_key_check"):
        yield f"I14: a row of {row[0]} points nowhere"


def _runs_are_whole(store: _Store) -> Iterator[str]:
    for run in store.runs:
        name = f"run {run['id']} ({run['job']}, {run['state']})"
        if (run["state"] in _TERMINAL) is not (run["finished_at"] is not None):
            yield f"I10: {name}: its end and its state do not agree"
        told = run["reason"] and (run["message"] or run["state"] == "skipped")
        if run["state"] in _TERMINAL - {"succeeded"} and not told:
            yield f"{name}: does not say why"


def _slots_are_kept(store: _Store) -> Iterator[str]:
    live = Counter(run["job"] for run in store.runs if run["state"] in _LIVE)
    for job in store.jobs:
        if live[job["id"]] > max(job["max_running"], 1):
            yield f"I2: job {job['id']} has {live[job['id']]} live runs"


def _claims_are_in_order(store: _Store) -> Iterator[str]:
    attempts: dict[str, list[Row]] = defaultdict(list)
    for attempt in store.attempts:
        attempts[attempt["run"]].append(attempt)
    for run in store.runs:
        mine = attempts[run["id"]]
        if [attempt["claim"] for attempt in mine] != list(range(1, run["claim"] + 1)):
            yield f"I3: run {run['id']}: claim {run['claim']}, attempts {[a['claim'] for a in mine]}"
        unfinished = [attempt["claim"] for attempt in mine if attempt["finished_at"] is None]
        at_work = run["state"] in (RunState.RUNNING, RunState.RECOVERING)
        if unfinished != ([run["claim"]] if at_work else []):
            yield f"I3: run {run['id']} is {run['state']}, and its claims {unfinished} have not ended"


def _executions_were_claimed(store: _Store, ledger: Sequence[Executed]) -> Iterator[str]:
    claimed = {(attempt["run"], attempt["claim"]) for attempt in store.attempts}
    runs = Counter((line.run, line.claim) for line in ledger if line.item is None)
    for (run, claim), times in runs.items():
        if (run, claim) not in claimed:
            yield f"I10: run {run} was executed under claim {claim}, which is not on record"
        if times > 1:
            yield f"I1: run {run} was executed {times} times under claim {claim}"
    succeeded = {run["id"] for run in store.runs if run["state"] == "succeeded"}
    unheard = succeeded - {line.run for line in ledger}
    if unheard:
        yield f"I10: runs succeeded that were never executed: {sorted(unheard)}"


def _items_are_whole(store: _Store, ledger: Sequence[Executed]) -> Iterator[str]:
    calls = Counter((line.run, line.item) for line in ledger if line.item is not None)
    states = {run["id"]: run["state"] for run in store.runs}
    sums: dict[str, Counter[str]] = defaultdict(Counter)
    for item in store.items:
        if item["run"] not in states:
            continue  # the history has lost its run, and will lose it too
        name, called = f"item {item['key']} of {item['run']}", calls[item["run"], item["key"]]
        sums[item["run"]][item["state"]] += 1
        if item["state"] == "done" and called < 1:
            yield f"I9: {name} is done and was never called"
        if called > item["attempts"]:
            yield f"I9: {name} was called {called} times, begun {item['attempts']} times"
        if item["state"] == "running" and states[item["run"]] in _TERMINAL:
            yield f"I9: {name} is at work in a run that has ended"
    for run in store.runs:
        told = (run["done"], run["failed"], run["unknown"])
        counted = tuple(sums[run["id"]][state] for state in ("done", "failed", "unknown"))
        if run["items_total"] is not None and told != counted:
            yield f"I9: run {run['id']} tells {told}, its items {counted}"


def fires(database: Path) -> dict[str, int]:
    """Fire times that were due, those that ran, those that a row explains (I13)."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as db:
        db.row_factory = sqlite3.Row
        told = {"due": 0, "ran": 0, "explained": 0}
        for _, slots, rows in _schedules(_Store(db)):
            told["due"] += len(slots)
            told["ran"] += sum(run["state"] != "skipped" for run in rows)
            told["explained"] += sum(run["count"] for run in rows if run["state"] == "skipped")
    return told


def _fires_are_explained(store: _Store) -> Iterator[str]:
    for job, slots, rows in _schedules(store):
        yield from _gaps(job["id"], slots, rows)


def _schedules(store: _Store) -> Iterator[tuple[Row, list[Micros], list[Row]]]:
    """Jobs on a fixed grid that nobody edited: slots from the first row to the next fire, and rows."""
    for job in store.jobs:
        rows = [run for run in store.runs if run["job"] == job["id"] and run["fire_time"] is not None]
        if job["definition_revision"] != job["added_revision"] or job["removed_at"] is not None or not rows:
            continue
        schedule = store.definition(job).schedule
        if schedule.kind == "every" and job["generation"] == 0:
            yield job, _slots(schedule, rows, job["next_fire_at"] or job["held_from"]), rows


def _slots(schedule: Any, rows: Iterable[Row], pending: Micros | None) -> list[Micros]:
    first = min(run["fire_time"] for run in rows)
    last = max(run["fire_time_last"] or run["fire_time"] for run in rows)
    found, slot = [], first
    while slot is not None and (slot < pending if pending is not None else slot <= last):
        found.append(slot)
        slot = schedule.next_fire(slot)
    return found


def _gaps(job: str, slots: list[Micros], rows: Sequence[Row]) -> Iterator[str]:
    told: Counter[Micros] = Counter()
    for run in rows:
        covered = [s for s in slots if run["fire_time"] <= s <= (run["fire_time_last"] or run["fire_time"])]
        told.update(covered)
        if len(covered) != run["count"]:
            yield f"I13: a row of {job} counts {run['count']} fire times, its span holds {len(covered)}"
    for slot in slots:
        if told[slot] != 1:
            yield f"I13: the fire time {slot} of {job} is explained {told[slot]} times"
