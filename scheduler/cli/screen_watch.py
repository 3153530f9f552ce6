"""`watch` without a run: a live screen of the daemon with keys, or, in a pipe, a line for each change.

Watching is only looking, until a key is pressed: then the same verbs are said as `schedctl` says them, and
the answer stands at the foot of the screen. A daemon that goes away is waited for. However it ends, the
terminal is as it was before.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from typing import Final

from scheduler.cli.connection import segment
from scheduler.cli.drawing import Picture, draw
from scheduler.cli.keyboard import Keyboard
from scheduler.cli.looking import Look, changes, look
from scheduler.cli.screen import job_cell, run_cell, warn
from scheduler.cli.selection import UNFINISHED
from scheduler.cli.session import Session
from scheduler.cli.wording import Json, duration, elapsed, escape, job_state, local, now, outcome
from scheduler.clock import SECOND, Micros, SystemClock
from scheduler.errors import ClientTimeout, DaemonUnreachable, SchedulerError

_LOOK_EVERY: Final[Micros] = SECOND
_SHARE: Final = 10
"""Of the time at most so much goes into looking: many jobs are looked at less often."""

_AWAY_FOR: Final[Micros] = 60 * SECOND
_INTERRUPTED: Final = 130


def watch_all(session: Session) -> int:
    """The daemon was watched until `q`, Ctrl-C or `--timeout`."""
    screen = session.screen
    try:
        if screen.is_terminal and sys.stdin.isatty() and not screen.json_wanted:
            return _Live(session).show()
        return _print_changes(session)
    except KeyboardInterrupt:
        return _INTERRUPTED


class _Pace:
    """When to look next, and when to end."""

    def __init__(self, session: Session) -> None:
        self._clock = SystemClock()
        self._next = self._clock.monotonic()
        limit = session.limit
        self._ends_at = None if limit is None else self._next + limit

    def looked(self, look: Callable[[], Look]) -> Look:
        """What `look` sees; the time it took decides when the next one is due."""
        began = self._clock.monotonic()
        try:
            return look()
        finally:
            took = self._clock.monotonic() - began
            self._next = began + max(_LOOK_EVERY, took * _SHARE)

    def soon(self) -> None:
        """Something was done: look again at once."""
        self._next = self._clock.monotonic()

    @property
    def left(self) -> Micros:
        """How long to wait for the next look; 0: it is due."""
        return max(0, self._next - self._clock.monotonic())

    @property
    def is_over(self) -> bool:
        """The time of `--timeout` is over."""
        return self._ends_at is not None and self._clock.monotonic() >= self._ends_at


class _Live:
    """The screen and its keys."""

    def __init__(self, session: Session) -> None:
        self._control = session.control
        self._pace = _Pace(session)
        self._look: Look | None = None
        self._chosen: str | None = None
        self._message, self._style, self._trouble = "", "", ""
        self._to_cancel: str | None = None
        self._keys: Mapping[str, Callable[[], None]] = {
            "j": lambda: self._move(1),
            "down": lambda: self._move(1),
            "k": lambda: self._move(-1),
            "up": lambda: self._move(-1),
            "p": lambda: self._verb("pause", "paused"),
            "r": lambda: self._verb("resume", "resumed"),
            "x": lambda: self._verb("run", "started"),
            "c": self._ask_cancel,
            "y": self._cancel,
        }

    def show(self) -> int:
        """Draws until `q`.

        Raises:
            SchedulerError: the first look fails; later ones are tried again.
        """
        from rich.console import Console
        from rich.live import Live

        self._look = self._pace.looked(lambda: look(self._control))
        self._pace.soon()
        console = Console(markup=False, emoji=False, highlight=False, legacy_windows=False)
        with Keyboard() as keyboard, Live(console=console, screen=True, auto_refresh=False) as live:
            while not self._pace.is_over:
                if self._pace.left == 0:
                    self._see()
                live.update(draw(self._picture(), console.height), refresh=True)
                key = keyboard.wait(min(self._pace.left, SECOND))
                if key in ("q", "escape"):
                    break
                if key is not None:
                    self._press(key)
        return 0

    def _picture(self) -> Picture:
        return Picture(
            look=self._look,
            chosen=self._chosen,
            message=self._message,
            style=self._style,
            trouble=self._trouble,
        )

    def _see(self) -> None:
        try:
            self._look = self._pace.looked(lambda: look(self._control))
            self._trouble = ""
        except SchedulerError as away:
            self._trouble = escape(f"does not answer, asked again: {away.message}")
            return
        ids = [str(job["id"]) for job in self._look.jobs]
        if self._chosen not in ids:
            self._chosen = ids[0] if ids else None

    def _press(self, key: str) -> None:
        deed = self._keys.get(key)
        if deed is None or (key == "y" and self._to_cancel is None):
            self._tell("" if key == "n" else f"no such key: {escape(key)}", "dim")
            self._to_cancel = None
            return
        if key not in ("c", "y"):
            self._to_cancel = None
        try:
            deed()
        except SchedulerError as refused:
            hint = f"; {refused.hint}" if refused.hint else ""
            self._tell(escape(f"{refused.message}{hint}"), "red")

    def _move(self, step: int) -> None:
        ids = [str(job["id"]) for job in self._look.jobs] if self._look else []
        if ids:
            place = ids.index(self._chosen) if self._chosen in ids else 0
            self._chosen = ids[max(0, min(place + step, len(ids) - 1))]
            self._tell("", "")

    def _verb(self, verb: str, done: str) -> None:
        if self._chosen is None:
            return
        answer = self._control.post(f"/v1/jobs/{segment(self._chosen)}/{verb}").body
        flights = len(answer.get("runs") or [])
        more = f", {flights} in flight" if flights and verb == "pause" else ""
        self._tell(f"{escape(self._chosen)} {done}{more}", "green")
        self._pace.soon()

    def _ask_cancel(self) -> None:
        if self._to_cancel is not None and self._to_cancel == self._chosen:
            self._cancel()
            return
        runs = self._runs_of_chosen()
        if not runs:
            self._tell(f"{escape(self._chosen or 'no job')} has no run that is live or queued", "yellow")
            return
        self._to_cancel = self._chosen
        self._tell(
            f"cancel {len(runs)} run(s) of {escape(self._chosen)}? y or c: yes, any other key: no", "yellow"
        )

    def _cancel(self) -> None:
        self._to_cancel = None
        runs = self._runs_of_chosen()
        for run in runs:
            self._control.post(f"/v1/runs/{segment(str(run['id']))}/cancel")
        self._tell(f"{len(runs)} run(s) of {escape(self._chosen)} are being cancelled", "green")
        self._pace.soon()

    def _runs_of_chosen(self) -> list[Json]:
        live = self._look.live if self._look else ()
        return [run for run in live if run.get("job") == self._chosen and run.get("state") in UNFINISHED]

    def _tell(self, message: str, style: str) -> None:
        self._message, self._style = message, style


def _print_changes(session: Session) -> int:
    """One line for each change, from now on; with `--json` the run or the job that changed.

    Raises:
        DaemonUnreachable: the daemon went away and did not come back.
    """
    pace, seen = _Pace(session), None
    clock = SystemClock()
    away_since: Micros | None = None
    while not pace.is_over:
        try:
            found = pace.looked(lambda: look(session.control))
        except (DaemonUnreachable, ClientTimeout):
            if seen is None:
                raise
            if away_since is None:
                away_since = clock.monotonic()
                warn("the daemon went away; waiting for it to come back")
            if clock.monotonic() - away_since > _AWAY_FOR:
                raise
        else:
            away_since = None
            for job, run in changes(seen, found):
                _print(session, job, run)
            seen = found
        threading.Event().wait(pace.left / SECOND)
    return 0


def _print(session: Session, job: Json, run: Json | None) -> None:
    screen = session.screen
    if screen.json_wanted:
        screen.record(job if run is None else run)
    elif run is None:
        screen.line(local(now()), escape(job["id"]), job_cell(escape(job_state(job))))
    else:
        took = elapsed(run)
        said = ["" if took is None or not run.get("finished_at") else f"after {duration(took)}", outcome(run)]
        text = ", ".join(part for part in said if part)
        state = run_cell(escape(run.get("state", "?")), text)
        screen.line(local(now()), escape(job["id"]), f"run {escape(run.get('id', '?'))}", state)
    screen.raw("")
