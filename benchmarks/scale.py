"""What a store full of jobs and history costs a daemon that has little to do: it should cost nothing.

Three stores with the same few jobs that fire are served in turn by a real daemon: one that has next to
nothing else, one with very many jobs that are not due, one with very much history. Beside that, how long it
takes to bring in very many job files. Prints a markdown table; exits 1 where a ratio or limit is missed.

Run: `python benchmarks/scale.py` (100,000 jobs, 200,000 runs) or `python benchmarks/scale.py --full`
(1,000,000 jobs, 10,000,000 runs; needs 15 GB of disk and half an hour). CPU times are of the daemon's
process, from /proc.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from scheduler.store.schema import prepare
from scheduler.store.sqlite import FILE_NAME

FEW, BUSY = 10, 20
MOST_START, MOST_MEMORY, MOST_FIRE = 1.2, 1.2, 1.3
MOST_MS, MOST_IDLE, MOST_BULK = 10.0, 0.005, 5.0
"""Limits: three ratios to the small store, a p99, a share of a core, seconds for 100,000 job files."""

TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
PATIENCE = 600.0

JOBS = """
WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < :count - 1),
     m(i, minute) AS (SELECT i, (:minute + 180 + i % 1200) % 1440 FROM n)
INSERT INTO jobs (id, definition_revision, added_revision, revision, origin, enabled, status,
                  next_fire_at, due_at)
SELECT printf('job-%07d', i),
       i + 1, i + 1, i + 1, 'api', 1, 'active',
       :midnight + (minute + 1440 * (minute < :minute)) * 60000000,
       :midnight + (minute + 1440 * (minute < :minute)) * 60000000
FROM m
"""
DEFINITIONS = """
WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < :count - 1),
     m(i, minute) AS (SELECT i, (:minute + 180 + i % 1200) % 1440 FROM n)
INSERT INTO definitions (id, definition)
SELECT printf('job-%07d', i),
       printf('{"command":["true"],"cron":"%d %d * * *","labels":["l%d"],"timezone":"UTC"}',
              minute % 60, minute / 60, i % 50)
FROM m
"""
RUNS = """
WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < :count - 1)
INSERT INTO runs (id, job, trigger, state, fire_time, solo, added_revision, definition_revision, claim, owner,
                  lease_until, queued_at, claimed_at, started_at, finished_at, job_counted)
SELECT printf('%08x-0000-7000-8000-%012x', i, i), printf('job-%07d', i % :jobs), 'schedule',
       iif(i % 20, 'succeeded', 'failed'), :start + i * 1000, 1, i % :jobs + 1, i % :jobs + 1, 1, 'gone',
       :start, :start + i * 1000, :start + i * 1000, :start + i * 1000, :start + i * 1000 + 500, 1
FROM n
"""
ATTEMPTS = """
INSERT INTO attempts (run, claim, attempt, owner, started_at, finished_at, state)
SELECT id, 1, 1, 'gone', started_at, finished_at, state FROM runs
"""
REVISION = "INSERT INTO meta (name, value) VALUES ('revision', :count)"
INDEXES = "SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL AND tbl_name = 'runs'"

HANDLER = "async def nothing(run):\n    return None\n"


@dataclass(slots=True, kw_only=True)
class Figures:
    """What one daemon on one store took: seconds, megabytes, seconds of CPU per fire and per second."""

    ready: float
    ready_cpu: float
    memory: float
    fire: float = 0.0
    idle: float = 0.0
    slowest: dict[str, float]


def main() -> int:
    """Prints the table; exits 1 if a limit is missed."""
    full = "--full" in sys.argv[1:]
    numbers = [int(word) for word in sys.argv[1:] if word.isdigit()]
    jobs, runs = numbers or ((1_000_000, 10_000_000) if full else (100_000, 200_000))
    with TemporaryDirectory(prefix="scale-") as name:
        folder = Path(name)
        stores = {
            f"{FEW} jobs, a run of each": make_store(folder / "few", FEW, FEW),
            f"{jobs:,} jobs, a run of each": make_store(folder / "jobs", jobs, jobs),
            f"{runs:,} runs of {min(jobs, 1_000):,} jobs": make_store(
                folder / "runs", min(jobs, 1_000), runs
            ),
        }
        rows = {title: measured(state, full=full) for title, state in stores.items()}
        bulk = bulk_load(folder / "bulk", 100_000 if full else 3_000)
        syncs = slowest(synced(folder / "page"))
    return told(rows, bulk, syncs)


def told(rows: dict[str, Figures], bulk: dict[str, float], syncs: float) -> int:
    """The table is printed; 1 where something missed its limit, the disk's own p99 (`syncs`) aside."""
    (_, few), *others = rows.items()
    print(
        "| store | start to ready, s (CPU) | memory, MB | CPU per fire, ms | idle CPU | p99 ms of requests |"
    )
    print("|---|---|---|---|---|---|")
    missed = False
    for title, row in rows.items():
        slowest = ", ".join(f"{name} {ms:.1f}" for name, ms in row.slowest.items())
        print(
            f"| {title} | {row.ready:.2f} ({row.ready_cpu:.2f}) | {row.memory:.1f}"
            f" | {1_000 * row.fire:.2f} | {row.idle:.2%} | {slowest} |"
        )
    for title, row in others:
        ratios = (row.ready_cpu / few.ready_cpu, row.memory / few.memory, row.fire / few.fire)
        print(f"| {title}: ratio | {ratios[0]:.2f} x | {ratios[1]:.2f} x | {ratios[2]:.2f} x | | |")
        missed |= ratios[0] > MOST_START or ratios[1] > MOST_MEMORY or ratios[2] > MOST_FIRE
        missed |= row.idle > MOST_IDLE or max(row.slowest.values()) > MOST_MS + syncs
    print(f"| (a bare `fdatasync` here) | | | | | {syncs:.1f} |")
    for title, took in bulk.items():
        print(f"| {title} | {took:.2f} | | | | |")
    missed |= any(took > MOST_BULK for title, took in bulk.items() if "100,000" in title)
    return int(missed)


