"""Cursors of lists: opaque to clients, stable while rows come and go.

A cursor names the last row that was shown, by a key that never changes (job id, sequence number), so a page
neither repeats nor misses a row that was there all the time, whatever is added or removed between two pages.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from starlette.responses import Response

from scheduler.errors import Fault, Invalid

DEFAULT_LIMIT: Final = 100
MAX_LIMIT: Final = 1_000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Rows of one page, and the cursor of the next one, or None where this is the last."""

    rows: Sequence[T]
    next_cursor: str | None


def page_response(items: Sequence[str], next_cursor: str | None) -> Response:
    """A page of items that are JSON texts already: the framework would encode all of them in one go."""
    body = f'{{"items":[{",".join(items)}],"next_cursor":{json.dumps(next_cursor)}}}'
    return Response(body, media_type="application/json")


class Cursors:
    """The cursors of one kind of list; those of another kind are refused."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def encode(self, key: str | int) -> str:
        """The cursor behind the row with that key."""
        return base64.urlsafe_b64encode(f"{self._kind}:{key}".encode()).decode().rstrip("=")

    def text(self, cursor: str | None) -> str | None:
        """The key in a cursor, or None for no cursor.

        Raises:
            Invalid: it is no cursor of this kind of list.
        """
        if cursor is None:
            return None
        try:
            padded = cursor + "=" * (-len(cursor) % 4)
            kind, _, key = base64.b64decode(padded, altchars=b"-_", validate=True).decode().partition(":")
        except (ValueError, binascii.Error):
            raise _no_cursor() from None
        if kind != self._kind or not key:
            raise _no_cursor()
        return key

    def number(self, cursor: str | None) -> int | None:
        """The key in a cursor as the sequence number that it is, or None for no cursor.

        Raises:
            Invalid: it is no cursor of this kind of list.
        """
        key = self.text(cursor)
        if key is None:
            return None
        if not (key.isascii() and key.isdecimal() and len(key) < 19):
            raise _no_cursor()
        return int(key)

    def page(self, rows: Sequence[T], limit: int, keys: Sequence[str | int]) -> Page[T]:
        """The page of at most `limit` rows; one more was asked for, to know whether there are more."""
        if len(rows) <= limit:
            return Page(rows, None)
        return Page(rows[:limit], self.encode(keys[limit - 1]))


def _no_cursor() -> Invalid:
    message = "it is no cursor of this list: write the next_cursor of the page before, or leave it out"
    return Invalid(f"cursor: {message}", faults=[Fault(key="cursor", message=message)])
