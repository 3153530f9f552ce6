"""What came of a handler's call, as a value that travels as JSON from a child to the daemon.

Promises: a result is JSON and at most 64 KiB, so it fits in the run's row; whatever a handler returns or
raises (also `sys.exit(0)`) becomes an `Outcome` and nothing else; a message is one line. It imports little,
because every child pays for it.
"""

from __future__ import annotations

import json
import math
import traceback
from dataclasses import asdict
from enum import StrEnum
from typing import Final, TypeAlias

from scheduler.clock import SECOND, Micros
from scheduler.model.handlers import Completed, Retry
from scheduler.model.record import record

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"

LARGEST_RESULT: Final = 64 * 1024
LONGEST_MESSAGE: Final = 1000
LONGEST_TRACEBACK: Final = 64 * 1024
_LONGEST_WAIT: Final = 366 * 86400.0
_UNREADABLE: Final = "(its text cannot be read)"


class OutcomeKind(StrEnum):
    """How a call ended."""

    RETURNED = "returned"
    RAISED = "raised"
    RETRY_ASKED = "retry_asked"


@record
class Outcome:
    """The end of a call.

    Attributes:
        result: what was returned, as it reads back from JSON.
        completed: it was returned as `Completed`.
        retry_after: the wait asked for (RETRY_ASKED).
        message: one line for a person, of what was raised or is wrong.
    """

    kind: OutcomeKind
    result: JsonValue = None
    completed: bool = False
    retry_after: Micros | None = None
    message: str | None = None

    def to_json(self) -> str:
        """One line; `from_json` reads it back."""
        return json.dumps(asdict(self))


def from_json(fields: dict[str, JsonValue]) -> Outcome | None:
    """The outcome that a child told; None where it is not one."""
    try:
        kind = OutcomeKind(str(fields.get("kind")))
    except ValueError:
        return None
    retry_after, message = fields.get("retry_after"), fields.get("message")
    return Outcome(
        kind=kind,
        result=fields.get("result"),
        completed=fields.get("completed") is True,
        retry_after=retry_after if isinstance(retry_after, int) else None,
        message=message if isinstance(message, str) else None,
    )


def of_return(value: object) -> Outcome:
    """The outcome of a handler that returned `value`; a value that cannot be kept fails the attempt."""
    completed = isinstance(value, Completed)
    if isinstance(value, Completed):
        value = value.result
    try:
        result = None if value is None else json.loads(_bounded_json(value))
    except _TooLarge:
        return _raised(
            f"the result is larger than {LARGEST_RESULT} bytes of JSON; keep it elsewhere, return its place"
        )
    except (TypeError, ValueError, RecursionError) as error:
        return _raised(f"the result is not JSON: {error}")
    return Outcome(kind=OutcomeKind.RETURNED, result=result, completed=completed)


def of_error(error: BaseException) -> Outcome:
    """The outcome of a handler that raised `error`, whatever its own methods do."""
    if isinstance(error, Retry):
        try:
            return _retry_asked(error)
        except BaseException:  # noqa: BLE001 - the user's `__str__` or `__repr__`
            return _raised(f"{type(error).__name__}: {_UNREADABLE}")
    hint = "; a handler returns or raises, it does not exit" if isinstance(error, SystemExit) else ""
    return _raised(describe(error) + hint)


def describe(error: BaseException) -> str:
    """Type and text of an exception in one line, whatever its `str()` does."""
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001 - the user's `__str__`; also `sys.exit()` in it
        text = _UNREADABLE
    return one_line(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def one_line(text: str) -> str:
    """The text on one line, cut to `LONGEST_MESSAGE`, fit for any database."""
    line = " ".join(text[: 4 * LONGEST_MESSAGE].split())[:LONGEST_MESSAGE]
    return line.encode("utf-8", "replace").decode("utf-8")


def traceback_of(error: BaseException) -> bytes:
    """The traceback from the handler's own frames on, for the run's output; its end is kept if it is long."""
    frames = error.__traceback__.tb_next if error.__traceback__ is not None else None
    try:
        text = "".join(traceback.format_exception(type(error), error, frames))
    except BaseException:  # noqa: BLE001 - the user's `__str__`, `__repr__` or source files
        text = describe(error) + "\n"
    return text.encode("utf-8", "backslashreplace")[-LONGEST_TRACEBACK:]


class _TooLarge(Exception):
    pass


def _bounded_json(value: object) -> str:
    """JSON of the value; stops early when it becomes too large, so that a huge one costs little.

    Raises:
        _TooLarge, TypeError, ValueError, RecursionError: it cannot be kept.
    """
    if isinstance(value, str) and len(value) > LARGEST_RESULT:
        raise _TooLarge
    parts: list[str] = []
    size = 0
    for part in json.JSONEncoder(allow_nan=False, ensure_ascii=False).iterencode(value):
        size += len(part.encode())
        if size > LARGEST_RESULT:
            raise _TooLarge
        parts.append(part)
    return "".join(parts)


def _retry_asked(error: Retry) -> Outcome:
    after: object = error.after  # a user's value, whatever the signature says
    if isinstance(after, bool) or not isinstance(after, int | float) or not math.isfinite(after) or after < 0:
        return _raised(f"Retry(after={after!r:.50}) wants a number of seconds, 0 or more")
    wait = round(min(after, _LONGEST_WAIT) * SECOND)
    return Outcome(kind=OutcomeKind.RETRY_ASKED, retry_after=wait, message=one_line(str(error)))


def _raised(message: str) -> Outcome:
    return Outcome(kind=OutcomeKind.RAISED, message=one_line(message))
