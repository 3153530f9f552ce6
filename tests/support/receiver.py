"""A real HTTP server for tests that pings and webhooks go to; it remembers what it was asked.

with Receiver() as receiver:
    receiver.answers = [500]           # the first request is refused, later ones get 200
    ... url = receiver.url("/ping/a")
    receiver.asked("/ping/a")
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True, slots=True)
class Asked:
    """One request."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: str

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


class Receiver:
    """Listens on a free port of this machine.

    Attributes:
        answers: statuses of the next requests, one each; 200 when there are none left.
        gate: a request waits for it, when it is there.
    """

    def __init__(self) -> None:
        self.requests: list[Asked] = []
        self.answers: list[int] = []
        self.gate: threading.Event | None = None
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._take()

            def do_POST(self) -> None:
                self._take()

            def _take(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
                parts = urlsplit(self.path)
                headers = {name.lower(): value for name, value in self.headers.items()}
                receiver.requests.append(
                    Asked(self.command, parts.path, parse_qs(parts.query), headers, body)
                )
                if receiver.gate is not None:
                    receiver.gate.wait(30)
                self.send_response(receiver.answers.pop(0) if receiver.answers else 200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Nothing on stderr."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    def url(self, path: str) -> str:
        """The address of a path on it."""
        return f"http://127.0.0.1:{self.port}{path}"

    def asked(self, path: str) -> list[Asked]:
        """The requests for this path, oldest first."""
        return [request for request in list(self.requests) if request.path == path]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.gate is not None:
            self.gate.set()
        self._server.shutdown()
        self._server.server_close()
