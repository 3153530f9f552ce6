"""Waiting until work has come to rest: what that is, and what an operator can do with what rests."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

from scheduler.cli.connection import segment
from scheduler.cli.screen import run_cell
from scheduler.cli.session import Session
from scheduler.cli.wording import Json, duration, escape, instant, moment, outcome
from scheduler.clock import MILLISECOND, SECOND, Micros, SystemClock
from scheduler.errors import ClientTimeout

ENDED: Final = frozenset({"succeeded", "partial", "failed", "cancelled", "crashed", "interrupted", "skipped"})
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


def is_at_rest(run: Json) -> bool:
    """Only an operator changes the run's state: whoever waits for more waits for ever."""
    return run.get("state") in ENDED or _is_held(run)


def _is_held(run: Json) -> bool:
    """A batch whose daemon died between a pause and the hold waits in its place."""
    return run.get("state") == "held" or (run.get("state") == "waiting" and run.get("wish") == "hold")


def way_on(session: Session, run: Json) -> str | None:
    """What an operator can do with a run that rests although it is not done; None where nothing is left."""
    id, job = escape(run.get("id", "?")), escape(run.get("job", "?"))
    progress = run.get("progress") or {}
    if _is_held(run):
        return f"run {id} is held, {_held_by(session, job)}; `schedctl cancel {id}` ends it instead"
    if run.get("state") != "partial":
        return None
    if progress.get("unknown"):
        return (
            f"run {id} has items whose outcome is unknown: `schedctl items {id} --state unknown` lists them,"
            f" `schedctl item {id} KEY --done|--retry|--fail` settles them"
        )
    if progress.get("failed"):
        return f"`schedctl retry {id} --failed` runs its failed items again, no other"
    return f"`schedctl retry {id}` runs what is left"


def _held_by(session: Session, job: str) -> str:
    """`because job x is paused: ...`; a run is held by the pause of its job, or of all jobs."""
    shown = session.control.get(f"/v1/jobs/{segment(job)}").body
    if shown.get("status") != "paused":
        return "because all jobs are paused: `schedctl resume --all` lets it go on"
    until = (shown.get("pause") or {}).get("until")
    by_itself = "" if instant(until) is None else f", which ends by itself at {moment(until)}"
    return f"because job {job} is paused{by_itself}: `schedctl resume {job}` lets it go on"


def _tell(session: Session, run: Json) -> None:
    if session.screen.json_wanted:
        session.screen.record(run)
        return
    state = run_cell(escape(run.get("state", "?")), outcome(run))
    session.screen.line(escape(run.get("job", "?")), f"run {escape(run.get('id', '?'))}", state)
