r"""`schedulerd` with faulty parts, for tests only: it dies or fails at the point that a test has named.

    with FaultyDaemon(jobs) as daemon:
        daemon.arm("committed:insert_run")      # to be killed right there
        daemon.ask_in_vain("POST", "/v1/jobs/a/run")
        daemon.exit_code()

The production code has no hook for this. This module is a door of its own: its `main` puts faulty parts where
the daemon takes its own (connections to SQLite, the start of processes, the writer of output, the undertaker,
the socket), and then calls that of `scheduler.daemon`. Points in SQL are named by `faulty_sqlite`; the others
are `before:` and `after:` a name of `_CALLS`.
"""

from __future__ import annotations

import errno
import functools
import inspect
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from http.client import HTTPException
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from scheduler.daemon import main as serve
from scheduler.store import schema
from tests.support.daemon import Daemon, Process, Reply
from tests.support.faulty_sqlite import faulty_connections, sqlite_error
from tests.support.nursery import nursery

_CALLS: Final = {
    "spawn": ("scheduler.executors.spawn", "Spawner", "_start"),
    "ward": ("scheduler.executors.warden", "Warden", "watch"),
    "output": ("scheduler.executors.capture", "OutputWriter", "write"),
    "leftovers": ("scheduler.executors.orphans", "Orphans", "end_leftovers"),
    "backup": ("scheduler.store.schema", None, "_back_up"),
    "accept": ("socket", "socket", "accept"),
}
_ORDERS: Final = "FAULTY_DAEMON_ORDERS"
_MIGRATION: Final = "FAULTY_DAEMON_MIGRATION"


# --- in the process of the daemon ---
class _Orders:
    """Dies or fails where the file says so; without a file, nothing."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reached: Counter[str] = Counter()
        self._order: dict[str, Any] = {}
        self._text = ""

    def __call__(self, point: str) -> None:
        order = self._read()
        if point != order.get("point"):
            return
        self._reached[point] += 1
        first, times = order["nth"], order["times"]
        if first <= self._reached[point] < first + (times or sys.maxsize):
            with self._path.with_suffix(".done").open("a") as done:
                done.write(f"{point} {order['do']}\n")
            _carry_out(order["do"])

    def _read(self) -> dict[str, Any]:
        try:
            text = self._path.read_text()
        except FileNotFoundError:
            text = "{}"
        if text != self._text:
            self._text, self._order = text, json.loads(text)
            self._reached.clear()
        return self._order


def _carry_out(order: str) -> None:
    if order == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)  # the signal is on its way: nothing more happens in this thread
    if order.startswith("SQLITE_"):
        raise sqlite_error(order)
    number = getattr(errno, order)
    raise OSError(number, os.strerror(number))


def _install(orders: _Orders, stack: ExitStack) -> None:
    """The faulty parts stand where the daemon takes its own, until the stack is closed."""
    stack.enter_context(faulty_connections(orders))
    for name, (module, owner, call) in _CALLS.items():
        place = import_module(module)
        place = place if owner is None else getattr(place, owner)
        setattr(place, call, _trapped(name, getattr(place, call), orders))


def _trapped(name: str, call: Callable[..., Any], trap: Callable[[str], None]) -> Callable[..., Any]:
    @functools.wraps(call)
    def plain(*args: Any, **values: Any) -> Any:
        trap(f"before:{name}")
        result = call(*args, **values)
        trap(f"after:{name}")
        return result

    @functools.wraps(call)
    async def awaited(*args: Any, **values: Any) -> Any:
        trap(f"before:{name}")
        result = await call(*args, **values)
        trap(f"after:{name}")
        return result

    return awaited if inspect.iscoroutinefunction(call) else plain


def main(flags: Sequence[str]) -> None:
    """The daemon with faulty parts ran; the process exits."""
    with ExitStack() as stack:
        _install(_Orders(Path(os.environ.pop(_ORDERS))), stack)
        if (migration := os.environ.pop(_MIGRATION, "")) != "":
            schema.migrations = partial(list, [*schema.migrations(), migration])
        serve(flags)


# --- in the process of the test ---
class FaultyDaemon(Daemon):
    """A `Daemon` that can be armed."""

    def __init__(self, jobs: str = "", **options: Any) -> None:
        super().__init__(jobs, **options)
        self.migration = ""
        """SQL of a further version of the schema, which this daemon is ahead of the product."""
        self.dies_next: str | None = None
        """Where the life after the next death dies in its turn."""

    def launch(self) -> Process:
        self._lives += 1
        flags = ["--config", str(self.config), "--state", str(self.state), "--socket", str(self.socket)]
        env = {**os.environ, **self._env, _ORDERS: str(self._orders), _MIGRATION: self.migration}
        with self._log_file().open("wb") as out, self._error_file().open("wb") as errors:
            self.process = nursery().daemon(flags, out=out, errors=errors, env=env, door=__name__)
        return self.process

    @property
    def _orders(self) -> Path:
        return self.folder / "orders.json"

    def arm(self, point: str, do: str = "kill", *, nth: int = 1, times: int | None = 1) -> None:
        """From now the daemon does this at the n-th time that it comes to the point.

        Args:
            do: `kill`, an error of SQLite (`SQLITE_FULL`) or of the system (`EAGAIN`).
            times: how often, from then on; None: for good.
        """
        fresh = self._orders.with_suffix(".new")
        fresh.write_text(json.dumps({"point": point, "do": do, "nth": nth, "times": times}))
        fresh.rename(self._orders)

    def disarm(self) -> None:
        """Nothing fails any more."""
        self._orders.unlink(missing_ok=True)

    def strikes(self) -> int:
        """How often it has done what it was armed with, in all its lives."""
        done = self._orders.with_suffix(".done")
        return len(done.read_text().splitlines()) if done.exists() else 0

    def is_idle(self) -> bool:
        """It serves, and nothing of any job is under way."""
        try:
            jobs = self.get("/v1/jobs?limit=100")["items"]
            return not any(self.job(job["id"])["live_runs"] for job in jobs)
        except (OSError, HTTPException):
            return False

    def ask_in_vain(self, method: str, path: str, body: object = None) -> Reply | None:
        """The answer, or None where the daemon died over it."""
        try:
            return self.ask(method, path, {} if body is None else body)
        except (OSError, HTTPException):
            return None
