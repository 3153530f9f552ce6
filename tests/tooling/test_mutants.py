"""The mutation test itself: which faults it makes, that they take hold, and what it says of survivors."""

from __future__ import annotations

import ast
import sqlite3
import tomllib
from enum import Enum
from types import SimpleNamespace
from typing import Any

import pytest

from scheduler.rules import retry
from scripts import mutable, mutants, mutation


def texts(sql: str) -> list[str]:
    return [text for _, text in mutation.sql_mutants(sql)]


@pytest.mark.parametrize(
    ("sql", "fault"),
    [
        ("DELETE FROM a WHERE x = 1 AND y = 2", "DELETE FROM a WHERE 1 AND y = 2"),
        ("DELETE FROM a WHERE x = 1 AND y = 2", "DELETE FROM a WHERE x = 1 AND 1"),
        ("DELETE FROM a WHERE x = 1 OR y = 2", "DELETE FROM a WHERE x = 1 AND y = 2"),
        (
            "SELECT 1 FROM a WHERE (x = 1 OR y < 2) ORDER BY x",
            "SELECT 1 FROM a WHERE (0 OR y < 2) ORDER BY x",
        ),
        ("SELECT 1 FROM a WHERE y < :n", "SELECT 1 FROM a WHERE y <= :n"),
        ("SELECT 1 FROM a WHERE y IS NOT NULL", "SELECT 1 FROM a WHERE y IS NULL"),
        ("SELECT 1 FROM a WHERE y IS NULL", "SELECT 1 FROM a WHERE y IS NOT NULL"),
        ("SELECT 1 FROM a WHERE NOT EXISTS (SELECT 1)", "SELECT 1 FROM a WHERE EXISTS (SELECT 1)"),
        ("SELECT 1 FROM a WHERE y NOT IN ('p')", "SELECT 1 FROM a WHERE y IN ('p')"),
        ("SELECT 1 FROM a WHERE y IN ('p', 'q')", "SELECT 1 FROM a WHERE y IN ( 'q')"),
        ("SELECT 1 FROM a WHERE y IN ('p', 'q')", "SELECT 1 FROM a WHERE y IN ('p')"),
        ("SELECT x FROM a ORDER BY x DESC LIMIT 5", "SELECT x FROM a ORDER BY x ASC LIMIT 5"),
        ("SELECT x FROM a ORDER BY x LIMIT 5", "SELECT x FROM a ORDER BY x DESC LIMIT 5"),
        ("SELECT x FROM a ORDER BY x LIMIT 5", "SELECT x FROM a ORDER BY x LIMIT -1"),
        ("UPDATE a SET x = :x, y = y + 1", "UPDATE a SET x = x, y = y + 1"),
        ("UPDATE a SET x = :x, y = y + 1", "UPDATE a SET x = :x, y = y + 2"),
        ("UPDATE a SET x = coalesce(:x, x)", "UPDATE a SET x = coalesce(NULL, x)"),
        ("UPDATE a SET x = CASE WHEN y THEN 1 END, y = 2", "UPDATE a SET x = CASE WHEN y THEN 1 END, y = y"),
        ("SELECT max(x) FROM a", "SELECT min(x) FROM a"),
    ],
)
def test_a_query_gets_this_fault(sql: str, fault: str) -> None:
    """A condition less, another comparison, a column not written: each kind is among the faults."""
    assert fault in texts(sql)


def test_a_query_is_not_harmed_where_nothing_is_decided() -> None:
    """Comments, strings, names of columns and assignments as such stay."""
    assert texts("-- AND x = 1\nUPDATE a SET b = ' AND x < 1'") == ["-- AND x = 1\nUPDATE a SET b = b"]


def test_only_another_program_is_a_fault() -> None:
    """SQLite says whether a text is a statement, and whether it does anything else than the original."""
    db = sqlite3.connect(":memory:")
    db.execute("CREATE TABLE a (x INTEGER)")

    def same(text: str) -> bool:
        return mutation.program(db, text) == mutation.program(
            db, "SELECT EXISTS (SELECT 1 FROM a WHERE x = :x)"
        )

    assert mutation.program(db, "SELECT FROM") is None
    assert same("SELECT EXISTS (SELECT 2 FROM a WHERE x = :x)")
    assert not same("SELECT EXISTS (SELECT 1 FROM a WHERE x <> :x)")
    db.close()


def results(body: str, *arguments: Any, **enums: list[str]) -> list[object]:
    """What a function of one line returns, with each fault that can be made in it."""
    source = f"def f(a, b=1):\n    {body}"
    found = []
    for at in range(len(mutation.sites(ast.parse(source), enums))):
        tree = ast.parse(source)
        mutation.sites(tree, enums)[at].apply()
        names: dict[str, Any] = {"E": Enum("E", "P Q"), "seen": []}
        exec(compile(ast.fix_missing_locations(tree), "f", "exec"), names)  # noqa: S102 - the lines above
        found.append(names["f"](*arguments))
    return found


