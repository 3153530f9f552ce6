"""Python handlers as attempts: an async one as a task on the loop, any other in a child process of its own.

Imports happen off the loop. A handler that cannot be imported raises `HandlerBroken`, so that its job is told
apart from one that merely failed. The child is the business of `handler_process`.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from scheduler.engine.ports import AttemptHooks, Execution, Executor
from scheduler.errors import HandlerBroken, SpawnFailed
from scheduler.executors.capture import open_output
from scheduler.executors.context import Call, Channels, Fields, HandlerContext
from scheduler.executors.environment import args_of, idempotency_key, zone_of
from scheduler.executors.handler_process import start_handler_process
from scheduler.executors.loading import Handler, is_async, load_handler, loaded_handler
from scheduler.executors.outcome import traceback_of
from scheduler.executors.output import Output, Stream
from scheduler.executors.progress import parse_fields
from scheduler.executors.relay import HookRelay
from scheduler.executors.spawn import Spawner
from scheduler.executors.surroundings import Surroundings
from scheduler.executors.task import TaskExecution
from scheduler.executors.threads import NoThread, off_loop
from scheduler.model.jobs import JobDefinition, PythonAction
from scheduler.model.runs import Grant


class PythonExecutor:
    """Starts python actions. Fulfils `engine.ports.Executor`.

    `start` raises `HandlerBroken` where the handler cannot be imported or called.
    """

    def __init__(self, around: Surroundings, spawner: Spawner) -> None:
        self._around = around
        self._spawner = spawner

    async def start(self, grant: Grant, hooks: AttemptHooks) -> Execution:
        return await self.start_with(grant, hooks, await self._handler_of(grant))

    async def prepared(self, grant: Grant) -> Executor:
        """An executor that starts this grant's handler again and again, imported once.

        Raises:
            HandlerBroken: it cannot be imported.
        """
        return _Prepared(self, await self._handler_of(grant))

    async def _handler_of(self, grant: Grant) -> Handler | None:
        action = grant.definition.action
        if not isinstance(action, PythonAction):
            raise SpawnFailed(f"a {action.kind} action is not a python handler")
        if action.process:
            return None
        # A thread costs more than all the rest of a short run.
        return loaded_handler(action.handler) or await self._load(grant, action.handler)

    async def start_with(self, grant: Grant, hooks: AttemptHooks, handler: Handler | None) -> Execution:
        """The handler runs; None: only a fresh process can import it."""
        action = grant.definition.action
        assert isinstance(action, PythonAction)  # noqa: S101 - judged where its handler was looked up
        call = _call_of(grant, self._around)
        if handler is not None and is_async(handler):
            return self._start_task(grant, hooks, handler, call)
        return await start_handler_process(
            grant, hooks, handler=action.handler, call=call, around=self._around, spawner=self._spawner
        )

    async def check(self, definition: JobDefinition) -> None:
        """The handler could be started.

        Raises:
            SpawnFailed: it could not; HandlerBroken where it cannot be imported or called.
        """
        action = definition.action
        if not isinstance(action, PythonAction):
            return
        if definition.user is not None:  # his code is not for the daemon's own process: the next start tells
            return
        try:
            await off_loop(lambda: load_handler(action.handler, self._around.python_path))
        except NoThread as error:
            raise SpawnFailed(error.message) from error

    async def _load(self, grant: Grant, spec: str) -> Handler | None:
        """The handler, or None where only a fresh process can tell.

        Raises:
            HandlerBroken: it cannot be imported; the traceback is in the run's output.
        """
        try:
            return await off_loop(lambda: load_handler(spec, self._around.python_path))
        except NoThread as error:
            raise SpawnFailed(error.message) from error
        except HandlerBroken as error:
            # A name that is missing here may have been written since this process imported the module.
            if isinstance(error.__cause__, AttributeError):
                return None
            if error.__cause__ is not None:
                output = open_output(grant, self._around)
                output.write(Stream.STDERR, traceback_of(error.__cause__))
                output.close()
            raise

    def _start_task(self, grant: Grant, hooks: AttemptHooks, handler: Handler, call: Call) -> Execution:
        output = open_output(grant, self._around)
        context = HandlerContext(call, _Ends(hooks, output).channels(), self._around.clock)
        return TaskExecution(handler, context, output=output, clock=self._around.clock)


class _Prepared:
    """Attempts of one handler that was imported once. Fulfils `engine.ports.Executor`."""

    def __init__(self, executor: PythonExecutor, handler: Handler | None) -> None:
        self._executor = executor
        self._handler = handler

    async def start(self, grant: Grant, hooks: AttemptHooks) -> Execution:
        return await self._executor.start_with(grant, hooks, self._handler)


class _Ends:
    """Where a handler's words go; what carries them is made with the first word, as most say none."""

    __slots__ = ("_hooks", "_loop", "_output", "_relay")

    def __init__(self, hooks: AttemptHooks, output: Output) -> None:
        self._hooks = hooks
        self._output = output
        self._loop = asyncio.get_running_loop()
        self._relay: HookRelay | None = None

    def channels(self) -> Channels:
        """The ends as the context takes them."""
        return Channels(tell=self._tell, wish=self._hooks.wish, write=self._write)

    def _tell(self, fields: Fields) -> None:
        report = parse_fields(fields)
        if report is not None:
            self._carrier().progressed(report)

    def _write(self, line: bytes) -> None:
        self._output.write(Stream.STDERR, line)
        self._carrier().output_seen(len(line))

    def _carrier(self) -> HookRelay:
        if self._relay is None:
            self._relay = HookRelay(self._hooks, self._loop)
        return self._relay


def _call_of(grant: Grant, around: Surroundings) -> Call:
    """What the handler is told.

    Raises:
        SpawnFailed: the arguments are not a JSON object, so they cannot be keyword arguments.
    """
    text = args_of(grant)
    args: Any = {} if text == "{}" else json.loads(text)  # most jobs have none, and batches call often
    if not isinstance(args, dict):
        raise SpawnFailed("the arguments of a python handler are a JSON object: its keyword arguments")
    return Call(
        job_id=grant.run.job,
        run_id=grant.run.id,
        attempt=grant.run.attempt,
        fire_time=grant.run.fire_time,
        timezone=zone_of(grant, around),
        args=args,
        idempotency_key=idempotency_key(grant),
        item=None if grant.item is None else json.loads(grant.item.payload),
    )
