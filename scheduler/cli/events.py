"""`events`: the transitions that the daemon tells, those of before and, with `-f`, those to come.

A connection that is lost is made again where it was; a daemon that has restarted meanwhile does not know the
place any more, which is said, and it goes on from there.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Final

import click

from scheduler.cli.screen import Cell, warn
from scheduler.cli.selection import complete_job
from scheduler.cli.session import Session, client_verb
from scheduler.cli.wording import Json, escape, moment
from scheduler.clock import SECOND, Micros, SystemClock
from scheduler.errors import DaemonUnreachable, SchedulerError

_INTERRUPTED: Final = 130
_AGAIN_AFTER: Final[Micros] = SECOND
_PATIENCE: Final[Micros] = 20 * SECOND
"""The daemon gives a sign of life every five seconds."""

_COLOURS: Final = {
    "failed": "red",
    "crashed": "red",
    "stuck": "red",
    "paused": "yellow",
    "succeeded": "green",
}
_SHOWN_ELSEWHERE: Final = frozenset({"id", "at", "event", "job"})


@click.command("events")
@click.option("-f", "--follow", is_flag=True, help="Go on with what happens from now.")
@click.option("--job", metavar="JOB", shell_complete=complete_job, help="Only of this job.")
@click.option("--event", "events", metavar="NAME", multiple=True, help="Only these, for example run_failed.")
@click.option(
    "-n", "tail", type=click.IntRange(0, 10_000), default=20, help="So many of before (default 20)."
)
@click.option("--since", metavar="ID", help="What came after the event with this id.")
@client_verb
def events_verb(
    session: Session, job: str | None, events: tuple[str, ...], tail: int, since: str | None, *, follow: bool
) -> int:
    """Show the transitions of jobs and runs that the daemon remembers (its last 10,000)."""
    following = _Following(session, job=job, events=events, tail=tail, since=since, follow=follow)
    try:
        return following.run()
    except KeyboardInterrupt:
        return _INTERRUPTED


class _Following:
    """One reading of the stream, over as many connections as it takes."""

    def __init__(
        self,
        session: Session,
        *,
        job: str | None,
        events: tuple[str, ...],
        tail: int,
        since: str | None,
        follow: bool,
    ) -> None:
        self._session = session
        self._query: Json = {"job": job, "event": list(events) or None, "follow": str(follow).lower()}
        self._tail = tail
        self._place = since
        self._follow = follow
        self._clock = SystemClock()
        self._heard_at = self._clock.monotonic()

    def run(self) -> int:
        """The stream has ended, or the daemon did not come back; the exit code."""
        while True:
            try:
                reason = self._read()
            except DaemonUnreachable:
                away = self._clock.monotonic() - self._heard_at
                if not self._follow or self._place is None or away > self._session.control.timeout:
                    raise
                reason = "stopping"
            if not self._follow:
                return 0
            if reason == "too_slow":
                raise SchedulerError(
                    "this end read too slowly and missed events", hint="list, then follow again"
                )
            threading.Event().wait(_AGAIN_AFTER / SECOND)

    def _read(self) -> str | None:
        """One connection, to its end; the reason that the daemon gave for it."""
        place: Json = {"tail": self._tail} if self._place is None else {"since": self._place}
        pieces = self._session.control.stream("/v1/events", patience=_PATIENCE, **self._query, **place)
        for event, data, id in _blocks(pieces):
            self._heard_at = self._clock.monotonic()
            self._place = id or self._place
            if event == "end":
                return str(data.get("reason"))
            if event == "reset":
                warn(escape(f"some events were missed: {data.get('message')}"))
            elif event is not None:
                self._show(data)
        return None

    def _show(self, data: Json) -> None:
        if self._session.screen.json_wanted:
            self._session.screen.record(data)
            return
        event = str(data.get("event", "?"))
        rest = (f"{name}={value}" for name, value in data.items() if name not in _SHOWN_ELSEWHERE)
        self._session.screen.line(
            moment(data.get("at")),
            Cell(escape(event), _COLOURS.get(event.rpartition("_")[2], "")),
            escape(data.get("job", "")),
            escape(" ".join(part for part in rest if not part.endswith("=None"))),
        )


def _blocks(pieces: Iterator[bytes]) -> Iterator[tuple[str | None, Json, str | None]]:
    """The events of a stream: name, data, id; a sign of life has neither name nor data."""
    held = b""
    for piece in pieces:
        *whole, held = (held + piece).split(b"\n\n")
        for block in whole:
            lines = (line.partition(": ") for line in block.decode().split("\n"))
            fields = {name: value for name, _, value in lines if name}
            yield fields.get("event"), json.loads(fields.get("data", "{}")), fields.get("id")
