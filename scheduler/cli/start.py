"""`run`: starts jobs by hand and, with `--wait`, follows their runs to the end.

Waiting is only looking: whoever stops it (Ctrl-C, `--timeout`, a daemon that restarts) ends no run.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Sequence
from typing import Final

import click

from scheduler.cli.connection import segment
from scheduler.cli.screen import run_cell, warn
from scheduler.cli.selection import Choice, chosen_jobs, for_each, job_choice
from scheduler.cli.session import Session, client_verb
from scheduler.cli.waiting import is_at_rest, way_on
from scheduler.cli.wording import Json, duration, elapsed, escape, moment, outcome, progress
from scheduler.clock import MILLISECOND, SECOND, Micros, SystemClock
from scheduler.errors import AlreadyRunning, ClientTimeout, DaemonUnreachable

_OVERLAPS: Final = ("skip", "queue", "allow", "cancel_running")
_FIRST_LOOK: Final[Micros] = 50 * MILLISECOND
_LOOK_EVERY: Final[Micros] = SECOND
_INTERRUPTED: Final = 130
_BROKEN: Final = frozenset({"failed", "crashed"})
"""States whose reason may stand in the output."""


@click.command("run")
@job_choice
@click.option(
    "--wait",
    is_flag=True,
    help="Follow to the end (at most --timeout), or until held; exit 0 if it succeeded, else 1.",
)
@click.option("--args", "arguments", metavar="JSON", help="Arguments of this run, a JSON object.")
@click.option("--overlap", type=click.Choice(_OVERLAPS), help="While a run is live (default skip: refuse).")
@click.option("--new", is_flag=True, help="Begin anew although a cut run of a batch could go on.")
@client_verb
def run_verb(
    session: Session, choice: Choice, *, wait: bool, arguments: str | None, overlap: str | None, new: bool
) -> int:
    """Start jobs now, also paused ones; a run that is live or queued already is exit code 4."""
    body: Json = {"args": _arguments(arguments), "overlap": overlap, "new": new or None}
    body = {key: value for key, value in body.items() if value is not None}
    started: list[Json] = []

    def start(id: str) -> int:
        started.append(_start(session, id, body))
        if not wait:
            _tell(session, started[-1])
        return 0

    worst = for_each(session, chosen_jobs(session, choice), start)
    return max(worst, _wait_for(session, started)) if wait else worst


def _start(session: Session, id: str, body: Json) -> Json:
    try:
        answer = session.control.post(f"/v1/jobs/{segment(id)}/run", body).body
    except AlreadyRunning as live:
        hint = live.hint or f"`schedctl cancel {live.run_id}` ends that run"
        raise AlreadyRunning(live.message, run_id=live.run_id, hint=hint) from live
    run: Json = answer["run"] if isinstance(answer.get("run"), dict) else answer
    return run


def _wait_for(session: Session, started: Sequence[Json]) -> int:
    """Every run has ended or is held, and was told; 0 if all of them succeeded, else 1."""
    follower = _Follower(session)
    left = list(started)
    worst = 0
    try:
        while left:
            run = follower.follow(str(left[0]["id"]))
            left.pop(0)
            _tell(session, run)
            if advice := way_on(session, run):
                warn(advice)
            elif run.get("state") in _BROKEN and not (session.screen.json_wanted or session.quiet):
                warn(f"`schedctl output {escape(run['id'])}` shows what it wrote")
            worst = max(worst, 0 if run.get("state") == "succeeded" else 1)
    except KeyboardInterrupt:
        names = ", ".join(f"{run.get('job')} (run {run['id']})" for run in left)
        warn(escape(f"stopped waiting; it goes on: {names}; `schedctl cancel RUN` ends it"))
        return _INTERRUPTED
    finally:
        follower.close()
    return worst


class _Follower:
    """Looks at runs until they end or are held, and shows on a terminal how far they are.

    A daemon that is away for less than one call's timeout is taken to restart, and asked again.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._clock = SystemClock()
        self._began_at = self._clock.monotonic()
        self._has_line = False
        self._told: set[tuple[object, object]] = set()
        self._shows = sys.stderr.isatty() and not session.screen.json_wanted

    def follow(self, id: str) -> Json:
        """The run, at rest.

        Raises:
            ClientTimeout: it was not within `--timeout`.
            DaemonUnreachable: the daemon went away and did not come back.
        """
        pause, seen_at = _FIRST_LOOK, self._clock.monotonic()
        run: Json = {"id": id}
        while True:
            try:
                run = self._session.control.get(f"/v1/runs/{segment(id)}").body
                seen_at = self._clock.monotonic()
            except DaemonUnreachable:
                if self._clock.monotonic() - seen_at > self._session.control.timeout:
                    raise
            if is_at_rest(run):
                self.close()
                return run
            self._tell_retry(run)
            self._show(run)
            self._require_time(run)
            threading.Event().wait(pause / SECOND)
            pause = min(pause * 3 // 2, _LOOK_EVERY)

    def close(self) -> None:
        """The line of progress is gone from the terminal."""
        if self._has_line:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._has_line = False

    def _require_time(self, run: Json) -> None:
        limit = self._session.limit
        if limit is not None and self._clock.monotonic() - self._began_at >= limit:
            raise ClientTimeout(
                f"waited {duration(limit)}, and run {run['id']} is still {run.get('state', 'unknown')}",
                hint=f"it goes on; `schedctl show {run['id']}` tells how far it is",
            )

    def _tell_retry(self, run: Json) -> None:
        """A run that waits for its next try says why and until when, once for each try."""
        key = (run["id"], run.get("attempt"))
        is_silent = self._session.screen.json_wanted or self._session.quiet
        if is_silent or run.get("state") != "waiting" or key in self._told or not run.get("ready_at"):
            return
        self._told.add(key)
        self.close()
        tried = [run, *(run.get("attempts") or [])][-1]
        why = outcome(tried)
        next_try = f"the next is due {moment(run['ready_at'])}"
        tries = f"{run.get('job')}: attempt {tried.get('attempt')} did not succeed"
        warn(f"{escape(tries)}{f' ({why})' if why else ''}; {next_try}")

    def _show(self, run: Json) -> None:
        if not self._shows:
            return
        took = elapsed(run)
        said = [str(run.get("job", "")), str(run.get("state", "?")), "" if took is None else duration(took)]
        line = escape("  ".join(part for part in [*said, progress(run)] if part))
        width = os.get_terminal_size(sys.stderr.fileno()).columns
        sys.stderr.write(f"\r\x1b[K{line[: max(width - 1, 20)]}")
        sys.stderr.flush()
        self._has_line = True


def _tell(session: Session, run: Json) -> None:
    if session.screen.json_wanted:
        session.screen.record(run)
        return
    took = elapsed(run)
    said = ["" if took is None else f"after {duration(took)}", outcome(run)]
    text = ", ".join(part for part in said if part)
    state = run_cell(escape(run.get("state", "?")), text if is_at_rest(run) else "")
    session.screen.line(escape(run.get("job", "?")), f"run {escape(run.get('id', '?'))}", state)


def _arguments(text: str | None) -> Json | None:
    if text is None:
        return None
    try:
        value = json.loads(text)
    except ValueError as bad:
        raise click.UsageError(f"--args is no JSON: {bad}") from bad
    if not isinstance(value, dict):
        raise click.UsageError('--args must be a JSON object, for example {"region": "eu"}')
    return value
