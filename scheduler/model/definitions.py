"""Definitions as text: the canonical JSON that the store keeps, and back.

The text has the keys of the job file, sorted, with defaults left out, durations as seconds and times as
RFC 3339 in UTC. What the daemon's own file lends to a job (time zone, default timeout, calendars) is
already in it. So the text alone says all about a job, and two definitions are the same exactly when their
texts are.

`decode` trusts its input, for it reads what was checked before it was written: `config.jobmodel` is where
a definition of an author is judged. The store decodes each revision once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

from scheduler.clock import SECOND, Micros, rfc3339, to_micros
from scheduler.errors import Invalid
from scheduler.model.alerts import HOOK_KEYS, Alerts, Ping, hook_of
from scheduler.model.items import MONEY
from scheduler.model.jobs import (
    Action,
    Backoff,
    BatchPolicy,
    Budget,
    CatchUp,
    CommandAction,
    JobDefinition,
    JobId,
    JsonValue,
    OnCrash,
    Overlap,
    PythonAction,
    RetryPolicy,
    ShellAction,
    UnknownItems,
)
from scheduler.model.triggers import (
    At,
    Cron,
    Delay,
    Every,
    Exclusions,
    Manual,
    Schedule,
    Trigger,
    load_zone,
)

TRIGGER_KEYS: Final = ("cron", "every", "delay", "at", "manual")
ACTION_KEYS: Final = ("command", "shell", "python")

_LAID_OVER: Final = frozenset({"start_at", "end_at", "except", "jitter"})
"""What a schedule lays over its trigger, and may not agree with."""

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def canonical(source: Mapping[str, JsonValue]) -> str:
    """The one text of a definition.

    Args:
        source: the keys of the job file; durations in seconds, times as RFC 3339 text in UTC (see
            `wire_seconds` and `wire_time`). Defaults may be there: they are left out, but for the time
            zone, whose default for an author is the daemon's: the text, sent back, means the same.
    """
    plain = {key: value for key, value in source.items() if key not in ("retry", "batch", "budget")}
    kept = {"timezone": "UTC"} | _without_defaults(plain, _DEFAULTS) | _inner_table("retry", source)
    batch, budget = source.get("batch"), source.get("budget")
    if isinstance(batch, Mapping):
        plain = {key: value for key, value in batch.items() if key != "retry"}
        kept["batch"] = _without_defaults(plain, _BATCH_DEFAULTS) | _inner_table("retry", batch)
    if isinstance(budget, Mapping):
        kept["budget"] = _without_defaults(budget, _BUDGET_DEFAULTS)
    return _ENCODER.encode(kept)


def _inner_table(key: str, source: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """A table of tries inside another table, without its defaults; nothing where nothing is left of it."""
    table = source.get(key)
    kept = _without_defaults(table, _RETRY_DEFAULTS) if isinstance(table, Mapping) else {}
    return {key: kept} if kept else {}


def decode(job_id: JobId | str, source: str) -> JobDefinition:
    """The definition that a canonical text stands for.

    Raises:
        Invalid: its time zone is no longer known to this machine.
    """
    given: dict[str, Any] = json.loads(source)
    values = {key: _READERS[key](value) for key, value in given.items() if key in _READERS}
    return JobDefinition(
        id=JobId(job_id),
        source=source,
        schedule=_schedule(JobId(job_id), given),
        action=_action(given),
        alerts=_alerts(given),
        **values,
    )


def is_plain(table: Mapping[str, Any]) -> bool:
    """`decode` would take a text with these keys, as far as its trigger and its zone alone can tell.

    False where it might not, or where more than these two decide.
    """
    if not _LAID_OVER.isdisjoint(table):
        return False
    try:
        _trigger(table)
        load_zone(table.get("timezone", "UTC"))
    except Invalid:
        return False
    return True


def wire_seconds(duration: Micros) -> int | float:
    """The duration in seconds: a whole number wherever it is one, so that it has one text."""
    whole, rest = divmod(duration, SECOND)
    return whole if rest == 0 else duration / SECOND


def wire_time(instant: Micros) -> str:
    """The instant as RFC 3339 text in UTC: one text on every machine, whatever its tz database."""
    return str(rfc3339(instant))


def _duration(value: float) -> Micros:
    return round(value * SECOND)


def _instant(value: str | None) -> Micros | None:
    return None if value is None else to_micros(datetime.fromisoformat(value))


def _retry(value: Mapping[str, Any]) -> RetryPolicy:
    return RetryPolicy(**{key: _RETRY_READERS[key](item) for key, item in value.items()})


def _batch(value: Mapping[str, Any]) -> BatchPolicy:
    return BatchPolicy(**{key: _BATCH_READERS[key](item) for key, item in value.items()})


def _budget(value: Mapping[str, Any]) -> Budget:
    return Budget(**{key: _BUDGET_READERS[key](item) for key, item in value.items()})


def _amount(value: float) -> int:
    return round(value * MONEY)


def _trigger(given: Mapping[str, Any]) -> Trigger:
    """The trigger that the one trigger key names; `start_at` is the anchor of an `every`."""
    if "cron" in given:
        return Cron(given["cron"], given.get("timezone", "UTC"))
    if "every" in given:
        return Every(_duration(given["every"]), _instant(given.get("start_at")) or 0)
    if "delay" in given:
        return Delay(_duration(given["delay"]))
    if "at" in given:
        return At(to_micros(datetime.fromisoformat(given["at"])))
    return Manual()


@lru_cache(maxsize=1024)
def _exclusions(entries: tuple[str, ...], timezone: str) -> Exclusions:
    """Most jobs share theirs: they have none, or a calendar."""
    return Exclusions(entries, timezone)


def _schedule(job_id: JobId, given: Mapping[str, Any]) -> Schedule:
    return Schedule(
        trigger=_trigger(given),
        start_at=_instant(given.get("start_at")),
        end_at=_instant(given.get("end_at")),
        exclusions=_exclusions(tuple(given.get("except", ())), given.get("timezone", "UTC")),
        jitter=_duration(given.get("jitter", 0)),
        job_id=job_id,
    )


def _action(given: Mapping[str, Any]) -> Action:
    if "command" in given:
        return CommandAction(argv=tuple(given["command"]))
    if "shell" in given:
        return ShellAction(line=given["shell"])
    return PythonAction(handler=given["python"], process=given.get("process", False))


def _alerts(given: Mapping[str, Any]) -> Alerts:
    if given.keys().isdisjoint(_ALERT_KEYS):
        return _NO_ALERTS
    grace = given.get("overdue_after")
    return Alerts(
        ping=Ping(**given.get("ping", {})),
        overdue_after=None if grace is None else _duration(grace),
        **{key: hook_of(given.get(key)) for key in HOOK_KEYS},
    )


_ALERT_KEYS: Final = frozenset({"ping", "overdue_after", *HOOK_KEYS})
_NO_ALERTS: Final = Alerts()


def _as_is(value: Any) -> Any:
    return value


# Keys of the text that are fields of the definition; trigger, action and schedule keys have functions of
# their own above.
_READERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "description": _as_is,
    "timezone": _as_is,
    "args": _as_is,
    "env": _as_is,
    "env_file": _as_is,
    "cwd": _as_is,
    "user": _as_is,
    "stdin": _as_is,
    "timeout": _duration,
    "stall_timeout": _duration,
    "kill_grace": _duration,
    "success_exit_codes": tuple,
    "complete_exit_codes": tuple,
    "overlap": Overlap,
    "max_running": _as_is,
    "queue_limit": _as_is,
    "labels": tuple,
    "group": _as_is,
    "priority": _as_is,
    "catch_up": CatchUp,
    "catch_up_window": _duration,
    "catch_up_limit": _as_is,
    "late_after": _duration,
    "max_runs": _as_is,
    "on_crash": OnCrash,
    "max_crashes": _as_is,
    "max_failures": _as_is,
    "enabled": _as_is,
    "control": _as_is,
    "isolate": _as_is,
    "keep_runs": _as_is,
    "retry": _retry,
    "batch": _batch,
    "budget": _budget,
}
_BATCH_READERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "items": tuple,
    "items_file": _as_is,
    "items_command": tuple,
    "concurrency": _as_is,
    "item_timeout": _duration,
    "retry": _retry,
    "unknown": UnknownItems,
    "max_failed": _as_is,
    "max_failed_percent": _as_is,
    "max_consecutive_failed": _as_is,
}
_BUDGET_READERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "per_run": _amount,
    "per_day": _amount,
    "unit": _as_is,
    "cost_estimate": _amount,
}
_RETRY_READERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "attempts": _as_is,
    "delay": _duration,
    "backoff": Backoff,
    "max_delay": _duration,
    "exit_codes": tuple,
}


def _default(field: Field[Any], reader: Callable[[Any], Any]) -> Any:
    """A field's default as the text would have it."""
    value: Any = field.default if field.default_factory is MISSING else field.default_factory()
    if reader is _duration and value is not None:
        return wire_seconds(value)
    return list(value) if isinstance(value, tuple) else value


def _defaults(kind: type, readers: Mapping[str, Callable[[Any], Any]]) -> dict[str, JsonValue]:
    return {
        field.name: _default(field, readers[field.name]) for field in fields(kind) if field.name in readers
    }


def _without_defaults(
    source: Mapping[str, JsonValue], defaults: Mapping[str, JsonValue]
) -> dict[str, JsonValue]:
    return {
        key: value
        for key, value in source.items()
        if value is not None and not (key in defaults and value == defaults[key])
    }


_RETRY_DEFAULTS: Final = _defaults(RetryPolicy, _RETRY_READERS)
_BATCH_DEFAULTS: Final = _defaults(
    BatchPolicy, {key: _BATCH_READERS[key] for key in _BATCH_READERS.keys() - {"retry"}}
)
_BUDGET_DEFAULTS: Final = _defaults(Budget, _BUDGET_READERS)
# What a key says that does nothing has no place in the text, for it would make two texts of one definition.
_DEFAULTS: Final[Mapping[str, JsonValue]] = {
    **_defaults(
        JobDefinition,
        {key: _READERS[key] for key in _READERS.keys() - {"retry", "timezone", "batch", "budget"}},
    ),
    "jitter": 0,
    "except": [],
    "process": False,
}
