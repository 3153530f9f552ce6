"""Finding the program of an attempt, and saying plainly why one cannot be started.

The kernel has one word (ENOENT) for a missing directory, a missing program and a missing interpreter. The
look before the start tells them apart, and a start that fails all the same is explained from its error.
Plain blocking calls.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from pathlib import Path
from typing import Final

from scheduler.errors import SpawnFailed
from scheduler.executors.environment import LARGEST_STRING, encode

OURSELVES: Final = "the daemon's user"

_PLAIN_REASONS: Final = {
    errno.EAGAIN: "the limit on processes is reached; see ulimit -u, or TasksMax= of the unit",
    errno.ENOMEM: "no memory is left for a further process",
    errno.EMFILE: "the daemon has no file descriptor left; raise LimitNOFILE= or lower max_running",
    errno.ENFILE: "the machine has no file descriptor left",
}


def find_directory(cwd: str | None, home: str, *, who: str = OURSELVES) -> str:
    """The directory to start in: the job's `cwd`, else the home directory, or `/` where that is not there.

    Args:
        who: whose rights count, in words.

    Raises:
        SpawnFailed: `cwd` is not a directory that we may enter.
    """
    if cwd is None:
        return home if _kind(home) is _Kind.DIRECTORY and _usable(home) else "/"
    place = Path(home) / cwd
    match _kind(place):
        case _Kind.MISSING:
            raise SpawnFailed(f"cwd {cwd} does not exist, or {who} cannot see it")
        case _Kind.FILE:
            raise SpawnFailed(f"cwd {cwd} is not a directory")
        case _Kind.DIRECTORY:
            if not _usable(place):
                raise SpawnFailed(f"cwd {cwd} may not be entered by {who}: choose one that it may enter")
            return str(place)


def find_program(name: str, *, path: str, cwd: str, who: str = OURSELVES) -> str:
    """The file to execute, searched as execvp(3) does, with the job's own PATH.

    Args:
        who: whose rights count, in words.

    Raises:
        SpawnFailed: there is none, or it is not executable; the message shows the PATH used.
    """
    if not name:
        raise SpawnFailed("the command is empty")
    if "/" in name:
        return _checked(Path(cwd) / name, shown=name, who=who)
    refused: Path | None = None
    for entry in path.split(":"):
        candidate = os.path.join(cwd, entry, name)  # noqa: PTH118 - six directories for each command
        if _kind(candidate) is _Kind.FILE:
            if _usable(candidate):
                return str(Path(candidate))
            refused = Path(candidate)
    if refused is not None:
        raise SpawnFailed(f"{refused} is not executable (chmod +x?), and PATH={path} has no other {name}")
    raise SpawnFailed(f"command not found: {name} (PATH={path}); give its full path, or set PATH in env")


def explain(
    error: Exception, *, program: str, argv: Sequence[str], environment: Mapping[str, str]
) -> SpawnFailed:
    """What kept `program` from being started, as an error for a person; values of variables never show."""
    if not isinstance(error, OSError):
        return SpawnFailed(f"{program} cannot be started: {error}")
    if error.errno == errno.E2BIG:
        return SpawnFailed(_too_big(argv, environment))
    if error.errno in _PLAIN_REASONS:
        return SpawnFailed(f"{program} cannot be started: {_PLAIN_REASONS[error.errno]}")
    if error.errno == errno.ENOEXEC:
        return SpawnFailed(
            f"{program} is not a program for this machine; a script needs a first line like #!/bin/sh"
        )
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return SpawnFailed(_not_there(program))
    return SpawnFailed(f"{program} cannot be started: {error.strerror}")


class _Kind(Enum):
    MISSING = auto()
    FILE = auto()
    DIRECTORY = auto()


def _kind(place: Path | str) -> _Kind:
    try:
        mode = os.stat(place).st_mode  # noqa: PTH116 - as above: a path object costs more than the call
    except (OSError, ValueError):
        return _Kind.MISSING
    return _Kind.DIRECTORY if stat.S_ISDIR(mode) else _Kind.FILE


def _usable(place: Path | str) -> bool:
    """A file may be executed, a directory entered."""
    return os.access(place, os.X_OK, effective_ids=True)


def _checked(place: Path, *, shown: str, who: str) -> str:
    match _kind(place):
        case _Kind.MISSING:
            raise SpawnFailed(f"command not found: {shown} does not exist, or {who} cannot see it")
        case _Kind.DIRECTORY:
            raise SpawnFailed(f"{shown} is a directory, not a command")
        case _Kind.FILE:
            if not _usable(place):
                raise SpawnFailed(f"{shown} is not executable; chmod +x it, or name its interpreter first")
            return str(place)


def _too_big(argv: Sequence[str], environment: Mapping[str, str]) -> str:
    longest = max((len(encode(word)) for word in argv), default=0)
    if longest > LARGEST_STRING:
        return f"an argument has {longest} bytes, the kernel takes {LARGEST_STRING}; pass it by file or stdin"
    total = sum(len(encode(word)) + 1 for word in argv)
    total += sum(len(encode(name)) + len(encode(value)) + 2 for name, value in environment.items())
    return (
        f"arguments and environment have {total} bytes, too many for the kernel; pass them by file or stdin"
    )


def _not_there(program: str) -> str:
    interpreter = _interpreter(program)
    if interpreter is None:
        return f"{program} cannot be started: it, or the loader it needs, does not exist"
    return f"{program} cannot be started: its interpreter {interpreter} (first line, after #!) does not exist"


def _interpreter(program: str) -> str | None:
    try:
        with Path(program).open("rb") as file:
            first = file.readline(256)
    except OSError:
        return None
    words = first.removeprefix(b"#!").split()
    return words[0].decode(errors="replace") if first.startswith(b"#!") and words else None
