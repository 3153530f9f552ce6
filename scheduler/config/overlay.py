"""Values from outside the daemon's own file: environment variables and flags, laid over what it says.

A value keeps the name under which it was given, so that a fault names the variable and not the file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from scheduler.config.wording import KeyPath


@dataclass(frozen=True, slots=True)
class Given:
    """A value from outside the file, and the name under which it was given."""

    value: object
    name: str


def from_environ(environ: Mapping[str, str]) -> dict[KeyPath, Given]:
    """Our variables that are set; an empty one is not."""
    return {
        path: Given(read(environ[name]), name)
        for name, (path, read) in VARIABLES.items()
        if environ.get(name)
    }


def from_flags(socket: Path | None, jobs: Sequence[Path]) -> dict[KeyPath, Given]:
    """The flags `--socket` and `--jobs`, where they were given."""
    given: dict[KeyPath, Given] = {}
    if socket is not None:
        given["listen", "socket"] = Given(_absolute(str(socket)), "--socket")
    if jobs:
        given["jobs",] = Given([_absolute(str(folder)) for folder in jobs], "--jobs")
    return given


def lay_over(table: dict[str, Any], given: Mapping[KeyPath, Given]) -> None:
    """Each value stands in the table at its path, whatever stood there."""
    for path, value in given.items():
        _put(table, path, value.value)


def _put(table: dict[str, Any], path: KeyPath, value: object) -> None:
    *outer, key = [str(part) for part in path]
    for name in outer:
        inner = table.get(name, {})
        if not isinstance(inner, Mapping):
            return  # what should be a table is none: left as it is, to be refused
        table[name] = dict(inner)
        table = table[name]
    table[key] = value


def _text(value: str) -> object:
    return value


def _number(value: str) -> object:
    """The number that a text stands for; what is none stays text, and is refused as such."""
    try:
        return float(value) if "." in value else int(value)
    except ValueError:
        return value


def _folders(value: str) -> object:
    """Folders separated by colons; relative ones start from the working directory, as in a shell."""
    return [os.path.abspath(part) for part in value.split(":") if part]  # noqa: PTH100 -- see `paths`


def _absolute(value: str) -> object:
    return os.path.abspath(value)  # noqa: PTH100 -- see `paths`


VARIABLES: Final[Mapping[str, tuple[KeyPath, Callable[[str], object]]]] = {
    "SCHEDULER_TIMEZONE": (("timezone",), _text),
    "SCHEDULER_MAX_RUNNING": (("max_running",), _number),
    "SCHEDULER_START_RATE": (("start_rate",), _number),
    "SCHEDULER_DRAIN_TIMEOUT": (("drain_timeout",), _text),
    "SCHEDULER_LEASE": (("lease",), _text),
    "SCHEDULER_HEARTBEAT": (("heartbeat",), _text),
    "SCHEDULER_OUTPUT_LIMIT": (("output_limit",), _text),
    "SCHEDULER_DEFAULT_TIMEOUT": (("default_timeout",), _text),
    "SCHEDULER_LOG_FORMAT": (("log", "format"), _text),
    "SCHEDULER_LOG_LEVEL": (("log", "level"), _text),
    "SCHEDULER_PYTHON_PATH": (("python_path",), _folders),
    "SCHEDULER_SOCKET": (("listen", "socket"), _absolute),
    "SCHEDULER_JOBS": (("jobs",), _folders),
}
