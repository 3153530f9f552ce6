"""From an event to the line that tells it: time, level and name, then the ids, then the rest.

Most events bear a few short words and numbers. As JSON those take a short way: their keys are known, their
types safe, and the line itself shows that nothing in it had to be cut, escaped or masked. Whatever needs care
(a collection, a traceback, a long or foreign text, a secret) goes through `scheduler.logline.plain_fields`,
value by value. Both ways make the same line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

import orjson
import structlog

from scheduler.clock import SECOND, Micros, from_micros
from scheduler.logline import (
    ENTRY_LIMIT,
    IDENTITIES,
    INT_END,
    KEY_LIMIT,
    VALUE_LIMIT,
    Masks,
    Plain,
    json_line,
    plain_fields,
)

Text: TypeAlias = Callable[[Mapping[str, Plain]], bytes]
"""Makes the line of plain fields: `json_line` or `console_line`."""

_IDS_FIRST: Final = ("job", "run_id", "attempt", "claim", "fire_time")
_HEAD: Final = frozenset({"timestamp", "level", "event"})
_WITH_CARE: Final = _HEAD | {"exception", "exc_info"}

_TYPES_LIMIT: Final = 200
_OPTIONS: Final = orjson.OPT_APPEND_NEWLINE | orjson.OPT_STRICT_INTEGER


Line: TypeAlias = tuple[Mapping[str, object], bytes]
"""An event as it goes out: its fields, and its text with the line end."""


class EventName(StrEnum):
    """The names of a closed list of events: told as they are, where any other name is a value like others."""


class _Known(NamedTuple):
    """What a set of keys says."""

    order: tuple[str, ...] | None
    """The keys as the line has them, where the event has them in another order."""
    identities: tuple[str, ...]
    instants: tuple[str, ...]


class JsonLines:
    """Makes the lines of events, each one JSON object."""

    def __init__(self, masks: Masks) -> None:
        self._masks = masks
        self._safe: set[type] = {str, int, float, bool, type(None)}

    def __call__(self, at: Micros, level: str, event: object, fields: Mapping[str, object]) -> Line:
        """The line of the event; `timestamp`, `level` and `event` are not taken from its fields."""
        line = self._quick(at, level, event, fields) if isinstance(event, EventName) else None
        return line or careful_line(at, level, event, fields, masks=self._masks, text=json_line)

    def _quick(self, at: Micros, level: str, event: EventName, fields: Mapping[str, object]) -> Line | None:
        """The line, if it is as most are; else None."""
        known = _known(tuple(fields))
        if known is None or not (self._safe.issuperset(map(type, fields.values())) or self._learns(fields)):
            return None
        rest = fields if known.order is None else {name: fields[name] for name in known.order}
        shown = {"timestamp": timestamp(at), "level": level, "event": event._value_, **rest}
        for name in known.instants:
            shown[name] = _instant(fields[name])
        try:
            text = orjson.dumps(shown, option=_OPTIONS)
        except TypeError:  # a large number, half a character
            return None
        # Within these bounds no value is cut, and what is plain to see is what was told.
        if len(text) > VALUE_LIMIT or not text.isascii() or b"\x7f" in text:
            return None
        for name in known.identities:
            if len(str(fields[name])) > KEY_LIMIT:
                return None
        return None if self._masks and self._masks.touch(_words(fields)) else (shown, text)

    def _learns(self, fields: Mapping[str, object]) -> bool:
        """The types of these values are safe, too: words of closed lists, told by their value."""
        new = {type(value) for value in fields.values()} - self._safe
        if len(self._safe) > _TYPES_LIMIT or not all(issubclass(of, StrEnum) for of in new):
            return False
        self._safe |= new
        return True


def careful_line(
    at: Micros, level: str, event: object, fields: Mapping[str, object], *, masks: Masks, text: Text
) -> Line:
    """The line of any event, in the form that `text` gives it; as above otherwise."""
    named = plain_fields({"event": event}, masks)["event"]
    if isinstance(event, EventName):
        named = event._value_
    head: dict[str, Plain] = {"timestamp": timestamp(at), "level": level, "event": named}
    rest = plain_fields(arranged(fields), masks)
    shown = head | {name: value for name, value in rest.items() if name not in _HEAD}
    return shown, text(shown)


def arranged(fields: Mapping[str, object]) -> dict[str, object]:
    """The fields with the ids first, instants as RFC 3339, the exception as its traceback."""
    found: dict[str, object] = {name: fields[name] for name in _IDS_FIRST if name in fields}
    for name, value in fields.items():
        found[name] = _instant(value) if _tells_instant(name) else value
    if not found.get("exc_info"):
        found.pop("exc_info", None)
        return found
    return dict(structlog.processors.format_exc_info(None, "", found))


def timestamp(instant: Micros) -> str:
    """The instant as RFC 3339 in UTC, of constant width.

    Raises:
        OverflowError: no instant of this calendar.
    """
    second, rest = divmod(instant, SECOND)
    return f"{_second(second)}.{rest:06}+00:00"


@lru_cache(maxsize=512)
def _known(names: tuple[str, ...]) -> _Known | None:
    """What the keys say, None where they need care. Events of one kind have them in common."""
    if len(names) > ENTRY_LIMIT or not _WITH_CARE.isdisjoint(names):
        return None
    if any(len(name) > KEY_LIMIT or not name.isascii() for name in names):
        return None
    ids = _those_in(names, _IDS_FIRST)
    order = (*ids, *(name for name in names if name not in ids))
    return _Known(
        order=None if order == names else order,
        identities=_those_in(names, IDENTITIES),
        instants=tuple(name for name in names if _tells_instant(name)),
    )


def _those_in(names: tuple[str, ...], of: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in of if name in names)


def _words(fields: Mapping[str, object]) -> str:
    """All texts in which a secret could be; ids are none."""
    texts = [value for name, value in fields.items() if isinstance(value, str) and name not in IDENTITIES]
    return "\n".join(texts)


def _tells_instant(name: str) -> bool:
    return name == "fire_time" or name.endswith("_at")


def _instant(value: object) -> object:
    """The timestamp of a number that is one; anything else as it is."""
    if type(value) is not int or not -INT_END <= value < INT_END:
        return value
    return _moment(value) or value


@lru_cache(maxsize=1024)
def _moment(instant: Micros) -> str | None:
    """Its timestamp; None where it is no instant of this calendar. The events of a run have it in common."""
    try:
        return timestamp(instant)
    except OverflowError:
        return None


@lru_cache(maxsize=64)
def _second(second: int) -> str:
    """RFC 3339 up to the seconds, in UTC; lines of the same second have it in common."""
    return from_micros(second * SECOND).isoformat()[:19]
