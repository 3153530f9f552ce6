"""A small daemon for tests of the client: HTTP over a real Unix socket, answers laid out by the test.

It knows nothing of scheduling. A test says what a path answers; what was asked is kept in `asked`.
"""

from __future__ import annotations

import json
import socketserver
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What goes back: JSON, or the chunks of a text."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    chunks: tuple[bytes, ...] | None = None


Route = Answer | Callable[[Asked], Answer]


def problem(status: int, code: str, detail: str, **more: Any) -> Answer:
    """A refusal, as problem details (RFC 9457)."""
    return Answer(
        status=status,
        body={"type": "about:blank", "title": code, "status": status, "detail": detail, "code": code, **more},
        headers={"Content-Type": "application/problem+json"},
    )


class StubDaemon:
    """Listens on `socket` from construction until `close`."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.asked: list[Asked] = []
        self._routes: dict[tuple[str, str], Route] = {}
        self._server = _Server(str(socket), _Handler)
        self._server.stub = self
        self.on("GET", "/v1/status", {"paused": None})
        self.jobs()
        self.runs()
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def on(self, method: str, path: str, route: Route | Any) -> None:
        """`method path` answers so from now on; anything but an `Answer` or a function is a JSON body."""
        self._routes[(method, path)] = (
            route if isinstance(route, Answer) or callable(route) else Answer(body=route)
        )

    def page(self, path: str, items: list[Any], *, size: int = 100) -> None:
        """`path` lists the items in pages, with the index of the next one as cursor."""

        def answer(asked: Asked) -> Answer:
            begin = int(asked.query.get("cursor", "0"))
            end = begin + min(size, int(asked.query.get("limit", size)))
            chosen = [item for item in items if _fits(item, asked.query)]
            following = str(end) if end < len(chosen) else None
            return Answer(body={"items": chosen[begin:end], "next_cursor": following})

        self.on("GET", path, answer)

    def jobs(self, *jobs: dict[str, Any]) -> None:
        """These jobs exist: in the list, and each at its own path."""
        self.page("/v1/jobs", list(jobs))
        for job in jobs:
            etag = f'"{job.get("definition_revision", 1)}"'
            self.on("GET", f"/v1/jobs/{job['id']}", Answer(body=job, headers={"ETag": etag}))

    def runs(self, *runs: dict[str, Any]) -> None:
        """These runs exist: in the list, and each at its own path."""
        self.page("/v1/runs", list(runs))
        for run in runs:
            self.on("GET", f"/v1/runs/{run['id']}", run)

    def mutations(self) -> list[tuple[str, str, Any]]:
        """Method, path and body of everything that was not a read."""
        return [(asked.method, asked.path, asked.body) for asked in self.asked if asked.method != "GET"]

    def close(self) -> None:
        """Nobody listens any more, and the socket file is gone."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self.socket.unlink()

    def answer(self, asked: Asked) -> Answer:
        """What the route laid out for the request says, or 404."""
        self.asked.append(asked)
        route = self._routes.get((asked.method, asked.path))
        if route is None:
            return problem(404, "not_found", f"there is no {asked.path.rsplit('/', 1)[-1]}")
        return route if isinstance(route, Answer) else route(asked)


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    block_on_close = False
    stub: StubDaemon

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away in the middle is what some tests are about."""
        if not isinstance(sys.exception(), BrokenPipeError | ConnectionResetError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length", "0"))
        data = self.rfile.read(length)
        split = urlsplit(self.path)
        assert isinstance(self.server, _Server)
        answer = self.server.stub.answer(
            Asked(
                method=self.command,
                path=unquote(split.path),
                query=dict(parse_qsl(split.query)),
                headers=dict(self.headers),
                body=json.loads(data) if data else None,
            )
        )
        self._send(answer)

    do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815  the names that http.server looks for

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if answer.chunks is not None:
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for chunk in answer.chunks:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
            return
        data = b"" if answer.body is None else json.dumps(answer.body).encode()
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def address_string(self) -> str:
        return "unix"

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the test's output is its own."""


def _fits(item: Any, query: dict[str, str]) -> bool:
    filters = {key: value for key, value in query.items() if key in ("job", "state", "status", "group")}
    return all(item.get(key) == value for key, value in filters.items())
