"""The daemon as its users start it: `schedulerd` with a configuration, job files, a state directory, a log.

The log goes to a file at its default level. What is unusual is `max_running`, since a limit of 32 live runs,
the default, would measure the queue and not the daemon; and that it waits no longer than 2 s at its end.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.harness.account import Row
from benchmarks.harness.processes import Unmeasured, started

BIN = Path(sys.executable).parent
HANDLERS = Path(__file__).parent
BUCKET = re.compile(r'^scheduler_loop_lag_seconds_bucket\{le="([^"]+)"\} (\S+)', re.MULTILINE)
READY_SECONDS = 180.0

CONFIG = f"""
python_path = ["{HANDLERS}"]
max_running = 100000
drain_timeout = "2s"
"""
TOOLS = """
[jobs.watch]
manual = true
python = "bench_handlers:watch"
[jobs.dump]
manual = true
python = "bench_handlers:dump"
args = {{ folder = "{folder}" }}
"""


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over the control socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=30)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where a daemon lives: its folder, its socket (whose path must be short), its store and its log."""

    folder: Path
    socket: Path

    @property
    def database(self) -> Path:
        """The store's file."""
        return self.folder / "state" / "schedulerd.db"

    @property
    def log(self) -> Path:
        """What the daemon told."""
        return self.folder / "log.jsonl"

    def write_jobs(self, name: str, text: str) -> None:
        """The job file is as given."""
        (self.folder / "jobs.d" / f"{name}.toml").write_text(text)


@contextmanager
def site(folder: Path) -> Iterator[Site]:
    """A configured place for a daemon, without jobs but for `watch` and `dump`."""
    (folder / "jobs.d").mkdir(parents=True)
    (folder / "scheduler.toml").write_text(CONFIG)
    with TemporaryDirectory(prefix="schedulerd-bench-") as short:
        place = Site(folder=folder, socket=Path(short) / "control.sock")
        place.write_jobs("tools", TOOLS.format(folder=folder))
        yield place


class Daemon:
    """A running daemon, asked through its control socket and looked at through its file."""

    def __init__(self, place: Site, process: subprocess.Popen[bytes]) -> None:
        self.place = place
        self.process = process

    def ask(self, method: str, path: str) -> Any:
        """The answer, or text where it is no JSON; raises Unmeasured for a refusal."""
        with closing(_UnixConnection(self.place.socket)) as connection:
            body = "{}" if method == "POST" else None
            headers = {"Content-Type": "application/json"} if body else {}
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            text = answer.read().decode()
        if answer.status >= 400:
            raise Unmeasured(f"{method} {path}: {answer.status} {text[:200]}")
        return json.loads(text) if "json" in (answer.getheader("Content-Type") or "") else text

    def run(self, job: str) -> None:
        """A run of the job was started by hand."""
        self.ask("POST", f"/v1/jobs/{job}/run")

    def wait_until_ready(self) -> None:
        """It answers, and its jobs are those of the files."""
        until = time.monotonic() + READY_SECONDS
        while time.monotonic() < until:
            if self.process.poll() is not None:
                break
            with suppress(OSError, http.client.HTTPException, Unmeasured):
                self.ask("GET", "/readyz")
                return
            time.sleep(0.02)
        told = self.place.log.read_text(errors="replace")[-300:] if self.place.log.exists() else ""
        raise Unmeasured(f"the daemon was not ready within {READY_SECONDS:.0f} s: {told}")

    def loop_lag(self) -> float | None:
        """The least bound, in seconds, that its own metric says the loop has never been late by."""
        buckets = [
            (float(bound), float(count))
            for bound, count in BUCKET.findall(self.ask("GET", "/metrics"))
            if bound != "+Inf"
        ]
        all_of_them = max((count for _, count in buckets), default=0.0)
        return min((bound for bound, count in buckets if count == all_of_them), default=None)

    def stored(self) -> int:
        """How many runs of the trigger have a recorded success by now."""
        return int(self.query("SELECT count(*) FROM runs WHERE state = 'succeeded'")[0][0])

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Rows of the store, read beside the daemon or after it."""
        uri = f"file:{self.place.database}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=30)) as connection:
            return connection.execute(sql).fetchall()


@contextmanager
def running(place: Site) -> Iterator[Daemon]:
    """A daemon was started there and is ready; it is stopped in order at the end."""
    command: list[str | Path] = [
        BIN / "schedulerd",
        "--config",
        place.folder / "scheduler.toml",
        "--state",
        place.folder / "state",
        "--socket",
        place.socket,
    ]
    env = {"PATH": os.environ["PATH"], "HOME": str(place.folder), "TZ": "UTC"}
    with started(command, log=place.log, cwd=place.folder, env=env) as process:
        daemon = Daemon(place, process)
        daemon.wait_until_ready()
        yield daemon


def history(daemon: Daemon) -> tuple[list[Row], dict[str, int]]:
    """Each row of a scheduled fire, and each job's next fire; of a daemon that has stopped."""
    rows = [
        Row(job=job, first=first, last=last or first, count=count, skipped=state == "skipped")
        for job, first, last, count, state in daemon.query(
            "SELECT job, fire_time, fire_time_last, count, state FROM runs WHERE fire_time IS NOT NULL"
        )
    ]
    jobs = daemon.query("SELECT id, next_fire_at FROM jobs WHERE next_fire_at IS NOT NULL")
    return rows, dict(jobs)
