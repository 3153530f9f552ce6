"""A paid service: a real HTTP server on loopback that writes every call into a ledger, before and after."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HANDLERS = """
import asyncio, json
async def call(run, *, port, before=0.0, after=0.0):
    await asyncio.sleep(before)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = json.dumps(run.item).encode()
    head = f"POST /say HTTP/1.1\\r\\nHost: x\\r\\nIdempotency-Key: {run.idempotency_key}\\r\\n"
    head += f"Content-Length: {len(body)}\\r\\nConnection: close\\r\\n\\r\\n"
    writer.write(head.encode() + body)
    answer = await reader.read()
    writer.close()
    if b" 200 " not in answer.split(b"\\r\\n")[0]:
        raise RuntimeError("refused")
    await asyncio.sleep(after)
    run.progress(cost=0.01)
    return {"said": run.item}
"""
"""The text of a module whose `call` is a batch's handler: one item, one paid call."""


class PaidService:
    """What was called, by idempotency key.

    Args:
        takes: seconds that a call takes between `asked` and its answer.
        refused: items that are answered with 500, each for as many calls.
    """

    def __init__(self, *, takes: float = 0.03, refused: dict[str | None, int] | None = None) -> None:
        self.takes = takes
        self.refused = dict(refused or {})
        self._lock = threading.Lock()
        self.ledger: list[tuple[str, str]] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                service.serve(self)

            def log_message(self, *_: Any) -> None:
                """Nothing is told."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def serve(self, request: BaseHTTPRequestHandler) -> None:
        key = request.headers["Idempotency-Key"]
        item = json.loads(request.rfile.read(int(request.headers["Content-Length"])))
        with self._lock:
            self.ledger.append(("asked", key))
            refuses = self.refused.get(item, 0) > 0
            if refuses:
                self.refused[item] -= 1
        time.sleep(self.takes)
        with self._lock:
            self.ledger.append(("billed", key))
        try:
            request.send_response(500 if refuses else 200)
            request.end_headers()
        except OSError:
            pass  # who asked is dead; the bill is written

    def calls(self) -> Counter[str]:
        """How often each item was called, by its key."""
        with self._lock:
            return Counter(key.partition(":")[2] for what, key in self.ledger if what == "asked")

    def keys(self) -> set[str]:
        """Every idempotency key that was seen."""
        with self._lock:
            return {key for _, key in self.ledger}


@contextmanager
def paid_service(**options: Any) -> Iterator[PaidService]:
    """The service, answering."""
    service = PaidService(**options)
    thread = threading.Thread(target=service._server.serve_forever, daemon=True)  # noqa: SLF001 - its own
    thread.start()
    try:
        yield service
    finally:
        service._server.shutdown()  # noqa: SLF001 - its own
        service._server.server_close()  # noqa: SLF001 - its own
        thread.join()
