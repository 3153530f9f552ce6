"""Keeping `sys.exit()` in a handler's own tasks away from the daemon's loop.

asyncio lets SystemExit and KeyboardInterrupt of any task escape from `run_forever`, which would end the
daemon because a job called `sys.exit()` in a task it had started. Tasks begun inside a handler are therefore
wrapped, so that both become an ordinary failure of that task. Callbacks that a handler gives to the loop are
beyond our reach.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from contextvars import ContextVar
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")

Coro: TypeAlias = Coroutine[Any, Any, T] | Generator[Any, None, T]

_IN_HANDLER: ContextVar[bool] = ContextVar("scheduler_in_handler", default=False)


def handler_task(loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A task that runs `coro` as a handler: tasks begun in it are contained."""
    if loop.get_task_factory() is None:
        loop.set_task_factory(_contained_task)
    return loop.create_task(_in_handler(coro))


async def _in_handler(coro: Coroutine[Any, Any, T]) -> T:
    _IN_HANDLER.set(True)  # of this task's own context only, and of what is begun in it
    return await coro


def _contained_task(loop: asyncio.AbstractEventLoop, coro: Coro[T], **options: Any) -> asyncio.Task[T]:
    if _IN_HANDLER.get() and asyncio.iscoroutine(coro):
        return asyncio.Task(_contained(coro), loop=loop, **options)
    return asyncio.Task(coro, loop=loop, **options)


async def _contained(coro: Coroutine[Any, Any, T]) -> T:
    try:
        return await coro
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(
            f"{type(error).__name__} in a task of a handler: a handler returns or raises"
        ) from error
