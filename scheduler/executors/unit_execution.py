"""One isolated attempt as its daemon sees it: followed through the keeper's notes, reached through its unit.

The daemon that follows it may be another one than started it, and may leave it at any moment: nothing of the
attempt depends on this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import threading
from collections.abc import Awaitable, Callable
from typing import Final

from scheduler.clock import MILLISECOND, SECOND, Clock, Micros
from scheduler.engine.ports import AttemptHooks, Ended, EndKind, ProgressReport
from scheduler.engine.stopwatch import Stopwatch
from scheduler.errors import SchedulerError, SpawnFailed
from scheduler.executors.ending import end_processes, send_signal
from scheduler.executors.processes import (
    Belonging,
    ProcessId,
    Session,
    boot_id,
    members_of_unit,
    process_identity,
)
from scheduler.executors.relay import HookRelay
from scheduler.executors.threads import NoThread, start_thread
from scheduler.executors.unit_files import Kept, UnitFolder, UnitName, Worked
from scheduler.executors.unit_manager import Shown
from scheduler.model.runs import Progress, Wish

LOOK_MS: Final = 250
"""How often the keeper's notes are looked at."""

_KEEPER_WAIT: Final[Micros] = 5 * SECOND
"""What the keeper gets, after all else of the unit has ended, to note the end: it waits 2 s for pipes."""

_STOP_PASSES: Final = 10
_LAST_LOOKS: Final = 50
_LOOK_PAUSE: Final[Micros] = 100 * MILLISECOND


def ended_by(kept: Kept | None, shown: Shown | None) -> Ended:
    """The facts of an end: by the keeper's word, else by what the manager knows of its process. Pure."""
    if kept is not None and kept.end is not None:
        end = kept.end
        kind = EndKind.EXITED if end.signal is None else EndKind.SIGNALLED
        message = None
        if end.signal is None and end.exit_code is None:
            message = "the exit status was taken by somebody else; how the command ended is not known"
        if kept.stopped:
            kind, message = (
                EndKind.STOPPED,
                "its unit was stopped from outside, as a shutdown of the machine does",
            )
        return Ended(
            kind=kind,
            exit_code=end.exit_code,
            signal=end.signal,
            message=message,
            left_behind=end.left_behind,
        )
    if shown is None or not shown.code:
        return Ended(kind=EndKind.EXITED, message="its unit is gone; how the command ended is not known")
    if shown.code == "exited":
        if shown.said_end:
            return Ended(kind=EndKind.EXITED, exit_code=shown.status)
        message = (
            f"the keeper of its unit ended (exit code {shown.status}); how the command ended is not known"
        )
        return Ended(kind=EndKind.EXITED, message=message)
    message = None if shown.said_end else f"its unit was killed by signal {shown.status} ({shown.result})"
    return Ended(kind=EndKind.SIGNALLED, signal=shown.status, message=message)


def worked_until(kept: Kept, noted: Worked | None, now: Micros) -> Micros:
    """How long the command has worked by the monotonic moment `now` of the same boot. Pure."""
    if noted is None:
        return max(0, now - kept.started_at)
    return noted.worked + (0 if noted.frozen else max(0, now - noted.at))


