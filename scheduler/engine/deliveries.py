"""Notices on their way: a bounded queue, tries with pauses between them, and no run that ever waits for it.

Notices of one job to one kind of receiver go out one after another, so that a start is not told after its
end; those of different jobs do not wait for each other. What could not be delivered is told in the log and
dropped. Nothing is stored: a daemon that is killed loses what was under way, one that is stopped in order
delivers for a few seconds more.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Protocol, TypeAlias

from scheduler.clock import SECOND, Clock, Micros
from scheduler.engine.alerts import Alert, PingCall
from scheduler.errors import SchedulerError
from scheduler.model.alerts import Webhook, masked_url
from scheduler.model.jobs import JobId
from scheduler.telemetry import Event, Logger

Notice: TypeAlias = PingCall | Alert
_Lane: TypeAlias = tuple[JobId, type[Notice]]

WAITS: Final[tuple[Micros, ...]] = (SECOND, 5 * SECOND, 25 * SECOND)
"""Between the tries of one notice; after the last one it is given up."""

CAPACITY: Final = 1000
"""Notices that wait at the same time; beyond it they are told as lost."""

_AT_ONCE: Final = 8


class Undelivered(SchedulerError):
    """The receiver did not take it; the message says why, and holds no secret.

    Attributes:
        final: another try would end the same way.
    """

    def __init__(self, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.final = final


class Courier(Protocol):
    """Takes one notice to its receiver, once, in bounded time. Raises Undelivered."""

    async def ping(self, notice: PingCall) -> None:
        """The URL was asked."""
        ...

    async def alert(self, notice: Alert) -> None:
        """The hook was called, and said yes."""
        ...


class Deliveries:
    """The way out of all notices."""

    def __init__(self, courier: Courier, clock: Clock, log: Logger) -> None:
        self._courier = courier
        self._clock = clock
        self._log = log
        self._lanes: dict[_Lane, deque[Notice]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting = 0
        self._free = asyncio.Semaphore(_AT_ONCE)

    def put(self, notice: Notice) -> None:
        """The notice is on its way, or told as lost where too many are."""
        if self._waiting >= CAPACITY:
            self._tell_lost(notice, f"{CAPACITY} notices wait already")
            return
        self._waiting += 1
        lane = (notice.job, type(notice))
        if lane in self._lanes:
            self._lanes[lane].append(notice)
            return
        self._lanes[lane] = deque([notice])
        task = asyncio.create_task(self._drive(lane), name=f"notices:{notice.job}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self, patience: Micros) -> None:
        """What could be delivered within `patience` was; the rest is told as lost."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=patience / SECOND)
        left = set(self._tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        for waiting in self._lanes.values():
            for notice in waiting:
                self._tell_lost(notice, "the daemon stopped first")
        self._lanes.clear()

    async def _drive(self, lane: _Lane) -> None:
        """The notices of one lane, in order; a lane that is empty is gone."""
        waiting = self._lanes[lane]
        while waiting:
            await self._deliver(waiting[0])
            waiting.popleft()
            self._waiting -= 1
        del self._lanes[lane]

    async def _deliver(self, notice: Notice) -> None:
        for wait in (*WAITS, None):
            try:
                async with self._free:
                    await self._try(notice)
                return
            except Undelivered as error:
                if wait is None or error.final:
                    self._tell_lost(notice, str(error))
                    return
            except Exception as error:  # noqa: BLE001 - one notice must not end the way of the others
                self._tell_lost(notice, f"{type(error).__name__} in the delivery", error)
                return
            await self._clock.sleep(wait)

    async def _try(self, notice: Notice) -> None:
        if isinstance(notice, PingCall):
            await self._courier.ping(notice)
        else:
            await self._courier.alert(notice)

    def _tell_lost(self, notice: Notice, why: str, error: Exception | None = None) -> None:
        kind, run_id = (
            ("ping", notice.run_id)
            if isinstance(notice, PingCall)
            else (notice.kind.value, notice.facts.get("run_id"))
        )
        self._log.warning(
            Event.ALERT_UNDELIVERED,
            job=notice.job,
            run_id=run_id,
            alert=kind,
            receiver=_receiver(notice),
            message=why,
            exc_info=error,
        )


def _receiver(notice: Notice) -> str:
    """Who was to be told, without what may be secret: of a command, the program alone."""
    if isinstance(notice, PingCall):
        return masked_url(notice.url)
    return masked_url(notice.hook.url) if isinstance(notice.hook, Webhook) else notice.hook.argv[0]
