"""`watch`: how far a run is, as a bar on a terminal and as lines elsewhere, until it has ended or is held.

Watching is only looking: whoever stops it ends no run, and a daemon that restarts meanwhile is asked again.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from dataclasses import dataclass, replace
from typing import Final

import click

from scheduler.cli.connection import segment
from scheduler.cli.money import priced, unit_of
from scheduler.cli.screen import run_cell, warn
from scheduler.cli.selection import complete_run, run_of
from scheduler.cli.session import Session, client_verb
from scheduler.cli.waiting import is_at_rest, way_on
from scheduler.cli.wording import Json, duration, elapsed, escape, outcome, progress
from scheduler.clock import MILLISECOND, SECOND, Micros, SystemClock
from scheduler.errors import ClientTimeout, DaemonUnreachable

_LOOK_EVERY: Final[Micros] = 500 * MILLISECOND
_RATE_OVER: Final[Micros] = 60 * SECOND
_BAR: Final = 24
_SHORTEST_BAR: Final = 8
_INTERRUPTED: Final = 130


@click.command("watch")
@click.argument("run", metavar="[RUN]", required=False, shell_complete=complete_run)
@client_verb
def watch_verb(session: Session, run: str | None) -> int:
    """Follow a run until it has ended or is held: done, failed, unknown, rate, time left, cost.

    Exit code 0 if it succeeded, else 1; what can be done with a held or partial run is said.

    Without a RUN: a live screen of jobs, runs and failures, with keys; in a pipe a line for each change.
    """
    if run is None:
        from scheduler.cli.screen_watch import watch_all

        return watch_all(session)
    id = str(run_of(session, run)["id"])
    watch = _Watch(session, id)
    try:
        rested = watch.follow()
    except KeyboardInterrupt:
        warn(f"stopped watching; run {id} goes on")
        return _INTERRUPTED
    finally:
        watch.close()
    if not session.screen.json_wanted:
        session.screen.line(
            escape(rested.get("job", "?")),
            f"run {escape(id)}",
            run_cell(escape(rested.get("state", "?")), outcome(rested)),
        )
    if advice := way_on(session, rested):
        warn(advice)
    return 0 if rested.get("state") == "succeeded" else 1


class Rate:
    """Items ended per second over the last minute, from what was seen."""

    def __init__(self) -> None:
        self._seen: deque[tuple[Micros, int]] = deque()

    def see(self, at: Micros, ended: int) -> float | None:
        """The rate now; None while nothing can be said."""
        self._seen.append((at, ended))
        while at - self._seen[0][0] > _RATE_OVER:
            self._seen.popleft()
        first_at, first = self._seen[0]
        if at <= first_at or ended <= first:
            return None
        return (ended - first) / ((at - first_at) / SECOND)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """How far a run is, in words; only the message is told by the work itself and may be of any length."""

    state: str
    counts: str
    message: str
    rest: str

    @property
    def text(self) -> str:
        """All of it."""
        done = ": ".join(part for part in (self.counts, self.message) if part)
        return "  ".join(part for part in (self.state, done, self.rest) if part)


class _Watch:
    def __init__(self, session: Session, id: str) -> None:
        self._session = session
        self._id = id
        self._clock = SystemClock()
        self._began_at = self._clock.monotonic()
        self._rate = Rate()
        self._unit: str | None = None
        self._last = ""
        self._bar_stands = False

    def follow(self) -> Json:
        """The run, at rest; how far it was has been shown meanwhile.

        Raises:
            ClientTimeout: it was not within `--timeout`.
            DaemonUnreachable: the daemon went away and did not come back.
        """
        seen_at = self._clock.monotonic()
        run: Json = {}
        while True:
            try:
                run = self._session.control.get(f"/v1/runs/{segment(self._id)}").body
                seen_at = self._clock.monotonic()
                self._show(run)
            except DaemonUnreachable:
                if self._clock.monotonic() - seen_at > self._session.control.timeout:
                    raise
            if is_at_rest(run):
                return run
            limit = self._session.limit
            if limit is not None and self._clock.monotonic() - self._began_at >= limit:
                raise ClientTimeout(
                    f"watched {duration(limit)}, and run {self._id} is still {run.get('state')}"
                )
            threading.Event().wait(_LOOK_EVERY / SECOND)

    def close(self) -> None:
        """The bar is left as it stands; what comes next begins on a line of its own."""
        if self._bar_stands:
            sys.stdout.write("\n")
            sys.stdout.flush()
            self._bar_stands = False

    def _show(self, run: Json) -> None:
        screen = self._session.screen
        told = run.get("progress") or {}
        ended = sum(told.get(key) or 0 for key in ("done", "failed", "unknown"))
        rate = self._rate.see(self._clock.monotonic(), ended)
        line = _line(run, told, ended, rate, self._unit_of(run))
        if screen.json_wanted:
            shown = {key: run.get(key) for key in ("id", "job", "state", "reason", "progress", "cost")}
            if str(shown) != self._last:
                screen.record(shown)
            self._last = str(shown)
        elif screen.is_terminal:
            self._draw(told, ended, line)
        elif (facts := f"{run.get('state')} {progress(run)}") != self._last:
            screen.line(line.text)
            self._last = facts

    def _unit_of(self, run: Json) -> str:
        """The unit of what it costs, asked for once: with the first cost."""
        if self._unit is None and run.get("cost") is not None:
            self._unit = unit_of(self._session, run)
        return self._unit or ""

    def _draw(self, told: Json, ended: int, line: Line) -> None:
        width = os.get_terminal_size(sys.stdout.fileno()).columns
        sys.stdout.write(f"\r\x1b[K{drawn(told, ended, line, max(width - 1, 20))}")
        sys.stdout.flush()
        self._bar_stands = True


def drawn(told: Json, ended: int, line: Line, room: int) -> str:
    """Bar and line in at most `room` columns: the bar gives way first, then the message, then the end."""
    size = max(_SHORTEST_BAR, min(_BAR, room - len(line.text) - 1))
    total = told.get("total") or 0
    filled = size * min(ended, total) // total if total else 0
    bar = "█" * filled + "░" * (size - filled) + " "
    over = len(bar) + len(line.text) - room
    if over > 0 and line.message:
        cut = line.message[: max(0, len(line.message) - over - 1)]
        line = replace(line, message=f"{cut}…" if cut else "")
    return f"{bar}{line.text}"[:room]


def _line(run: Json, told: Json, ended: int, rate: float | None, unit: str) -> Line:
    """`running 7/24, 1 failed: ch7: asking  after 3 s  2.3/s  7 s left  cost 0.7 EUR`."""
    took, total, cost = elapsed(run), told.get("total"), run.get("cost")
    said = ["" if took is None else f"after {duration(took)}"]
    if rate is not None and run.get("state") == "running":
        said.append(f"{rate:.1f}/s" if rate >= 1 else f"{rate * 60:.1f}/min")
        if total:
            said.append(f"{duration(round((total - ended) / rate * SECOND))} left")
    if cost is not None:
        said.append(f"cost {priced(cost, unit)}")
    return Line(
        state=escape(run.get("state", "?")),
        counts=progress({**run, "progress": {**told, "message": None}}),
        message=escape(told.get("message") or ""),
        rest="  ".join(part for part in said if part),
    )
