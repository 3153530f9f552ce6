"""One process of an attempt from its start to its end: output, progress, exit, and what it leaves behind.

The attempt ends when the *main* process ends. Its pipes get two seconds more, for what is still on its way
through a `tee`; a background process that holds them open for longer changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from scheduler.clock import MILLISECOND, Clock, Micros
from scheduler.engine.ports import AttemptHooks, Ended, EndKind
from scheduler.errors import SpawnFailed
from scheduler.executors.ending import end_processes
from scheduler.executors.output import Output, Stream
from scheduler.executors.processes import Belonging, is_unused, session_survivors
from scheduler.executors.progress import ProgressReader
from scheduler.executors.pump import PIPE_WAIT, Pump, Sink
from scheduler.executors.relay import HookRelay
from scheduler.executors.spawn import Spawned, Spawner, abandon, exited, reap
from scheduler.executors.threads import NoThread, off_loop
from scheduler.executors.wards import Guard, Unguarded, Ward
from scheduler.model.runs import Wish

_COUNTS: Final = 3
_COUNT_PAUSE: Final = 20 * MILLISECOND
"""A process closes its pipes a moment before it is gone: who is about to end is not left behind."""


class ProcessExecution:
    """A started process, watched until its end. Fulfils `engine.ports.Execution`.

    Args:
        spawned: the process; taken over, with its pipes.
        spawner: who has started it.
        belonging: what is to be ended with it.
        more: further descriptors to read, each with its sink (a child's channel).
        guard: ends the process should the daemon die.

    Raises:
        SpawnFailed: it could not be watched; it was killed.
    """

    def __init__(
        self,
        spawned: Spawned,
        *,
        spawner: Spawner,
        belonging: Belonging,
        hooks: AttemptHooks,
        output: Output,
        clock: Clock,
        more: Mapping[int, Sink] | None = None,
        guard: Guard | None = None,
    ) -> None:
        self._spawned = spawned
        self._spawner = spawner
        self._belonging = belonging
        self._clock = clock
        self._guard = guard or Unguarded()
        self._ward = Ward(session=spawned.session, run_id=belonging.run_id, claim=belonging.claim)
        self._ends_under_way = 0
        self._is_reaped = False
        self._pump = _begin_pump(spawned, spawner, HookRelay(hooks), output, more or {})
        self._guard.watch(self._ward)
        hooks.child_started(spawned.pid, spawned.session.ticks)
        self._end = asyncio.create_task(self._watch())

    async def wait(self) -> Ended:
        return await asyncio.shield(self._end)

    async def end(self, grace: Micros) -> bool:
        self._ends_under_way += 1
        try:
            return await end_processes(self._belonging.processes, clock=self._clock, grace=grace)
        finally:
            self._ends_under_way -= 1
            if self._end.done():
                self._let_go()

    def heed(self, wish: Wish) -> None:
        """`freeze` stops the process group where it stands, any other wish lets it go on."""
        if self._is_reaped:
            return
        # Not reaped yet, so the number still names this group.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._spawned.pid, signal.SIGSTOP if wish is Wish.FREEZE else signal.SIGCONT)

    async def _watch(self) -> Ended:
        await exited(self._spawned.pid, self._spawner.readiness)
        if not await self._pump.drained(PIPE_WAIT):
            self._pump.discard()
        # INVARIANT: a number is not signalled after it was reaped. Whoever of the session is left keeps it
        # from being used again, so it can be asked for now.
        self._is_reaped = True
        exit_code = reap(self._spawned.child)
        ended = ended_as(exit_code, await self._count_left())
        self._let_go()
        return ended

    def _let_go(self) -> None:
        """A main process that ended by itself leaves its background children alone, a daemon's death, too."""
        if not self._ends_under_way:
            self._guard.forget(self._ward)

    async def _count_left(self) -> int:
        session, left = self._spawned.session, 0
        if is_unused(session.leader, self._spawner.progress_fd):  # without a look at all processes
            self._belonging = replace(self._belonging, session=None)
            return 0
        for _ in range(_COUNTS):
            try:
                left = len(await off_loop(lambda: session_survivors(session)))
            except (NoThread, OSError):
                return left
            if not left:
                # An empty session never gets a member again, and soon its number may be another's.
                self._belonging = replace(self._belonging, session=None)
                return 0
            await self._clock.sleep(_COUNT_PAUSE)
        return left


def ended_as(exit_code: int | None, left_behind: int) -> Ended:
    """The facts of a process's end; an exit status that we did not get is told, and is not exit code 0."""
    if exit_code is None:
        message = "the exit status was taken by somebody else; how the command ended is not known"
        return Ended(kind=EndKind.EXITED, message=message, left_behind=left_behind)
    if exit_code < 0:
        return Ended(kind=EndKind.SIGNALLED, signal=-exit_code, left_behind=left_behind)
    return Ended(kind=EndKind.EXITED, exit_code=exit_code, left_behind=left_behind)


def _begin_pump(
    spawned: Spawned, spawner: Spawner, relay: HookRelay, output: Output, more: Mapping[int, Sink]
) -> Pump:
    def keep(stream: Stream) -> Sink:
        def sink(data: bytes) -> None:
            output.write(stream, data)
            relay.output_seen(len(data))

        return sink

    sinks: dict[int, Sink] = {
        spawned.stdout: keep(Stream.STDOUT),
        spawned.stderr: keep(Stream.STDERR),
        spawned.progress: ProgressReader(relay.progressed).feed,
        **more,
    }
    try:
        pump = Pump(sinks, on_over=output.close, readiness=spawner.readiness, workers=spawner.pumping)
        pump.start(at_once=bool(more))  # a child with a channel has something to say
    except (NoThread, OSError) as error:
        abandon(spawned)
        raise SpawnFailed(f"the command's output cannot be read, so it was ended at once: {error}") from error
    return pump
