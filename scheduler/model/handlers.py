"""What a Python handler sees: its context, and the two values that say more than a result.

    from scheduler import Completed, Retry, RunContext

    async def fetch(run: RunContext, *, region: str) -> dict[str, int]:
        run.progress(done=1, total=2, message="asking")
        ...

An async handler runs as a task on the daemon's loop, a sync one in a child process of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from scheduler.errors import SchedulerError


@dataclass(frozen=True, slots=True)
class Completed:
    """Return it to say: done for good, the job is completed (`result` is kept as the run's result)."""

    result: Any = None


class Retry(SchedulerError):
    """Raise it to ask for a later try that is not charged to the job's `retry`.

    Args:
        after: seconds to wait before the next try.
    """

    def __init__(self, after: float, message: str = "the handler asked for a later try") -> None:
        super().__init__(message)
        self.after = after


class HandlerLog(Protocol):
    """A logger whose lines already carry job, run and attempt."""

    def debug(self, message: str, **values: object) -> None: ...
    def info(self, message: str, **values: object) -> None: ...
    def warning(self, message: str, **values: object) -> None: ...
    def error(self, message: str, **values: object) -> None: ...


class RunContext(Protocol):
    """The first argument of a handler.

    Attributes:
        fire_time: the slot with its zone, or None for a manual run.
        item: the batch item, or None.
        idempotency_key: stable over attempts and restarts: give it to the paid API.
        log: writes to the run's output.
    """

    @property
    def job_id(self) -> str: ...
    @property
    def run_id(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def fire_time(self) -> datetime | None: ...
    @property
    def args(self) -> Mapping[str, Any]: ...
    @property
    def item(self) -> Any: ...
    @property
    def idempotency_key(self) -> str: ...
    @property
    def log(self) -> HandlerLog: ...

    def progress(
        self,
        *,
        done: int | None = None,
        total: int | None = None,
        message: str | None = None,
        cost: float | None = None,
    ) -> None:
        """The numbers are what the run shows; `cost` is cumulative. It is also the run's sign of life."""
        ...

    def checkpoint(self) -> str:
        """What the operator wants of this run now: `run`, `hold`, `freeze` or `cancel`; stores nothing."""
        ...
