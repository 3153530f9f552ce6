"""Keeping what a handler does in its tasks away from the daemon's loop: `sys.exit()`, and processes it forks.

asyncio lets SystemExit and KeyboardInterrupt of any task escape from `run_forever`, which would end the
daemon because a job called `sys.exit()` in a task it had started. And a forked process that returns from the
handler, or awaits, would go on as a second daemon, on the same sockets. So the coroutines of a handler are
wrapped: the one becomes an ordinary failure of its task, the other is ended on the spot. Callbacks that a
handler gives to the loop are beyond our reach.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Generator
from contextvars import ContextVar, copy_context
from types import TracebackType
from typing import Any, Final, TypeAlias, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Coro: TypeAlias = Coroutine[Any, Any, T] | Generator[Any, None, T]

_IN_HANDLER: ContextVar[str | None] = ContextVar("scheduler_in_handler", default=None)
"""The name of the handler's task, in it and in every task that it begins."""

_STRAYED: Final = (
    b"a process that a handler forked came back to the daemon's loop, and was ended: it has to exec or exit\n"
)


def handler_task(
    loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, T], *, name: str
) -> asyncio.Task[T]:
    """A task that runs `coro` as a handler: it and tasks begun in it are contained, and bear its name."""
    if loop.get_task_factory() is None:
        loop.set_task_factory(_contained_task)
    context = copy_context()
    context.run(_IN_HANDLER.set, name)
    # Not by `create_task`: this one is no task of a handler yet, so the factory has nothing to do for it.
    return asyncio.Task(_Contained(coro), loop=loop, name=name, context=context)


def _contained_task(loop: asyncio.AbstractEventLoop, coro: Coro[T], **options: Any) -> asyncio.Task[T]:
    handler = _IN_HANDLER.get()
    if handler is not None and isinstance(coro, Coroutine):
        coro = _Contained(coro)
        if options.get("name") is None:
            options["name"] = handler
    return _Task(coro, loop=loop, **options)


class _Task(asyncio.Task[T_co]):
    """A task that keeps its name: Python 3.12 sets None afterwards where `create_task` was given none."""

    def set_name(self, value: object, /) -> None:
        if value is not None:
            super().set_name(value)


class _Contained(Coroutine[Any, Any, T_co]):
    """A coroutine that cannot raise what would end the loop, and comes back to it in its own process alone.

    Not an `async def` around the other: one that is cancelled before its first step would never await it.
    """

    def __init__(self, coro: Coroutine[Any, Any, T_co]) -> None:
        self._coro = coro
        self._process = os.getpid()

    def send(self, value: Any, /) -> Any:
        try:
            return self._coro.send(value)
        except (SystemExit, KeyboardInterrupt) as error:
            raise _failure(error) from error
        finally:
            self._stay_in_process()

    def throw(
        self,
        kind: type[BaseException] | BaseException,
        value: BaseException | object = None,
        traceback: TracebackType | None = None,
        /,
    ) -> Any:
        del value, traceback  # the three-argument form is history; asyncio throws instances
        try:
            return self._coro.throw(kind if isinstance(kind, BaseException) else kind())
        except (SystemExit, KeyboardInterrupt) as error:
            raise _failure(error) from error
        finally:
            self._stay_in_process()

    def _stay_in_process(self) -> None:
        if os.getpid() != self._process:
            os.write(2, _STRAYED)
            os._exit(1)

    def close(self) -> None:
        self._coro.close()

    def __await__(self) -> Generator[Any, Any, T_co]:
        return self._coro.__await__()


def _failure(error: BaseException) -> RuntimeError:
    return RuntimeError(f"{type(error).__name__} in a task of a handler: a handler returns or raises")
