"""Waiting until work has come to rest: the runs that a pause found in flight have ended, or are held."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

from scheduler.cli.connection import segment
from scheduler.cli.screen import run_cell
from scheduler.cli.session import Session
from scheduler.cli.wording import Json, duration, escape, outcome
from scheduler.clock import MILLISECOND, SECOND, Micros, SystemClock
from scheduler.errors import ClientTimeout

_AT_WORK: Final = frozenset({"running", "recovering"})
_FIRST_LOOK: Final[Micros] = 50 * MILLISECOND
_LOOK_EVERY: Final[Micros] = SECOND


def wait_for_rest(session: Session, runs: Sequence[Json]) -> int:
    """None of these runs is at work any more, and each was told; 0.

    Those that wait for a slot or for another try do not start while the pause lasts.

    Raises:
        ClientTimeout: one still is, at the end of `--timeout`.
    """
    clock = SystemClock()
    began_at = clock.monotonic()
    for run in runs:
        if run.get("state") not in _AT_WORK:
            continue
        pause, shown = _FIRST_LOOK, run
        while shown.get("state") in _AT_WORK:
            if session.limit is not None and clock.monotonic() - began_at >= session.limit:
                raise ClientTimeout(
                    f"waited {duration(session.limit)}, and run {run['id']} is still {shown['state']}",
                    hint="the pause holds; `schedctl cancel RUN` ends a run",
                )
            threading.Event().wait(pause / SECOND)
            pause = min(pause * 3 // 2, _LOOK_EVERY)
            shown = session.control.get(f"/v1/runs/{segment(str(run['id']))}").body
        _tell(session, shown)
    return 0


def _tell(session: Session, run: Json) -> None:
    if session.screen.json_wanted:
        session.screen.record(run)
        return
    state = run_cell(escape(run.get("state", "?")), outcome(run))
    session.screen.line(escape(run.get("job", "?")), f"run {escape(run.get('id', '?'))}", state)
