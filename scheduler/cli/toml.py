"""Writes job files: the reader of the standard library has no writer, and a job needs a small part of TOML.

Text, numbers, truth values, lists, and tables of them written in one line. Any text is written so that
it reads back the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
# What TOML 1.0 does not take as it is in a basic string; quotes and backslashes among them.
_UNSAFE: Final = re.compile(r'["\\\x00-\x1f\x7f]')
_NAMED: Final = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


def job_file(jobs: Iterable[tuple[str, Mapping[str, object]]], *, heading: str) -> str:
    """The text of a job file with these jobs, under a comment."""
    parts = ["".join(f"# {line}\n" for line in heading.splitlines())]
    for id, table in jobs:
        lines = [f"[jobs.{_key(id)}]", *(f"{_key(key)} = {_value(value)}" for key, value in table.items())]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _text(key)


def _value(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return repr(value)
        case str():
            return _text(value)
        case list() | tuple():
            return f"[{', '.join(_value(part) for part in value)}]"
        case Mapping():
            inner = ", ".join(f"{_key(str(key))} = {_value(part)}" for key, part in value.items())
            return f"{{ {inner} }}" if inner else "{}"
        case _:
            raise TypeError(f"a job file is not written with a {type(value).__name__}")


def _text(text: str) -> str:
    return '"' + _UNSAFE.sub(lambda found: _NAMED.get(found[0], f"\\u{ord(found[0]):04x}"), text) + '"'
