"""The control server: a Unix socket of ours, uvicorn's protocol on it, and a stop that nobody can delay.

It lives in the daemon's own loop and leaves signals, logging and the process to the daemon; uvicorn's server
class, which takes hold of all three and wakes up ten times a second, is not used.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final, Protocol

from starlette.types import Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.server import ServerState

from scheduler.clock import MILLISECOND, SECOND, Micros, seconds
from scheduler.control.binding import Bound, adopt, bind
from scheduler.control.connection import ControlConnection
from scheduler.control.limits import Limits
from scheduler.control.roster import Roster

DEFAULT_GRACE: Final[Micros] = 5 * SECOND

_BACKLOG: Final = 512
_AT_A_TIME: Final = 8
"""Clients that are let in at one turn of the loop (asyncio takes its backlog for that, too): a crowd at the
door must not keep the loop from a fire."""

_LAST_WORD: Final[Micros] = SECOND
_LAST_CALL: Final[Micros] = 100 * MILLISECOND
"""What a client that was let in from the service manager's socket gets to say what it wants."""


class Application(Protocol):
    """What is served."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        ...

    def end_streams(self) -> None:
        """Answers that follow something end soon."""
        ...


class ControlServer:
    """Serves the application on a Unix socket between `start` and `stop`.

    Args:
        application: answers requests.
        path: where the socket is made.
        activated: descriptor of a listening socket from the service manager, used instead of `path`.
        group: whose members may connect; None: the daemon's own.
        limits: what one client may take.
    """

    def __init__(
        self,
        application: Application,
        path: Path,
        *,
        activated: int | None = None,
        group: int | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._application = application
        self._group = group
        self._path = path
        self._activated = activated
        self._limits = limits or Limits()
        self._roster = Roster(self._limits.connections)
        self._state = ServerState()
        self._bound: Bound | None = None
        self._listener: asyncio.Server | None = None

    @property
    def path(self) -> Path:
        """Where clients connect."""
        return self._path if self._bound is None else self._bound.path

    async def start(self) -> None:
        """Clients are served.

        Raises:
            ConfigError: the place is not fit for a socket.
            AlreadyServed: another daemon serves it.
        """
        config = _configured(self._application)
        self._bound = bind(self._path, self._group) if self._activated is None else adopt(self._activated)
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(
            lambda: ControlConnection(config, self._state, self._limits, self._roster),
            sock=self._bound.socket,
            backlog=_AT_A_TIME,
        )
        self._bound.socket.listen(_BACKLOG)

    async def stop(self, grace: Micros = DEFAULT_GRACE) -> None:
        """Nobody is served any more and the socket file is gone; safe to call twice and before `start`.

        Answers that are owed are given, within `grace` (microseconds). Idle clients, half requests and
        clients that take nothing are not waited for beyond it.
        """
        listener, bound, self._listener, self._bound = self._listener, self._bound, None, None
        if bound is not None:
            bound.remove()
        if bound is not None and self._activated is not None:
            await self._last_call(bound)
        if listener is not None:
            listener.close()
        self._application.end_streams()
        await self._roster.dismiss(grace)
        await self._end_tasks()

    async def _last_call(self, bound: Bound) -> None:
        """Nobody new is let in, and whoever was has asked.

        Those that wait at the socket are served by the next daemon; those that we have taken off it are not.
        The listener is closed after that: asyncio drops what it has accepted for one that is closed already.
        """
        loop = asyncio.get_running_loop()
        loop.remove_reader(bound.socket)
        await asyncio.wait({loop.create_future()}, timeout=seconds(_LAST_CALL))

    async def _end_tasks(self) -> None:
        """What still works for clients that are gone has ended, by itself or because it was told to."""
        for patience in (_LAST_WORD, _LAST_WORD):
            tasks = set(self._state.tasks)
            if not tasks:
                return
            _, left = await asyncio.wait(tasks, timeout=seconds(patience))
            for task in left:
                task.cancel()


def _configured(application: Application) -> Config:
    """The settings of uvicorn for a server that only speaks HTTP, and logs nothing but its own failures."""
    config = Config(
        application,
        interface="asgi3",
        http=ControlConnection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
    )
    config.load()
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    return config