def make_store(state: Path, jobs: int, runs: int) -> Path:
    """A state directory whose store has so many jobs, none of them due soon, and so many ended runs."""
    state.mkdir(mode=0o700)
    prepare(state / FILE_NAME)
    now = time.time_ns() // 1_000
    day = 86_400_000_000
    values = {
        "midnight": now // day * day,
        "minute": now % day // 60_000_000,
        "start": now - runs * 1_000 - day,
    }
    with closing(sqlite3.connect(state / FILE_NAME, isolation_level=None)) as db:
        db.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -500000;")
        db.execute("BEGIN")
        for statement in (JOBS, DEFINITIONS):
            db.execute(statement, {"count": jobs, **values})
        db.execute(REVISION, {"count": jobs})
        if runs:
            indexes = db.execute(INDEXES).fetchall()
            for name, _ in indexes:
                db.execute(f"DROP INDEX {name}")
            db.execute(RUNS, {"count": runs, "jobs": jobs, **values})
            db.execute(ATTEMPTS)
            for _, sql in indexes:
                db.execute(sql)
        db.execute("COMMIT")
    return state


class Daemon:
    """A daemon of its own process, asked through one connection that stays open."""

    def __init__(self, state: Path, jobs: str | None = None) -> None:
        self.state = state
        folder = state.with_name(f"{state.name}-config")
        folder.mkdir(exist_ok=True)
        (folder / "jobs.d").mkdir(exist_ok=True)
        self.file = folder / "jobs.d" / "all.toml"
        self.file.write_text(jobs or "")
        (folder / "handlers.py").write_text(HANDLER)
        config = folder / "scheduler.toml"
        config.write_text('python_path = ["."]\n')
        self._log = folder / "log"
        self._socket = folder / "s.sock"
        flags = ["--config", str(config), "--state", str(state), "--socket", str(self._socket)]
        began = time.monotonic()
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "scheduler.daemon", *flags], stdout=log, stderr=log
            )
        self._until(lambda: '"daemon_ready"' in self._log.read_text())
        self.ready, self.ready_cpu = time.monotonic() - began, self.cpu()
        self._connection = http.client.HTTPConnection("localhost")
        self._connection.sock = socket.socket(socket.AF_UNIX)
        self._connection.sock.connect(str(self._socket))

    def ask(self, method: str, target: str, body: object = None) -> Any:
        """The answer's body, as JSON where it is."""
        text = None if body is None else json.dumps(body)
        self._connection.request(method, target, text, {"content-type": "application/json"})
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status >= 400:
            raise SystemExit(f"{method} {target}: {content.decode()}")
        return json.loads(content) if content[:1] in (b"{", b"[") else content.decode()

    def cpu(self) -> float:
        """Seconds of CPU that its process has taken."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def memory(self) -> float:
        """Its resident memory in megabytes."""
        return int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]) * PAGE / 1e6

    def close(self) -> None:
        """It has stopped in order."""
        self._process.terminate()
        if self._process.wait(PATIENCE):
            raise SystemExit(f"the daemon failed: {self._log.read_text()[-2_000:]}")

    def _until(self, done: Callable[[], bool]) -> None:
        give_up = time.monotonic() + PATIENCE
        while not done():
            if self._process.poll() is not None or time.monotonic() > give_up:
                raise SystemExit(f"the daemon did not start: {self._log.read_text()[-2_000:]}")
            time.sleep(0.005)


@contextmanager
def served(state: Path, jobs: str | None = None) -> Iterator[Daemon]:
    """A daemon on the store, which is stopped at the end."""
    daemon = Daemon(state, jobs)
    try:
        yield daemon
    finally:
        daemon.close()


def measured(state: Path, *, full: bool) -> Figures:
    """One daemon on this store, from its start to its fires; the second start counts, on a warm cache."""
    with served(state):
        pass
    with served(state) as daemon:
        time.sleep(60 if full else 2)  # what it does once behind its start
        figures = Figures(ready=daemon.ready, ready_cpu=daemon.ready_cpu, memory=daemon.memory(), slowest={})
        window = 130 if full else 4  # the long one has two looks of retention in it
        before = daemon.cpu()
        time.sleep(window)
        figures.idle = (daemon.cpu() - before) / window
        figures.slowest = {name: slowest(act) for name, act in requests(daemon).items()}
        figures.fire = fires(daemon, 15 if full else 4)
        figures.memory = max(figures.memory, daemon.memory())
    return figures


def requests(daemon: Daemon) -> dict[str, Callable[[int], Any]]:
    """What operators ask, with a number that chooses whom."""
    older = daemon.ask("GET", "/v1/runs?limit=50")["next_cursor"]
    runs = f"/v1/runs?limit=50&cursor={older}" if older else "/v1/runs?limit=50"
    return {
        "pause": lambda i: daemon.ask(
            "POST", f"/v1/jobs/job-{i % FEW:07}/{('resume', 'pause')[i // FEW % 2]}"
        ),
        "show": lambda i: daemon.ask("GET", f"/v1/jobs/job-{i % FEW:07}"),
        "status": lambda _: daemon.ask("GET", "/v1/status"),
        "next page of 100 jobs with last runs": walk(daemon),
        "of runs": lambda _: daemon.ask("GET", runs),
    }


def walk(daemon: Daemon) -> Callable[[int], Any]:
    """Page after page of all jobs with their last runs, as a client lists them; from the start at the end."""
    cursor: str | None = None

    def step(_: int) -> None:
        nonlocal cursor
        behind = f"&cursor={cursor}" if cursor else ""
        cursor = daemon.ask("GET", f"/v1/jobs?limit=100{behind}")["next_cursor"]

    return step


def slowest(act: Callable[[int], Any], count: int = 200) -> float:
    """The 99th percentile of so many calls in a row, in milliseconds."""
    took = []
    for number in range(FEW, FEW + count):
        began = time.perf_counter()
        act(number)
        took.append(1_000 * (time.perf_counter() - began))
    return sorted(took)[-1 - count // 100]


def synced(path: Path) -> Callable[[int], Any]:
    """A page is written and on disk: what a pause has to wait for at least."""

    def write(_: int) -> None:
        with path.open("ab") as file:
            file.write(bytes(4_096))
            file.flush()
            os.fdatasync(file.fileno())

    return write


def fires(daemon: Daemon, seconds: float) -> float:
    """Seconds of CPU per fire, while a few jobs fire each second."""
    for number in range(BUSY):
        table = {"every": "1s", "python": "handlers:nothing", "keep_runs": 5}
        daemon.ask("POST", "/v1/jobs", {"id": f"busy-{number}", **table})
    time.sleep(2)
    before, fired = daemon.cpu(), count_fires(daemon)
    time.sleep(seconds)
    return (daemon.cpu() - before) / max(1, count_fires(daemon) - fired)


def count_fires(daemon: Daemon) -> int:
    """Fire times that made a run, as /metrics tells."""
    lines = daemon.ask("GET", "/metrics").splitlines()
    counts = [line for line in lines if line.startswith("scheduler_fires_total")]
    return int(sum(float(line.rpartition(" ")[2]) for line in counts))


def bulk_load(state: Path, count: int) -> dict[str, float]:
    """Seconds that a reload takes: of so many new jobs in a file, of the same again, of a change in each."""
    state.mkdir(mode=0o700)
    told_jobs = f"{count:,} jobs of a file"
    with served(state) as daemon:
        took = {}
        for title, word in (("added", "true"), ("read again", "true"), ("changed", "false")):
            tables = (f'[jobs.j{n}]\ncron = "{n % 60} 3 * * *"\ncommand = ["{word}"]\n' for n in range(count))
            daemon.file.write_text("".join(tables))
            began = time.monotonic()
            daemon.ask("POST", "/v1/reload")
            took[f"{told_jobs}, {title}"] = time.monotonic() - began
    with served(state, daemon.file.read_text()) as again:
        took[f"{told_jobs}, at the start"] = again.ready
    return took


if __name__ == "__main__":
    sys.exit(main())
