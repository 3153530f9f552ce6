"""The table of one job, as an author writes it: its keys, their types, and how it becomes canonical.

The same model serves job files (TOML) and the control API (JSON). It judges each key by itself; what keys
mean together is in `jobrules`.
"""

from __future__ import annotations

import keyword
import re
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Any, Final, TypeAlias

from pydantic import AfterValidator, BaseModel, Field

from scheduler.clock import DAY, MINUTE, SECOND, Micros, to_micros
from scheduler.config.alertmodel import HookKey, PingTable
from scheduler.config.batchmodel import BatchTable, BudgetTable, ExitCode, RetryTable
from scheduler.config.fields import (
    STRICT,
    AbsolutePath,
    Argument,
    Count,
    CountFromOne,
    Duration,
    DurationOrZero,
    Input,
    JsonObject,
    Line,
    Moment,
    Prose,
    Timezone,
    Wrong,
    choice,
)
from scheduler.config.settings import Settings
from scheduler.config.wording import shown
from scheduler.errors import Invalid
from scheduler.model.cron_parse import parse_cron
from scheduler.model.definitions import wire_seconds, wire_time
from scheduler.model.jobs import CatchUp, OnCrash, Overlap
from scheduler.model.triggers import Every, parse_exclusions, resolve_local

# What people write who come from another scheduler.
FOREIGN: Final = {
    "schedule": "cron",
    "crontab": "cron",
    "interval": "every",
    "run_at": "at",
    "date": "at",
    "cmd": "command",
    "argv": "command",
    "exec": "command",
    "script": "shell",
    "handler": "python",
    "func": "python",
    "kwargs": "args",
    "environment": "env",
    "environment_file": "env_file",
    "working_directory": "cwd",
    "workdir": "cwd",
    "tz": "timezone",
    "zone": "timezone",
    "tags": "labels",
    "retries": "retry",
    "concurrency": "max_running",
    "disabled": "enabled",
    "exclude": "except",
    "exclusions": "except",
    "misfire_grace_time": "late_after",
    "coalesce": "catch_up",
    "max_instances": "max_running",
    "mailto": "on_failure",
    "on_calendar": "cron",
    "oncalendar": "cron",
}

_DURATIONS: Final = frozenset(
    {
        "every",
        "delay",
        "timeout",
        "stall_timeout",
        "kill_grace",
        "catch_up_window",
        "late_after",
        "jitter",
        "max_delay",
        "item_timeout",
        "overdue_after",
    }
)
_SETS: Final = frozenset({"labels", "success_exit_codes", "complete_exit_codes", "exit_codes"})
_MOMENTS: Final = frozenset({"at", "start_at", "end_at"})
_ENV_NAME: Final = re.compile(r"[^\x00-\x20=\x7f-\xa0\ud800-\udfff]+")


class Isolate(StrEnum):
    """Where a run's processes live."""

    NONE = "none"
    UNIT = "unit"


@lru_cache(maxsize=4096)
def _cron(text: str) -> str:
    """An expression that can be read and can fire, with single blanks."""
    try:
        parse_cron(text)
    except Invalid as error:
        raise Wrong(error.message) from error
    return " ".join(text.split())


def _period(period: Micros) -> Micros:
    """A time between fires that a trigger accepts."""
    try:
        return Every(period).period
    except Invalid as error:
        raise Wrong(error.message) from error


def _handler(text: str) -> str:
    module, colon, name = text.partition(":")
    parts = [*module.split("."), *name.split(".")]
    if not colon or not all(part.isidentifier() and not keyword.iskeyword(part) for part in parts):
        raise Wrong(f'must be "package.module:function", not {shown(text)}')
    return text


def _env_name(text: str) -> str:
    if not _ENV_NAME.fullmatch(text):
        raise Wrong(
            f"{shown(text)} is no name of a variable: write one without =, blanks and control characters"
        )
    if text.startswith("SCHEDULER_"):
        raise Wrong(f"{text} begins with SCHEDULER_, which is kept for what the daemon tells a run")
    return text


def _not_blank(text: str) -> str:
    if not text.strip():
        raise Wrong("must not be empty")
    return text


def _not_empty(values: list[str]) -> list[str]:
    if not values or not values[0].strip():
        raise Wrong('must name a program first, like ["/usr/bin/backup", "--all"]')
    return values


Period: TypeAlias = Annotated[Duration, AfterValidator(_period)]
EnvName: TypeAlias = Annotated[str, AfterValidator(_env_name)]


_NO_RETRY: Final = RetryTable()
_NO_PING: Final = PingTable()


