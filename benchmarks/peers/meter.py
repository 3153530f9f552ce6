"""What every peer's driver does alike: it notes starts, measures a window, and answers in one JSON line.

A driver is a script for the Python of the peer's own environment; it gets a load as JSON in its first
argument, puts that load on the peer, and prints what `Meter` found as its last line. So nothing of the
daemon's environment is imported here, and a peer is one small file.
"""

from __future__ import annotations

import asyncio
import json
import math
import sys
import threading
import time
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

MONITOR_SECONDS = 0.002
SETTLED_SECONDS = 0.02
"""A window ends this much before a due instant, so that whole rounds lie in it."""

LONGEST_PASS = 15.0
"""Seconds that a window is made longer for a peer that stores nothing meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What to put on a scheduler.

    Attributes:
        kind: `sustained`: all jobs are due each second; `burst`: all once, at one instant; `spread`: each
            once a second, evenly over the second.
        jobs: how many.
        trigger: of a sustained load.
        warm: seconds before the window.
        window: seconds that are measured.
        variant: which store or setting of the peer.
        folder: an empty directory on the disk that is measured.
        server: address of a server that the peer needs, and the pid of its first process.
    """

    kind: Literal["sustained", "burst", "spread"]
    jobs: int
    folder: str
    trigger: Literal["every", "cron"] = "every"
    warm: int = 2
    window: int = 4
    variant: str = ""
    server: str = ""
    patience: float = 60.0


def load_from_arguments() -> Load:
    """The load that this script was started with."""
    return Load(**json.loads(sys.argv[1]))


class Meter:
    """Starts and stored outcomes of one load, as moments of `time.time()`."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.starts: list[float] = []
        self.numbers: list[int] = []
        self.stored: list[float] | None = None
        """None: what has started was stored before (APScheduler 3), or nothing is ever stored."""
        self.marks: list[tuple[float, float]] = []
        self.stalls: list[float] = []
        self.due = 0.0

    def begin(self, seconds_from_now: float = 0.5) -> float:
        """The whole second at which the load begins, at least so many seconds from now."""
        self.due = float(math.ceil(time.time() + seconds_from_now))
        return self.due

    def must_be_early(self) -> None:
        """All jobs lie in the peer's store before the load begins, or there is no measurement."""
        if time.time() > self.due:
            sys.exit("its jobs were not stored before they were due")

    def note(self, number: int) -> None:
        """The job of that number has started."""
        self.starts.append(time.time())
        self.numbers.append(number)

    async def run(self) -> None:
        """The load has been on for as long as it shall be; the loop was watched meanwhile."""
        watching = asyncio.create_task(self._watch())
        await asyncio.to_thread(self.wait)
        watching.cancel()

    def wait(self) -> None:
        """As `run`, in a thread: a loop that is held does not hold the clock of the measurement."""
        if self.load.kind == "burst":
            self._wait_for_all()
            return
        start, end = self._window()
        self._mark(start)
        while time.time() < end or (time.time() < end + LONGEST_PASS and not self._saw_passes(start)):
            time.sleep(min(0.5, max(0.01, end - time.time())))
        self._mark(end)

    def answer(self) -> None:
        """One JSON line with what was found was printed."""
        print(json.dumps(self._found()), flush=True)

    def _mark(self, moment: float) -> None:
        """An edge of the window: the time, and the CPU used so far."""
        time.sleep(max(0.0, moment - time.time()))
        self.marks.append((time.time(), time.process_time()))

    def _saw_passes(self, start: float) -> bool:
        """There were outcomes before the window and in it."""
        outcomes = self.starts if self.stored is None else self.stored
        return bool(outcomes) and outcomes[0] < start <= outcomes[-1]

    def _window(self) -> tuple[float, float]:
        start = self.due + self.load.warm - SETTLED_SECONDS
        return start, start + self.load.window

    def _wait_for_all(self) -> None:
        until = self.due + self.load.patience
        self._mark(self.due - 0.1)
        while time.time() < until and not self._is_over():
            time.sleep(0.02)
        self._mark(0.0)

    def _is_over(self) -> bool:
        outcomes = self.starts if self.stored is None else self.stored
        return len(outcomes) >= self.load.jobs

    async def _watch(self) -> None:
        """The longest that a task which sleeps 2 ms had to wait beyond that, while the load was on."""
        before = time.perf_counter()
        while True:
            await asyncio.sleep(MONITOR_SECONDS)
            now = time.perf_counter()
            if time.time() > self.due - 0.2:
                self.stalls.append(now - before - MONITOR_SECONDS)
            before = now

    def _found(self) -> dict[str, object]:
        outcomes = sorted(self.starts if self.stored is None else self.stored)
        starts = sorted(self.starts)
        (began, cpu_before), (ended, cpu_after) = self.marks
        inside, seconds = whole_passes(outcomes, began, ended)
        found: dict[str, object] = {
            "started": len(starts),
            "outcomes": inside,
            "seconds": seconds,
            "cpu": cpu_after - cpu_before,
            "stall": max(self.stalls, default=None),
        }
        if self.load.kind == "burst" and starts:
            found["last_start"] = starts[-1] - self.due
            found["all_stored"] = outcomes[-1] - self.due if len(outcomes) >= self.load.jobs else None
        if self.load.kind == "spread":
            found["late"] = self._lateness()
        return found

    def _lateness(self) -> list[float]:
        """How late each start in the window is; a job comes round each second at its own place in it."""
        start, end = self._window()
        return [
            (moment - self.due - offset_of(number, self.load)) % 1.0
            for number, moment in zip(self.numbers, self.starts, strict=True)
            if start <= moment < end
        ]


def whole_passes(outcomes: list[float], began: float, ended: float) -> tuple[int, float]:
    """Outcomes in the window, and seconds, from the last outcome before it to the last one in it.

    Some store all that is due in one pass, and the passes are longer than a second: edges between two of them
    would count one too many or too few.
    """
    first, last = bisect_left(outcomes, began), bisect_left(outcomes, ended)
    if first in {0, last}:
        return last - first, ended - began
    return last - first, outcomes[last - 1] - outcomes[first - 1]


def offset_of(number: int, load: Load) -> float:
    """When in the second the job is due, for a load that is spread over it."""
    return number / load.jobs if load.kind == "spread" else 0.0


def in_thread(work: Callable[[], None]) -> threading.Thread:
    """The work has begun beside this thread."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread
