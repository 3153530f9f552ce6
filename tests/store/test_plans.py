"""How SQLite finds the rows of every named query: by what is asked for, never by reading all that there are.

Whatever stands in `store/sql/sqlite` is judged, so a new query is too. A plan that reads a table, or all that
one wide key of an index names (the runs of a job, the jobs of a status), fails here unless the query is named
below with the reason why what it reads stays small.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Final

import pytest

from scheduler.store.schema import load_queries, migrations

PLAN: Final = re.compile(r"(SCAN|SEARCH) (\S+)(?: USING (?:COVERING )?INDEX (\w+)(?: \((.+)\))?)?")
NOT_A_PLAN: Final = ("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "PRAGMA")

TINY: Final = {
    "meta": "a few notes",
    "owners": "the newest hundred starts",
    "global_pauses": "one row for each pause of all jobs by an operator's hand",
    "job_counts": "one row for each status",
    "sqlite_schema": "one row for each table and index",
    "pragma_page_count": "one row",
    "pragma_freelist_count": "one row",
}
"""Tables, and what is like one, that may be read whole."""

FEW: Final = {
    "items_running": "items at work, each of which takes a slot of its batch",
    "jobs_broken": "jobs that cannot run as they stand",
    "jobs_crashed": "jobs that crashed and have not succeeded since",
    "jobs_of_files": "as many as stand in the files that were just read",
}
"""Partial indexes that may be read whole: what they hold is what is asked for, or stays small."""

WIDE: Final = frozenset(
    {
        ("jobs_status", "status=?"),
        ("jobs_group", "group_name=?"),
        ("runs_history", "job=?"),
        ("runs_state", "state=?"),
        ("items_state", "run=?"),
        ("audit_job", "job=?"),
    }
)
"""Keys that name any number of rows."""

_UNFINISHED: Final = "of the states that it names, all unfinished: runs that live or wait for a slot"
_ONE: Final = "stops at the first row"
_PAGE: Final = "stops at its limit: each row that the key names is wanted"
ALLOWED: Final = {
    "claim_candidates": "walks the queue in its order, past what may not start, and stops at its limit",
    "claimed_in_group": _UNFINISHED,
    "claimed_total": _UNFINISHED,
    "claims_in_force": _UNFINISHED,
    "controllers": _UNFINISHED,
    "count_runs": _UNFINISHED,
    "forget_owners": _UNFINISHED,
    "lift_all_wishes": _UNFINISHED,
    "recovering_runs": _UNFINISHED,
    "release_all_held": _UNFINISHED,
    "renew_claims": _UNFINISHED,
    "runs_at_work": _UNFINISHED,
    "is_claimable": _UNFINISHED,
    "serial_run_in_force": _UNFINISHED,
    "unfinished_states": _UNFINISHED,
    "newest_runs": _ONE,
    "last_runs": "stops at the first row that is no skip; consecutive skips are one row",
    "surplus_runs": "walks as many rows as the job keeps",
    "rows_by_age": "is read as far as rows are old, and those go",
    "clear_items": _PAGE,
    "delete_audit": _PAGE,
    "delete_changes": _PAGE,
    "delete_removed": _PAGE,
    "list_pruned": _PAGE,
    "forget_pruned": _ONE,
    "runs_with_items": _ONE,
    "complete_items": "counts a list once, when it is whole",
}
"""Queries whose plan may have a scan or a wide key, and why it stays small."""


class _Anything(dict[str, object]):
    """A value for every parameter."""

    def __missing__(self, name: str) -> object:
        return None


def explained() -> Iterator[tuple[str, list[str]]]:
    """Every query that reads or writes rows, and the steps of its plan on a new store."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        for script in migrations():
            db.executescript(script)
        for name, sql in sorted(load_queries().items()):
            if not sql.partition("\n")[2].startswith(NOT_A_PLAN):
                steps = db.execute(f"EXPLAIN QUERY PLAN {sql}", _Anything()).fetchall()
                yield name, [str(step[3]) for step in steps]


PLANS: Final = dict(explained())


def reads_much(step: str, aliases: set[str]) -> bool:
    """Whether the step reads a table that grows, or all rows that a wide key names."""
    found = PLAN.match(step)
    if found is None or "VIRTUAL TABLE" in step:
        return False
    kind, table, index, key = found.groups()
    if kind == "SEARCH":
        return (index, key) in WIDE
    return table not in TINY and table not in aliases and index not in FEW and not table.startswith("(")


def subqueries(steps: list[str]) -> set[str]:
    """What is read whole because another step has made it: names of subqueries, and of constant rows."""
    made = {step.split()[1] for step in steps if step.startswith(("MATERIALIZE", "CO-ROUTINE"))}
    return made | {"CONSTANT"}


@pytest.mark.parametrize("name", sorted(PLANS))
def test_no_query_reads_all_that_there_is(name: str) -> None:
    """I15: its plan neither scans a table that grows nor searches by a wide key alone, or says why."""
    much = [step for step in PLANS[name] if reads_much(step, subqueries(PLANS[name]))]

    assert not much or name in ALLOWED, much


def test_every_exception_is_needed() -> None:
    """A query that has become better, or is gone, is no exception any more."""
    wide = {
        name for name, steps in PLANS.items() if any(reads_much(step, subqueries(steps)) for step in steps)
    }

    assert sorted(ALLOWED.keys() - wide) == []


def test_a_scan_is_noticed() -> None:
    """The judgement tells apart what it has to."""
    made: set[str] = set()

    assert reads_much("SCAN runs", made)
    assert reads_much("SCAN jobs USING INDEX jobs_status", made)
    assert reads_much("SCAN r USING COVERING INDEX runs_history", made)
    assert reads_much("SEARCH runs USING INDEX runs_history (job=?)", made)
    assert not reads_much("SCAN jobs USING INDEX jobs_broken", made)
    assert not reads_much("SEARCH runs USING INDEX runs_history (job=? AND seq<?)", made)
    assert not reads_much("SCAN json_each VIRTUAL TABLE INDEX 1:", made)


def test_a_claim_reads_the_front_of_the_queue_alone() -> None:
    """The queue is walked in the order of its index; sorting would read all of it for each free slot."""
    steps = PLANS["claim_candidates"]

    assert "SCAN runs USING INDEX runs_queue" in steps
    assert not [step for step in steps if "TEMP B-TREE" in step]