class JobTable(BaseModel):
    """`[jobs.ID]`. Durations are microseconds here; a time without an offset is still naive.

    Defaults that could be changed come from factories: pydantic copies others deeply, for each job of a file.
    """

    model_config = STRICT

    description: Prose = ""
    cron: Annotated[str, AfterValidator(_cron)] | None = None
    every: Period | None = None
    delay: Period | None = None
    at: Moment | None = None
    manual: bool = False
    timezone: Timezone | None = None
    command: Annotated[list[Argument], AfterValidator(_not_empty)] | None = None
    shell: Annotated[Prose, AfterValidator(_not_blank)] | None = None
    python: Annotated[str, AfterValidator(_handler)] | None = None
    process: bool = False
    args: JsonObject = Field(default_factory=dict)
    env: dict[EnvName, Argument] = Field(default_factory=dict)
    env_file: AbsolutePath | None = None
    cwd: AbsolutePath | None = None
    user: Line | None = None
    stdin: Input | None = None
    timeout: Duration | None = None
    stall_timeout: Duration | None = None
    kill_grace: Duration = 10 * SECOND
    success_exit_codes: list[ExitCode] = Field(default_factory=lambda: [0])
    complete_exit_codes: list[ExitCode] = Field(default_factory=list)
    overlap: Annotated[Overlap, choice(Overlap)] = Overlap.SKIP
    max_running: CountFromOne = 1
    queue_limit: CountFromOne = 1
    labels: list[Line] = Field(default_factory=list)
    group: Line | None = None
    priority: Annotated[int, Field(ge=-1_000_000, le=1_000_000)] = 0
    catch_up: Annotated[CatchUp, choice(CatchUp)] = CatchUp.LATEST
    catch_up_window: Duration = DAY
    catch_up_limit: CountFromOne = 10
    late_after: Duration = MINUTE
    jitter: DurationOrZero = 0
    start_at: Moment | None = None
    end_at: Moment | None = None
    max_runs: CountFromOne | None = None
    exclusions: list[Line] = Field(default_factory=list, alias="except")
    on_crash: Annotated[OnCrash, choice(OnCrash)] | None = None
    max_crashes: Count = 3
    max_failures: Count = 0
    enabled: bool = True
    control: bool = False
    isolate: Annotated[Isolate, choice(Isolate)] = Isolate.NONE
    keep_runs: CountFromOne | None = None
    retry: RetryTable = Field(default_factory=lambda: _NO_RETRY)
    batch: BatchTable | None = None
    budget: BudgetTable | None = None
    ping: PingTable = Field(default_factory=lambda: _NO_PING)
    on_failure: HookKey | None = None
    on_recovery: HookKey | None = None
    on_overdue: HookKey | None = None
    on_pause: HookKey | None = None
    on_budget: HookKey | None = None
    overdue_after: Duration | None = None


def instant(moment: datetime, timezone: str) -> Micros:
    """The point in time as UTC microseconds; without an offset it is local to `timezone`.

    Raises:
        Invalid: out of the range of years.
    """
    return resolve_local(moment, timezone) if moment.tzinfo is None else to_micros(moment)


def source_of(job: JobTable, settings: Settings) -> dict[str, Any]:
    """The sound table in the form that `definitions.canonical` takes.

    What the daemon's own file lends to a job is written into it, so that a changed calendar, default
    timeout or time zone is a changed definition. Sets (labels, exit codes, exclusions) are sorted, so that
    their order makes no other definition.

    Raises:
        Invalid: a time is out of range, or a calendar is not configured.
    """
    zone = job.timezone or settings.timezone
    return {
        **_in_seconds(job.model_dump(by_alias=True, exclude_unset=True)),
        **_in_other_words(job, zone, settings),
        "timezone": zone,
        "timeout": _wire_seconds(job.timeout or settings.default_timeout),
        "manual": job.manual or None,
        "on_crash": job.on_crash or (OnCrash.RECORD if job.batch is None else OnCrash.RESUME),
    }


def _in_other_words(job: JobTable, zone: str, settings: Settings) -> dict[str, Any]:
    """Keys that the text has in another form; only those that were written, for it has no defaults."""
    written = job.model_fields_set
    words: dict[str, Any] = {key: _wire_time(getattr(job, key), zone) for key in _MOMENTS & written}
    if "exclusions" in written:
        words["except"] = sorted(set(parse_exclusions(job.exclusions, zone, settings.calendars).entries))
    if "retry" in written:
        words["retry"] = _in_seconds(job.retry.model_dump())
    if job.batch is not None:
        words["batch"] = _batch_in_seconds(job.batch)
    if "ping" in written:
        words["ping"] = job.ping.model_dump(exclude_none=True) or None
    return words


def _batch_in_seconds(batch: BatchTable) -> dict[str, Any]:
    return {**_in_seconds(batch.model_dump()), "retry": _in_seconds(batch.retry.model_dump())}


def _in_seconds(table: dict[str, Any]) -> dict[str, Any]:
    """The values of a table as JSON has them."""
    return {
        key: _wire_seconds(value) if key in _DURATIONS else sorted(set(value)) if key in _SETS else value
        for key, value in table.items()
    }


def _wire_seconds(duration: Micros | None) -> int | float | None:
    return None if duration is None else wire_seconds(duration)


def _wire_time(moment: datetime | None, zone: str) -> str | None:
    return None if moment is None else wire_time(instant(moment, zone))
