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
from pathlib import Path
from typing import Final

from scheduler.errors import SpawnFailed
from scheduler.executors.accounts import Account, Identity, looking_as
from scheduler.trust import is_roots_alone

LARGEST: Final = 1 << 20

_LINE: Final = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*?)\s*", re.DOTALL)
_SINGLE: Final = re.compile(r"'([^']*)'\s*(?:#.*)?", re.DOTALL)
_DOUBLE: Final = re.compile(r'"((?:[^"\\]|\\.)*)"\s*(?:#.*)?', re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r"}


def read_env_file(path: str, account: Account | None = None) -> dict[str, str]:
    """The variables that the file sets; a later line wins.

    A file for the job of another user has to be his or root's. One that he may not read himself is read for
    him only from a place that nobody but root can change: else he could put a link there to any secret.

    Args:
        account: the user that the job runs as; None: the daemon's own.

    Raises:
        SpawnFailed: the file cannot be read, or a line of it is not `KEY=VALUE`; it says which.
    """
    content = _content(path, None if account is None else account.identity)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise SpawnFailed(f"env_file {path}:{line}: not UTF-8; save the file as UTF-8") from error
    return dict(_variables(path, text))


def _content(path: str, identity: Identity | None) -> bytes:
    try:
        descriptor = _opened(path, identity)
        try:
            if identity is not None:
                _check_hands(path, os.fstat(descriptor), identity.uid)
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


def _opened(path: str, identity: Identity | None) -> int:
    """The file, opened as the user who may read it, else as ourselves where that gives nothing away."""
    # Non-blocking, so that a FIFO by that name is refused and not waited for.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        with looking_as(identity):
            return os.open(path, flags)
    except PermissionError:
        if identity is None or not is_roots_alone(Path(path)):
            raise
        return os.open(path, flags | os.O_NOFOLLOW)


def _check_hands(path: str, found: os.stat_result, uid: int) -> None:
    """The file is root's or the user's, and nobody else writes it.

    Raises:
        SpawnFailed: it is not.
    """
    if found.st_uid not in (0, uid):
        raise SpawnFailed(
            f"env_file {path} belongs to user {found.st_uid}: it has to be root's or that of the job's user"
        )
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise SpawnFailed(f"env_file {path} may be written by others: chmod go-w {path}")


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
