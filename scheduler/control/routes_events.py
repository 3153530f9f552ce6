"""The transitions as they happen: server-sent events (WHATWG HTML, 9.2) from the ring in memory.

Each has an id, so a client that lost its connection goes on where it was (`Last-Event-ID`, or `since`). One
whose id is not known any more is told `reset`: it has to list again, and goes on from now. Nobody is waited
for: a reader that the ring has run past is cut with `end`, and so is everybody when the daemon stops.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse

from scheduler.control.requests import EventsQuery
from scheduler.control.views import Views
from scheduler.engine.eventring import Chunk, Entry, EventRing, Gap
from scheduler.errors import SchedulerError
from scheduler.telemetry import Event, told

KEEP_ALIVE: Final = 5.0
"""Seconds of silence after which a sign of life is sent; clients that wait ten notice a dead daemon."""

FOLLOWERS: Final = 64
"""At once; each holds a connection, and others need some too."""

MEDIA_TYPE: Final = "text/event-stream"

_SAID: Final = {
    Gap.UNKNOWN: ("reset", "unknown_id", "this id is not known any more: list again; it goes on from now"),
    Gap.TOO_SLOW: ("end", "too_slow", "you read too slowly and have missed events: list again"),
    Gap.CLOSED: ("end", "stopping", "the daemon stops"),
}


_DESCRIBED: Final[dict[str, Any]] = {
    "description": "Server-sent events.",
    "content": {
        MEDIA_TYPE: {
            "schema": {
                "type": "object",
                "properties": {
                    "id": {"type": "string", "description": "of the newest transition that was seen"},
                    "event": {"type": "string", "description": "a transition, or reset or end"},
                    "data": {"type": "string", "contentMediaType": "application/json"},
                    "retry": {"type": "integer"},
                },
            }
        }
    },
}


class Busy(SchedulerError):
    """As many follow as can be served."""

    code = "busy"
    status = 503
    exit_code = 6


class EventStream(StreamingResponse):
    """An answer that goes on."""

    media_type = MEDIA_TYPE


class EventRoutes:
    """GET /v1/events."""

    def __init__(self, ring: EventRing, views: Views) -> None:
        self._ring = ring
        self._clients = 0
        self._views = views

    def register(self, router: APIRouter) -> None:
        """The routes are part of the router."""
        router.get("/v1/events", response_class=EventStream, responses={200: _DESCRIBED})(self.events)

    async def events(
        self,
        asked: Annotated[EventsQuery, Query()],
        last_event_id: Annotated[str | None, Header(max_length=200)] = None,
    ) -> EventStream:
        """Every transition as it happens; a client that reconnects sends `Last-Event-ID` by itself."""
        if self._clients >= FOLLOWERS:
            raise Busy(f"{FOLLOWERS} clients follow the events already", hint="end one, then repeat")
        after = last_event_id or asked.since
        found = self._ring.follow(
            after,
            wants=lambda event, fields: _is_wanted(event, fields, asked),
            tail=asked.tail,
            goes_on=asked.follow,
            idle=KEEP_ALIVE,
        )
        return EventStream(self._messages(found), headers={"Cache-Control": "no-store"})

    async def _messages(self, found: AsyncIterator[Chunk | Gap]) -> AsyncIterator[bytes]:
        self._clients += 1
        try:
            yield b"retry: 2000\n\n"
            async for news in found:
                yield self._told(news)
        finally:
            self._clients -= 1

    def _told(self, news: Chunk | Gap) -> bytes:
        if isinstance(news, Gap):
            return self._gap(news)
        if news.entries:
            return b"".join(map(self._message, news.entries))
        # An id alone is no event, but moves the client on: what it does not want, it has not missed.
        return f": alive\nid: {news.until}\n\n".encode()

    def _message(self, entry: Entry) -> bytes:
        id = self._ring.id_of(entry.number)
        data = {"id": id, "at": self._views.time(entry.at), "event": entry.event, **told(entry.fields)}
        return _block(entry.event, data, id)

    def _gap(self, gap: Gap) -> bytes:
        event, reason, message = _SAID[gap]
        return _block(event, {"reason": reason, "message": message}, self._ring.last_id)


def _is_wanted(event: Event, fields: Mapping[str, object], asked: EventsQuery) -> bool:
    if asked.job is not None and fields.get("job") != asked.job:
        return False
    return not asked.event or event in asked.event


def _block(event: str, data: Mapping[str, object], id: str) -> bytes:
    return f"id: {id}\nevent: {event}\ndata: {json.dumps(data)}\n\n".encode()
