"""Progress as the work tells it: JSON lines, read with patience and in bounded memory.

A line that is not understood is the job's bug, not a reason to fail it: it is ignored, and so is a field of
the wrong kind. A flood is merged: what counts is the newest word, so the loop gets one report for many lines.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from scheduler.engine.ports import ProgressReport
from scheduler.model.runs import Progress

LONGEST_LINE: Final = 16 * 1024
LONGEST_MESSAGE: Final = 500
_LARGEST_COUNT: Final = 2**63 - 1

T = TypeVar("T")


class LineSplitter:
    """Cuts a stream of bytes into lines and skips those that are longer than `longest`."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._begun = b""
        self._skipping = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The lines that these bytes complete, without their newline."""
        *complete, rest = data.split(b"\n")
        for line in complete:
            whole = self._begun + line
            if not self._skipping and len(whole) <= self._longest:
                yield whole
            self._begun, self._skipping = b"", False
        if self._skipping or len(self._begun) + len(rest) > self._longest:
            self._begun, self._skipping = b"", True
        else:
            self._begun += rest


class ProgressReader:
    """Turns the bytes of a progress pipe into reports, the newest word of each field in one."""

    def __init__(self, tell: Callable[[ProgressReport], None]) -> None:
        self._tell = tell
        self._lines = LineSplitter(LONGEST_LINE)

    def feed(self, data: bytes) -> None:
        """Every line that was understood has been told, merged into one report."""
        told: ProgressReport | None = None
        for line in self._lines.feed(data):
            report = parse_line(line)
            if report is not None:
                told = report if told is None else merge(told, report)
        if told is not None:
            self._tell(told)


def parse_line(line: bytes) -> ProgressReport | None:
    """The report in a line `{"done": 3, "total": 10, "message": "...", "cost": 0.02}`, or None."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return parse_fields(fields)


def parse_fields(fields: object) -> ProgressReport | None:
    """The report in an object with those keys; None where none of them makes sense."""
    if not isinstance(fields, dict):
        return None
    progress = Progress(
        done=_count(fields.get("done")),
        total=_count(fields.get("total")),
        message=_message(fields.get("message")),
    )
    cost = _cost(fields.get("cost"))
    return None if progress == Progress() and cost is None else ProgressReport(progress=progress, cost=cost)


def merge(before: ProgressReport, after: ProgressReport) -> ProgressReport:
    """What both say together; where both speak, `after` is right."""
    return ProgressReport(
        progress=Progress(
            done=_newest(before.progress.done, after.progress.done),
            total=_newest(before.progress.total, after.progress.total),
            message=_newest(before.progress.message, after.progress.message),
        ),
        cost=_newest(before.cost, after.cost),
    )


def _newest(before: T | None, after: T | None) -> T | None:
    return before if after is None else after


def _count(value: object) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= _LARGEST_COUNT else None


def _cost(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        cost = float(value)
    except OverflowError:
        return None
    return cost if math.isfinite(cost) and cost >= 0 else None


def _message(value: object) -> str | None:
    if not isinstance(value, str):
        return None
    # Lone surrogates are legal in JSON escapes and in no database.
    return value[:LONGEST_MESSAGE].encode("utf-8", "replace").decode("utf-8")
