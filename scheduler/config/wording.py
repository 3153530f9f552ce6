"""How faults are worded: what a value is, where it stands, what was probably meant.

A fault ends up on terminals, in logs and in HTTP answers, so foreign text is cut and made printable here,
and values are named by their kind: they may be secrets.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import Final, TypeAlias

KeyPath: TypeAlias = tuple[str | int, ...]

_KINDS: Final[tuple[tuple[type, str], ...]] = (
    (int, "a whole number"),
    (float, "a number with a point"),
    (str, "text"),
    (datetime, "a date with a time"),
    (date, "a date without a time"),
    (time, "a time without a date"),
    (Mapping, "a table"),
    (list, "a list"),
    (tuple, "a list"),
)


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong at one key of a table."""

    path: KeyPath
    message: str


def dotted(path: KeyPath) -> str:
    """The path as it is shown: `retry.exit_codes[1]`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{printable(part)}" if text else printable(part)
    return text


def printable(text: str, limit: int = 80) -> str:
    """The text on one line, with nothing in it that a terminal or a log would act on."""
    short = text if len(text) <= limit else text[: limit - 3] + "..."
    return short if short.isprintable() else repr(short)[1:-1]


def shown(value: object) -> str:
    """A value in a message: a short text as it is, anything else by its kind."""
    return f'"{printable(value, 40)}"' if isinstance(value, str) else kind_of(value)


def kind_of(value: object) -> str:
    """What a value is, in the words of TOML."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    for types, name in _KINDS:
        if isinstance(value, types):
            return name
    return f"a value of type {type(value).__name__}"


def nearest(word: str, known: Collection[str], foreign: Mapping[str, str] | None = None) -> str | None:
    """The known word that was probably meant, or None.

    Args:
        foreign: words of other tools, each with ours for the same thing.
    """
    if foreign and word.lower() in foreign:
        return foreign[word.lower()]
    alike = word[:80].lower().replace("-", "_")
    return alike if alike in known else next(iter(difflib.get_close_matches(alike, known, n=1)), None)


def unknown_key(key: str, known: Collection[str], foreign: Mapping[str, str] | None = None) -> str:
    """The sentence about a key that we do not have."""
    near = nearest(key, known, foreign)
    if near:
        return f"unknown key {shown(key)}: did you mean {near}?"
    return f"unknown key {shown(key)}: the keys here are {', '.join(sorted(known))}"
