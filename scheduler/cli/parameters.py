"""Values on the command line that are more than text: lengths of time, and moments."""

# ruff: noqa: ARG002 - click says what its methods are handed

from __future__ import annotations

from datetime import datetime, time, timedelta
from typing import Any

import click

from scheduler.cli.wording import now
from scheduler.clock import Micros, from_micros, to_micros
from scheduler.errors import Invalid


class Duration(click.ParamType[Micros]):
    """A length of time as job files write it (`90s`, `15m`, `1h30m`, or seconds), in microseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Micros:
        from scheduler.model.durations import parse_duration

        try:
            length = parse_duration(value)
        except Invalid as bad:
            self.fail(bad.message, param, ctx)
        if length == 0:
            self.fail("it must be longer than 0", param, ctx)
        return length


class Moment(click.ParamType[Micros]):
    """A moment, in microseconds: with an offset it is exact, without one it is meant in the local zone.

    `02:30` is the last time the clock showed that, or the next where `ahead` is set; `2h` (where `ago` is
    set) is two hours ago.
    """

    name = "time"

    def __init__(self, *, ago: bool = False, ahead: bool = False) -> None:
        self._ago = ago
        self._ahead = ahead

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Micros:
        text = str(value).strip()
        found = (
            _full(text) or _time_of_day(text, ahead=self._ahead) or (_length_ago(text) if self._ago else None)
        )
        if found is None:
            more = ", or a time ago such as 2h" if self._ago else ""
            self.fail(f"{text!r} is no time: write 2026-10-01T02:30+02:00, 2026-10-01 02:30, or 02:30{more}")
        return found


def _full(text: str) -> Micros | None:
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        return None
    return to_micros(read if read.tzinfo else read.astimezone())


def _time_of_day(text: str, *, ahead: bool) -> Micros | None:
    try:
        shown = time.fromisoformat(text)
    except ValueError:
        return None
    present = from_micros(now()).astimezone()
    today = datetime.combine(present.date(), shown.replace(tzinfo=None))
    is_past = today.astimezone() <= present
    other = today + timedelta(days=1) if ahead else today - timedelta(days=1)
    return to_micros((other if is_past is ahead else today).astimezone())


def _length_ago(text: str) -> Micros | None:
    from scheduler.model.durations import parse_duration

    try:
        return now() - parse_duration(text)
    except Invalid:
        return None
