"""A handler in a child process: exec'ed, never forked off the daemon and never reused.

So it can be killed like a command, a crash of it is its own, and it sees the code as it is now. Session,
output, environment and ending are those of a command; what differs is that the end is told by the child over
its channel, and that exit code 0 without such a word is no success.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from dataclasses import asdict, replace
from typing import Any, Final

from scheduler.clock import Micros
from scheduler.engine.ports import AttemptHooks, Ended, EndKind
from scheduler.errors import HandlerBroken, SpawnFailed
from scheduler.executors.channel import ChildChannel
from scheduler.executors.command import start_process
from scheduler.executors.context import Call
from scheduler.executors.execution import ProcessExecution
from scheduler.executors.spawn import Spawner, above_stdio, memory_file
from scheduler.executors.surroundings import Surroundings
from scheduler.executors.task import ended_from
from scheduler.model.runs import Grant
from scheduler.telemetry import concealed

LOAD_WAIT: Final = 10.0
"""Seconds that a start waits for the child's import; a longer one is part of the run."""


class HandlerProcess:
    """A started child. Fulfils `engine.ports.Execution`."""

    def __init__(self, process: ProcessExecution, channel: ChildChannel) -> None:
        self._process = process
        self._channel = channel
        self._end = asyncio.create_task(self._judged())

    async def wait(self) -> Ended:
        return await asyncio.shield(self._end)

    async def end(self, grace: Micros) -> bool:
        return await self._process.end(grace)

    async def loaded(self) -> None:
        """The handler is imported, or the child was signalled, or its import takes longer than `LOAD_WAIT`.

        Raises:
            HandlerBroken: it cannot be imported; the child has ended.

        Cancellation:
            The child is killed.
        """
        try:
            either: set[asyncio.Future[Any]] = {self._channel.settled, self._end}
            await asyncio.wait(either, timeout=LOAD_WAIT, return_when=asyncio.FIRST_COMPLETED)
            if self._channel.broken is not None or self._end.done():
                self._raise_if_broken(await self.wait())
        except asyncio.CancelledError:
            await self.end(0)
            raise

    def _raise_if_broken(self, ended: Ended) -> None:
        if self._channel.broken is not None:
            raise HandlerBroken(concealed(self._channel.broken))
        if not self._channel.settled.done() and ended.exit_code is not None:
            raise HandlerBroken(
                f"the handler's process ended with exit code {ended.exit_code} before its import was done; "
                "the run's output says more"
            )

    async def _judged(self) -> Ended:
        """The end; its message may be the text of an exception, which secrets of an `env_file` may be in."""
        ended = await self._ended()
        return ended if ended.message is None else replace(ended, message=concealed(ended.message))

    async def _ended(self) -> Ended:
        try:
            ended = await self._process.wait()
        finally:
            self._channel.close()
        if self._channel.outcome is not None:
            return ended_from(self._channel.outcome, left_behind=ended.left_behind)
        if ended.kind is EndKind.SIGNALLED:
            return ended
        return Ended(
            kind=EndKind.RAISED,
            exit_code=ended.exit_code,
            message=self._channel.broken or _without_a_word(ended),
            left_behind=ended.left_behind,
        )


async def start_handler_process(
    grant: Grant, hooks: AttemptHooks, *, handler: str, call: Call, around: Surroundings, spawner: Spawner
) -> HandlerProcess:
    """The handler runs in a process of its own, or its import takes its time.

    Raises:
        HandlerBroken: it cannot be imported.
        SpawnFailed: the process could not be started.

    Cancellation:
        A process that was started is killed.
    """
    order = {"handler": handler, "python_path": around.python_path, "call": asdict(call)}
    channel, passed = _open_channel(json.dumps(order).encode(), hooks)
    argv = (sys.executable, "-P", "-m", "scheduler.executors.child", *(str(number) for number in passed))
    reading = channel.reading_end()
    try:
        process = await start_process(
            grant,
            hooks,
            argv=argv,
            around=around,
            spawner=spawner,
            passed=passed,
            more={reading: channel.feed},
        )
    except BaseException as error:
        os.close(reading)
        channel.close()
        user = grant.definition.user
        if user is not None and isinstance(error, SpawnFailed):
            hint = f"a handler of user {user} needs schedulerd and its Python where he may read them"
            raise SpawnFailed(f"{error.message}; {hint}") from error
        raise
    started = HandlerProcess(process, channel)
    await started.loaded()
    return started


def _open_channel(order: bytes, hooks: AttemptHooks) -> tuple[ChildChannel, tuple[int, int]]:
    """Our end, and the child's two descriptors: the order to read, and its end."""
    try:
        ours, theirs = socket.socketpair()
        with theirs:
            return ChildChannel(ours, hooks.wish), (memory_file(order), above_stdio(theirs.fileno()))
    except OSError as error:
        raise SpawnFailed(f"no channel to a handler's process can be made: {error.strerror}") from error


def _without_a_word(ended: Ended) -> str:
    if ended.exit_code is None:
        return ended.message or "how the handler's process ended is not known"
    return f"the handler's process ended with exit code {ended.exit_code} before the handler had returned"
