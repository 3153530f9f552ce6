"""The `RunContext` of a handler, the same on the loop and in a child; only its ends differ."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, TypeAlias
from zoneinfo import ZoneInfo

from scheduler.clock import Clock, Micros, from_micros, rfc3339
from scheduler.executors.outcome import one_line
from scheduler.model.record import record

Fields: TypeAlias = dict[str, object]

LONGEST_MESSAGE: Final = 500


@record
class Call:
    """What a handler is told about its run; travels to a child as JSON.

    Attributes:
        fire_time: UTC microseconds, or None for a start by hand.
        timezone: the job's.
        args: the JSON object of arguments.
        item: the value of the batch item, or None.
    """

    job_id: str
    run_id: str
    attempt: int
    fire_time: Micros | None
    timezone: str
    args: Mapping[str, Any]
    idempotency_key: str
    item: Any = None


@record
class Channels:
    """Where a context's words go.

    Attributes:
        tell: takes progress, with the keys of the progress pipe.
        wish: what the operator wants now.
        write: takes a line of log, newline included.
    """

    tell: Callable[[Fields], None]
    wish: Callable[[], str]
    write: Callable[[bytes], None]


class HandlerContext:
    """Fulfils `model.handlers.RunContext`."""

    def __init__(self, call: Call, channels: Channels, clock: Clock) -> None:
        self._call = call
        self._channels = channels
        self._clock = clock

    @property
    def job_id(self) -> str:
        return self._call.job_id

    @property
    def run_id(self) -> str:
        return self._call.run_id

    @property
    def attempt(self) -> int:
        return self._call.attempt

    @property
    def fire_time(self) -> datetime | None:
        instant = self._call.fire_time
        return None if instant is None else from_micros(instant, ZoneInfo(self._call.timezone))

    @property
    def args(self) -> Mapping[str, Any]:
        return self._call.args

    @property
    def item(self) -> Any:
        return self._call.item

    @property
    def idempotency_key(self) -> str:
        return self._call.idempotency_key

    @property
    def log(self) -> LineLog:
        return LineLog(self._channels.write, self._clock)

    def progress(
        self,
        *,
        done: int | None = None,
        total: int | None = None,
        message: str | None = None,
        cost: float | None = None,
    ) -> None:
        _require("done", done, int)
        _require("total", total, int)
        _require("message", message, str)
        _require("cost", cost, int, float)
        fields: Fields = {"done": done, "total": total, "cost": cost}
        fields["message"] = message[:LONGEST_MESSAGE] if message is not None else None
        self._channels.tell({name: value for name, value in fields.items() if value is not None})

    def checkpoint(self) -> str:
        return self._channels.wish()


class LineLog:
    """Fulfils `model.handlers.HandlerLog`: one line of output per call, whatever the values are."""

    def __init__(self, write: Callable[[bytes], None], clock: Clock) -> None:
        self._write = write
        self._clock = clock

    def debug(self, message: str, **values: object) -> None:
        self._line("debug", message, values)

    def info(self, message: str, **values: object) -> None:
        self._line("info", message, values)

    def warning(self, message: str, **values: object) -> None:
        self._line("warning", message, values)

    def error(self, message: str, **values: object) -> None:
        self._line("error", message, values)

    def _line(self, level: str, message: str, values: Mapping[str, object]) -> None:
        words = [rfc3339(self._clock.now()) or "", level, one_line(str(message))]
        # JSON escapes what could end the line or begin another one.
        words += [f"{name}={json.dumps(value, default=str)}" for name, value in values.items()]
        self._write((" ".join(words) + "\n").encode("utf-8", "backslashreplace"))


def _require(name: str, value: object, *kinds: type) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, kinds)):
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"progress({name}=) wants {wanted}, not {type(value).__name__}")
