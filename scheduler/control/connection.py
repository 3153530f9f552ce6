"""One connection: who is at its other end, and how long it may take for what.

uvicorn's HTTP protocol with what it leaves to a proxy, which a Unix socket does not have: the peer's
credentials, time limits for every phase, a bound on headers, problem details for garbage. A command that
was received whole is carried out, whether its client waits for the answer or not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from scheduler.clock import Micros, seconds
from scheduler.control.limits import Limits
from scheduler.control.peer import credentials_of
from scheduler.control.problems import MEDIA_TYPE, document_of, encoded
from scheduler.control.roster import Roster
from scheduler.errors import ClientTimeout, Invalid, TooLarge

PEER_KEY = "peer"
"""Where a request's scope has the credentials of its peer, below `state`."""


class Patience:
    """How long is waited for something that is waited for again and again.

    A timer that is set while one stands that ends sooner is not made: that one, when it ends, looks how long
    there still is. A client that asks often costs a timer for each time limit, not one for each request.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, over: Callable[[], None]) -> None:
        self._loop = loop
        self._over = over
        self._until: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def last(self, duration: Micros) -> None:
        """`over` is called once, in `duration` from now, unless this is called again or `end` before."""
        self._until = self._loop.time() + seconds(duration)
        if self._timer is None or self._timer.when() > self._until:
            self._set(self._until)

    def end(self) -> None:
        """Nothing is waited for."""
        self._until = None

    def drop(self) -> None:
        """Nothing will be waited for again: no timer keeps its owner in memory."""
        self._until = None
        if self._timer is not None:
            self._timer.cancel()

    def _set(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(at, self._look)

    def _look(self) -> None:
        until, self._timer = self._until, None
        if until is None:
            return
        if until > self._loop.time():
            self._set(until)
            return
        self._until = None
        self._over()


class ControlConnection(HttpToolsProtocol):
    """A client's connection. Quiet: it owes us a request, or the rest of one. Busy: we owe it an answer."""

    def __init__(self, config: Config, state: ServerState, limits: Limits, roster: Roster) -> None:
        super().__init__(config=config, server_state=state, app_state={})
        self._limits = limits
        self._roster = roster
        self._reading = Patience(self.loop, self._too_slow)
        self._writing: asyncio.TimerHandle | None = None
        self._in_request = False
        self._in_head = False
        self._head_size = 0
        self._unsent = 0

    @property
    def is_stalled(self) -> bool:
        """The client does not take what was written to it."""
        return self._writing is not None

    @property
    def is_busy(self) -> bool:
        """A request was received whole and its answer is not complete."""
        latest = self._latest
        return latest is not None and not latest.response_complete and not latest.more_body

    @property
    def _latest(self) -> RequestResponseCycle | None:
        """The exchange of the latest request whose headers are known; None before the first one."""
        return cast("RequestResponseCycle | None", self.cycle)

    # --- the transport's calls ---
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        self.app_state = {PEER_KEY: credentials_of(transport.get_extra_info("socket"))}
        if not self._roster.opened(self):
            self._refuse(
                503, "busy", f"{self._limits.connections} clients are connected: try again in a moment"
            )
            return
        self._become_quiet(self._limits.head_timeout)

    def connection_lost(self, exc: Exception | None) -> None:
        self._reading.drop()
        self._write_within(None)
        super().connection_lost(exc)
        self._roster.closed(self)

    def data_received(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.cycle.keep_alive = False  # we speak HTTP/1.1 only; what comes behind it is not read
        except httptools.HttpParserError:
            self._refuse(400, Invalid.code, "this is no HTTP request that can be read")
            return
        self._head_size = self._head_size + len(data) if self._in_head else 0
        if self._head_size > self._limits.head:
            self._refuse(
                TooLarge.status, TooLarge.code, f"the headers are larger than {self._limits.head} bytes"
            )

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_within(self._limits.write_timeout)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._write_within(None)

    # --- the parser's calls ---
    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_request = self._in_head = True
        self._reading.last(self._limits.head_timeout)

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()
        self._reading.last(self._limits.body_timeout)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_request = False
        if self.is_busy:
            self._reading.end()
            self._roster.became_busy(self)
        else:
            self._become_quiet(self._limits.idle_timeout)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._unset_keepalive_if_required()
        if self.transport.is_closing():
            self._linger()
        elif not self._in_request and not self.is_busy:
            self._become_quiet(self._limits.idle_timeout)

    # --- the server's calls ---
    def shutdown(self) -> None:
        """It ends once its answer is given; at once where none is owed."""
        self.pipeline.clear()
        if self.is_busy:
            self.cycle.keep_alive = False
        else:
            self.close()

    def close(self) -> None:
        """It ends once what was written to it is taken, within the write timeout."""
        self._give_up_request()
        self.transport.close()
        self._linger()

    def cut(self) -> None:
        """It ends now."""
        self._give_up_request()
        self.transport.abort()

    # --- time limits ---
    def _become_quiet(self, patience: Micros) -> None:
        self._reading.last(patience)
        self._roster.became_quiet(self)

    def _write_within(self, patience: Micros | None) -> None:
        if self._writing is not None:
            self._writing.cancel()
        self._writing = None if patience is None else self.loop.call_later(seconds(patience), self._untaken)
        self._unsent = self.transport.get_write_buffer_size()

    def _untaken(self) -> None:
        """Nothing was taken for the whole write timeout: the end. Something was: it may go on."""
        if self.transport.get_write_buffer_size() < self._unsent:
            self._write_within(self._limits.write_timeout)
        else:
            self.cut()

    def _linger(self) -> None:
        """What was written is taken within the write timeout, or dropped; `close` alone waits for ever."""
        self._reading.end()
        if self.transport.get_write_buffer_size():
            self._write_within(self._limits.write_timeout)

    def _too_slow(self) -> None:
        if self.pipeline or self.is_busy:  # it waits for us: the next request is not read on meanwhile
            self._reading.last(self._limits.body_timeout)
        elif self._in_request:
            self._refuse(408, ClientTimeout.code, "the rest of the request did not come in time")
        else:
            self.close()

    # --- refusing what is no request ---
    def send_400_response(self, msg: str) -> None:
        self._refuse(400, Invalid.code, msg)

    def _refuse(self, status: int, code: str, detail: str) -> None:
        """The client is told, and the connection ends; an answer that is owed before goes out first."""
        if self.is_busy:
            self.cycle.keep_alive = False
            self.flow.pause_reading()
            return
        latest = self._latest
        if latest is None or latest.response_complete or not latest.response_started:
            self.transport.write(_raw_problem(status, code, detail))
        self.close()

    def _give_up_request(self) -> None:
        """Whoever reads on in a request that stays incomplete is told that its client is gone."""
        latest = self._latest
        if latest is not None and not latest.response_complete and latest.more_body:
            latest.disconnected = True
            latest.message_event.set()


def _raw_problem(status: int, code: str, detail: str) -> bytes:
    body = encoded(document_of(status, code, detail))
    head = f"content-type: {MEDIA_TYPE}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    return STATUS_LINE[status] + head.encode() + body
