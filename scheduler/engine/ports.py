"""What the engine asks of the world: executors, the timer, the undertaker, the liveness of owners.

Protocols stand here, where they are used; the executors and the composition root implement them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Protocol, runtime_checkable

from scheduler.clock import Micros
from scheduler.model.items import BegunItem, FrozenItem, ItemCounts
from scheduler.model.jobs import JsonValue
from scheduler.model.record import record
from scheduler.model.runs import Grant, OwnerId, Progress, Run, Wish
from scheduler.store.values import Begun, ItemOutcome, NoBegin


class EndKind(StrEnum):
    """How an execution ended, by itself or because it was ended."""

    EXITED = "exited"
    SIGNALLED = "signalled"
    RETURNED = "returned"
    RAISED = "raised"
    CANCELLED = "cancelled"
    RETRY_ASKED = "retry_asked"
    ITEMS = "items"
    """A batch begins no further item, and none is under way."""
    LIST_FAILED = "list_failed"
    """The items of a batch could not be listed; none was begun."""
    STOPPED = "stopped"
    """The unit that it ran in was stopped by somebody other than us."""
    BROKEN = "broken"
    """The handler of a batch turned out not to be importable."""


@record
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
        stop: why a batch begins no further item (ITEMS), or None where it was told to end.
    """

    kind: EndKind
    exit_code: int | None = None
    signal: int | None = None
    result: JsonValue = None
    completed: bool = False
    retry_after: Micros | None = None
    message: str | None = None
    left_behind: int = 0
    stop: NoBegin | None = None


@record
class BatchProgress:
    """How far a batch is.

    Attributes:
        rate: items ended per second of late, None while nothing can be said.
    """

    counts: ItemCounts
    rate: float | None = None


@record
class ProgressReport:
    """One sign of life of the work; fields it did not mention are None. `cost` is cumulative.

    Attributes:
        batch: how the items of a batch stand: followers are told, their rows say it themselves.
    """

    progress: Progress = field(default_factory=Progress)
    cost: float | None = None
    batch: BatchProgress | None = None


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

    def wait(self) -> Awaitable[Ended]:
        """The end, once it has come; may be awaited more than once, and a cancel of the wait ends nothing.

        A future, where waiting in a task would cost more than the work.
        """
        ...

    async def end(self, grace: Micros) -> bool:
        """Nothing of the attempt runs any more: True. False: it could not be ended within `grace` + 2 s.

        A process: SIGTERM and SIGCONT to the whole session, `grace`, SIGKILL. A coroutine: cancel.
        Safe to call twice and after the end (then it ends what the main process left behind).
        """
        ...


@runtime_checkable
class Heeds(Execution, Protocol):
    """An execution that an operator's wish reaches while it runs."""

    def heed(self, wish: Wish) -> None:
        """`freeze` stops it where it stands, `run` lets it go on; a batch looks again what it may begin."""
        ...


@runtime_checkable
class Isolated(Execution, Protocol):
    """An execution that outlives the daemon, in a unit of the service manager."""

    def worked(self) -> Micros:
        """How long it has worked, under whatever daemon, the time left out in which it was frozen."""
        ...

    async def collect(self) -> None:
        """The manager forgets the unit, now that the outcome is on record; never raises."""
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


class ItemDesk(Protocol):
    """Where the worker of a batch keeps its items; every answer comes after the commit.

    All raise StoreUnavailable while the store cannot commit, but for `end`, which waits.
    """

    async def clear(self, run: Run) -> None:
        """Nothing is left of a list that an earlier attempt did not finish."""
        ...

    async def put(self, run: Run, items: Sequence[FrozenItem]) -> None:
        """The items are part of the list. Raises Invalid (a key stands twice), Conflict (claim lost)."""
        ...

    async def complete(self, run: Run, total: int) -> None:
        """The list is whole and frozen. Raises Conflict (claim lost)."""
        ...

    async def follow_choice(self, run: Run) -> bool:
        """A slice of what `retry` chose is pending; True: all of it. Raises Conflict (claim lost)."""
        ...

    async def begin(self, run: Run, limit: int) -> Begun:
        """Up to `limit` items are durably begun, as far as they may be."""
        ...

    async def end(self, run: Run, outcomes: Sequence[tuple[BegunItem, ItemOutcome]]) -> None:
        """The outcomes are durable."""
        ...


class Undertaker(Protocol):
    """Ends what an attempt of a dead daemon left running (I11)."""

    async def end_leftovers(self, run: Run, grace: Micros) -> bool:
        """True: nothing of this run at claim <= `run.claim` is left, looked for twice.

        False: something could not be killed; it is to be tried again.
        """
        ...


class UnitDesk(Protocol):
    """Knows the units that attempts run in, whatever daemon has started them."""

    async def find(self, run: Run) -> int | None:
        """The claim under which the run's unit was started; None: there is none to go on with.

        From then on nothing of the run that was not begun by now is going to begin.

        Raises:
            SchedulerError: it is not known.
        """
        ...

    async def started(self) -> Sequence[tuple[str, int]]:
        """Run and claim of every unit of this store that there still is; what cannot be asked is left out."""
        ...

    async def end(self, run_id: str, claim: int, grace: Micros) -> bool:
        """The unit has ended and is forgotten; True: something ran in it."""
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
