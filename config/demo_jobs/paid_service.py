"""A paid service that is not one: an HTTP server on a Unix socket, with a ledger of all that it has billed.

    python -m demo_jobs.paid_service FOLDER      serve in FOLDER: `service.sock` and `ledger.jsonl`

It takes its time over each call and bills when it begins, as real ones do, whether or not the caller lives to
read the answer. A call whose idempotency key it has seen before is answered again, and billed no second time.
It ends by itself when nobody has called for a minute.
"""

from __future__ import annotations

import fcntl
import json
import socketserver
import sys
import threading
import time
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path

PRICE = 0.02
TAKES = 2.0
IDLE = 60.0


class Service(socketserver.ThreadingUnixStreamServer):
    """The server and its books."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, folder: Path) -> None:
        place = folder / "service.sock"
        place.unlink(missing_ok=True)
        super().__init__(str(place), Calls)
        self.ledger = folder / "ledger.jsonl"
        self.writing = threading.Lock()
        self.called_at = time.monotonic()  # noqa: TID251 - a service has a clock of its own

    def bill(self, key: str, item: object) -> bool:
        """The call is in the ledger; False: it was before."""
        with self.writing, self.ledger.open("a+", encoding="utf-8") as file:
            file.seek(0)
            if any(json.loads(line)["key"] == key for line in file):
                return False
            at = datetime.now(tz=UTC).isoformat()  # noqa: TID251 - the same
            file.write(json.dumps({"at": at, "key": key, "item": item, "price": PRICE}) + "\n")
            return True


class Calls(BaseHTTPRequestHandler):
    """One call: billed, worked on, answered."""

    server: Service

    def do_POST(self) -> None:
        """What was asked for is done after a while."""
        self.server.called_at = time.monotonic()  # noqa: TID251 - the same
        body = self.rfile.read(int(self.headers["Content-Length"]))
        is_new = self.server.bill(self.headers["Idempotency-Key"], json.loads(body))
        time.sleep(TAKES)  # noqa: TID251 - stands for the service's work
        answer = json.dumps({"cost": PRICE if is_new else 0.0}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def address_string(self) -> str:
        """Callers have no address on a Unix socket."""
        return "caller"

    def log_message(self, *_: object) -> None:
        """The ledger is all that it writes."""


def main(folder: Path) -> None:
    """Serves until nobody has called for a while; a second one in the same folder ends at once."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return
        with Service(folder) as service:
            threading.Thread(target=service.serve_forever, daemon=True).start()
            while time.monotonic() - service.called_at < IDLE:  # noqa: TID251 - the same
                time.sleep(1)  # noqa: TID251 - the same


if __name__ == "__main__":
    main(Path(sys.argv[1]))
