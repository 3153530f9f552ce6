"""The client's side of the control API: HTTP over the daemon's Unix socket.

Every call ends: by an answer, an error, or its timeout, which says what was waited for. A call has a
connection of its own (a Unix socket costs microseconds, and a kept one may be closed under a request).
A change bears an `Idempotency-Key` of its own; one whose answer was lost, so that nobody knows whether it was
made, is asked for again under that key, and is made once.
An answer that says no becomes the error of `scheduler.errors` that it names; only this module sees sockets.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import struct
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode

from scheduler.cli.http import Answer, BrokenAnswer, CutAnswer, Deadline, request
from scheduler.cli.problems import error_of
from scheduler.cli.wording import Json
from scheduler.clock import MILLISECOND, SECOND, Micros
from scheduler.errors import ClientTimeout, DaemonUnreachable, Forbidden, SchedulerError

DEFAULT_TIMEOUT: Final[Micros] = 10 * SECOND


_KEY: Final = "Idempotency-Key"
_AGAIN_AFTER: Final[Micros] = 100 * MILLISECOND


class NobodyListens(DaemonUnreachable):
    """No socket has a daemon behind it: nothing was asked of anybody."""


class AnswerLost(DaemonUnreachable):
    """The daemon went away over a request: nobody knows whether it did what was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer that said yes."""

    body: Json
    etag: str | None = None


class Control:
    """Asks the daemon behind the first of `sockets` that answers.

    Args:
        sockets: paths to try, in order.
        timeout: how long one call may take, in microseconds.
    """

    def __init__(self, sockets: Sequence[str], *, timeout: Micros = DEFAULT_TIMEOUT) -> None:
        self._sockets = tuple(sockets)
        self.timeout = timeout

    def get(self, path: str, **query: object) -> Reply:
        """The answer to a read; parameters that are None are left out."""
        return self._call("GET", path, query=query)

    def post(self, path: str, body: Json | None = None) -> Reply:
        """The answer to a verb."""
        return self._change("POST", path, body=body or {})

    def ask(self, path: str, body: Json) -> Reply:
        """The answer to a question that is too long for a query; nothing is changed by it."""
        return self._call("POST", path, body=body)

    def put(self, path: str, body: Json, *, etag: str) -> Reply:
        """The answer to a replacement of the definition that `etag` names."""
        return self._change("PUT", path, body=body, headers={"If-Match": etag})

    def delete(self, path: str) -> Reply:
        """The answer to a removal."""
        return self._change("DELETE", path)

    def paused(self) -> Json | None:
        """The pause of all jobs, or None."""
        return _pause_in(self.get("/v1/status").body)

    def pages(self, path: str, *, limit: int | None = None, **query: object) -> Iterator[Json]:
        """The items of a list over all its pages, at most `limit` of them."""
        left, cursor = limit, None
        while left is None or left > 0:
            page = self.get(path, **query, limit=left and min(left, 500), cursor=cursor).body
            items = page.get("items") or []
            yield from items if left is None else items[:left]
            left = None if left is None else left - len(items)
            cursor = page.get("next_cursor")
            if cursor is None:
                return

    def stream(self, path: str, *, patience: Micros | None = None, **query: object) -> Iterator[bytes]:
        """The bytes of a text answer as they come; the timeout counts from the last sign of life.

        Args:
            patience: how long the next sign of life may take, where that is not the timeout of a call.
        """
        with self._exchange("GET", _target(path, query), patience=patience) as answer:
            yield from answer.pieces(patient=True)

    def close(self) -> None:
        """Nothing is kept between calls."""

    def _change(
        self, method: str, path: str, *, body: Json | None = None, headers: dict[str, str] | None = None
    ) -> Reply:
        """The answer to a change, which is made once, however often it has to be asked for.

        A daemon that goes away over it is taken to restart, and asked again until the time of a call is over.
        """
        keyed = {**(headers or {}), _KEY: os.urandom(16).hex()}
        deadline, lost = Deadline(self.timeout), None
        while True:
            try:
                return self._call(method, path, body=body, headers=keyed, deadline=deadline)
            except AnswerLost as gone:
                lost = gone
            except NobodyListens:
                if lost is None:
                    raise
            if deadline.is_over:
                raise lost
            threading.Event().wait(_AGAIN_AFTER / SECOND)

    def _call(
        self,
        method: str,
        path: str,
        *,
        query: Json | None = None,
        body: Json | None = None,
        headers: dict[str, str] | None = None,
        deadline: Deadline | None = None,
    ) -> Reply:
        with self._exchange(method, _target(path, query or {}), body, headers, deadline=deadline) as answer:
            return Reply(body=_object(answer.read()), etag=answer.headers.get("etag"))

    @contextlib.contextmanager
    def _exchange(
        self,
        method: str,
        target: str,
        body: Json | None = None,
        headers: dict[str, str] | None = None,
        *,
        patience: Micros | None = None,
        deadline: Deadline | None = None,
    ) -> Iterator[Answer]:
        """An answer that said yes; inside, its body may be read before the deadline.

        Raises:
            SchedulerError: the one that the daemon answered with, or what went wrong on the way.
        """
        waits = patience or self.timeout
        deadline = deadline or Deadline(waits)
        connected, place = self._connect(deadline)
        data = None if body is None else json.dumps(body).encode()
        with connected, _translated(f"{method} {target} on {place}", waits):
            answer = Answer(connected, deadline, request(method, target, headers or {}, data))
            if answer.status >= 400:
                raise _refusal(answer)
            yield answer

    def _connect(self, deadline: Deadline) -> tuple[socket.socket, str]:
        """A connection to the first socket where somebody listens, and its path.

        Raises:
            Forbidden: nobody else listens, and one of the sockets may not be opened by this user.
            NobodyListens: as it says.
        """
        tried, forbidden = [], None
        for place in self._sockets:
            try:
                return _open(place, deadline), place
            except BlockingIOError as late:
                raise _late(f"a connection to {place}", self.timeout) from late
            except PermissionError:
                forbidden = forbidden or place
            except OSError as refused:
                tried.append(f"{place} ({_why(refused)})")
        if forbidden is not None:
            raise Forbidden(
                f"you may not open the control socket {forbidden}",
                hint=_who_may_open(forbidden),
            )
        raise NobodyListens(
            f"no daemon answers; tried {', '.join(tried) or 'no socket'}",
            hint="start it (systemctl start schedulerd, or schedulerd --config FILE), "
            "or name its socket with --socket PATH or SCHEDULER_SOCKET",
        )


def segment(name: str) -> str:
    """The name as one segment of a path."""
    return quote(name, safe="")


@contextlib.contextmanager
def _translated(waited_for: str, timeout: Micros) -> Iterator[None]:
    """What goes wrong on the wire is told as an error of ours."""
    try:
        yield
    except TimeoutError as late:
        raise _late(waited_for, timeout) from late
    except (OSError, CutAnswer) as cut:
        raise AnswerLost(
            f"no whole answer came ({cut}); waited for {waited_for}",
            hint="the daemon may have stopped before or after it did what was asked: look, then ask again",
        ) from cut
    except (BrokenAnswer, ValueError) as broken:  # no JSON and no UTF-8 are ValueErrors
        raise DaemonUnreachable(
            f"no answer of a daemon came ({broken}); waited for {waited_for}",
            hint="something else listens there: name the daemon's socket with --socket PATH",
        ) from broken


def _open(place: str, deadline: Deadline) -> socket.socket:
    """A connection to the socket at `place`; the kernel waits for a daemon that is too busy to accept.

    A timeout of Python's would not do: with one, connecting is refused at once (EAGAIN, unix(7)) while the
    daemon's queue of connections is full.
    """
    fresh = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    seconds, fraction = divmod(deadline.left(), 1)
    length = struct.pack("ll", int(seconds), int(fraction * SECOND) + 1)
    fresh.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, length)
    try:
        fresh.connect(place)
    except OSError:
        fresh.close()
        raise
    return fresh


def _pause_in(status: Json) -> Json | None:
    paused = status.get("paused")
    return paused if isinstance(paused, dict) else None


def _late(waited_for: str, timeout: Micros) -> ClientTimeout:
    return ClientTimeout(
        f"no answer within {timeout / SECOND:g} s; waited for {waited_for}",
        hint="a change may yet be made: look with `schedctl status`; --timeout SECONDS waits longer",
    )


def _who_may_open(place: str) -> str:
    """Whom the control socket would let in, by its own mode or by that of a folder that hides it."""
    import grp
    import pwd

    folder = Path(place).parent
    try:
        found = folder.stat() if folder.stat().st_mode & stat.S_IXOTH == 0 else Path(place).stat()
        owner, group = pwd.getpwuid(found.st_uid).pw_name, grp.getgrgid(found.st_gid).gr_name
    except (OSError, KeyError):
        return "become root, or the user that started the daemon"
    if found.st_mode & stat.S_IRWXG == 0:
        return "become root" if owner == "root" else f"become root, or {owner}, who started the daemon"
    return f"become root, or a member of its group ({group}) and log in again"


def _why(refused: OSError) -> str:
    if isinstance(refused, FileNotFoundError):
        return "no such file"
    if isinstance(refused, ConnectionRefusedError):
        return "nobody listens"
    return refused.strerror or str(refused)


def _target(path: str, query: Json) -> str:
    given = {key: value for key, value in query.items() if value is not None}
    return f"{path}?{urlencode(given, doseq=True)}" if given else path


def _refusal(answer: Answer) -> SchedulerError:
    try:
        return error_of(answer.status, _object(answer.read()))
    except (BrokenAnswer, ValueError):
        return error_of(answer.status, {})


def _object(data: bytes) -> Json:
    """The JSON object in the body; an empty body is an empty one, and anything else is no answer of ours."""
    value = json.loads(data) if data else {}
    if not isinstance(value, dict):
        raise BrokenAnswer("it is no JSON object")
    return value
