"""What the control API takes: query parameters and bodies. What is not named here is refused.

Parts of the design that come with a later version are named too, so that they are refused as `not supported
yet` and never ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from scheduler.clock import Micros, to_micros
from scheduler.control.pages import DEFAULT_LIMIT, MAX_LIMIT
from scheduler.control.wire import Json
from scheduler.errors import Fault, NotSupportedYet
from scheduler.executors.output import Stream
from scheduler.model.items import LONGEST_KEY, ItemState
from scheduler.model.jobs import JobStatus, Overlap, PauseMode
from scheduler.model.runs import RunState
from scheduler.store.values import Missed

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


class PauseBody(Given):
    """How to pause; `reason` is the operator's words."""

    mode: PauseMode = PauseMode.DRAIN
    reason: Annotated[str, Field(max_length=2_000)] = ""
    until: Annotated[Json, Field(description="not supported yet")] = None
    for_: Annotated[Json, Field(alias="for", description="not supported yet")] = None

    def unsupported(self) -> Iterator[tuple[str, str]]:
        """Keys that this version refuses, each with what it stands for."""
        if self.until is not None:
            yield "until", "a timed pause"
        if self.for_ is not None:
            yield "for", "a timed pause"


class ResumeBody(Given):
    """What becomes of the fire times that the pause held back."""

    missed: Missed = Missed.SKIP


class RunBody(Given):
    """How to start a run; `args` is what it gets instead of the job's."""

    args: dict[str, Json] | None = None
    overlap: Annotated[Overlap | None, Field(description="what about a live run; default: refuse")] = None
    new: Annotated[bool, Field(description="a fresh batch run, whatever an earlier one has left open")] = False


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


def refuse_unsupported(asked: PauseBody) -> None:
    """The body asks for nothing that comes with a later version.

    Raises:
        NotSupportedYet: it does; every such key is listed.
    """
    faults = [
        Fault(key=key, message=f"not supported yet: {what}; leave it out")
        for key, what in asked.unsupported()
    ]
    if faults:
        raise NotSupportedYet("; ".join(f"{fault.key}: {fault.message}" for fault in faults), faults=faults)
