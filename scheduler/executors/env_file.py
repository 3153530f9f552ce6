r"""Reading an `env_file`: lines `KEY=VALUE` that hold a job's secrets outside the store.

The form is the one of systemd's EnvironmentFile= where both can say the same: blank lines and lines that
begin with `#` or `;` are skipped, an unquoted value goes to the end of the line (a `#` in a password is no
comment) without the blanks around it, single quotes take everything literally, in double quotes `\` escapes.
`export ` before a key is allowed. A fault names file and line and never shows a value.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from typing import Final

from scheduler.errors import SpawnFailed

LARGEST: Final = 1 << 20

_LINE: Final = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*?)\s*", re.DOTALL)
_SINGLE: Final = re.compile(r"'([^']*)'\s*(?:#.*)?", re.DOTALL)
_DOUBLE: Final = re.compile(r'"((?:[^"\\]|\\.)*)"\s*(?:#.*)?', re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r"}


def read_env_file(path: str) -> dict[str, str]:
    """The variables that the file sets; a later line wins.

    Raises:
        SpawnFailed: the file cannot be read, or a line of it is not `KEY=VALUE`; it says which.
    """
    content = _content(path)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise SpawnFailed(f"env_file {path}:{line}: not UTF-8; save the file as UTF-8") from error
    return dict(_variables(path, text))


def _content(path: str) -> bytes:
    try:
        # Non-blocking, so that a FIFO by that name is refused and not waited for.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            content = _read_regular(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise SpawnFailed(f"env_file {path} cannot be read: {error.strerror}") from error
    if content is None:
        raise SpawnFailed(f"env_file {path} is not a regular file")
    if len(content) > LARGEST:
        raise SpawnFailed(f"env_file {path} is larger than {LARGEST} bytes")
    return content


def _read_regular(descriptor: int) -> bytes | None:
    """The content, up to one byte more than is allowed; None where it is no regular file."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return None
    with os.fdopen(descriptor, "rb", closefd=False) as file:
        return file.read(LARGEST + 1)


def _variables(path: str, text: str) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = line.strip()
        if not stripped or stripped[0] in "#;":
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise SpawnFailed(f"env_file {path}:{number}: not KEY=VALUE with a key of letters, digits and _")
        value = _value(match[2])
        if value is None:
            raise SpawnFailed(f"env_file {path}:{number}: {match[1]}: the quotes are not closed at the end")
        if "\0" in value:
            raise SpawnFailed(f"env_file {path}:{number}: {match[1]}: a NUL byte cannot be in a variable")
        yield match[1], value


def _value(written: str) -> str | None:
    if written.startswith("'"):
        single = _SINGLE.fullmatch(written)
        return None if single is None else single[1]
    if written.startswith('"'):
        double = _DOUBLE.fullmatch(written)
        return None if double is None else _unescape(double[1])
    return written


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), text, flags=re.DOTALL)
