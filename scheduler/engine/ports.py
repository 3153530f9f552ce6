"""What the engine asks of the world: executors, the timer, the undertaker, the liveness of owners.

Protocols stand here, where they are used; the executors and the composition root implement them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from scheduler.clock import Micros
from scheduler.model.jobs import JsonValue
from scheduler.model.runs import Grant, OwnerId, Progress, Run


class EndKind(StrEnum):
    """How an execution ended, by itself or because it was ended."""

    EXITED = "exited"
    SIGNALLED = "signalled"
    RETURNED = "returned"
    RAISED = "raised"
    CANCELLED = "cancelled"
    RETRY_ASKED = "retry_asked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The bare facts of an end; what they mean is judged elsewhere.

    Attributes:
        exit_code: of a process that exited (EXITED), else None.
        signal: number of the signal that ended the process (SIGNALLED), else None.
        result: JSON value a handler returned.
        completed: the handler returned `Completed`: the job is done for good.
        retry_after: the wait a handler asked for (RETRY_ASKED).
        message: one line for a person (an exception's type and text, `command not found` with the PATH).
        left_behind: processes of the session that outlived the main process.
    """

    kind: EndKind
    exit_code: int | None = None
    signal: int | None = None
    result: JsonValue = None
    completed: bool = False
    retry_after: Micros | None = None
    message: str | None = None
    left_behind: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressReport:
    """One sign of life of the work; fields it did not mention are None. `cost` is cumulative."""

    progress: Progress = field(default_factory=Progress)
    cost: float | None = None


class AttemptHooks(Protocol):
    """What an execution tells while it runs. Called on the event loop; returns at once, never raises."""

    def child_started(self, pid: int, start_ticks: int) -> None:
        """The main process exists: its pid and the raw start ticks of /proc/PID/stat."""
        ...

    def progressed(self, report: ProgressReport) -> None:
        """The work told its progress."""
        ...

    def output_seen(self, size: int) -> None:
        """`size` bytes of output arrived: also a sign of life."""
        ...

    def wish(self) -> str:
        """What the operator wants of this run now."""
        ...


class Execution(Protocol):
    """One started attempt."""

    async def wait(self) -> Ended:
        """The end, once it has come; may be awaited more than once, and a cancel of the wait ends nothing."""
        ...

    async def end(self, grace: Micros) -> bool:
        """Nothing of the attempt runs any more: True. False: it could not be ended within `grace` + 2 s.

        A process: SIGTERM and SIGCONT to the whole session, `grace`, SIGKILL. A coroutine: cancel.
        Safe to call twice and after the end (then it ends what the main process left behind).
        """
        ...


class Executor(Protocol):
    """Starts attempts of one kind of action."""

    async def start(self, grant: Grant, hooks: AttemptHooks) -> Execution:
        """The attempt runs. The grant's claim has durably committed (I10).

        Raises:
            SpawnFailed: it could not be started; nothing of it runs.
            HandlerBroken: its handler cannot be imported or called.
        """
        ...


class Undertaker(Protocol):
    """Ends what an attempt of a dead daemon left running (I11)."""

    async def end_leftovers(self, run: Run, grace: Micros) -> bool:
        """True: nothing of this run at claim <= `run.claim` is left, looked for twice.

        False: something could not be killed; it is to be tried again.
        """
        ...


class Liveness(StrEnum):
    """What is known of the owner of a claim."""

    ALIVE = "alive"
    DEAD = "dead"
    UNKNOWN = "unknown"


class OwnerLiveness(Protocol):
    """Tells whether another owner can still write; injected, so that two daemons can be modelled."""

    def __call__(self, owner: OwnerId) -> Liveness: ...


class Timer(Protocol):
    """The one replaceable wake-up."""

    def arm(self, at: Micros | None) -> None:
        """The callback is called once at wall time `at` (at once if it is past); None disarms."""
        ...
