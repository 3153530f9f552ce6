"""Which transition is told to whom: pure decisions, made from an event and what the job's definition says.

One notice for each transition and receiver. A run that failed for good is a failure, each time; a try that
will be repeated is not, nor is a run that an operator cancelled or a planned stop cut. A skipped fire time
is told to nobody: whoever wants to hear of work that does not happen sets `on_overdue`. A recovery is a
success after a failure. Sending is `engine.deliveries`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from scheduler.model.alerts import Alerts, Hook
from scheduler.model.jobs import JobId, PauseReason
from scheduler.model.runs import Attempt, Run, RunState
from scheduler.telemetry import Event


class AlertKind(StrEnum):
    """What a hook is told."""

    FAILURE = "failure"
    RECOVERY = "recovery"
    OVERDUE = "overdue"
    PAUSE = "pause"
    BUDGET = "budget"


@dataclass(frozen=True, slots=True, kw_only=True)
class PingCall:
    """A URL is asked, with the run's id as `rid`."""

    job: JobId
    url: str
    run_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """A hook is called.

    Attributes:
        facts: what it is told; plain values, no address and no secret among them.
        user: whom a command runs as; None = the daemon's own user.
    """

    job: JobId
    kind: AlertKind
    hook: Hook
    facts: Mapping[str, object]
    user: str | None = None


FAILURES: Final = frozenset({RunState.FAILED, RunState.PARTIAL, RunState.CRASHED})
"""Ends after which a success is a recovery."""

_STATE_OF: Final = {
    Event.RUN_STARTED: RunState.RUNNING.value,
    Event.RUN_SUCCEEDED: RunState.SUCCEEDED.value,
    Event.RUN_FAILED: RunState.FAILED.value,
    Event.RUN_PARTIAL: RunState.PARTIAL.value,
    Event.RUN_CRASHED: RunState.CRASHED.value,
    Event.JOB_PAUSED: "paused",
    Event.JOB_OVERDUE: "overdue",
    Event.BUDGET_REACHED: "budget",
}

TOLD: Final = frozenset(_STATE_OF)
"""The events that may be worth a notice."""

_FACTS: Final = ("run_id", "reason", "message", "attempt", "fire_time")


def ping_of(event: Event, job: JobId, fields: Mapping[str, object], alerts: Alerts) -> PingCall | None:
    """The ping that a transition is worth."""
    match event:
        case Event.RUN_STARTED:
            url = alerts.ping.start
        case Event.RUN_SUCCEEDED:
            url = alerts.ping.success
        case Event.RUN_FAILED | Event.RUN_PARTIAL | Event.RUN_CRASHED:
            url = alerts.ping.failure
        case _:
            url = None
    run_id = fields.get("run_id")
    return None if url is None else PingCall(job=job, url=url, run_id=None if run_id is None else str(run_id))


def kind_of(
    event: Event, fields: Mapping[str, object], alerts: Alerts, *, was_failing: bool
) -> AlertKind | None:
    """What a transition is to a person; None: nothing that anybody asked to hear of by itself.

    Args:
        was_failing: the last run of the job that came to an end of its own before this one failed.
    """
    match event:
        case Event.RUN_FAILED | Event.RUN_PARTIAL | Event.RUN_CRASHED:
            return AlertKind.FAILURE
        case Event.RUN_SUCCEEDED if was_failing:
            return AlertKind.RECOVERY
        case Event.JOB_OVERDUE:
            return AlertKind.OVERDUE
        case Event.BUDGET_REACHED:
            return AlertKind.BUDGET
        case Event.JOB_PAUSED:
            # One transition, one alert: a pause by the budget was told as the budget's.
            told_before = fields.get("reason") == PauseReason.BUDGET and alerts.on_budget is not None
            return None if told_before else AlertKind.PAUSE
        case _:
            return None


def hook_for(kind: AlertKind, alerts: Alerts) -> Hook | None:
    """Who is told of this kind."""
    return {
        AlertKind.FAILURE: alerts.on_failure,
        AlertKind.RECOVERY: alerts.on_recovery,
        AlertKind.OVERDUE: alerts.on_overdue,
        AlertKind.PAUSE: alerts.on_pause,
        AlertKind.BUDGET: alerts.on_budget,
    }[kind]


def facts_of(
    kind: AlertKind, event: Event, job: JobId, at: str, told: Mapping[str, object]
) -> dict[str, object]:
    """What a hook is told: every key is always there, null where it does not apply.

    Args:
        at: when it happened, RFC 3339.
        told: the event's fields as a log line shows them.
    """
    return {
        "alert": kind.value,
        "job": job,
        "state": _STATE_OF[event],
        **{name: told.get(name) for name in _FACTS},
        "at": at,
    }


def failed_before(run: Run, attempts: Sequence[Attempt], earlier: Sequence[Run]) -> bool:
    """Whether a success of this run is a recovery, by what history says.

    Args:
        attempts: of the run, oldest first: an operator may have asked for it again after it had failed.
        earlier: rows of the job before it, newest first.
    """
    final = [attempt.state for attempt in attempts if attempt.claim < run.claim and attempt.state in FAILURES]
    if final:
        return True
    for row in earlier:
        if row.state in FAILURES:
            return True
        if row.state is RunState.SUCCEEDED:
            return False
    return False