@pytest.mark.parametrize(
    ("body", "results_of_three"),
    [
        ("return a < 3", [True, True]),  # `<=`, and 4
        ("return a == 3 and b == 1", [True, True, True, False, False, False, False]),
        ("return not a", [True]),
        ("return a + b", [2]),
        ("return 'x' if a else 'y'", ["y"]),
        ("return min(a, b)", [3]),
        ("return [n for n in [a] if n > a]", [[3], [3]]),
        ("return True", [False]),
        ("return f'{a < 3}'", []),
    ],
)
def test_a_function_gets_these_faults(body: str, results_of_three: list[object]) -> None:
    """Each fault of a function changes what it does, not how it is written."""
    assert results(body, 3) == results_of_three


def test_a_member_of_an_enumeration_becomes_another() -> None:
    """Members are known by the module that uses them."""
    assert [str(member) for member in results("return E.P", 3, E=["P", "Q"])] == ["E.Q"]


def test_a_call_is_left_out_and_a_case_too() -> None:
    """What is done for its effect is not done; what a case catches falls through."""
    source = (
        "def f(a):\n    a.append(1)\n    match a:\n        case []:\n            return 1\n        case _:\n"
    )
    source += "            return 2\n"
    changes = [site.change for site in mutation.sites(ast.parse(source), {})]

    assert "a.append(1) -> not called" in changes
    assert "[] -> no such case" in changes


def test_a_later_case_belongs_to_the_statement_that_chooses() -> None:
    """A test that reaches the choice may notice a fault in any case, whichever it takes."""
    source = "def f(a):\n    match a:\n        case 1:\n            return 3\n"
    source += "        case 2:\n            return 4\n"
    lines = {site.change: site.line for site in mutation.sites(ast.parse(source), {})}

    assert (lines["2 -> 3"], lines["3 -> 4"], lines["4 -> 5"]) == (2, 4, 6)


def test_defaults_of_fields_are_left_alone() -> None:
    """They are the values of a dataclass; what its methods decide is not."""
    source = "class A:\n    x: bool = True\n    def f(self):\n        y: bool = False\n        return y\n"

    assert [site.change for site in mutation.sites(ast.parse(source), {})] == ["False -> True"]


def test_a_probe_tells_each_statement_that_is_reached() -> None:
    """The lines of a branch that is not taken are not told."""
    source = "def f(a):\n    '''Says.'''\n    if a:\n        return 1\n    return 2\n"
    lines: list[int] = []
    names: dict[str, Any] = {"_reached": lines.append}
    exec(compile(mutation.probed(ast.parse(source)), "f", "exec"), names)  # noqa: S102 - the lines above

    assert names["f"](0) == 2
    assert lines == [3, 5]
    assert names["f"].__doc__ == "Says."


def test_a_fault_takes_hold_in_what_others_have_imported() -> None:
    """The function object that a test holds is the one that is changed; the source brings it back."""
    held = retry.may_retry
    path = "scheduler/rules/retry.py"
    source = (mutants.ROOT / path).read_text()
    policy: Any = SimpleNamespace(attempts=2, exit_codes=())
    assert held(policy, 2, None)

    try:
        mutable.load(path, ast.parse(source.replace("attempt > policy", "attempt >= policy")))
        assert not held(policy, 2, None)
    finally:
        mutable.load(path, ast.parse(source))
    assert held(policy, 2, None)


def test_survivors_and_stale_reasons_are_told() -> None:
    """A survivor needs a reason, and a reason a survivor."""
    verdicts = {
        "a": "survived",
        "b": "survived",
        "c": "killed",
        "d": "timed out",
        "e": "not run",
        "f": "ended with 3",
    }
    reasons = dict.fromkeys(["b", "c", "gone"], "because")

    assert list(mutants.findings(verdicts, reasons)) == [
        "survived: a",
        "ended with 3: f",
        "has a reason to survive, but was killed: c",
        "has a reason to survive, but there is no such mutant: gone",
    ]


def test_what_was_not_tried_now_is_known_from_before() -> None:
    """A fault that is no more is forgotten; left is what neither a test nor a reason speaks for."""
    before = {"a": "killed", "b": "survived", "c": "survived", "gone": "killed", "e": "timed out"}

    verdicts = mutants.merged({"a": "survived", **dict.fromkeys(["b", "c", "d", "e"], "not run")}, before)

    assert verdicts == {
        "a": "survived",
        "b": "survived",
        "c": "survived",
        "d": "not run",
        "e": "timed out",
    }
    reasons = dict.fromkeys(["b", "d"], "why")
    assert [name for name in verdicts if mutants.is_left(name, verdicts, reasons)] == ["a", "c", "d"]


def test_the_table_counts_each_fault_once() -> None:
    """The columns add up to the number of faults."""
    table = mutants.report(
        {"f 1": "survived", "f 2": "survived", "f 3": "killed", "g 1": "not run"}, {"f 1": "why"}
    )

    assert "| `f` | 3 | 1 | 0 | 1 | 1 | 0 |" in table
    assert table.endswith("| `together` | 4 | 1 | 0 | 1 | 1 | 1 |\n")


def test_no_two_faults_have_one_name() -> None:
    """The same change at two places of a query is numbered."""
    twice = [mutable.Mutant("f q: x", "q", lambda: None)] * 2

    assert [mutant.name for mutant in mutable.numbered(twice)] == ["f q: x", "f q: x #2"]


def test_every_reason_is_a_sentence() -> None:
    """The list of equivalent faults says why of each."""
    reasons = tomllib.loads(mutants.REASONS.read_text())["equivalent"]

    assert all(len(reason.split()) > 3 for reason in reasons.values())
