"""As much of HTTP/1.1 as a client of the control API needs: one exchange on one connected socket.

The standard library's client would do, but importing it (ssl, email) takes a fifth of the time in which
`schedctl list` answers. Here all reads of an exchange share one deadline, so an answer in drops cannot
stretch it, and sizes are bounded.

Source: RFC 9112 (messages, chunked coding), RFC 9110 (statuses without a body).
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Mapping
from typing import Final

from scheduler.clock import SECOND, Micros, SystemClock

_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: |$)")
_SIZE: Final = re.compile(rb"[0-9a-fA-F]{1,8}")
_PIECE: Final = 64 * 1024
_LONGEST_LINE: Final = 16 * 1024
_MOST_HEADERS: Final = 200


class BrokenAnswer(Exception):
    """What came is no answer, or ended before its end; it never leaves this package's connection."""


class CutAnswer(BrokenAnswer):
    """The other side went away: whether it did what was asked is not known."""


class Deadline:
    """A moment on the monotonic clock by which an exchange must have ended."""

    def __init__(self, length: Micros) -> None:
        self._clock = SystemClock()
        self._length = length
        self._ends_at = self._clock.monotonic() + length

    def renew(self) -> None:
        """The whole length is left again: the other side gave a sign of life."""
        self._ends_at = self._clock.monotonic() + self._length

    @property
    def is_over(self) -> bool:
        """The moment has passed."""
        return self._clock.monotonic() >= self._ends_at

    def left(self) -> float:
        """Seconds left, never so few that a socket would turn non-blocking."""
        return max((self._ends_at - self._clock.monotonic()) / SECOND, 0.001)


class Answer:
    """The answer to one request; its head has been read when it is built.

    Args:
        connected: the socket; closing it is the caller's business.
        deadline: for sending and for every read.

    Raises:
        BrokenAnswer: what came is not HTTP.
        CutAnswer: it ended early.
        TimeoutError: the deadline passed.
    """

    def __init__(self, connected: socket.socket, deadline: Deadline, request: bytes) -> None:
        self._socket = connected
        self._deadline = deadline
        self._buffer = b""
        self._send(request)
        self.status = self._read_status()
        self.headers = self._read_headers()
        while self.status < 200:  # an interim answer: the one that counts follows
            self.status = self._read_status()
            self.headers = self._read_headers()

    def read(self) -> bytes:
        """The whole body."""
        return b"".join(self.pieces())

    def pieces(self, *, patient: bool = False) -> Iterator[bytes]:
        """The body as it comes; `patient`: each piece renews the deadline, for a body of any length."""
        for piece in self._body():
            yield piece
            if patient:
                self._deadline.renew()

    def _body(self) -> Iterator[bytes]:
        if self.status in (204, 304):
            return iter(())
        if "chunked" in self.headers.get("transfer-encoding", "").lower():
            return self._chunks()
        length = self.headers.get("content-length")
        if length is None:
            return self._rest()
        if not (length.isascii() and length.isdecimal()):
            raise BrokenAnswer(f"its length is {length!r}")
        return self._exactly(int(length))

    def _chunks(self) -> Iterator[bytes]:
        while True:
            size = _SIZE.match(self._line())
            if size is None:
                raise BrokenAnswer("a chunk has no size")
            if int(size[0], 16) == 0:
                self._read_headers()
                return
            yield from self._exactly(int(size[0], 16))
            if self._line():
                raise BrokenAnswer("a chunk is longer than its size")

    def _exactly(self, length: int) -> Iterator[bytes]:
        while length:
            if not self._buffer and not self._receive():
                raise CutAnswer("it ended early")
            piece, self._buffer = self._buffer[:length], self._buffer[length:]
            length -= len(piece)
            yield piece

    def _rest(self) -> Iterator[bytes]:
        while self._buffer or self._receive():
            piece, self._buffer = self._buffer, b""
            yield piece

    def _read_status(self) -> int:
        line = self._line()
        found = _STATUS.match(line)
        if found is None:
            raise BrokenAnswer(f"it begins with {line[:40]!r}" if line else "it is empty")
        return int(found[1])

    def _read_headers(self) -> Mapping[str, str]:
        """The header lines up to the empty one, names in lower case."""
        found: dict[str, str] = {}
        for _ in range(_MOST_HEADERS):
            line = self._line()
            if not line:
                return found
            name, _, value = line.decode("latin-1").partition(":")
            found[name.lower()] = value.strip()
        raise BrokenAnswer("its head has no end")

    def _line(self) -> bytes:
        """The next line without its end."""
        while b"\n" not in self._buffer:
            if len(self._buffer) > _LONGEST_LINE:
                raise BrokenAnswer("a line has no end")
            if not self._receive():
                raise CutAnswer("it ended early")
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.removesuffix(b"\r")

    def _receive(self) -> bool:
        """More has come; False at the end of the stream."""
        self._socket.settimeout(self._deadline.left())
        piece = self._socket.recv(_PIECE)
        self._buffer += piece
        return bool(piece)

    def _send(self, request: bytes) -> None:
        """The request is on its way, as much of it as the other side takes.

        A server may answer before it has read a large body, and close: the answer is what counts.
        """
        self._socket.settimeout(self._deadline.left())
        try:
            self._socket.sendall(request)
        except (BrokenPipeError, ConnectionResetError):
            if not self._receive():
                raise CutAnswer("the request was not taken") from None


def request(method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
    """The bytes of a request that asks for one answer on a connection of its own."""
    lines = [f"{method} {target} HTTP/1.1", "Host: localhost", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")