class UnitExecution:
    """A started unit, followed until its end. Fulfils `engine.ports.Isolated`.

    Args:
        kept: the keeper's word, in which the command has been started.
        collect: what the unit leaves behind is taken away.
        look: what the manager knows of the unit.

    Raises:
        SpawnFailed: it could not be followed; it goes on.
    """

    def __init__(
        self,
        name: UnitName,
        kept: Kept,
        *,
        folder: UnitFolder,
        hooks: AttemptHooks,
        clock: Clock,
        collect: Callable[[UnitName], Awaitable[None]],
        look: Callable[[UnitName], Awaitable[Shown | None]],
    ) -> None:
        self._name = name
        self._kept = kept
        self._folder = folder
        self._clock = clock
        self._collect = collect
        self._look = look
        self._relay = HookRelay(hooks)
        self._told = Kept(keeper=kept.keeper, boot_id=kept.boot_id)
        self._watch = Stopwatch(clock)
        noted = folder.worked(name)
        self._worked_before = worked_until(kept, noted, clock.monotonic())
        self._attached_at = self._watch.now()
        self._wish = Wish.RUN
        self._stamp: tuple[int, int] | None = None
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._waking = threading.Lock()
        self._is_followed = True
        self._loop = asyncio.get_running_loop()
        self._keeper_gone: asyncio.Future[None] = self._loop.create_future()
        if kept.command is not None and not kept.is_over:
            hooks.child_started(kept.command.pid, kept.command.ticks)
        try:
            start_thread(self._follow, name="unit")
        except NoThread as error:
            os.close(self._wake)
            raise SpawnFailed(error.message) from error
        self._end = asyncio.create_task(self._ended())
        if noted is not None and noted.frozen:
            self.heed(Wish(hooks.wish()))  # it may have been resumed while no daemon was there to do it

    def worked(self) -> Micros:
        return self._worked_before + self._watch.now() - self._attached_at

    async def wait(self) -> Ended:
        return await asyncio.shield(self._end)

    async def end(self, grace: Micros) -> bool:
        if not await end_processes(self._work, clock=self._clock, grace=grace):
            return False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_KEEPER_WAIT / SECOND):
                await asyncio.shield(self._keeper_gone)
        return await end_processes(self._everyone, clock=self._clock, grace=0)

    def heed(self, wish: Wish) -> None:
        """`freeze` stops everything in the unit but its keeper, any other wish lets it go on."""
        self._wish = wish
        self._watch.set_frozen(wish is Wish.FREEZE)
        with self._waking:
            if self._is_followed:
                os.eventfd_write(self._wake, 1)

    async def collect(self) -> None:
        await self._collect(self._name)

    def _work(self) -> list[ProcessId]:
        """Who is to end: the unit but its keeper, and what has left the unit with the marks of the run."""
        command = self._kept.command
        belonging = Belonging(
            store_id=self._name.store_id,
            run_id=self._name.run_id,
            claim=self._name.claim,
            session=None if command is None else Session(leader=command.pid, ticks=command.ticks),
        )
        found = {*members_of_unit(self._name.service), *belonging.processes()}
        return sorted(found - {self._kept.keeper})

    def _everyone(self) -> list[ProcessId]:
        return members_of_unit(self._name.service)

    async def _ended(self) -> Ended:
        await self._keeper_gone
        if self._kept.end is not None:
            return ended_by(self._kept, None)
        # Its keeper was killed, or had no disk to note it on: the manager ends the rest, and we make sure.
        await end_processes(self._everyone, clock=self._clock, grace=SECOND)
        return ended_by(None, await self._last_look())

    async def _last_look(self) -> Shown | None:
        """What the manager knows, once it has seen the end of the keeper, which was not its first concern."""
        shown: Shown | None = None
        with contextlib.suppress(SchedulerError):
            for _ in range(_LAST_LOOKS):
                shown = await self._look(self._name)
                if shown is None or shown.code:
                    break
                await self._clock.sleep(_LOOK_PAUSE)
        return shown

    # --- in the thread ---

    def _follow(self) -> None:
        """Until the keeper is gone its notes are passed on and wishes are carried out."""
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        keeper = _pidfd_of(self._kept)
        if keeper is not None:
            poll.register(keeper, select.POLLIN)
        stopped: set[ProcessId] = set()
        is_over = False
        while not is_over:
            ready = {descriptor for descriptor, _ in poll.poll(LOOK_MS)}
            if self._wake in ready:
                os.eventfd_read(self._wake)
                self._obey(stopped)
            is_over = not _lives(self._kept)  # asked before the last look at what it has noted
            self._read_notes()
        if keeper is not None:
            os.close(keeper)
        with self._waking:
            self._is_followed = False
            os.close(self._wake)
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits
            self._loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        if not self._keeper_gone.done():
            self._keeper_gone.set_result(None)

    def _read_notes(self) -> None:
        stamp = self._folder.kept_stamp(self._name)
        kept = None if stamp is None or stamp == self._stamp else self._folder.kept(self._name)
        if kept is None or kept.keeper != self._kept.keeper:
            return
        self._stamp, self._kept = stamp, kept
        told, self._told = self._told, kept
        if kept.output > told.output:
            self._relay.output_seen(kept.output - told.output)
        if _said(kept) not in (_said(told), (None,) * 4):
            progress = Progress(done=kept.done, total=kept.total, message=kept.message)
            self._relay.progressed(ProgressReport(progress=progress, cost=kept.cost))

    def _obey(self, stopped: set[ProcessId]) -> None:
        """The processes stand or go on as was wished last; how long they have worked is noted."""
        frozen = self._wish is Wish.FREEZE
        with contextlib.suppress(OSError):
            noted = Worked(worked=self.worked(), at=self._clock.monotonic(), frozen=frozen)
            self._folder.put_worked(self._name, noted)
        if not frozen:
            stopped.clear()
            for process in self._work():
                send_signal(process, signal.SIGCONT)
            return
        for _ in range(_STOP_PASSES):  # who was started by one that had not been stopped yet is caught next
            fresh = set(self._work()) - stopped
            if not fresh:
                return
            for process in fresh:
                send_signal(process, signal.SIGSTOP)
            stopped |= fresh


def _said(kept: Kept) -> tuple[int | None, int | None, str | None, float | None]:
    return kept.done, kept.total, kept.message, kept.cost


def _lives(kept: Kept) -> bool:
    """The keeper is alive, in this boot."""
    return kept.boot_id == boot_id() and process_identity(kept.keeper.pid) == kept.keeper.ticks


def _pidfd_of(kept: Kept) -> int | None:
    """Tells the keeper's end at once; without one the looks do."""
    if not _lives(kept):
        return None
    try:
        return os.pidfd_open(kept.keeper.pid)
    except OSError:
        return None
