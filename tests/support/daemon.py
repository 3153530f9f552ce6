r"""A real `schedulerd` for tests: started, asked over its socket, signalled, killed; always cleaned up.

    with Daemon(jobs='[jobs.a]\nmanual = true\ncommand = ["true"]') as daemon:
        run = daemon.run("a")
        daemon.until(lambda: daemon.get(f"/v1/runs/{run}")["state"] == "succeeded")

It lives in a short folder of its own (a socket's path is at most 107 bytes long). Whatever a test did to it,
at the end the process is gone by its pid, and so is every process that bears the id of its store.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeAlias, TypeVar

from scheduler.store.sqlite import FILE_NAME
from tests.support.nursery import Nursling, nursery

Process: TypeAlias = "subprocess.Popen[bytes] | Nursling"

T = TypeVar("T")

PATIENCE: Final = 40.0
"""Seconds that a condition gets on a machine that is busy; what comes true is seen within 20 ms."""

_QUICK: Final = {"lease": "3s", "heartbeat": "300ms", "drain_timeout": "2s"}


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer of the control API."""

    status: int
    body: Any


class Daemon:
    """One state directory, its job files, and at most one process that serves it.

    Args:
        jobs: the text of `jobs.d/jobs.toml`; `{here}` in it stands for the daemon's folder.
        handlers: the text of a module `handlers`, importable by jobs.
        settings: further keys of `scheduler.toml`; strings, numbers, booleans or lists of strings.
        extra: text put behind those, for tables.
        env: further variables of the process.
        fresh: each life starts Python afresh, as a command line does; else it is forked from a process that
            has imported the daemon already (`tests.support.nursery`). Always so with an `env`.
    """

    def __init__(
        self,
        jobs: str = "",
        *,
        handlers: str = "",
        extra: str = "",
        env: Mapping[str, str] | None = None,
        fresh: bool = False,
        **settings: object,
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="sd-"))
        self.state = self.folder / "state"
        self.socket = self.folder / "s.sock"
        self.config = self.folder / "scheduler.toml"
        self.process: Process | None = None
        self._lives = 0
        self._env = dict(env or {})
        self._fresh = fresh
        (self.folder / "jobs.d").mkdir()
        (self.folder / "handlers.py").write_text(handlers)
        self.write(jobs)
        keys = {**_QUICK, "python_path": ["."], "timezone": "UTC", **settings}
        lines = [f"{name} = {json.dumps(value)}" for name, value in keys.items()]
        self.config.write_text("\n".join([*lines, extra, '[log]\nformat = "json"\nlevel = "debug"\n']))

    # --- files ---
    @property
    def database(self) -> Path:
        """The store's file."""
        return self.state / FILE_NAME

    def write(self, jobs: str, name: str = "jobs.toml") -> Path:
        """The job file says this now; put in place whole, as an editor does."""
        path = self.folder / "jobs.d" / name
        fresh = path.with_suffix(".new")
        fresh.write_text(jobs.replace("{here}", str(self.folder)))
        return fresh.rename(path)

    def path(self, name: str) -> Path:
        """A file beside the daemon's, where jobs leave their marks."""
        return self.folder / name

    def open_gate(self, name: str) -> None:
        """A job that waits for this file goes on."""
        self.path(name).touch()

    # --- life ---
    def launch(self) -> Process:
        """A process that starts; whether it comes up is the caller's question."""
        self._lives += 1
        flags = ["--config", str(self.config), "--state", str(self.state), "--socket", str(self.socket)]
        with self._log_file().open("wb") as out, self._error_file().open("wb") as errors:
            if self._fresh or self._env:
                self.process = subprocess.Popen(
                    [sys.executable, "-m", "scheduler.daemon", *flags],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=errors,
                    env={**os.environ, **self._env},
                    start_new_session=True,
                )
            else:
                self.process = nursery().daemon(flags, out=out, errors=errors, env=os.environ)
        return self.process

    def start(self) -> Self:
        """The daemon is ready."""
        process = self.launch()

        def is_ready() -> bool:
            assert process.poll() is None, f"it did not start (exit {process.returncode}): {self.complaint()}"
            return self._is_ready()

        self.until(is_ready)
        return self

    def _is_ready(self) -> bool:
        with suppress(OSError, http.client.HTTPException):
            return self.ask("GET", "/readyz").status == 200
        return False

    def stop(self, *, patience: float = PATIENCE) -> int:
        """The exit code after SIGTERM."""
        self.signal(signal.SIGTERM)
        return self.exit_code(patience=patience)

    def kill9(self, *, and_warden: bool = False) -> None:
        """The daemon is gone without a word; its warden ends its runs, unless that was killed first."""
        if and_warden:
            self.signal(signal.SIGSTOP)
            for warden in self.wardens():
                os.kill(warden, signal.SIGKILL)
        self.signal(signal.SIGKILL)
        self.exit_code()

    def wardens(self) -> list[int]:
        """The processes that watch over the daemon's runs."""
        found = []
        for child in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split():
            with suppress(OSError):
                if b"warden_watch" in Path(f"/proc/{child}/cmdline").read_bytes():
                    found.append(int(child))
        return found

    def signal(self, number: signal.Signals) -> None:
        """The signal was sent to the daemon alone."""
        assert self.process is not None
        os.kill(self.process.pid, number)

    def exit_code(self, *, patience: float = PATIENCE) -> int:
        """How the process ended."""
        assert self.process is not None
        return self.process.wait(patience)

    @property
    def has_ended(self) -> bool:
        """The process is gone."""
        return self.process is None or self.process.poll() is not None

    @property
    def pid(self) -> int:
        """Of the daemon's process."""
        assert self.process is not None
        return self.process.pid

    # --- control ---
    def ask(
        self, method: str, path: str, body: object = None, *, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """The answer to one request on a connection of its own; OSError where the daemon dies over it."""
        with closing(_UnixConnection(self.socket)) as connection:
            data = None if body is None else json.dumps(body).encode()
            kind = {} if data is None else {"content-type": "application/json"}
            connection.request(method, path, body=data, headers={**kind, **(headers or {})})
            try:
                answer = connection.getresponse()
                raw = answer.read()
            except http.client.IncompleteRead as error:
                raise ConnectionError(f"the answer broke off: {error}") from error
        is_json = "json" in (answer.getheader("content-type") or "")
        return Reply(answer.status, json.loads(raw) if is_json and raw else raw.decode("utf-8", "replace"))

    def get(self, path: str) -> Any:
        """What a read answers."""
        reply = self.ask("GET", path)
        assert reply.status == 200, reply
        return reply.body

    def post(self, path: str, body: object = None) -> Any:
        """What a verb answers that is not refused."""
        reply = self.ask("POST", path, {} if body is None else body)
        assert reply.status in (200, 201, 202), reply
        return reply.body

    def run(self, job: str, **body: object) -> str:
        """The id of a run that was started by hand."""
        answer = self.post(f"/v1/jobs/{job}/run", body)
        return str(answer["run"]["id"] if "run" in answer else answer["id"])

    def job(self, job: str) -> dict[str, Any]:
        """The job as the API shows it."""
        answer: dict[str, Any] = self.get(f"/v1/jobs/{job}")
        return answer

    def run_of(self, run: str) -> dict[str, Any]:
        """The run as the API shows it."""
        answer: dict[str, Any] = self.get(f"/v1/runs/{run}")
        return answer

    def runs(self, job: str) -> list[dict[str, Any]]:
        """All rows of the job, oldest first."""
        items: list[dict[str, Any]] = self.get(f"/v1/runs?job={job}&limit=500")["items"]
        return items[::-1]

    def ended(self, run: str) -> dict[str, Any]:
        """The run, once it has ended."""
        return self.run_when(run, lambda row: row["finished_at"] is not None)

    def run_when(self, run: str, condition: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """The run, once it is so."""
        row: dict[str, Any] = {}

        def is_so() -> bool:
            row.clear()
            row.update(self.run_of(run))
            return bool(condition(row))

        self.until(is_so)
        return row

    # --- what it told ---
    def logs(self) -> list[dict[str, Any]]:
        """Every line of the present life; each is one JSON object."""
        return [json.loads(line) for line in self.lines()]

    def lines(self) -> list[str]:
        """The raw complete lines of the present life."""
        text = self._log_file().read_bytes().decode()
        return text[: text.rfind("\n") + 1].splitlines()

    def events(self, event: str, **fields: object) -> list[dict[str, Any]]:
        """The lines of one event, with these fields."""
        return [
            line
            for line in self.logs()
            if line["event"] == event and all(line.get(name) == value for name, value in fields.items())
        ]

    def told(self, event: str, **fields: object) -> dict[str, Any]:
        """The first such line, once it is there."""
        return self.until(lambda: self.events(event, **fields))[0]

    def complaint(self) -> str:
        """What the present life wrote to stderr."""
        return self._error_file().read_text(errors="replace")

    def _log_file(self) -> Path:
        return self.folder / f"out-{self._lives}.jsonl"

    def _error_file(self) -> Path:
        return self.folder / f"err-{self._lives}.txt"

    # --- waiting ---
    def until(self, condition: Callable[[], T], *, seconds: float = PATIENCE) -> T:
        """What the condition gave once it was true; real processes take real time."""
        deadline = time.monotonic() + seconds
        while not (result := condition()):
            if time.monotonic() > deadline:
                last = "\n".join(self.lines()[-15:])
                raise AssertionError(f"it has not come true in {seconds} s; {self.complaint()}\n{last}")
            time.sleep(0.02)
        return result

    # --- what is left ---
    def store_id(self) -> str | None:
        """The id in the environment of everything that this daemon starts."""
        if not self.database.exists():
            return None
        try:
            with closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True)) as db:
                row = db.execute("SELECT value FROM meta WHERE name = 'store_id'").fetchone()
        except sqlite3.Error:
            return None
        return None if row is None else str(row[0])

    def descendants(self) -> list[int]:
        """Living processes that were started by any life of this daemon."""
        return _marked(self.store_id(), str(self.socket))

    def leave_nothing(self) -> list[int]:
        """The daemon is ended; what was still alive of its jobs was ended too, and is answered."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()
        left = self.descendants()
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return left

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stopped in order if it runs; soon nothing of its jobs may be left, unless the test failed."""
        try:
            if kind is None and self.process is not None and self.process.poll() is None:
                self.stop()
                self.until(lambda: self.descendants() == [])
        finally:
            self.close()

    def close(self) -> None:
        """Nothing is left, neither processes nor files."""
        self.leave_nothing()
        shutil.rmtree(self.folder, ignore_errors=True)


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over the daemon's socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("schedulerd", timeout=30)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def _marked(store_id: str | None, socket_path: str) -> list[int]:
    """Living processes whose environment names the store, or the socket."""
    marks = [f"SCHEDULER_SOCKET={socket_path}".encode()]
    if store_id is not None:
        marks.append(f"SCHEDULER_STORE_ID={store_id}".encode())
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError):
            variables = (entry / "environ").read_bytes().split(b"\0")
            if any(mark in variables for mark in marks) and is_alive(int(entry.name)):
                found.append(int(entry.name))
    return found


def is_alive(pid: int) -> bool:
    """The process exists and is no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"
