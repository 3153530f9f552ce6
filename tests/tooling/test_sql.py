"""The named queries: each is explained, each is used, and each name that is used exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
STORE = ROOT / "scheduler" / "store"
QUERIES = sorted((STORE / "sql" / "sqlite").glob("*.sql"))

OPENING = re.compile(r"^-- name: (\w+)\n(.*)\n(.*)", re.MULTILINE)
TAKES_A_NAME = {"execute", "execute_many", "all", "one", "value", "gathered"}
"""The methods of a store's transaction whose first argument is the name of a query."""


def names_in_sql() -> list[str]:
    return [match[1] for path in QUERIES for match in OPENING.finditer(path.read_text(encoding="utf-8"))]


def store_trees() -> Iterator[ast.Module]:
    for path in sorted(STORE.rglob("*.py")):
        yield ast.parse(path.read_text(encoding="utf-8"))


def strings_in_code() -> set[str]:
    """Every string literal of the store's code."""
    return {
        node.value
        for tree in store_trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def names_in_code() -> set[str]:
    """Every literal that stands where the name of a query is expected."""
    found = set()
    for tree in store_trees():
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Attribute(attr=attr), args=[ast.Constant(value=str(name)), *_]):
                    if attr in TAKES_A_NAME and name.isidentifier():
                        found.add(name)
                case ast.Subscript(
                    value=ast.Attribute(attr="_queries" | "queries") | ast.Name(id="queries"),
                    slice=ast.Constant(value=str(name)),
                ):
                    found.add(name)
    return found


def test_there_are_queries() -> None:
    """The look-ups of this file find what they look for."""
    assert len(names_in_sql()) > 10
    assert len(names_in_code()) > 10


def test_every_query_is_used() -> None:
    """No query is left over from code that is gone."""
    assert sorted(set(names_in_sql()) - strings_in_code()) == []


def test_every_name_in_the_code_has_its_query() -> None:
    """No code asks for a query that is not there."""
    assert sorted(names_in_code() - set(names_in_sql())) == []


def test_no_name_stands_twice() -> None:
    """A name means one query."""
    names = names_in_sql()

    assert sorted(name for name in set(names) if names.count(name) > 1) == []


def test_every_query_opens_with_its_purpose() -> None:
    """After its name each query says in one sentence what it is for, and then begins."""
    faults = [
        f"{path.name}: {match[1]}"
        for path in QUERIES
        for match in OPENING.finditer(path.read_text(encoding="utf-8"))
        if not re.fullmatch(r"-- .+\.", match[2]) or match[3].startswith("-- name:")
    ]

    assert faults == []


def test_no_sql_stands_in_the_code() -> None:
    """Statements live in .sql files, where they are read, not in strings of Python."""
    statement = re.compile(r"^\s*(SELECT\s.+\sFROM|INSERT INTO|UPDATE\s+\w+\s+SET|DELETE FROM)\b", re.DOTALL)

    assert sorted(text for text in strings_in_code() if statement.match(text)) == []
