"""The tables of a store as they are, and what a verb has changed in them: these columns, and no others."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final, TypeAlias

from tests.support.stores import dump

Key: TypeAlias = tuple[str, ...]
"""A table and the values of its key; a run whose id was drawn is named by its job, a later one `job#2`."""
Rows: TypeAlias = Mapping[Key, Mapping[str, Any]]

_KEYS: Final = {
    "answers": ("uid", "key"),
    "attempts": ("run", "claim"),
    "audit": ("seq",),
    "changes": ("seq",),
    "definitions": ("id",),
    "global_pauses": ("id",),
    "items": ("run", "seq"),
    "jobs": ("id",),
    "meta": ("name",),
    "owners": ("id",),
    "pruned": ("run",),
    "runs": ("id",),
    "spend": ("job", "day"),
}

_DRAWN: Final = 36
"""Characters of an id that was drawn."""


def rows_of(path: Path, *, without: frozenset[str] = frozenset({"meta", "audit", "changes"})) -> Rows:
    """Every committed row, by its key; numbers in a key are text.

    Args:
        without: tables that do not matter.
    """
    tables = dump(path)
    names = _names_of(tables["runs"])
    found = {}
    for table, columns in _KEYS.items():
        for row in tables[table] if table not in without else ():
            key = [str(row[column]) for column in columns]
            found[table, *(names.get(part, part) for part in key)] = row
    return found


def _names_of(runs: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    count: Counter[str] = Counter()
    names = {}
    for row in sorted(runs, key=lambda row: row["seq"]):
        count[row["job"]] += 1
        if len(row["id"]) == _DRAWN:
            number = count[row["job"]]
            names[row["id"]] = row["job"] if number == 1 else f"{row['job']}#{number}"
    return names


def changed(before: Rows, after: Rows) -> dict[Key, dict[str, Any] | None]:
    """The new values of the columns that are others now; a whole row that is new; None for one that went."""
    found: dict[Key, dict[str, Any] | None] = {key: None for key in before if key not in after}
    for key, row in after.items():
        old = before.get(key, {})
        columns = {name: value for name, value in row.items() if name not in old or old[name] != value}
        if columns:
            found[key] = columns
    return found


def write(path: Path, statement: str, **values: object) -> None:
    """The tables as no verb leaves them: a column that is not written can be told from one that is."""
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement, values)


def put_run(path: Path, job: str, name: str = "run", /, **columns: object) -> str:
    """A run of the job with these columns, as no verb has made it; its id, which names both."""
    values: dict[str, object] = {
        "id": f"{job}/{name}",
        "job": job,
        "trigger": "schedule",
        "solo": 0,
        "added_revision": 1,
        **columns,
    }
    names = ", ".join(values)
    statement = f"INSERT INTO runs ({names}) VALUES ({', '.join(f':{name}' for name in values)})"  # noqa: S608
    write(path, statement, **values)
    return str(values["id"])
