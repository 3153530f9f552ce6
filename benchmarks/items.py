"""Durable items per second of a batch whose calls do nothing: what the daemon itself costs.

Each item is begun in one commit and ended in another, as with paid calls; the handler is an async function
that returns at once. The whole daemon runs in this process, on a real file with `synchronous=FULL`, and logs
to nowhere at its default level. Prints a markdown table; the CPU is that of all threads of the process, and
says more than the clock where the machine has other things to do.

Run: `python benchmarks/items.py [ITEMS...]`
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from scheduler.clock import SystemClock
from scheduler.config.paths import ConfigFile
from scheduler.config.settings import load_settings
from scheduler.service import Service
from scheduler.telemetry import configure, get_logger

SIZES = (100, 1_000, 10_000, 100_000)
CONCURRENCY = 256
LEAST_PER_SECOND = 2_500
"""By the CPU, from LEAST_ITEMS on: an alarm at half of the 5,000 that we aim at; a busy machine is slower."""

LEAST_ITEMS = 10_000

HANDLER = "async def nothing(run):\n    return None\n"
JOB = """
[jobs.many]
manual = true
python = "bench_items_handler:nothing"
[jobs.many.batch]
items_file = "{folder}/items.jsonl"
concurrency = {concurrency}
"""


def main() -> int:
    """Prints the table; exits 1 if an item costs more CPU than it may."""
    sizes = [int(text) for text in sys.argv[1:]] or SIZES
    print("| items | seconds | items/s | CPU per item, µs | items/s by CPU | largest memory, MiB |")
    print("|---|---|---|---|---|---|")
    with Path(os.devnull).open("w") as nowhere:
        telemetry = configure("json", "info", nowhere)
        slow = [size for size in sizes if not _row(size)]
        telemetry.close()
    return 1 if slow else 0


def _row(size: int) -> bool:
    """The row of that many items was printed; whether it is fast enough."""
    seconds, cpu = asyncio.run(_measure(size))
    by_cpu = size / cpu
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    cells = [f"{size:,}", f"{seconds:.2f}", f"{size / seconds:,.0f}", f"{cpu / size * 1e6:.0f}"]
    print(f"| {' | '.join(cells)} | {by_cpu:,.0f} | {memory} |", flush=True)
    return size < LEAST_ITEMS or by_cpu >= LEAST_PER_SECOND


async def _measure(size: int) -> tuple[float, float]:
    """Seconds and CPU seconds from the start of the run to its recorded end, its list included."""
    with TemporaryDirectory(prefix="bench-items-") as path:
        folder = Path(path)
        (folder / "bench_items_handler.py").write_text(HANDLER)
        (folder / "jobs.d").mkdir()
        (folder / "jobs.d" / "many.toml").write_text(JOB.format(folder=folder, concurrency=CONCURRENCY))
        with (folder / "items.jsonl").open("w") as file:
            file.writelines(f'{{"key": "k{number}", "n": {number}}}\n' for number in range(size))
        async with _daemon(folder) as socket:
            began, cpu = time.perf_counter(), time.process_time()
            run = json.loads(await _ask(socket, "POST", "/v1/jobs/many/run"))
            while True:
                shown = json.loads(await _ask(socket, "GET", f"/v1/runs/{run['id']}"))
                if shown["finished_at"] is not None:
                    break
                await asyncio.sleep(0.25)
            seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    if (shown["state"], shown["progress"]["done"]) != ("succeeded", size):
        raise SystemExit(f"the run ended {shown['state']}: {shown['message']}")
    return seconds, cpu


@asynccontextmanager
async def _daemon(folder: Path) -> AsyncIterator[Path]:
    """A whole daemon that serves the folder; its socket."""
    (folder / "state").mkdir()
    socket = folder / "s.sock"
    config = folder / "scheduler.toml"
    config.write_text('python_path = ["."]\n')
    settings = load_settings(ConfigFile(path=config, named=True), {"TZ": "UTC"})
    sys.modules.pop("bench_items_handler", None)
    service = Service(settings, folder / "state", socket, SystemClock(), get_logger())
    life = asyncio.create_task(service.run())
    try:
        await _ready(socket)
        yield socket
    finally:
        service.stop()
        await life


async def _ready(socket: Path) -> None:
    for _ in range(200):
        with suppress(OSError, KeyError):
            if json.loads(await _ask(socket, "GET", "/v1/jobs"))["items"]:
                return
        await asyncio.sleep(0.05)
    raise SystemExit("the daemon did not start")


async def _ask(socket: Path, method: str, target: str) -> bytes:
    reader, writer = await asyncio.open_unix_connection(str(socket))
    body = b"{}" if method == "POST" else b""
    head = f"{method} {target} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    answer = await reader.read()
    writer.close()
    return answer.partition(b"\r\n\r\n")[2]


if __name__ == "__main__":
    sys.exit(main())
