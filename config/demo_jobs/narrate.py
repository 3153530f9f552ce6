"""Items of a batch, each a paid call: what must not happen twice, whatever kills the daemon meanwhile."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from scheduler import RunContext

FOLDER = Path(tempfile.gettempdir()) / f"schedulerd-demo-{os.getuid()}"
"""Where the fake service keeps its socket and its ledger."""


async def speak(run: RunContext) -> dict[str, object]:
    """The item was read aloud, and paid for under the key that stays the same through every restart."""
    reader, writer = await _connected()
    body = json.dumps(run.item).encode()
    head = (
        "POST /speak HTTP/1.1\r\nHost: demo\r\nConnection: close\r\n"
        f"Idempotency-Key: {run.idempotency_key}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    answer = await reader.read()
    writer.close()
    status, _, text = answer.partition(b"\r\n\r\n")
    if b" 200 " not in status.split(b"\r\n")[0]:
        raise RuntimeError(f"the service refused: {status.decode(errors='replace')}")
    cost = json.loads(text)["cost"]
    run.progress(message="spoken", cost=cost)
    return {"cost": cost}


async def _connected() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to the service, which is started where nobody answers."""
    for _ in range(50):
        try:
            return await asyncio.open_unix_connection(FOLDER / "service.sock")
        except OSError:
            _start()
            await asyncio.sleep(0.2)  # noqa: TID251 - a job has the machine's clock, not the daemon's
    raise RuntimeError(f"the demo's service does not come up in {FOLDER}")


def _start() -> None:
    """The service runs in a session of its own: it outlives the daemon, as a real one would."""
    subprocess.Popen(  # noqa: S603 - our own interpreter and module
        [sys.executable, "-m", "demo_jobs.paid_service", str(FOLDER)],
        cwd=Path(__file__).parents[1],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
