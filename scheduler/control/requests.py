"""What the control API takes: query parameters and bodies. What is not named here is refused."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from scheduler.clock import SECOND, Micros, to_micros
from scheduler.control.pages import DEFAULT_LIMIT, MAX_LIMIT
from scheduler.control.wire import Json
from scheduler.errors import Fault, Invalid
from scheduler.executors.output import Stream
from scheduler.model.durations import LONGEST, parse_duration
from scheduler.model.items import LONGEST_KEY, ItemState
from scheduler.model.jobs import JobStatus, Overlap, PauseMode
from scheduler.model.runs import RunState
from scheduler.store.values import Missed
from scheduler.telemetry import Event

# In a query string a + stands for a space, so an offset that was not escaped arrives as one.
_LOST_PLUS: Final = re.compile(r"(?<=\d) (?=\d\d:?\d\d$)")


def _instant(value: object) -> Micros:
    try:
        return to_micros(datetime.fromisoformat(_LOST_PLUS.sub("+", str(value))))
    except (ValueError, OverflowError):
        raise ValueError(
            "it is no time with an offset: write for example 2026-10-01T02:30:00+02:00 or ...T00:30:00Z"
        ) from None


Instant: TypeAlias = Annotated[
    Micros, BeforeValidator(_instant), WithJsonSchema({"type": "string", "format": "date-time"})
]
"""A time of the client; UTC microseconds once it is read."""


_NO_LENGTH: Final = "it is no length of time: write a number of seconds, or for example 2h or 1h30m"


def _length(value: object) -> Micros:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(_NO_LENGTH)  # noqa: TRY004 - pydantic takes no other for a fault of the input
    try:
        length = parse_duration(value)
    except Invalid as bad:
        raise ValueError(bad.message) from None
    if length == 0:
        raise ValueError("it must be longer than 0")
    return length


Length: TypeAlias = Annotated[
    Micros,
    BeforeValidator(_length),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0.000001, "maximum": LONGEST // SECOND},
                {"type": "string", "pattern": "^[1-9][0-9]{0,3}(s|m|h|d)$", "examples": ["90s", "2h"]},
            ]
        }
    ),
]
"""A length of time of the client; microseconds once it is read."""

Limit: TypeAlias = Annotated[int, Field(ge=1, le=MAX_LIMIT)]
Cursor: TypeAlias = Annotated[str, Field(max_length=500)]
Name: TypeAlias = Annotated[str, Field(max_length=200)]
ItemKey: TypeAlias = Annotated[str, Field(max_length=LONGEST_KEY)]
Count: TypeAlias = Annotated[int, Field(ge=1, le=1_000)]


class Given(BaseModel):
    """What all inputs have in common: an unknown name is a fault."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Nothing(Given):
    """No parameter and no field."""


class JobsQuery(Given):
    """Which jobs."""

    status: JobStatus | None = None
    group: Name | None = None
    label: Name | None = None
    q: Annotated[Name | None, Field(description="part of the id or description")] = None
    limit: Limit = DEFAULT_LIMIT
    cursor: Cursor | None = None


class RunsQuery(Given):
    """Which runs."""

    job: Name | None = None
    state: RunState | None = None
    since: Annotated[Instant | None, Field(description="queued or recorded at this time or later")] = None
    limit: Limit = DEFAULT_LIMIT
    cursor: Cursor | None = None


class PageQuery(Given):
    """Which page."""

    limit: Limit = DEFAULT_LIMIT
    cursor: Cursor | None = None


class NextQuery(Given):
    """How many fire times."""

    n: Count = 20


class WhyQuery(Given):
    """Now, or about a fire time."""

    at: Annotated[Instant | None, Field(description="a fire time: what became of it")] = None


class OutputQuery(Given):
    """Which output."""

    stream: Annotated[Stream | None, Field(description="only this stream; default: both as they came")] = None
    tail: Annotated[int | None, Field(ge=1, le=1_000_000, description="only the last so many lines")] = None
    follow: Annotated[bool, Field(description="go on until the run has ended")] = False
    format: Annotated[
        Literal["text", "jsonl"], Field(description="bytes as written, or records with stream and time")
    ] = "text"
    after: Annotated[
        Annotated[str, Field(max_length=200)] | None,
        Field(description="go on behind the record with this `after`; `tail` is then left out"),
    ] = None


class EventsQuery(Given):
    """Which events, from when on, and whether to wait for more."""

    since: Annotated[Annotated[str, Field(max_length=200)] | None, Field(description="id of an event")] = None
    tail: Annotated[int, Field(ge=0, le=10_000, description="without an id: so many of before first")] = 0
    follow: Annotated[bool, Field(description="go on; else end with what there is")] = True
    job: Annotated[Name | None, Field(description="only of this job")] = None
    event: Annotated[list[Event], Field(max_length=100, description="only these")] = []


class PauseBody(Given):
    """How to pause; `reason` is the operator's words."""

    mode: PauseMode = PauseMode.DRAIN
    reason: Annotated[str, Field(max_length=2_000)] = ""
    until: Annotated[Instant | None, Field(description="it lifts itself at this time")] = None
    for_: Annotated[
        Length | None, Field(alias="for", description="it lifts itself after so many seconds, or 2h, 1h30m")
    ] = None

    def ends_at(self, now: Micros) -> Micros | None:
        """When it lifts itself, or None.

        Raises:
            Invalid: it is to end twice, or out of reach.
        """
        if self.until is not None and self.for_ is not None:
            raise _fault("for", "until says already when it ends: leave one of them out")
        if self.until is not None and self.until > now + LONGEST:
            raise _fault("until", "that is more than a hundred years away")
        return self.until if self.for_ is None else now + self.for_


class ResumeBody(Given):
    """What becomes of the fire times that the pause held back."""

    missed: Missed = Missed.SKIP


class RunBody(Given):
    """How to start a run; `args` is what it gets instead of the job's."""

    args: dict[str, Json] | None = None
    overlap: Annotated[Overlap | None, Field(description="what about a live run; default: refuse")] = None
    new: Annotated[bool, Field(description="a fresh batch run, whatever an earlier one has left open")] = (
        False
    )


class SkipNextBody(Given):
    """How many fire times to pass over."""

    n: Count = 1


class CancelBody(Given):
    """`force` releases a run whose processes cannot be ended."""

    force: bool = False


class RetryBody(Given):
    """Which items of a batch to retry; default: all that are not done."""

    items: Annotated[
        Literal["failed"] | Annotated[list[ItemKey], Field(min_length=1, max_length=10_000)] | None,
        Field(description='"failed", or the keys of items'),
    ] = None


class ItemsQuery(Given):
    """Which items."""

    state: ItemState | None = None
    limit: Limit = DEFAULT_LIMIT
    cursor: Cursor | None = None


class ItemBody(Given):
    """What became of the item: `done`, `failed`, or `pending` where it is to be run again."""

    state: Literal["done", "failed", "pending"]


class PreviewBody(Given):
    """A trigger as in a job file, and from when on its fire times are wanted."""

    cron: Json = None
    every: Json = None
    at: Json = None
    delay: Json = None
    timezone: Json = None
    after: Annotated[Instant | None, Field(description="default: now")] = None
    n: Count = 20


def _fault(key: str, message: str) -> Invalid:
    return Invalid(f"{key}: {message}", faults=[Fault(key=key, message=message)])
