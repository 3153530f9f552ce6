"""Records of a run's output as they come, also over a restart of the daemon: the position is kept.

Following is only looking: whoever stops it ends no run. A daemon that goes away is waited for, and asked for
what lies behind the last record that came whole, so nothing is shown twice and nothing is left out.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Final

from scheduler.cli.connection import Control, segment
from scheduler.cli.offline import FallbackControl
from scheduler.cli.screen import warn
from scheduler.cli.session import Session
from scheduler.cli.wording import Json, duration, escape
from scheduler.clock import MILLISECOND, SECOND, Micros, SystemClock
from scheduler.errors import ClientTimeout, DaemonUnreachable

_ENDED: Final = frozenset(
    {"succeeded", "partial", "failed", "cancelled", "crashed", "interrupted", "skipped"}
)
_PATIENCE: Final[Micros] = 30 * SECOND
"""The daemon gives a sign of life every five seconds while a run is silent."""

_AWAY_FOR: Final[Micros] = 60 * SECOND
_FIRST_WAIT: Final[Micros] = 100 * MILLISECOND
_LONGEST_WAIT: Final[Micros] = 2 * SECOND


class OutputRecords:
    """The records of one run's output, oldest first.

    Args:
        stream: only this one.
        tail: only the last so many lines of what is there already.
        follow: until the run has ended; else what is there now.
    """

    def __init__(
        self, session: Session, run: str, *, stream: str | None, tail: int | None, follow: bool
    ) -> None:
        self._session = session
        self._run = run
        self._query: Json = {"stream": stream, "tail": tail, "format": "jsonl"}
        self._after: str | None = None
        self._clock = SystemClock()
        self._began_at = self._clock.monotonic()
        control = session.control
        offline = isinstance(control, FallbackControl) and control.is_offline
        self._follows = follow and not offline
        self._control: Control = (
            control.daemon_alone() if isinstance(control, FallbackControl) and not offline else control
        )

    def __iter__(self) -> Iterator[Json]:
        """Each record once.

        Raises:
            DaemonUnreachable: the daemon went away and did not come back.
            ClientTimeout: the run did not end within `--timeout`.
        """
        if not self._follows:
            yield from self._ask(follow=False)
            return
        away = _Absence(self._clock)
        while True:
            try:
                for record in self._ask(follow=True):
                    away.ended()
                    yield record
                ended = self._has_ended()
                away.ended()
            except (DaemonUnreachable, ClientTimeout) as gone:
                self._require_time()
                away.goes_on(gone)
                continue
            if ended:
                yield from self._ask(follow=False)  # what came between the end of the stream and that look
                return
            self._require_time()
            away.wait()

    def _ask(self, *, follow: bool) -> Iterator[Json]:
        """The records behind the last one; where it follows, until the daemon ends the answer."""
        query = {**self._query, "after": self._after, "follow": "true" if follow else None}
        if self._after is not None:
            query["tail"] = None
        rest = b""
        path = f"/v1/runs/{segment(self._run)}/output"
        for piece in self._control.stream(path, patience=max(_PATIENCE, self._control.timeout), **query):
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                if follow:
                    self._require_time()
                if line:
                    record: Json = json.loads(line)
                    yield record
                    self._after = record.get("after")

    def _has_ended(self) -> bool:
        return self._control.get(f"/v1/runs/{segment(self._run)}").body.get("state") in _ENDED

    def _require_time(self) -> None:
        limit = self._session.limit
        if limit is not None and self._clock.monotonic() - self._began_at >= limit:
            raise _Overdue(
                f"followed for {duration(limit)}, and run {self._run} has not ended",
                hint=f"it goes on; `schedctl output {self._run} -f` follows it again",
            )


class _Overdue(ClientTimeout):
    """`--timeout` is over."""


class _Absence:
    """How long the daemon has been away."""

    def __init__(self, clock: SystemClock) -> None:
        self._clock = clock
        self._since: Micros | None = None
        self._next = _FIRST_WAIT

    def ended(self) -> None:
        """It is there."""
        self._since, self._next = None, _FIRST_WAIT

    def goes_on(self, gone: DaemonUnreachable | ClientTimeout) -> None:
        """A moment has passed; it is time to ask again.

        Raises:
            DaemonUnreachable, ClientTimeout: it was away too long.
        """
        if isinstance(gone, _Overdue):
            raise gone
        now = self._clock.monotonic()
        if self._since is None:
            self._since = now
            warn("the daemon went away; waiting for it to come back, the position is kept")
        if now - self._since >= _AWAY_FOR:
            raise DaemonUnreachable(
                escape(f"the daemon has been away for {duration(now - self._since)}: {gone.message}"),
                hint=gone.hint,
            ) from gone
        self.wait()

    def wait(self) -> None:
        """A moment has passed, the longer the more often nothing came."""
        threading.Event().wait(self._next / SECOND)
        self._next = min(self._next * 2, _LONGEST_WAIT)
