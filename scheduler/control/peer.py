"""Who asks, and what he may: identities from the kernel, roles from the identity.

The ids of a peer are those of the moment at which it connected (SO_PEERCRED, unix(7)); nothing that it sends
can change them. Root and the daemon's own user are *admin*; whoever else can open the socket may *observe*.
A peer inside a run is at most *observe*, whoever its user is, so that a job does not lift its own pause. Code
on the daemon's own loop is not kept out: it shares the daemon's memory, so no socket could.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from scheduler.errors import Forbidden
from scheduler.executors.threads import off_loop
from scheduler.store.values import Peer
from scheduler.telemetry import Event, get_logger

_UCRED: Final = struct.Struct("3i")
_COMMAND_LIMIT: Final = 200
_ENVIRONMENT_LIMIT: Final = 1 << 20
_MAX_ANCESTORS: Final = 128


class Role(StrEnum):
    """What a peer may do."""

    OBSERVE = "observe"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """A connected process as the kernel names it."""

    pid: int
    uid: int
    gid: int


def credentials_of(connection: socket.socket) -> Credentials:
    """Who is at the other end, as of when it connected."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    pid, uid, gid = _UCRED.unpack(raw)
    return Credentials(pid=pid, uid=uid, gid=gid)


class Gatekeeper:
    """Lets mutations through, or says why not.

    Args:
        store_id: of our store: a peer inside a run of another daemon is an ordinary one.
        own_uid: the user of the daemon.
        daemon_pid: whoever descends from this process is inside a run, also with an emptied environment;
            None: only environments count.
    """

    def __init__(self, *, store_id: str, own_uid: int, daemon_pid: int | None) -> None:
        self._store_id = store_id
        self._own_uid = own_uid
        self._daemon_pid = daemon_pid
        self._log = get_logger()

    def role_of(self, uid: int) -> Role:
        """What a user may do who is not inside a run."""
        return Role.ADMIN if uid in (0, self._own_uid) else Role.OBSERVE

    async def admit(self, peer: Credentials | None, what: str) -> Peer:
        """The peer may do `what` (method and path), and this is how the audit names it.

        Raises:
            Forbidden: it may not; that was logged.
        """
        if peer is None:
            raise self._denied(None, what, "nobody knows who asks", "ask through the daemon's Unix socket")
        asked, inside = await off_loop(lambda: (_described(peer), self._run_around(peer.pid)))
        if self.role_of(peer.uid) is not Role.ADMIN:
            raise self._denied(
                asked,
                what,
                f"user {peer.uid} may look, but not change anything",
                f"do it as root or as the user that schedulerd runs as (uid {self._own_uid})",
            )
        if inside is not None:
            raise self._denied(
                asked,
                what,
                f"this comes from {inside}, and a job may look, but not change anything",
                "do it from outside of any run; a job speaks through its exit code, output and progress",
            )
        return asked

    def _denied(self, peer: Peer | None, what: str, reason: str, hint: str) -> Forbidden:
        ids = (
            {}
            if peer is None
            else {"uid": peer.uid, "gid": peer.gid, "pid": peer.pid, "command": peer.command}
        )
        self._log.warning(Event.REQUEST_DENIED, request=what, reason=reason, **ids)
        return Forbidden(f"{what}: {reason}", hint=hint)

    def _run_around(self, pid: int) -> str | None:
        """The run that the process is part of, in words, or None.

        A peer that is gone already cannot be placed: a job could connect and hand the socket on. One without
        a pid lives where this process sees none, so it is no descendant of ours.
        """
        if pid > 0 and _parent(pid) is None:
            return "a process that is gone, perhaps out of a run"
        for ancestor in _with_ancestors(pid):
            if ancestor == self._daemon_pid:
                return None if ancestor == pid else "inside a run"
            marks = _environment(ancestor)
            if marks.get(b"SCHEDULER_STORE_ID") == self._store_id.encode() and b"SCHEDULER_RUN_ID" in marks:
                return f"inside run {_printable(marks[b'SCHEDULER_RUN_ID'])}"
        return None


def _described(peer: Credentials) -> Peer:
    """The peer with its command line: a hint for people, since a process can write there what it likes."""
    try:
        with Path(f"/proc/{peer.pid}/cmdline").open("rb") as file:
            words = file.read(4 * _COMMAND_LIMIT)
    except OSError:
        words = b""
    command = _printable(words.rstrip(b"\0").replace(b"\0", b" "))
    return Peer(uid=peer.uid, gid=peer.gid, pid=peer.pid, command=command)


def _printable(raw: bytes) -> str:
    """One bounded line that neither a terminal nor a log acts upon."""
    text = raw.decode("utf-8", "backslashreplace")
    safe = "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)
    return safe if len(safe) <= _COMMAND_LIMIT else safe[: _COMMAND_LIMIT - 1] + "…"


def _with_ancestors(pid: int) -> Iterator[int]:
    current: int | None = pid
    for _ in range(_MAX_ANCESTORS):
        if not current:
            return
        yield current
        current = _parent(current)


def _parent(pid: int) -> int | None:
    """The parent's pid (field 4 of /proc/PID/stat, proc(5)); None where there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    return int(stat.rpartition(b")")[2].split()[1])


def _environment(pid: int) -> dict[bytes, bytes]:
    """What the process was started with; nothing where that is not ours to read."""
    try:
        with Path(f"/proc/{pid}/environ").open("rb") as file:
            block = file.read(_ENVIRONMENT_LIMIT)
    except OSError:
        return {}
    pairs = (entry.partition(b"=") for entry in block.split(b"\0"))
    return {name: value for name, _, value in pairs}


def own_gatekeeper(store_id: str) -> Gatekeeper:
    """The gatekeeper of this process."""
    return Gatekeeper(store_id=store_id, own_uid=os.geteuid(), daemon_pid=os.getpid())
