"""The daemon under a load: job files, a start, the load, a stop, and a look at the rows."""

from __future__ import annotations

import json
import math
import time
from array import array
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.harness.account import settle
from benchmarks.harness.contender import Found, Load
from benchmarks.harness.daemon import Daemon, Site, history, running, site
from benchmarks.harness.processes import Unmeasured, cpu_of, sleep_until, workspace
from benchmarks.peers.meter import SETTLED_SECONDS, offset_of

LOOK_EVERY = 0.02
"""Seconds between two looks at how many outcomes of a burst are stored."""

ATTEMPTS = 3
"""Starts of a daemon whose jobs are due at one instant: it has to be ready before."""


@dataclass(slots=True)
class Pace:
    """How long a daemon takes from its start to ready, for each job; learnt from each start."""

    base: float = 1.5
    per_job: float = 0.0005

    def expected(self, jobs: int) -> float:
        """Seconds, with something to spare."""
        return self.base + 1.3 * jobs * self.per_job

    def learn(self, jobs: int, seconds: float) -> None:
        """A start with so many jobs took so long."""
        if jobs >= 500:
            self.per_job = max(0.0, seconds - 0.8) / jobs


Beside = Callable[[Daemon, float], AbstractContextManager[object]]
"""What happens while a burst is on: made from the daemon and the due instant."""


@dataclass(slots=True)
class Schedulerd:
    """schedulerd with its SQLite store, as it comes."""

    root: Path
    name: str = "schedulerd"
    durable: str = "claim, run row, outcome, next fire; `synchronous=FULL`"
    pace: Pace = field(default_factory=Pace)

    def put(self, load: Load) -> Found:
        """See the protocol."""
        if load.kind == "burst":
            return self.burst(load, lambda _daemon, _due: nullcontext())
        with workspace(self.root) as folder, site(folder / "d") as place:
            place.write_jobs("load", "".join(_job(load, number) for number in range(load.jobs)))
            with self.started(place, load.jobs) as daemon:
                found = _window(daemon, load)
            if load.kind == "spread":
                return found
            rows, next_fires = history(daemon)
            return replace(found, account=settle(rows, next_fires))

    def burst(self, load: Load, beside: Beside) -> Found:
        """All jobs were due at one instant, while something happened beside it."""
        for _ in range(ATTEMPTS):
            with workspace(self.root) as folder, site(folder / "d") as place:
                due = math.ceil(time.time() + 2 + self.pace.expected(load.jobs))
                jobs = (_job(load, number, due) for number in range(load.jobs))
                place.write_jobs("load", "".join(jobs))
                with self.started(place, load.jobs) as daemon:
                    if time.time() > due - 0.7:
                        continue
                    return _burst(daemon, load, due, beside)
        raise Unmeasured("the daemon was not ready before the due instant")

    def started(self, place: Site, jobs: int) -> AbstractContextManager[Daemon]:
        """A running daemon, from whose start the pace was learnt."""
        return _Learning(self.pace, place, jobs)


class _Learning(AbstractContextManager[Daemon]):
    """`running`, with a watch in the hand."""

    def __init__(self, pace: Pace, place: Site, jobs: int) -> None:
        self._pace, self._jobs = pace, jobs
        self._running = running(place)

    def __enter__(self) -> Daemon:
        began = time.monotonic()
        daemon = self._running.__enter__()
        self._pace.learn(self._jobs, time.monotonic() - began)
        return daemon

    def __exit__(self, *error: object) -> bool | None:
        return self._running.__exit__(*error)  # type: ignore[arg-type]


def _job(load: Load, number: int, due: float = 0.0) -> str:
    handler = "nothing" if load.kind == "sustained" else "note"
    if load.kind == "burst":
        when = f"at = {datetime.fromtimestamp(due, UTC).isoformat()}"
    elif load.trigger == "cron":
        when = 'cron = "* * * * * *"'
    else:
        start = datetime.fromtimestamp(1_767_225_600 + offset_of(number, load), UTC)
        when = f'every = "1s"\nstart_at = {start.isoformat()}'
    return f'[jobs.j{number}]\n{when}\npython = "bench_handlers:{handler}"\n'


def _window(daemon: Daemon, load: Load) -> Found:
    """Whole seconds of the load, each from just before a due instant."""
    start = math.ceil(time.time()) + load.warm - SETTLED_SECONDS
    sleep_until(start - 0.2)
    if load.kind == "spread":
        daemon.run("watch")
    sleep_until(start)
    began, cpu, stored = time.time(), cpu_of(daemon.process.pid), daemon.stored()
    sleep_until(start + load.window)
    ended, cpu, outcomes = time.time(), cpu_of(daemon.process.pid) - cpu, daemon.stored() - stored
    found = Found(started=outcomes, outcomes=outcomes, seconds=ended - began, cpu=cpu)
    return found if load.kind == "sustained" else noted(daemon, found, since=began, until=ended)


def _burst(daemon: Daemon, load: Load, due: float, beside: Beside) -> Found:
    daemon.run("watch")
    sleep_until(due - 0.3)
    cpu = cpu_of(daemon.process.pid)
    with beside(daemon, due):
        stored = 0
        while stored < load.jobs and time.time() < due + load.patience:
            sleep_until(max(due, time.time() + LOOK_EVERY))
            stored = daemon.stored()
        seconds = time.time() - due
    cpu = cpu_of(daemon.process.pid) - cpu
    found = Found(
        started=0,
        outcomes=stored,
        seconds=seconds,
        cpu=cpu,
        all_stored=seconds if stored >= load.jobs else None,
    )
    return noted(daemon, replace(found, lag=daemon.loop_lag()), since=due, until=math.inf)


def noted(daemon: Daemon, found: Found, *, since: float, until: float) -> Found:
    """With what the handlers remembered of the fires that were due in that time."""
    daemon.run("dump")
    file = daemon.place.folder / "starts"
    deadline = time.monotonic() + 30
    while not file.exists():
        if time.monotonic() > deadline:
            raise Unmeasured("the handlers did not write down what they had noted")
        time.sleep(0.02)
    pairs = array("d", file.read_bytes())
    starts = [
        (fire, start)
        for fire, start in zip(pairs[::2], pairs[1::2], strict=True)
        if since - 1e-6 <= fire < until
    ]
    return replace(
        found,
        started=len(starts),
        stall=json.loads((daemon.place.folder / "stall.json").read_text()),
        last_start=max((start for _, start in starts), default=math.nan) - since,
        late=[start - fire for fire, start in starts],
    )
