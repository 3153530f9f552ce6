"""From the bare facts of an end to the verdict that is written. Pure.

The first cause that we committed to (cancel, timeout, stall, shutdown) is the verdict, whatever exit code
follows from it; an end that came before our signal counts as itself (design part 2).
"""

from __future__ import annotations

import json
from enum import Enum, auto
from signal import Signals
from typing import Final

from scheduler.engine.ports import Ended, EndKind
from scheduler.errors import HandlerBroken, SpawnFailed
from scheduler.model.jobs import JobDefinition
from scheduler.model.runs import Grant, RunReason, RunState
from scheduler.rules.reconcile import Ending, Verdict
from scheduler.store.values import NoBegin


class Cause(Enum):
    """Why we ended an attempt."""

    CANCEL = auto()
    TIMEOUT = auto()
    STALL = auto()
    SHUTDOWN = auto()


_OF_CAUSE: Final = {
    Cause.CANCEL: (Ending.CANCELLED, RunReason.CANCELLED, "cancelled by an operator"),
    Cause.TIMEOUT: (Ending.FAILED, RunReason.TIMEOUT, "ran longer than its timeout"),
    Cause.STALL: (Ending.FAILED, RunReason.STALLED, "gave no sign of progress for stall_timeout"),
    Cause.SHUTDOWN: (Ending.SHUTDOWN, RunReason.SHUTDOWN, "the daemon was stopped"),
}


def judge(grant: Grant, ended: Ended | None, cause: Cause | None, spread: float) -> Verdict:
    """The verdict of an attempt.

    Args:
        ended: None where we cut it and it left no end of its own.
        cause: why we cut it, or None if it ended by itself.
        spread: in [0, 1), for the backoff.
    """
    facts = ended or Ended(kind=EndKind.CANCELLED)
    if cause is not None:
        ending, reason, message = _OF_CAUSE[cause]
        return _verdict(grant, facts, spread, ending=ending, reason=reason, message=message)
    if facts.kind is EndKind.BROKEN:
        broken = HandlerBroken(facts.message or "its handler is broken")
        return judge_spawn(grant, broken, spread, broken=True)
    ending, why, words = _by_itself(grant.definition, facts)
    return _verdict(
        grant,
        facts,
        spread,
        ending=ending,
        reason=why,
        message=words,
        completed=facts.completed or facts.exit_code in grant.definition.complete_exit_codes,
    )


def judge_spawn(grant: Grant, error: SpawnFailed, spread: float, *, broken: bool) -> Verdict:
    """The verdict of an attempt that could not be started; a broken handler is not tried again by itself."""
    return _verdict(
        grant,
        Ended(kind=EndKind.RAISED),
        spread,
        ending=Ending.FAILED,
        reason=RunReason.BROKEN if broken else RunReason.SPAWN_FAILED,
        message=error.message,
        broken=error.message if broken else None,
        retryable=not broken,
    )


def _by_itself(definition: JobDefinition, ended: Ended) -> tuple[Ending, RunReason | None, str | None]:
    match ended.kind:
        case EndKind.RETURNED:
            return Ending.SUCCEEDED, None, None
        case EndKind.EXITED | EndKind.STOPPED:
            return _by_exit(definition, ended)
        case EndKind.SIGNALLED:
            return Ending.FAILED, RunReason.SIGNAL, ended.message or f"killed by {_name(ended.signal)}"
        case EndKind.RETRY_ASKED:
            return Ending.RETRY_ASKED, RunReason.EXCEPTION, ended.message
        case EndKind.RAISED:
            return Ending.FAILED, RunReason.EXCEPTION, ended.message
        case EndKind.ITEMS:
            return _by_items(ended)
        case EndKind.LIST_FAILED:
            why = RunReason.SPAWN_FAILED if ended.exit_code is None else RunReason.EXIT_CODE
            return Ending.FAILED, why, ended.message
        case _:
            return Ending.FAILED, RunReason.EXCEPTION, "the handler cancelled itself"


def _by_items(ended: Ended) -> tuple[Ending, RunReason | None, str | None]:
    """The rows say what the batch is; only a stop of the daemon is a cause of its own."""
    if ended.stop is NoBegin.DRAINING:
        return Ending.SHUTDOWN, RunReason.SHUTDOWN, "the daemon was stopped"
    return Ending.ITEMS, None, ended.message


def _by_exit(definition: JobDefinition, ended: Ended) -> tuple[Ending, RunReason | None, str | None]:
    if ended.exit_code in (*definition.success_exit_codes, *definition.complete_exit_codes):
        return Ending.SUCCEEDED, None, None
    if ended.kind is EndKind.STOPPED:  # a planned stop is no failure
        return Ending.SHUTDOWN, RunReason.SHUTDOWN, ended.message
    return Ending.FAILED, RunReason.EXIT_CODE, ended.message or f"exited with code {ended.exit_code}"


def _name(number: int | None) -> str:
    try:
        return Signals(number or 0).name
    except ValueError:
        return f"signal {number}"


def _verdict(  # noqa: PLR0913 - the fields of a verdict that differ
    grant: Grant,
    ended: Ended,
    spread: float,
    *,
    ending: Ending,
    reason: RunReason | None,
    message: str | None,
    completed: bool = False,
    retryable: bool = True,
    broken: str | None = None,
) -> Verdict:
    return Verdict(
        run_id=grant.run.id,
        claim=grant.run.claim,
        expects=RunState.RUNNING,
        ending=ending,
        reason=reason,
        message=message,
        exit_code=ended.exit_code,
        signal=ended.signal,
        result=None if ended.result is None else json.dumps(ended.result, ensure_ascii=False),
        retryable=retryable,
        retry_after=ended.retry_after,
        completed=completed,
        spread=spread,
        broken=broken,
    )
