"""The tables of a batch as an author writes them: its items, their retry, and what it may spend."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

from pydantic import AfterValidator, BaseModel, Field, PlainValidator

from scheduler.clock import HOUR, MINUTE, SECOND
from scheduler.config.fields import (
    STRICT,
    Argument,
    Count,
    Duration,
    DurationOrZero,
    Line,
    Wrong,
    check_json,
    choice,
)
from scheduler.config.wording import kind_of, printable
from scheduler.errors import Invalid
from scheduler.model.items import freeze
from scheduler.model.jobs import Backoff, UnknownItems

SOURCES: Final = ("items", "items_file", "items_command")
"""The keys of which a batch has exactly one."""

ExitCode: TypeAlias = Annotated[int, Field(ge=0, le=255)]
Amount: TypeAlias = Annotated[float, Field(gt=0, le=1e9)]


def _not_empty(values: list[str]) -> list[str]:
    if not values or not values[0].strip():
        raise Wrong('must name a program first, like ["/usr/bin/list-items", "--all"]')
    return values


def _items(value: object) -> list[Any]:
    """A list that can be frozen as it is."""
    if not isinstance(value, list):
        raise Wrong(f'must be a list, like ["intro", {{ key = "ch1", text = "..." }}], not {kind_of(value)}')
    places: dict[str, int] = {}
    for index, item in enumerate(value):
        check_json(item)
        try:
            key = freeze(index, item).key
        except Invalid as error:
            raise Wrong(f"{error.message}{f' ({error.hint})' if error.hint else ''}") from error
        if key in places:
            raise Wrong(f"the key {printable(key)} stands twice: items {places[key]} and {index}")
        places[key] = index
    return value


class RetryTable(BaseModel):
    """`[jobs.ID.retry]`, and `retry` of a batch: further tries after a failed one."""

    model_config = STRICT

    attempts: Count = 0
    delay: DurationOrZero = 10 * SECOND
    backoff: Annotated[Backoff, choice(Backoff)] = Backoff.EXPONENTIAL
    max_delay: Duration = HOUR
    exit_codes: list[ExitCode] = []


class BatchTable(BaseModel):
    """`[jobs.ID.batch]`: the action runs once for each item."""

    model_config = STRICT

    items: Annotated[list[Any], PlainValidator(_items)] | None = None
    items_file: Line | None = None
    items_command: Annotated[list[Argument], AfterValidator(_not_empty)] | None = None
    concurrency: Annotated[int, Field(ge=1, le=1_000)] = 1
    item_timeout: Duration = 10 * MINUTE
    retry: RetryTable = RetryTable()
    unknown: Annotated[UnknownItems, choice(UnknownItems)] = UnknownItems.HOLD
    max_failed: Count = 0
    max_failed_percent: Annotated[float, Field(ge=0, le=100)] = 0.0
    max_consecutive_failed: Count = 0


class BudgetTable(BaseModel):
    """`[jobs.ID.budget]`: what the items of a batch may cost."""

    model_config = STRICT

    per_run: Amount | None = None
    per_day: Amount | None = None
    unit: Annotated[str, AfterValidator(str.strip), Field(max_length=20)] = ""
    cost_estimate: Annotated[float, Field(ge=0, le=1e9)] = 0.0
