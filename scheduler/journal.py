"""Lines for systemd's journal in its own protocol, so that they can be searched by job and run.

    journalctl -u schedulerd JOB=nightly EVENT=run_failed

The text of an entry is the line as it would stand on stdout; the ids that it bears are fields beside it. The
list of fields is closed: they are an interface, and a value that a job chose must not become a field that
journald trusts. Promises: one entry, one datagram; no value can add a field. What a line says is left to
`scheduler.logline`, queueing and counting to `scheduler.logwriter`.

Source: systemd's "Native Journal Protocol", systemd.journal-fields(7).
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TextIO

ADDRESS: Final = Path("/run/systemd/journal/socket")

FIELDS: Final = (
    "event",
    "job",
    "run_id",
    "attempt",
    "claim",
    "fire_time",
    "trigger",
    "reason",
    "exit_code",
    "signal",
    "item",
    "owner",
)
"""What of a line becomes a field of the entry, in capitals, where the line has it."""

_PATIENCE: Final = 5
"""Seconds that one entry waits for a journal that is behind."""

_LENGTH: Final = struct.Struct("<Q")
_TIME: Final = struct.Struct("@ll")
"""`struct timeval`."""


def leads_to_journal(stream: TextIO, variable: str) -> bool:
    """Whether the stream is the very one that systemd connected to the journal (systemd.exec(5)).

    Args:
        variable: the content of `JOURNAL_STREAM`.
    """
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return variable == f"{status.st_dev}:{status.st_ino}"


class JournalSink:
    """Hands entries to journald, each as one datagram; waits for it, so it belongs into the writer's thread.

    Each is sent to the address, not over a connection: journald may be restarted, and the next entry finds
    the new one.
    """

    def __init__(self, address: Path) -> None:
        self._address = os.fspath(address)

    @classmethod
    def open(cls, address: Path | None = None) -> JournalSink | None:
        """A way to the journal that listens at `address` (default: `ADDRESS`); None where none can be had."""
        sink = cls(address or ADDRESS)
        try:
            with _datagrams() as probe:
                probe.connect(sink._address)
        except OSError:
            return None
        return sink

    def __call__(self, entries: Sequence[bytes]) -> int:
        """The journal has the entries; how many of them it did not take."""
        try:
            with _datagrams() as sender:
                # The system waits, not Python, which would look for room before each entry.
                sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIME.pack(_PATIENCE, 0))
                return sum(not self._takes(sender, entry) for entry in entries)
        except OSError:  # no socket to be had
            return len(entries)

    def _takes(self, sender: socket.socket, entry: bytes) -> bool:
        try:
            sender.sendto(entry, self._address)
        except OSError:  # nothing of it was kept
            return False
        return True


def journal_entry(fields: Mapping[str, object], line: bytes, *, priority: int, identifier: str) -> bytes:
    """The datagram of one event.

    Args:
        fields: the event's; those in `FIELDS` with a value that is no collection are taken.
        line: the text of the entry; the line end at its end goes.
        priority: as syslog(3) has it, 0 (worst) to 7.
        identifier: what `journalctl -t` finds.
    """
    pairs: list[tuple[str, bytes]] = [
        ("MESSAGE", line.removesuffix(b"\n")),
        ("PRIORITY", b"%d" % priority),
        ("SYSLOG_IDENTIFIER", identifier.encode()),
    ]
    for name in FIELDS:
        value = fields.get(name)
        if isinstance(value, (str, int, float)):
            pairs.append((name.upper(), str(value).encode()))
    return b"".join(_field(name, value) for name, value in pairs)


def _datagrams() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)


def _field(name: str, value: bytes) -> bytes:
    """One field; a value with a line end is told by its length, so that it cannot end early."""
    if b"\n" in value:
        return name.encode() + b"\n" + _LENGTH.pack(len(value)) + value + b"\n"
    return name.encode() + b"=" + value + b"\n"
