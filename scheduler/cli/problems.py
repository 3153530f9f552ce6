"""From an answer of the daemon that says no to the error that says why, and what schedctl exits with.

The daemon answers with problem details (RFC 9457); `code` names the error. The classes are those of
`scheduler.errors`, so status, code and exit code agree with the daemon's by construction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from scheduler.cli.wording import Json
from scheduler.errors import (
    AlreadyRunning,
    Conflict,
    Draining,
    Fault,
    Forbidden,
    Invalid,
    NotFound,
    PreconditionRequired,
    SchedulerError,
    Stale,
    StoreUnavailable,
    TooLarge,
)

_PLAIN: Final[tuple[type[SchedulerError], ...]] = (
    NotFound,
    Conflict,
    Stale,
    PreconditionRequired,
    Forbidden,
    TooLarge,
    Draining,
    StoreUnavailable,
)
_BY_CODE: Final[Mapping[str, type[SchedulerError]]] = {kind.code: kind for kind in _PLAIN}
# For an answer without a known code; 503 without one is a daemon that cannot serve now.
_BY_STATUS: Final[Mapping[int, type[SchedulerError]]] = {
    **{kind.status: kind for kind in _PLAIN},
    503: StoreUnavailable,
}


def error_of(status: int, problem: Json) -> SchedulerError:
    """The error that the problem details stand for, with its message, hint and data."""
    code = problem.get("code")
    message = str(problem.get("detail") or problem.get("title") or f"the daemon answered {status}")
    hint = str(problem["hint"]) if problem.get("hint") else None
    if code == AlreadyRunning.code:
        return AlreadyRunning(message, run_id=str(problem.get("run_id", "")), hint=hint)
    kind = _BY_CODE.get(str(code)) or _BY_STATUS.get(status)
    if kind is not None:
        return kind(message, hint=hint)
    if code == Invalid.code or 400 <= status < 500:
        return Invalid(message, faults=faults_of(problem.get("faults")), hint=hint)
    return SchedulerError(message, hint=hint or "the daemon's log says more")


def faults_of(listed: object) -> tuple[Fault, ...]:
    """The faults as the API lists them; anything else in their place is passed over."""
    if not isinstance(listed, list):
        return ()
    return tuple(_fault(entry) for entry in listed if isinstance(entry, dict))


def problem_of(error: SchedulerError) -> Json:
    """The error as `--json` shows it: `code`, `message`, `hint`, and what the error carries."""
    shown: Json = {"code": error.code, "message": error.message, "hint": error.hint}
    if isinstance(error, AlreadyRunning):
        shown["run_id"] = error.run_id
    if isinstance(error, Invalid) and error.faults:
        shown["faults"] = [fault_json(fault) for fault in error.faults]
    return shown


def fault_json(fault: Fault) -> Json:
    """The fault as the API lists it."""
    return {
        "message": fault.message,
        "file": fault.file,
        "line": fault.line,
        "job": fault.job,
        "key": fault.key,
    }


def _fault(entry: Json) -> Fault:
    line = entry.get("line")
    words = {key: str(entry[key]) for key in ("file", "job", "key") if entry.get(key) is not None}
    return Fault(message=str(entry.get("message", "")), line=line if isinstance(line, int) else None, **words)
