"""From `package.module:name` to a function, by import; what goes wrong in user code becomes one error."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, TypeAlias

from scheduler.errors import HandlerBroken
from scheduler.executors.outcome import describe

Handler: TypeAlias = Callable[..., Any]


def load_handler(spec: str, python_path: Sequence[str]) -> Handler:
    """The function that `spec` names. Blocks for as long as its import takes.

    The directories of `python_path` come behind what is importable anyway, so that no file in them can take
    the place of a library.

    Raises:
        HandlerBroken: it cannot be imported, or is not there, or cannot be called; it says why.
    """
    module_name, _, attribute = spec.partition(":")
    if not module_name or not attribute:
        raise HandlerBroken(f"handler {spec!r} is not of the form package.module:name")
    for entry in python_path:
        if entry not in sys.path:
            sys.path.append(entry)
    importlib.invalidate_caches()
    try:
        found: Any = importlib.import_module(module_name)
        for name in attribute.split("."):
            found = getattr(found, name)
    # INVARIANT: user code at import raises nothing but HandlerBroken, not even SystemExit.
    except BaseException as error:
        raise HandlerBroken(f"handler {spec} cannot be imported: {describe(error)}") from error
    if not callable(found):
        raise HandlerBroken(f"handler {spec} is not a function but {type(found).__name__}")
    handler: Handler = found
    return handler


def loaded_handler(spec: str) -> Handler | None:
    """The function that `spec` names, if its module is imported already; None says nothing about it.

    It runs no code of the module, so it may be asked on the loop.
    """
    module_name, _, attribute = spec.partition(":")
    module = sys.modules.get(module_name)
    # Whatever else a library has put in the place of a module may run code of its own when it is looked at.
    if type(module) is not ModuleType or getattr(module.__spec__, "_initializing", False):
        return None
    found = vars(module).get(attribute)
    return found if inspect.isroutine(found) else None


def is_async(handler: Handler) -> bool:
    """Calling it gives a coroutine, so it may run on the loop."""
    if inspect.iscoroutinefunction(handler):
        return True
    return not isinstance(handler, type) and inspect.iscoroutinefunction(type(handler).__call__)
