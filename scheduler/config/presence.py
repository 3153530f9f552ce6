"""What jobs name and this machine does not have now: a program, a directory, a file, a Python handler.

No code of a user runs for it: a module is looked for and its text read, never imported. What cannot be known
so (a shell line, names that a module makes when it runs) is not doubted. A finding is a note, and no fault:
a folder may be mounted later, and the daemon may be another user or have another view of the machine.
"""

from __future__ import annotations

import ast
import functools
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from scheduler.executors.surroundings import DEFAULT_PATH
from scheduler.model.jobs import CommandAction, JobDefinition, PythonAction

_NOT_SEEN = "is not there, or may not be seen by who checks"


def absence_notes(python_path: Sequence[Path]) -> Callable[[JobDefinition], Iterator[tuple[str, str]]]:
    """Asks for each job what it names and is not there: (key, one sentence) each.

    Args:
        python_path: the folders of the daemon's setting.
    """
    folders = [*sys.path, *map(str, python_path)]
    handler_problem = functools.cache(lambda spec: _handler_problem(spec, folders))

    def notes(job: JobDefinition) -> Iterator[tuple[str, str]]:
        for key, path in (("cwd", job.cwd), ("env_file", job.env_file)):
            if path is not None and not os.path.exists(path):  # noqa: PTH110
                yield key, f"{path} {_NOT_SEEN}"
        match job.action:
            case CommandAction(argv=(program, *_)) if not _is_program(program, job):
                where = "" if "/" in program else f" in PATH={_path(job)}"
                yield "command", f"{program} {_NOT_SEEN}{where}"
            case PythonAction(handler=spec) if problem := handler_problem(spec):
                yield "python", problem

    return notes


def _path(job: JobDefinition) -> str:
    return job.env.get("PATH", DEFAULT_PATH)


def _is_program(name: str, job: JobDefinition) -> bool:
    """It is there, or nothing can be said: relative paths start elsewhere, and an env_file may set PATH."""
    if "/" in name:
        return not name.startswith("/") or os.path.exists(name)  # noqa: PTH110 - one system call for each job
    return job.env_file is not None or shutil.which(name, path=_path(job)) is not None


def _handler_problem(handler: str, folders: Sequence[str]) -> str | None:
    """Why the handler could not be imported, as far as that shows without importing it."""
    module, _, attribute = handler.partition(":")
    loaded = sys.modules.get(module)
    if type(loaded) is ModuleType:  # of Python or of ours: its names are there without running anything
        names = vars(loaded)
        is_known = not names.keys().isdisjoint({attribute.partition(".")[0], "__getattr__"})
        return None if is_known else f"module {module} has no {attribute}"
    top, *rest = module.split(".")
    spec, name = _find_top(top, folders), top
    for part in rest:
        if spec is not None and spec.submodule_search_locations is None:
            return None  # a module that may put others below itself, as os does with os.path
        name = f"{name}.{part}"
        spec = spec and PathFinder.find_spec(name, spec.submodule_search_locations)
    if spec is None:
        return f"there is no module {name} in Python's folders or those of `python_path`"
    if _may_define(spec, attribute.partition(".")[0]):
        return None
    return f"{spec.origin} defines no {attribute}"


def _find_top(name: str, folders: Sequence[str]) -> ModuleSpec | None:
    try:
        return find_spec(name) or PathFinder.find_spec(name, folders)
    except (ImportError, ValueError):
        return None


def _may_define(spec: ModuleSpec, name: str) -> bool:
    """The text of the module has the name somewhere on its top level, or does not say which names it has."""
    if not spec.has_location or not str(spec.origin).endswith(".py"):
        return True
    try:
        tree = ast.parse(Path(str(spec.origin)).read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return True
    words = {word for node in ast.walk(tree) for word in _bound(node)}
    return not words.isdisjoint({name, "*", "__getattr__", "globals", "exec", "setattr"})


def _bound(node: ast.AST) -> Iterator[str]:
    """The names that a piece of code binds, or by which it could bind any."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Name(id=name):
            yield name
        case ast.alias(name=name, asname=other):
            yield other or name.partition(".")[0]
