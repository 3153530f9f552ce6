"""The way in and out of every request: the body within its bound, the date on the answer, no stray error."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from email.utils import formatdate
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from scheduler.clock import Clock, seconds
from scheduler.control.problems import ProblemResponse, problem_of
from scheduler.errors import TooLarge

_JSON: Final = (b"content-type", b"application/json")


class Intake:
    """Wraps an application.

    A body is read whole before the application sees the request, and counted while it is read, so nothing
    larger than `body_limit` bytes is ever held; the connection discards what a client sends beyond it, so
    that the client comes to read the answer. Every body is taken for JSON, whatever its client calls it
    (`curl -d` calls it a form).
    """

    def __init__(self, app: ASGIApp, clock: Clock, body_limit: int) -> None:
        self._app = app
        self._clock = clock
        self._body_limit = body_limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        dated = self._dated(send)
        try:
            body = await self._body(scope, receive)
            if body is None:
                return
            scope["headers"] = [pair for pair in scope["headers"] if pair[0] != b"content-type"] + [_JSON]
            await self._app(scope, _replayed(body, receive), dated)
        except TooLarge as error:
            await ProblemResponse(problem_of(error), error.status)(scope, receive, dated)
        except asyncio.CancelledError:
            return  # only a stop cancels a request, after its connection was cut: there is nobody to tell
        except Exception:  # noqa: BLE001, S110 - answered and logged by `problems`, which all errors pass
            pass

    async def _body(self, scope: Scope, receive: Receive) -> bytes | None:
        """The body, or None where the client went away before its end."""
        length = _declared_length(scope["headers"])
        if length == 0:
            return b""
        if length is not None and length > self._body_limit:
            raise self._too_large()
        parts: list[bytes] = []
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            part = message.get("body", b"")
            size, more = size + len(part), message.get("more_body", False)
            if size > self._body_limit:
                raise self._too_large()
            parts.append(part)
        return b"".join(parts)

    def _too_large(self) -> TooLarge:
        return TooLarge(
            f"the body is larger than {self._body_limit} bytes",
            hint="hand large data to a job in a file, and name the file in its arguments",
        )

    def _dated(self, send: Send) -> Send:
        """An answer bears its date (RFC 9110, 6.6.1)."""

        async def dated(message: Message) -> None:
            if message["type"] == "http.response.start":
                date = formatdate(seconds(self._clock.now()), usegmt=True).encode()
                message["headers"] = [*message.get("headers", ()), (b"date", date)]
            await send(message)

        return dated


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Gives the body once, then whatever comes: the client's leaving."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def _declared_length(headers: Iterable[tuple[bytes, bytes]]) -> int | None:
    """The length that the client declares; 0 where it declares no body; None where it sends it in chunks."""
    length: int | None = 0
    for name, value in headers:
        if name == b"transfer-encoding":
            return None
        if name == b"content-length":
            length = int(value)  # the parser has refused all else
    return length
