"""Turns one event into the bytes of one line, whatever its values are.

Promises: the result is exactly one line; as JSON it parses back; secrets that were named to `Masks` are not
in it; it is bounded (a line over 48 KiB would be split by journald). No value can forge a line, a field or
a terminal sequence, and no value, however broken, raises. Writing is left to `scheduler.logwriter`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum
from functools import lru_cache
from itertools import islice
from typing import Final, TypeAlias, TypeVar, cast

import orjson

Plain: TypeAlias = "bool | int | float | str | list[Plain] | dict[str, Plain] | None"

VALUE_LIMIT: Final = 1_000
"""Characters of one string; the rest is cut with a mark."""

KEY_LIMIT: Final = 100
"""Characters of a key, and of an id."""

EXCEPTION_LIMIT: Final = 2_500
"""Characters of a traceback; its head is cut, because its end says what happened."""

LINE_LIMIT: Final = 4_000
"""Characters of all values of a line together, tracebacks aside. Escaped, a line stays below 48 KiB."""

ENTRY_LIMIT: Final = 50
"""Entries of one collection."""

DEPTH_LIMIT: Final = 5
"""Collections inside collections."""

IDENTITIES: Final = frozenset({"job", "run_id"})
"""Ids are public and are what a log is searched by: a secret that equals one of them hides nothing."""

MASK: Final = "***"
MASK_LIMIT: Final = 1_000
INNOCENT_LIMIT: Final = 1_000
SHORTEST_SECRET: Final = 4
"""Shorter values (`1`, `eu`, `yes`) are settings; masking them would blank out innocent text."""

_UNSAFE_IN_JSON: Final = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
"""Legal inside JSON, but line ends to some readers, or commands to a terminal."""

_BARE_WORD: Final = re.compile(r'[^\s"=\\]+')

_AS_THEY_ARE: Final = frozenset({bool, float})

INT_END: Final = 2**63
"""orjson and most readers end here; larger integers are told as text."""

_SCALAR_COST: Final = 20
"""What each value takes from the budget of its line, so that a table of numbers ends, too."""

_CUT: Final = "…"
_DIM, _BOLD, _YELLOW, _RED, _RESET = "\x1b[2m", "\x1b[1m", "\x1b[33m", "\x1b[31m", "\x1b[0m"
_LEVEL_COLOURS: Final = {"debug": _DIM, "warning": _YELLOW, "error": _RED, "critical": _RED}

_Entry = TypeVar("_Entry")


class Masks:
    """The secrets that must not appear in any line; the newest thousand are known."""

    def __init__(self) -> None:
        self._secrets: dict[str, None] = {}
        self._ordered: tuple[str, ...] = ()
        self._longest = 0
        self._innocent: set[str] = set()

    def add(self, values: Iterable[str]) -> None:
        """The values, and each line of a value of many lines, are masked from now on."""
        for value in values:
            for part in {value, *value.splitlines()}:
                if len(part) >= SHORTEST_SECRET:
                    self._secrets.pop(part, None)
                    self._secrets[part] = None
        while len(self._secrets) > MASK_LIMIT:
            del self._secrets[next(iter(self._secrets))]
        # The longest first: a secret that contains another is masked as a whole.
        self._ordered = tuple(sorted(self._secrets, key=len, reverse=True))
        self._longest = len(self._ordered[0]) if self._ordered else 0
        self._innocent = set()  # a new one: who looks at this moment adds to the one that goes

    def __bool__(self) -> bool:
        return bool(self._ordered)

    def touch(self, text: str) -> bool:
        """Whether a secret is in the text. Short ones without are kept in mind: the same come again."""
        innocent = self._innocent  # before the secrets: it is never newer than they are
        if text in innocent:
            return False
        if any(secret in text for secret in self._ordered):
            return True
        if len(text) <= KEY_LIMIT and len(innocent) < INNOCENT_LIMIT:
            innocent.add(text)
        return False

    def head(self, text: str, limit: int) -> tuple[str, bool]:
        """The masked start of the text, at most `limit` characters, and whether more was there."""
        window = limit + self._longest
        hidden = self.hide(text[:window])
        if len(text) > window:
            # The window may end inside a secret, which is then not recognised: that part goes.
            return hidden[: min(limit, max(0, len(hidden) - self._longest))], True
        return hidden[:limit], len(hidden) > limit

    def tail(self, text: str, limit: int) -> tuple[str, bool]:
        """The masked end of the text, at most `limit` characters, and whether more was there."""
        window = limit + self._longest
        hidden = self.hide(text[-window:])
        # As above: the first characters of the window may be the end of a secret.
        start = max(self._longest if len(text) > window else 0, len(hidden) - limit)
        return hidden[start:], start > 0 or len(text) > window

    def hide(self, text: str) -> str:
        """The text without any of the secrets."""
        for secret in self._ordered:
            if secret in text:
                text = text.replace(secret, MASK)
        return text


def plain_fields(fields: Mapping[str, object], masks: Masks) -> dict[str, Plain]:
    """The fields as JSON values: bounded, masked, encodable."""
    return _Plainer(masks).fields(fields)


def json_line(fields: Mapping[str, Plain]) -> bytes:
    """The fields as one JSON object and a newline."""
    line = orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)
    if line.isascii() and b"\x7f" not in line:
        return line
    return _UNSAFE_IN_JSON.sub(_json_escape, line.decode()).encode()


def console_line(fields: Mapping[str, Plain], *, coloured: bool) -> bytes:
    """The fields as text for a person; a traceback follows indented, so that it cannot pose as a line."""
    rest = dict(fields)
    moment, level, event = (str(rest.pop(name, "")) for name in ("timestamp", "level", "event"))
    traceback = rest.pop("exception", None)
    words = [
        _paint(moment, _DIM, coloured),
        _paint(f"{level:<8}", _LEVEL_COLOURS.get(level, ""), coloured),
        _paint(_printable(event), _BOLD, coloured),
        *(_paint(f"{_printable(key)}=", _DIM, coloured) + _console_value(rest[key]) for key in rest),
    ]
    lines = [" ".join(words)]
    if isinstance(traceback, str):
        lines += [f"    | {_printable(line)}" for line in traceback.split("\n")]
    return "".join(f"{line}\n" for line in lines).encode()


class _Plainer:
    """Makes the fields of one line plain, within one budget of characters."""

    def __init__(self, masks: Masks) -> None:
        self._masks = masks
        self._budget = LINE_LIMIT

    def fields(self, fields: Mapping[str, object]) -> dict[str, Plain]:
        plain: dict[str, Plain] = {}
        for key, value in islice(fields.items(), ENTRY_LIMIT):
            if key == "exception" and isinstance(value, str):
                plain[key] = self._traceback(value)
            elif key in IDENTITIES and isinstance(value, str):
                plain[key] = _encodable(value[:KEY_LIMIT])
            else:
                plain[_short_key(key)] = self._value(value, DEPTH_LIMIT)
        return plain

    def _value(self, value: object, depth: int) -> Plain:
        self._budget -= _SCALAR_COST
        kind = type(value)
        if kind is str:  # what most fields are, told apart without the long way
            return self._text(cast("str", value))
        if value is None or kind in _AS_THEY_ARE:
            return cast("float | None", value)
        if isinstance(value, Enum):
            value = value.value
        match value:
            case None | bool() | float():
                return value
            case int() if -INT_END <= value < INT_END:
                return value
            case str():
                return self._text(value)
            case bytes() | bytearray() | memoryview():
                return self._text(bytes(value[:VALUE_LIMIT]).decode(errors="backslashreplace"))
            case Mapping() | Sequence() | AbstractSet():
                return self._collection(value, depth)
            case _:
                return self._text(_described(value))

    def _collection(self, value: Collection[object], depth: int) -> Plain:
        if depth == 0:
            return _CUT
        try:
            if isinstance(value, Mapping):
                return self._mapping(value, depth)
            entries = [self._value(entry, depth - 1) for entry in self._affordable(value)]
        except Exception as error:  # noqa: BLE001 -- a foreign collection may do anything when it is walked
            return self._text(f"<{type(value).__name__}: {type(error).__name__} while reading it>")
        return entries if len(entries) == len(value) else [*entries, _CUT]

    def _mapping(self, value: Mapping[object, object], depth: int) -> Plain:
        entries = {
            self._text(_described(key)): self._value(value[key], depth - 1) for key in self._affordable(value)
        }
        return entries if len(entries) == len(value) else {**entries, _CUT: _CUT}

    def _affordable(self, entries: Iterable[_Entry]) -> Iterator[_Entry]:
        for entry in islice(entries, ENTRY_LIMIT):
            if self._budget <= 0:
                return
            yield entry

    def _text(self, text: str) -> str:
        shown, cut = self._masks.head(text, max(0, min(VALUE_LIMIT, self._budget)))
        shown = _encodable(shown)
        self._budget -= len(shown)
        return f"{shown}{_CUT} ({len(text)} characters)" if cut else shown

    def _traceback(self, text: str) -> str:
        shown, cut = self._masks.tail(text, EXCEPTION_LIMIT)
        return f"({len(text)} characters) {_CUT}{_encodable(shown)}" if cut else _encodable(shown)


@lru_cache(maxsize=512)
def _short_key(key: str) -> str:
    """The key, bounded and encodable; lines of one event have their keys in common."""
    return _encodable(key[:KEY_LIMIT])


def _described(value: object) -> str:
    try:
        return value if isinstance(value, str) else str(value)
    except Exception as error:  # noqa: BLE001 -- `__str__` of a foreign value may do anything
        return f"<{type(value).__name__}: {type(error).__name__} while describing it>"


def _encodable(text: str) -> str:
    if text.isascii():
        return str(text)
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="backslashreplace").decode()
    return str(text)


def _json_escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def _printable(text: str) -> str:
    """The text with everything escaped that is not ink or a plain space."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def _console_value(value: Plain) -> str:
    if isinstance(value, str) and value.isprintable() and _BARE_WORD.fullmatch(value):
        return value
    return _printable(orjson.dumps(value).decode())


def _paint(text: str, colour: str, coloured: bool) -> str:  # noqa: FBT001 -- private, one meaning
    return f"{colour}{text}{_RESET}" if coloured and colour else text
