"""I16: who may write which column, read from the SQL itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from scheduler.store.schema import load_queries, migrations

OPERATOR, ENGINE, ATTEMPT, SHARED = "O", "E", "A", "S"

# For whom each statement speaks. `schedulerd` itself speaks as an operator where it pauses.
SPEAKS_FOR = {
    # definitions
    "restore_job": OPERATOR,
    "start_incarnation": ENGINE,
    "change_job": OPERATOR,
    "revive_job": OPERATOR,
    "move_file": OPERATOR,
    "remove_job": OPERATOR,
    # verbs
    "pause_job": OPERATOR,
    "change_pause": OPERATOR,
    "add_pause_evidence": OPERATOR,
    "resume_job": OPERATOR,
    "pass_over": OPERATOR,
    "wish_run": OPERATOR,
    "lift_wishes": OPERATOR,
    "lift_all_wishes": OPERATOR,
    "release_held": OPERATOR,
    "release_all_held": OPERATOR,
    "forget_under_pause": OPERATOR,
    "ready_now": OPERATOR,
    "requeue_run": OPERATOR,
    "settle_run": OPERATOR,
    "choose_items": OPERATOR,
    "follow_choice": OPERATOR,  # the worker carries out what an operator has chosen
    # engine
    "move_job": ENGINE,
    "set_next_fire": ENGINE,
    "rearm_job": ENGINE,
    "write_counters": ENGINE,
    "end_job": ENGINE,
    "set_problem": ENGINE,
    "reset_crashes": ENGINE,
    "forgive_crashes": ENGINE,
    "renew_claims": ENGINE,
    "take_for_recovery": ENGINE,
    "claim_run": ENGINE,
    "reattach_run": ENGINE,
    "leave_run": ENGINE,
    "expire_run": ENGINE,
    "extend_skip": ENGINE,
    # attempts
    "finish_run": ATTEMPT,
    "report_progress": ATTEMPT,
    "report_child": ATTEMPT,
    "complete_items": ATTEMPT,
    "count_items": ATTEMPT,
}

# The few columns that a statement writes beside its author's own, each with its reason.
_PAUSE = {"pause_reason", "pause_mode", "pause_by", "pause_note", "pause_since", "pause_until", "held_from"}
BESIDE: Mapping[str, set[str]] = {
    "end_job": _PAUSE,  # I5: an end wins over a pause, and takes it away whole
    "finish_run": {"attempt", "job_counted"},  # the charge and the count belong to the end that causes them
    "claim_run": {"progress_at"},  # a claim is the first sign of life of its attempt
    "expire_run": {"finished_at"},  # a skip has ended when it is written
    "extend_skip": {"finished_at"},
    # `retry` starts a run over: what the last attempt left is taken away
    "requeue_run": {"attempt", "queued_at", "added_revision", "finished_at", "exit_code", "signal"},
    "choose_items": {
        "failed",
        "items_in_a_row",
    },  # the sums on the run's row follow the items that were chosen
}

CREATE = re.compile(r"CREATE TABLE (\w+) \((.*?)^\) STRICT", re.DOTALL | re.MULTILINE)
COLUMN = re.compile(r"^    (\w+) (?:(?!\n    \w).)*?-- ([OEAS])\b", re.DOTALL | re.MULTILINE)
UPDATE = re.compile(r"UPDATE (\w+)\s+SET\s+(.*?)\s+(?:FROM \(.*?\) AS \w+\s+)?WHERE\s+(.*)", re.DOTALL)
ASSIGNMENT = re.compile(r"(?:^|,)\s*(\w+)\s*=\s*")


@dataclass(frozen=True, slots=True)
class Write:
    """One UPDATE: its table, what it sets to what, and under which conditions."""

    table: str
    columns: Mapping[str, str]
    where: str


def authors() -> dict[str, dict[str, str]]:
    """Table -> column -> author, as the comments of the schema say."""
    tables: dict[str, dict[str, str]] = {}
    for script in migrations():
        for table, body in CREATE.findall(script):
            tables[table] = dict(COLUMN.findall(body))
    return tables


def writes() -> dict[str, Write]:
    """Every UPDATE of jobs and runs among the named queries."""
    found = {}
    for name, sql in load_queries().items():
        match = UPDATE.search(re.sub(r"--.*", "", sql))
        if match is None or match[1] not in ("jobs", "runs"):
            continue
        flat = _without_calls(match[2])
        starts = list(ASSIGNMENT.finditer(flat))
        ends = [start.start() for start in starts[1:]] + [len(flat)]
        columns = {
            start[1]: flat[start.end() : end].strip(" ,\n") for start, end in zip(starts, ends, strict=True)
        }
        found[name] = Write(table=match[1], columns=columns, where=match[3])
    return found


def _without_calls(text: str) -> str:
    """Commas and equal signs inside brackets and CASE are not those of the list of assignments."""
    text = re.sub(r"\bCASE\b.*?\bEND\b", "CASE", text, flags=re.DOTALL)
    while re.search(r"\([^()]*\)", text):
        text = re.sub(r"\([^()]*\)", "", text)
    return text


AUTHORS = authors()
WRITES = writes()


def test_the_schema_names_an_author_for_what_the_statements_write() -> None:
    """The look at the schema finds what it looks for."""
    assert AUTHORS["jobs"]["status"] == SHARED
    assert AUTHORS["jobs"]["pause_note"] == OPERATOR
    assert AUTHORS["runs"]["claim"] == ENGINE
    assert AUTHORS["runs"]["result"] == ATTEMPT
    assert AUTHORS["runs"]["state"] == SHARED
    assert WRITES["finish_run"].columns["result"] == "coalesce"
    assert set(WRITES["move_job"].columns) == {"next_fire_at", "due_at", "last_fire_at"}


def test_every_statement_that_writes_has_its_author() -> None:
    """A new UPDATE of jobs or runs says for whom it speaks, here."""
    assert sorted(set(WRITES) - set(SPEAKS_FOR)) == []


def test_a_definition_is_written_by_one_statement() -> None:
    """I16: it is the operator's, and stands apart from the row that each fire writes."""
    assert AUTHORS["definitions"] == {"definition": OPERATOR}
    writing = re.compile(r"(INTO|UPDATE|DELETE FROM) definitions\b")
    assert [name for name, sql in load_queries().items() if writing.search(sql)] == ["write_definition"]


