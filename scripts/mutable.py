"""Every fault that the mutation test tries, and how it is put into a process that has imported everything."""

from __future__ import annotations

import ast
import importlib
import inspect
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import EnumMeta
from functools import partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final

from scheduler.store import schema
from scripts import mutation

MODULES: Final = [
    "scheduler/rules/reconcile.py",
    "scheduler/rules/recovery.py",
    "scheduler/rules/retry.py",
    "scheduler/rules/planning.py",
    "scheduler/rules/verdicts.py",
    "scheduler/engine/writeback.py",
    "scheduler/engine/claims.py",
    "scheduler/rules/batch.py",
]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault.

    Attributes:
        name: file, query or function, and the change; what the list of reasons knows it by.
        unit: the statement or query that a test has to reach.
        apply: puts the fault into this process.
    """

    name: str
    unit: str
    apply: Callable[[], None]

    @property
    def file(self) -> str:
        return self.name.partition(" ")[0]


def replace_queries(queries: Mapping[str, str]) -> None:
    """Whoever loads the named queries from now on gets these."""
    original = schema.load_queries
    for module in list(sys.modules.values()):
        if getattr(module, "load_queries", None) is original:
            module.load_queries = lambda: queries  # type: ignore[attr-defined]


def sql_mutants() -> Iterator[Mutant]:
    """The faults of every named query that SQLite takes, and takes for another program."""
    files = {
        line.removeprefix("-- name: "): path.name
        for path in Path("scheduler/store/sql/sqlite").glob("*.sql")
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.startswith("-- name: ")
    }
    db, queries = sqlite3.connect(":memory:"), schema.load_queries()
    for script in schema.migrations():
        db.executescript(script)
    for query, sql in queries.items():
        original = mutation.program(db, sql)
        for change, text in mutation.sql_mutants(sql):
            if mutation.program(db, text) not in (None, original):
                fault = partial(replace_queries, {**queries, query: text})
                yield Mutant(f"{files[query]} {query}: {change}", query, fault)
    db.close()


def _graft(old: dict[str, Any], new: Mapping[str, Any]) -> None:
    """Functions and constants of a module, or methods of a class, become those of its changed source."""
    for name, value in new.items():
        current = old.get(name)
        if isinstance(value, type) and isinstance(current, type):
            if value.__module__ == old["__name__"]:
                _graft({**vars(current), "__name__": ""}, vars(value))
            continue
        ours, theirs = (_function(thing) for thing in (current, value))
        if ours is not None and theirs is not None:
            if ours.__code__.co_freevars == theirs.__code__.co_freevars:
                ours.__code__ = theirs.__code__
            ours.__defaults__, ours.__kwdefaults__ = theirs.__defaults__, theirs.__kwdefaults__
        elif isinstance(value, bool | int | frozenset | dict | tuple) and not name.startswith("__"):
            old[name] = value


def _function(thing: object) -> FunctionType | None:
    thing = thing.fget if isinstance(thing, property) else thing
    thing = inspect.unwrap(getattr(thing, "__func__", thing))  # type: ignore[arg-type]
    return thing if isinstance(thing, FunctionType) else None


def load(path: str, tree: ast.Module, reached: Callable[[int], None] | None = None) -> None:
    """The module does what this tree says, for all who have imported it; its probes call `reached`."""
    module = importlib.import_module(_module_name(path))
    fresh: dict[str, Any] = {"__name__": module.__name__, "__file__": module.__file__}
    exec(compile(tree, path, "exec"), fresh)  # noqa: S102 - the project's own source, changed in one place
    vars(module)["_reached"] = reached
    _graft(vars(module), {name: value for name, value in fresh.items() if not isinstance(value, ModuleType)})


def _module_name(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".")


def python_mutants(path: str) -> Iterator[Mutant]:
    """The faults of a module that is imported."""
    source = Path(path).read_text(encoding="utf-8")
    known = vars(importlib.import_module(_module_name(path)))
    enums = {name: list(kind.__members__) for name, kind in known.items() if isinstance(kind, EnumMeta)}

    def apply(at: int) -> None:
        tree = ast.parse(source)
        mutation.sites(tree, enums)[at].apply()
        load(path, ast.fix_missing_locations(tree))

    for at, site in enumerate(mutation.sites(ast.parse(source), enums)):
        unit = f"{path}:{site.line}" if site.function else path
        name = f"{path} {site.function or 'constants'}: {site.change}"
        yield Mutant(name, unit, partial(apply, at))


def numbered(mutants: list[Mutant]) -> Iterator[Mutant]:
    """The same, but no two of one name."""
    seen: Counter[str] = Counter()
    for mutant in mutants:
        seen[mutant.name] += 1
        count = seen[mutant.name]
        yield mutant if count == 1 else Mutant(f"{mutant.name} #{count}", mutant.unit, mutant.apply)
