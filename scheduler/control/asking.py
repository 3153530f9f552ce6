"""What routes have in common: how they read a request, who may ask, and how ids in paths are judged."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Final, TypeAlias
from uuid import UUID

from fastapi import Depends, Header, Path
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from scheduler.config.wording import printable
from scheduler.control.connection import PEER_KEY
from scheduler.control.keys import with_key
from scheduler.control.peer import Role
from scheduler.control.ports import Operations
from scheduler.control.wire import read_json
from scheduler.errors import NotFound, StoreUnavailable
from scheduler.model.jobs import JobId
from scheduler.model.runs import RunId
from scheduler.store.keyed import HEADER
from scheduler.store.values import Peer

# What routes depend on is async, also where it awaits nothing: FastAPI takes a thread for anything else.
_JOB_ID: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}", re.ASCII)
_LOOK_TIMEOUT: Final = 2.0


class StrictRequest(Request):
    """A request whose body is read strictly."""

    async def json(self) -> Any:
        return read_json(await self.body())


class StrictRoute(APIRoute):
    """A route that reads bodies strictly."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def strictly(request: Request) -> Response:
            return await handle(StrictRequest(request.scope, request.receive))

        return strictly


Key: TypeAlias = Annotated[
    str | None,
    Header(
        alias=HEADER,
        pattern="^[!-~]{1,200}$",
        description="a fresh word for each request: repeated with it, the request is done once",
    ),
]


def _admitted(needs: Role) -> Callable[..., Coroutine[Any, Any, Peer]]:
    """A dependency that lets those through who have the role, each with the key of its request."""

    async def admitted(request: Request, idempotency_key: Key = None) -> Peer:
        state = request.app.state
        what = f"{request.method} {printable(request.url.path, 200)}"
        peer: Peer = await state.gatekeeper.admit(request.scope["state"].get(PEER_KEY), what, needs)
        if idempotency_key is None:
            return peer
        return await with_key(request, peer, idempotency_key, state.reads, state.clock)

    return admitted


async def observing(request: Request) -> None:
    """The peer may look; every route depends on this."""
    what = f"{request.method} {printable(request.url.path, 200)}"
    request.app.state.gatekeeper.let_look(request.scope["state"].get(PEER_KEY), what)


async def _job_id(id: Annotated[str, Path(description="id of a job")]) -> JobId:
    if _JOB_ID.fullmatch(id) is None:
        raise NotFound(
            f"there is no job {printable(id)}",
            hint="an id has 1 to 64 characters: a-z, 0-9, and after the first one also . _ -",
        )
    return JobId(id)


async def _run_id(id: Annotated[str, Path(description="id of a run")]) -> RunId:
    try:
        return RunId(str(UUID(id)))
    except ValueError:
        raise NotFound(
            f"there is no run {printable(id)}", hint="the id of a run is a UUID, as the list of runs shows it"
        ) from None


Admitted: TypeAlias = Annotated[Peer, Depends(_admitted(Role.OPERATE))]
"""Who asks for a verb on jobs and runs, and may."""

Administering: TypeAlias = Annotated[Peer, Depends(_admitted(Role.ADMIN))]
"""Who asks for a change of what jobs there are, and may."""

JobPath: TypeAlias = Annotated[JobId, Depends(_job_id)]
RunPath: TypeAlias = Annotated[RunId, Depends(_run_id)]


async def look(operations: Operations) -> None:
    """What died was seen to, as far as possible now: a read answers also while nothing can be written."""
    try:
        async with asyncio.timeout(_LOOK_TIMEOUT):
            await operations.look()
    except (StoreUnavailable, TimeoutError):
        return