@pytest.mark.parametrize("name", sorted(WRITES))
def test_a_statement_writes_only_what_its_author_owns(name: str) -> None:
    """I16: no statement writes a column that is not its author's, or shared, or named with its reason."""
    write = WRITES[name]
    allowed = {SPEAKS_FOR.get(name), SHARED}
    beside = BESIDE.get(name, set())

    foreign = {column for column in write.columns if AUTHORS[write.table].get(column) not in allowed}

    assert foreign == beside


@pytest.mark.parametrize("name", sorted(name for name in WRITES if SPEAKS_FOR.get(name) == OPERATOR))
def test_an_operator_sets_a_counter_to_nothing_but_zero(name: str) -> None:
    """I16: the failure counters are the engine's, an operator only starts them anew."""
    counters = {column: WRITES[name].columns.get(column, "0") for column in ("failures", "crashes")}

    assert counters == {"failures": "0", "crashes": "0"}


@pytest.mark.parametrize("name", sorted(WRITES))
def test_a_shared_column_is_written_on_what_was_seen(name: str) -> None:
    """I16: a statement that writes a shared column names in its WHERE what it assumed of the row."""
    write = WRITES[name]
    shared = {column for column in write.columns if AUTHORS[write.table].get(column) == SHARED}
    starts_anew = shared <= {"crashes", "failures"} and set(write.columns.values()) == {"0"}
    if not shared or starts_anew:
        return

    seen = r"\brevision = (:|\w+\.seen_)|\bstatus (=|IN)|\bstate (=|IN)|\bclaim = (:|\w+\.claim)"

    assert re.search(seen, write.where), f"{sorted(shared)} are written whatever the row is by now"


@pytest.mark.parametrize(
    "name", sorted(name for name, one in WRITES.items() if SPEAKS_FOR.get(name) == ENGINE)
)
def test_the_engine_writes_a_jobs_status_and_slot_only_on_the_revision_it_saw(name: str) -> None:
    """I4: no operator's verb that committed in between is overwritten by the engine."""
    write = WRITES[name]
    if write.table != "jobs" or not {"status", "next_fire_at", "due_at"} & set(write.columns):
        return

    assert re.search(r"\brevision = (:|\w+\.)seen_revision\b", write.where)
