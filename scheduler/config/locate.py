"""Line numbers of the tables and keys of a TOML text: the reader of the standard library gives none.

The text is cut into marks and the keys are collected; values are only skipped. It is a guide for error
messages: it never raises, also not on a text that is no TOML at all, and what it does not know it does not
guess: a key inside something it could not follow gets the line of the nearest table or key around it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

KeyPath: TypeAlias = tuple[str, ...]

_MARK: Final = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}'
    r"|'''.*?'{3,5}"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'"
    r"|\#[^\n]*"
    r"|[\[\]{},=\n]"
    r"|[^\[\]{},=\n\"'\#]+"
    r"|.",
    re.DOTALL,
)


class Lines:
    """Where keys stand in one text."""

    __slots__ = ("_known",)

    def __init__(self, known: Mapping[KeyPath, int]) -> None:
        self._known = known

    def of(self, path: Sequence[str]) -> int | None:
        """The line (from 1) of the key, else of the nearest one around it, or None."""
        for length in range(len(path), 0, -1):
            line = self._known.get(tuple(path[:length]))
            if line is not None:
                return line
        return None

    def names(self, table: str) -> frozenset[str]:
        """The names that stand directly in a top-level table, as far as the text could be followed."""
        return frozenset(path[1] for path in self._known if len(path) > 1 and path[0] == table)


def locate(text: str) -> Lines:
    """The lines of every key of the text; of a key that stands twice the first one."""
    return Lines(_Scanner().scan(text))


class _Scanner:
    """Follows tables, keys and the nesting of values through the marks of one text."""

    def __init__(self) -> None:
        self.known: dict[KeyPath, int] = {}
        self.table: KeyPath = ()  # of the last [header]
        self.path: KeyPath = ()  # of the key whose value is being read
        self.open: list[tuple[str, KeyPath]] = []  # brackets of the value, each with the key before it
        self.pending: list[str] = []  # marks of a key that is being read
        self.in_header = False
        self.in_value = False

    def scan(self, text: str) -> dict[KeyPath, int]:
        for mark, line in _marks(text):
            if self.in_header:
                self._header(mark, line)
            elif self.in_value:
                self._value(mark)
            else:
                self._key(mark, line)
        return self.known

    def _header(self, mark: str, line: int) -> None:
        """Inside [ ... ]: the names of a table."""
        if mark in ("]", "\n"):
            self.in_header = False
            if self.pending:
                self.table = _names(self.pending)
                self._record(self.table, line)
            self.pending = []
        elif mark != "[":
            self.pending.append(mark)

    def _key(self, mark: str, line: int) -> None:
        """At the place of a key: of the file, or of an inline table."""
        if mark == "=":
            around = self.open[-1][1] if self.open else self.table
            self.path = around + _names(self.pending)
            self._record(self.path, line)
            self.pending, self.in_value = [], True
        elif mark == "[" and not self.open and not "".join(self.pending).strip():
            self.pending, self.in_header = [], True
        elif mark == "}" and self.open:
            self._close()
        elif mark in ("\n", ","):
            self.pending = []
        elif not mark.startswith("#"):
            self.pending.append(mark)

    def _value(self, mark: str) -> None:
        """Behind `=`, or inside an array."""
        if mark in ("[", "{"):
            self.open.append((mark, self.path))
            self.in_value = mark == "["
        elif mark in ("]", "}"):
            self._close()
        elif mark == ",":
            self.in_value = not self.open or self.open[-1][0] == "["
        elif mark == "\n" and not self.open:
            self.in_value = False

    def _close(self) -> None:
        """A bracket ended; what follows it belongs to the value around it."""
        if self.open:
            self.path = self.open.pop()[1]
        self.pending, self.in_value = [], True

    def _record(self, path: KeyPath, line: int) -> None:
        for length in range(1, len(path) + 1):
            self.known.setdefault(path[:length], line)


def _marks(text: str) -> Iterator[tuple[str, int]]:
    """The marks of the text, each with the line (from 1) on which it begins."""
    line = 1
    for match in _MARK.finditer(text):
        mark = match.group()
        yield mark, line
        line += mark.count("\n")


def _names(marks: Sequence[str]) -> KeyPath:
    """The names in the marks of a dotted key: `jobs."a.b".retry` is three."""
    names: list[str] = []
    for mark in marks:
        if mark[0] in "\"'":
            names.append(_unquoted(mark))
        else:
            names.extend(part.strip() for part in mark.split(".") if part.strip())
    return tuple(names)


def _unquoted(mark: str) -> str:
    """The name in quotes, its escapes resolved; one that cannot be read stands as it is."""
    try:
        return str(tomllib.loads(f"name = {mark}")["name"])
    except tomllib.TOMLDecodeError:
        return mark
