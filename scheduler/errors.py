"""The whole error tree, one root.

Errors are sorted by what a caller can do about them. Each carries its data as attributes and is one
sentence for a person; `code` is the word of the control API (problem details) and fixes both the HTTP
status and the exit code of schedctl, so that the three never disagree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar


class SchedulerError(Exception):
    """The root of every error that schedulerd raises on purpose.

    Attributes:
        code: the problem code of the control API.
        status: the HTTP status that goes with it.
        exit_code: what schedctl exits with.
        hint: what to do about it, one sentence, or None.
    """

    code: ClassVar[str] = "internal"
    status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that is wrong with an input: where it stands, what it is, what to write instead.

    Attributes:
        message: what is wrong and what to do, one sentence.
        file: path of the file, or None where the input is no file.
        line: 1-based line, where it is known.
        job: id of the job concerned, or None.
        key: dotted key inside the job (`retry.delay`), or None.
    """

    message: str
    file: str | None = None
    line: int | None = None
    job: str | None = None
    key: str | None = None

    def __str__(self) -> str:
        place = self.file or ""
        if self.line is not None:
            place += f":{self.line}"
        parts = [place, f"job {self.job}" if self.job else "", self.key or ""]
        where = ": ".join(part for part in parts if part)
        return f"{where}: {self.message}" if where else self.message


class Invalid(SchedulerError):
    """An input is not acceptable; every fault found is listed at once."""

    code = "invalid"
    status = 422
    exit_code = 2

    def __init__(self, message: str, *, faults: Sequence[Fault] = (), hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.faults = tuple(faults)


class ConfigError(Invalid):
    """The daemon's own configuration is faulty; the daemon does not start."""

    exit_code = 1


class NotFound(SchedulerError):
    """The named job, run or item does not exist."""

    code = "not_found"
    status = 404
    exit_code = 3


class Conflict(SchedulerError):
    """The row is not in a state that accepts this verb."""

    code = "conflict"
    status = 409
    exit_code = 4


class AlreadyRunning(Conflict):
    """A run of this job is live or queued; `run_id` names it."""

    code = "already_running"

    def __init__(self, message: str, *, run_id: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.run_id = run_id


class AlreadyDone(Conflict):
    """A request with this key was carried out before; what was answered then is answered again.

    Attributes:
        key: the `Idempotency-Key`.
        request: digest of the request that was carried out.
        recorded: its answer: status, headers, body.
    """

    def __init__(self, key: str, request: str, recorded: tuple[int, Mapping[str, str], str]) -> None:
        super().__init__(f"a request with the key {key} was carried out before")
        self.key = key
        self.request = request
        self.recorded = recorded


class Stale(Conflict):
    """The caller's copy of a definition is older than the live one (If-Match)."""

    code = "stale"
    status = 412


class PreconditionRequired(Conflict):
    """A replacement must name the definition it replaces (If-Match)."""

    code = "precondition_required"
    status = 428


class Forbidden(SchedulerError):
    """The peer may not do this."""

    code = "forbidden"
    status = 403
    exit_code = 5


class TooLarge(SchedulerError):
    """The request is larger than the daemon reads."""

    code = "too_large"
    status = 413
    exit_code = 2


class Draining(SchedulerError):
    """The daemon is stopping and starts nothing new."""

    code = "draining"
    status = 503
    exit_code = 6


class StoreUnavailable(SchedulerError):
    """The store cannot commit now (locked, full, I/O error); nothing was changed."""

    code = "store_unavailable"
    status = 503
    exit_code = 6


class StoreRefused(SchedulerError):
    """The database is not one that this version may open (newer, damaged, not ours); it is left untouched."""


class DaemonUnreachable(SchedulerError):
    """No daemon answers on the control socket."""

    code = "unreachable"
    exit_code = 6


class ClientTimeout(SchedulerError):
    """The client waited as long as it was told to."""

    code = "timeout"
    exit_code = 7


class AlreadyServed(SchedulerError):
    """Another daemon holds this state directory or socket."""


class IllegalTransition(SchedulerError):
    """A run was to take a step that the transition table does not have: a bug of ours."""


class SpawnFailed(SchedulerError):
    """The attempt could not be started: the command or handler is not there or may not run."""


class HandlerBroken(SpawnFailed):
    """The Python handler cannot be imported or called: the job is broken until its code is repaired."""
