"""The one question that is asked all day, `GET /healthz`, answered before the routes are looked through.

Only the good answer is given here, as the route gives it; whoever may not look, asks in another way, or asks
a daemon that is not well goes on to the route, where the rules are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from scheduler.control.connection import PEER_KEY
from scheduler.control.models import Healthy
from scheduler.control.peer import Gatekeeper

PATH: Final = "/healthz"


class Probe:
    """Wraps the routes.

    Args:
        is_well: whether the route would answer that all is well.
    """

    def __init__(self, app: ASGIApp, gatekeeper: Gatekeeper, is_well: Callable[[], bool]) -> None:
        self._app = app
        self._gatekeeper = gatekeeper
        self._is_well = is_well
        self._body = Healthy().model_dump_json().encode()
        self._headers = [
            (b"content-length", str(len(self._body)).encode()),
            (b"content-type", b"application/json"),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        plain = scope["path"] == PATH and scope["method"] == "GET" and not scope["query_string"]
        if plain and self._gatekeeper.may_look(scope["state"].get(PEER_KEY)) and self._is_well():
            await send({"type": "http.response.start", "status": 200, "headers": self._headers})
            await send({"type": "http.response.body", "body": self._body})
        else:
            await self._app(scope, receive, send)
