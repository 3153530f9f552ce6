"""An async handler as a task on the daemon's loop."""

from __future__ import annotations

import asyncio
from typing import Final

from scheduler.clock import Clock, Micros
from scheduler.engine.ports import Ended, EndKind
from scheduler.executors.contain import handler_task
from scheduler.executors.context import HandlerContext
from scheduler.executors.loading import Handler
from scheduler.executors.outcome import Outcome, OutcomeKind, of_error, of_return, traceback_of
from scheduler.executors.output import Output, Stream

_KINDS: Final = {
    OutcomeKind.RETURNED: EndKind.RETURNED,
    OutcomeKind.RAISED: EndKind.RAISED,
    OutcomeKind.RETRY_ASKED: EndKind.RETRY_ASKED,
}


class TaskExecution:
    """A started handler. Fulfils `engine.ports.Execution`.

    Args:
        output: closed when the handler has ended.
        clock: measures the grace of `end`.
    """

    def __init__(self, handler: Handler, context: HandlerContext, *, output: Output, clock: Clock) -> None:
        self._output = output
        self._clock = clock
        self._cancel_asked = False
        self._ended: Ended | None = None
        self._waiting: list[asyncio.Future[Ended]] = []
        self._loop = asyncio.get_running_loop()
        self._task = handler_task(self._loop, self._call(handler, context), name=f"run:{context.run_id}")
        self._task.add_done_callback(self._settle)

    def wait(self) -> asyncio.Future[Ended]:
        end: asyncio.Future[Ended] = self._loop.create_future()  # one per wait: a cancelled one is only that
        if self._ended is None:
            self._waiting.append(end)
        else:
            end.set_result(self._ended)
        return end

    async def end(self, grace: Micros) -> bool:
        if self._task.done():
            return True
        self._cancel_asked = True
        self._task.cancel()
        patience = asyncio.create_task(self._clock.sleep(grace))
        try:
            await asyncio.wait({self._task, patience}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            patience.cancel()
        return self._task.done()

    async def _call(self, handler: Handler, context: HandlerContext) -> Outcome:
        """What came of the call. INVARIANT: nothing that a handler raises reaches the loop, but a cancel."""
        try:
            return of_return(await handler(context, **context.args))
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - also SystemExit and GeneratorExit: failures both
            self._output.write(Stream.STDERR, traceback_of(error))
            return of_error(error)

    def _settle(self, task: asyncio.Task[Outcome]) -> None:
        self._output.close()
        if not task.cancelled():
            self._ended = ended_from(task.result())
        elif self._cancel_asked:
            self._ended = Ended(kind=EndKind.CANCELLED)
        else:
            message = "CancelledError: the handler was cancelled from inside, not by the scheduler"
            self._ended = Ended(kind=EndKind.RAISED, message=message)
        for end in self._waiting:
            if not end.done():
                end.set_result(self._ended)


def ended_from(outcome: Outcome, *, left_behind: int = 0) -> Ended:
    """The outcome of a handler in the engine's words."""
    return Ended(
        kind=_KINDS[outcome.kind],
        result=outcome.result,
        completed=outcome.completed,
        retry_after=outcome.retry_after,
        message=outcome.message,
        left_behind=left_behind,
    )
