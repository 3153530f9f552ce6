from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler.errors import Conflict, SchedulerError
from scheduler.store.rows import Definitions
from scheduler.store.schema import load_queries, prepare
from scheduler.store.transaction import Transaction, as_ours
from tests.support.builders import JOB, make_peer
from tests.support.clock import START


@pytest.fixture
def db(path: Path) -> Iterator[sqlite3.Connection]:
    prepare(path)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.row_factory = sqlite3.Row
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
    finally:
        connection.close()


@pytest.fixture
def tx(db: sqlite3.Connection) -> Transaction:
    return Transaction(db, load_queries(), START, Definitions())


def note(tx: Transaction, name: str) -> None:
    tx.execute("write_meta", name=name, value=1)


def noted(tx: Transaction, *names: str) -> set[str]:
    return {name for name in names if tx.value("read_meta", name=name) is not None}


def refuse(what: str = "no") -> None:
    raise Conflict(what)


def test_a_statement_answers_how_many_rows_it_changed(tx: Transaction) -> None:
    """A conditional write tells whether its conditions held."""
    assert tx.execute("move_file", id=JOB, origin_file="jobs.toml") == 0
    assert tx.execute("write_meta", name="a", value=1) == 1


def test_a_value_that_is_not_there_is_none(tx: Transaction) -> None:
    """No row, no value."""
    assert tx.value("read_meta", name="nothing") is None
    assert tx.one("live_job", id=JOB) is None
    assert tx.all("list_attempts", run="nothing") == []


def test_a_refusal_leaves_nothing_of_its_savepoint(tx: Transaction) -> None:
    """What was written before and after a savepoint that failed stands."""
    note(tx, "before")
    with tx.savepoint() as attempt:
        note(tx, "inside")
        refuse()
    note(tx, "after")

    assert isinstance(attempt.error, Conflict)
    assert noted(tx, "before", "inside", "after") == {"before", "after"}


def test_savepoints_nest(tx: Transaction) -> None:
    """An inner failure leaves the outer work, an outer one takes the inner with it."""
    with tx.savepoint() as outer:
        note(tx, "kept")
        with tx.savepoint() as inner:
            note(tx, "lost")
            refuse("inner")
    with tx.savepoint() as failed:
        with tx.savepoint():
            note(tx, "inner of a failure")
        refuse("outer")

    assert outer.error is None
    assert isinstance(inner.error, Conflict)
    assert isinstance(failed.error, Conflict)
    assert noted(tx, "kept", "lost", "inner of a failure") == {"kept"}


def test_an_error_of_the_file_goes_through_every_savepoint(tx: Transaction, db: sqlite3.Connection) -> None:
    """I14: a full disk ends the transaction, not one request of it."""
    pages = db.execute("PRAGMA page_count").fetchone()[0]
    db.execute(f"PRAGMA max_page_count = {pages}")

    with pytest.raises(sqlite3.OperationalError, match="full"), tx.savepoint():
        tx.execute("write_meta", name="big", value="x" * 1_000_000)


def test_alone_answers_the_result_or_the_refusal(tx: Transaction) -> None:
    """Of several requests in one verb each has its result in its place."""

    def write_and_refuse() -> str:
        note(tx, "lost")
        raise Conflict("no")

    def accept() -> str:
        note(tx, "kept")
        return "yes"

    results = [tx.alone(accept), tx.alone(write_and_refuse), tx.alone(accept)]

    assert [str(result) for result in results] == ["yes", "no", "yes"]
    assert noted(tx, "kept", "lost") == {"kept"}


def test_alone_translates_a_fault_of_ours(tx: Transaction) -> None:
    """A broken rule of the data is one request's error, with its cause, and the others go on."""
    result = tx.alone(lambda: tx.execute("write_meta", name=None, value=1))

    assert isinstance(result, SchedulerError)
    assert isinstance(result.__cause__, sqlite3.IntegrityError)
    assert tx.alone(lambda: "fine") == "fine"


def test_errors_of_ours_stay_as_they_are() -> None:
    """Translation happens once."""
    error = Conflict("no")

    assert as_ours(error) is error


def test_revisions_only_grow(tx: Transaction) -> None:
    """Each number of the store-wide counter is given once."""
    numbers = [tx.next_revision() for _ in range(5)]

    assert numbers == sorted(set(numbers))


def test_a_refused_verb_gives_its_revision_back(tx: Transaction) -> None:
    """A revision that was taken in a savepoint that failed was never seen by anybody."""
    first = tx.next_revision()
    with tx.savepoint():
        tx.next_revision()
        refuse()

    assert tx.next_revision() == first + 1


def test_a_mutation_stands_in_audit_and_changes(tx: Transaction) -> None:
    """Who did what when, and the row that another daemon polls, are written together."""
    tx.record("pause", make_peer(1001), job=JOB, detail='{"mode": "drain"}')

    (entry,) = tx.all("list_audit", job=JOB, before=1 << 62, limit=5)
    assert (entry["verb"], entry["uid"], entry["at"], entry["detail"]) == (
        "pause",
        1001,
        START,
        '{"mode": "drain"}',
    )
