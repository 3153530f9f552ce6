"""How much of the daemon one client may take."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.clock import MINUTE, SECOND, Micros


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of the control server; durations in microseconds.

    Attributes:
        body: bytes of a request's body.
        head: bytes of a request line with its headers.
        connections: open at once; the one that has been idle longest makes room for a new one.
        idle_timeout: a connection between two requests.
        head_timeout: from the first byte of a request to the end of its headers, and from connecting to the
            first byte.
        body_timeout: from the end of the headers to the end of the body.
        write_timeout: a client that takes nothing of the answer that waits for it; a pager may be behind it.
    """

    body: int = 1 << 20
    head: int = 64 << 10
    connections: int = 256
    idle_timeout: Micros = 30 * SECOND
    head_timeout: Micros = 10 * SECOND
    body_timeout: Micros = 30 * SECOND
    write_timeout: Micros = 2 * MINUTE
