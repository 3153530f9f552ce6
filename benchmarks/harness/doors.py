"""What a person feels: a cold `schedctl list`, the import of the daemon, and how fast the API answers."""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.harness.daemon import BIN, Daemon, running, site
from benchmarks.harness.figures import middle, ratio
from benchmarks.harness.processes import Unmeasured, started, workspace
from benchmarks.harness.section import Section, attempt
from benchmarks.harness.table import Verdict, at_least, at_most, milliseconds, number, table, times

JOBS = 50
IMPORT = "from scheduler.daemon import quick_imports\nwith quick_imports(): import scheduler.process"
"""As the daemon does it once it can hear signals; the first module is only its command line."""

BARE = """
import uvicorn
async def app(scope, receive, send):
    assert scope["type"] == "http"
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b'{"ok":true}'})
import sys
uvicorn.run(
    app, uds=sys.argv[1], http="httptools", loop="asyncio", log_level="warning", access_log=False,
    lifespan="off",
)
"""
CONNECTIONS = (1, 32)
ANSWERS_SECONDS = 2.0
PATHS = ("/healthz", "/v1/jobs/j0")


@dataclass(slots=True)
class Doors:
    """Seconds of wall clock and CPU for each command; answers per second by server, path, connections."""

    listing: list[tuple[float, float]] = field(default_factory=list)
    importing: list[tuple[float, float]] = field(default_factory=list)
    bare: dict[int, list[float]] = field(default_factory=dict)
    ours: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


def measure(root: Path, *, commands: int, repetitions: int) -> Doors:
    """Everything in turn, on one daemon with 50 jobs."""
    doors = Doors()
    for what, work in (
        ("schedctl list and import", lambda: _commands(root, doors, commands)),
        ("answers of the API", lambda: _answers(root, doors, repetitions)),
    ):
        if isinstance(failure := attempt(what, work), str):
            doors.failures.append(failure)
    return doors


def section(doors: Doors) -> Section:
    """Two tables, and the targets."""
    commands = table(
        ["", "ms", "ms of CPU"],
        [
            [f"`schedctl list` with {JOBS} jobs, cold", *_both(doors.listing)],
            ["Python with all that `schedulerd` imports", *_both(doors.importing)],
        ],
    )
    rows = [
        [
            "bare ASGI handler: uvicorn, httptools",
            *(number(middle(doors.bare.get(n, []))) for n in CONNECTIONS),
            "",
        ]
    ]
    rows += [[f"schedulerd, `GET {path}`", *_rates(doors, path)] for path in PATHS]
    answers = table(["answers/s over the Unix socket", "1 connection", "32", "it / bare"], rows)
    failures = "".join(f"\n\nNot measured: {failure}" for failure in doors.failures)
    return Section(title="Doors", text=f"{commands}\n\n{answers}{failures}", verdicts=tuple(_verdicts(doors)))


def _rates(doors: Doors, path: str) -> list[str]:
    rates = [middle(doors.ours.get((path, count), [])) for count in CONNECTIONS]
    ratios = [times(_ratio(doors, path, count)) for count in CONNECTIONS]
    return [*map(number, rates), ", ".join(ratios)]


def _ratio(doors: Doors, path: str, count: int) -> float:
    return ratio(middle(doors.ours.get((path, count), [])), middle(doors.bare.get(count, [])))


def _both(taken: Sequence[tuple[float, float]]) -> list[str]:
    return [milliseconds(middle(one[index] for one in taken)) for index in (0, 1)]


def _verdicts(doors: Doors) -> Iterator[Verdict]:
    listing, importing = middle(one[0] for one in doors.listing), middle(one[0] for one in doors.importing)
    yield at_most(
        f"8. `schedctl list` < 150 ms from cold with {JOBS} jobs",
        listing,
        0.15,
        f"{milliseconds(listing)} ms",
    )
    yield at_most("8. daemon import < 0.6 s", importing, 0.6, f"{milliseconds(importing)} ms")
    for count in CONNECTIONS:
        share = _ratio(doors, PATHS[0], count)
        yield at_least(f"8. API ≥ 0.5 × a bare handler, {count} at a time", share, 0.5, times(share))


def _commands(root: Path, doors: Doors, repetitions: int) -> None:
    with _daemon(root) as daemon:
        for _ in range(repetitions):
            listing: list[str | Path] = [BIN / "schedctl", "list", "--socket", daemon.place.socket]
            doors.listing.append(_timed(listing))
            doors.importing.append(_timed([sys.executable, "-c", IMPORT]))


def _timed(command: Sequence[str | Path]) -> tuple[float, float]:
    """Seconds of wall clock and of CPU of a command that succeeded."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise Unmeasured(f"{command[0]}: {done.stderr.strip()[-200:]}")
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@contextmanager
def _daemon(root: Path) -> Iterator[Daemon]:
    with workspace(root) as folder, site(folder / "d") as place:
        jobs = (f'[jobs.j{number}]\ncron = "0 4 * * *"\ncommand = ["true"]\n' for number in range(JOBS))
        place.write_jobs("load", "".join(jobs))
        with running(place) as daemon:
            yield daemon


def _answers(root: Path, doors: Doors, repetitions: int) -> None:
    with _daemon(root) as daemon, _bare() as bare:
        for _ in range(repetitions):
            for count in CONNECTIONS:
                doors.bare.setdefault(count, []).append(asyncio.run(_rate(bare, "/healthz", count)))
                for path in PATHS:
                    rate = asyncio.run(_rate(daemon.place.socket, path, count))
                    doors.ours.setdefault((path, count), []).append(rate)


@contextmanager
def _bare() -> Iterator[Path]:
    with TemporaryDirectory(prefix="schedulerd-bench-") as path:
        folder = Path(path)
        (folder / "bare.py").write_text(BARE)
        command: list[str | Path] = [sys.executable, folder / "bare.py", folder / "s"]
        with started(command, log=folder / "log", cwd=folder) as process:
            deadline = time.monotonic() + 20
            while not (folder / "s").exists():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise Unmeasured(f"the bare server did not start: {(folder / 'log').read_text()[-200:]}")
                time.sleep(0.05)
            yield folder / "s"


async def _rate(path: Path, target: str, connections: int) -> float:
    """Answers per second, each connection asking again as soon as it has its answer."""
    until = time.perf_counter() + ANSWERS_SECONDS
    began = time.perf_counter()
    counts = await asyncio.gather(*(_ask(path, target, until) for _ in range(connections)))
    return sum(counts) / (time.perf_counter() - began)


async def _ask(path: Path, target: str, until: float) -> int:
    reader, writer = await asyncio.open_unix_connection(str(path))
    request = f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    count = 0
    while time.perf_counter() < until:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise Unmeasured(f"{target}: {head[:40]!r}")
        lowered = head.lower()
        if b"content-length:" in lowered:
            await reader.readexactly(int(lowered.partition(b"content-length:")[2].split(b"\r\n")[0]))
        else:
            await reader.readuntil(b"0\r\n\r\n")
        count += 1
    writer.close()
    return count
