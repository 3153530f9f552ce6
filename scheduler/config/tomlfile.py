"""TOML files on disk: read once, as bytes, and parsed, with a sentence for everything that can be wrong.

A file that is being written while it is read is just a faulty file; nothing here waits or tries again.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from scheduler.config.wording import printable
from scheduler.errors import Fault
from scheduler.trust import foreign_hands

SIZE_LIMIT: Final = 64 * 1024 * 1024

_AT_LINE: Final = re.compile(r" \(at line (\d+), column \d+\)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class TomlText:
    """What became of one file or text.

    Attributes:
        text: the decoded text, or None where there is none.
        table: the parsed top level, or None where there is a fault.
        fault: what is wrong, or None.
    """

    text: str | None = None
    table: dict[str, Any] | None = None
    fault: Fault | None = None


def read_toml(path: Path) -> TomlText:
    """The file at `path`, parsed, or the fault that keeps it from being; one is that others may write it."""
    try:
        data = _read_regular(path)
    except _InForeignHands as error:
        return TomlText(fault=Fault(message=str(error), file=str(path)))
    except OSError as error:
        return TomlText(fault=Fault(message=_cannot_read(path, error), file=str(path)))
    if len(data) > SIZE_LIMIT:
        message = f"is larger than {SIZE_LIMIT // 1024**2} MiB: split it into several files"
        return TomlText(fault=Fault(message=message, file=str(path)))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"is not UTF-8 (byte 0x{data[error.start]:02x}): save it as UTF-8"
        return TomlText(fault=Fault(message=message, file=str(path), line=line))
    return parse_toml(text, str(path))


def parse_toml(text: str, file: str | None) -> TomlText:
    """The text, parsed, or the fault that keeps it from being."""
    try:
        return TomlText(text=text, table=tomllib.loads(text))
    except RecursionError:
        fault = Fault(message="is nested too deeply to be read", file=file)
    except tomllib.TOMLDecodeError as error:
        found = _AT_LINE.search(str(error))
        line = int(found[1]) if found else text.rstrip().count("\n") + 1
        what = printable(_AT_LINE.sub("", str(error)), 200)
        fault = Fault(message=f"TOML syntax error: {what}", file=file, line=line)
    except ValueError:  # Python reads no number of more than 4300 digits
        fault = Fault(message="holds a number with more digits than can be read", file=file)
    return TomlText(text=text, fault=fault)


class _InForeignHands(Exception):
    """Others than root and the daemon's user may change the file; the text says how to end that."""


def _read_regular(path: Path) -> bytes:
    """At most a byte more than the limit; non-blocking, for a FIFO without a writer would hold us."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise IsADirectoryError
        why = foreign_hands(path, found)
        if why is not None:
            raise _InForeignHands(why)
        return file.read(SIZE_LIMIT + 1)


def _cannot_read(path: Path, error: OSError) -> str:
    if isinstance(error, IsADirectoryError):
        return "is not a regular file: move it away, or give it another ending than .toml"
    if isinstance(error, FileNotFoundError) and path.is_symlink():
        target = printable(str(path.readlink()))
        return f"is a symbolic link to {target}, which does not exist: mend the link or remove it"
    if isinstance(error, FileNotFoundError):
        return "does not exist: make it, or name another one"
    reason = error.strerror or type(error).__name__
    return f"cannot be read: {reason}; make it readable for the user that the daemon runs as"
