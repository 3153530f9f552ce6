"""Who asks, and what he may: identities from the kernel, roles from the identity.

The ids of a peer are those of the moment at which it connected (SO_PEERCRED, SO_PEERGROUPS, unix(7)); nothing
that it sends can change them. Root and the daemon's own user are *admin*; others have what `scheduler.toml`
gives them or one of their groups, and may else *observe*. A peer inside a run is at most *observe*, whoever
its user is, so that a job does not lift its own pause, unless the job says `control = true`: then it has the
role of its user. Code on the daemon's own loop is not kept out: it shares the daemon's memory.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeAlias

from scheduler.config.roles import Members, Roles
from scheduler.errors import Forbidden
from scheduler.executors.processes import units_around
from scheduler.executors.threads import off_loop
from scheduler.executors.unit_files import unit_named
from scheduler.store.values import Peer
from scheduler.systemd import control_groups
from scheduler.telemetry import Event, Logger, get_logger

_UCRED: Final = struct.Struct("3i")
_SO_PEERGROUPS: Final = 59  # socket(7); Python has no name for it
_COMMAND_LIMIT: Final = 200
_ENVIRONMENT_LIMIT: Final = 1 << 20
_MAX_ANCESTORS: Final = 128


class Role(StrEnum):
    """What a peer may do; each may what the ones before it may."""

    OBSERVE = "observe"
    OPERATE = "operate"
    """Pause, resume, run, cancel, retry, skip, settle."""
    ADMIN = "admin"
    """Create, change and remove jobs; reload."""

    def covers(self, other: Role) -> bool:
        """Whoever has this one may do what the other may."""
        order = list(Role)
        return order.index(self) >= order.index(other)


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """A connected process as the kernel names it."""

    pid: int
    uid: int
    gid: int
    groups: frozenset[int] = field(default=frozenset(), compare=False)


def credentials_of(connection: socket.socket) -> Credentials:
    """Who is at the other end, as of when it connected."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    pid, uid, gid = _UCRED.unpack(raw)
    return Credentials(pid=pid, uid=uid, gid=gid, groups=_groups_of(connection))


def _groups_of(connection: socket.socket) -> frozenset[int]:
    """The peer's supplementary groups; none where the kernel does not tell them (before Linux 4.13).

    Python takes 1,024 bytes of a socket option: a peer of more than 256 groups counts by its own group alone.
    """
    try:
        raw = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, 1_024)
    except OSError:
        return frozenset()
    return frozenset(gid for (gid,) in struct.iter_unpack("I", raw))


Controllers: TypeAlias = Callable[[], Awaitable[Mapping[int, int]]]


class Gatekeeper:
    """Lets mutations through, or says why not.

    Args:
        store_id: of our store: a peer inside a run of another daemon is an ordinary one.
        own_uid: the user of the daemon.
        daemon_pid: whoever descends from this process is inside a run, also with an emptied environment;
            None: only environments count.
        service: the control group of the service that the daemon is: whoever else is in it is inside a run,
            also a process that left its parents and emptied its environment; None: it is no service.
        roles: who may what beyond root and the daemon's own user.
        controllers: main processes of live runs whose jobs say `control = true`: pid -> start ticks.
        log: where refusals are told.
    """

    def __init__(
        self,
        *,
        store_id: str,
        own_uid: int,
        daemon_pid: int | None,
        service: str | None = None,
        roles: Roles | None = None,
        controllers: Controllers | None = None,
        log: Logger | None = None,
    ) -> None:
        self._store_id = store_id
        self._own_uid = own_uid
        self._daemon_pid = daemon_pid
        self._service = service
        self._roles = roles or Roles()
        self._controllers = controllers
        self._log = log or get_logger()

    def role_of(self, uid: int, groups: Collection[int] = ()) -> Role | None:
        """What a user may do who is not inside a run; None: nothing."""
        roles, gids = self._roles, frozenset(groups)
        if uid in (0, self._own_uid) or _is_among(uid, gids, roles.admin):
            return Role.ADMIN
        if _is_among(uid, gids, roles.operate):
            return Role.OPERATE
        if roles.observe is None or _is_among(uid, gids, roles.observe):
            return Role.OBSERVE
        return None

    def may_look(self, peer: Credentials | None) -> bool:
        """Whether the peer has any role."""
        return self._roles.observe is None or (peer is not None and self._role_of(peer) is not None)

    def let_look(self, peer: Credentials | None, what: str) -> None:
        """The peer may look.

        Raises:
            Forbidden: it may not; that was logged.
        """
        if self.may_look(peer):
            return
        asked = None if peer is None else Peer(uid=peer.uid, gid=peer.gid, pid=peer.pid)
        reason = f"this needs the role {Role.OBSERVE}"
        raise self._denied(asked, what, reason, self._way_to(Role.OBSERVE))

    async def admit(self, peer: Credentials | None, what: str, needs: Role = Role.OPERATE) -> Peer:
        """The peer may do `what` (method and path), and this is how the audit names it.

        Raises:
            Forbidden: it may not; that was logged.
        """
        if peer is None:
            raise self._denied(None, what, "nobody knows who asks", "ask through the daemon's Unix socket")
        asked, inside = await off_loop(lambda: (_described(peer), self._run_around(peer.pid)))
        role = self._role_of(peer)
        if role is None or not role.covers(needs):
            operator = role is Role.OPERATE
            may = "operate jobs, but not define them" if operator else "look, but not change anything"
            reason = f"this needs the role {needs}, and user {peer.uid} may {may}"
            raise self._denied(asked, what, reason, self._way_to(needs))
        if inside is not None and not await self._has_control(peer.pid):
            raise self._denied(
                asked,
                what,
                f"this comes from {inside}, and a job may look, but not change anything",
                "do it from outside of any run, or give the job control = true;"
                " a job speaks through its exit code, output and progress",
            )
        return asked

    def _role_of(self, peer: Credentials) -> Role | None:
        return self.role_of(peer.uid, {peer.gid, *peer.groups})

    def _way_to(self, role: Role) -> str:
        """How somebody gets the role."""
        return (
            f"do it as root or as the user that schedulerd runs as (uid {self._own_uid}),"
            f" or be named in [roles.{role}] of scheduler.toml, with a group of yours or yourself"
        )

    async def _has_control(self, pid: int) -> bool:
        """The process belongs to a live run whose job says `control = true`.

        Its environment is not believed, for it can write there what it likes: one of its ancestors, or the
        leader of its session, has to be the very process that the daemon started for the run.
        """
        if self._controllers is None:
            return False
        known = await self._controllers()
        return bool(known) and await off_loop(lambda: _descends_from(pid, known))

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
        if self._service is not None and pid != self._daemon_pid and _is_within(pid, self._service):
            return "inside the service of the daemon"
        for ancestor in _with_ancestors(pid):
            if ancestor == self._daemon_pid:
                return None if ancestor == pid else "inside a run"
            if any(
                (unit := unit_named(name)) and unit.store_id == self._store_id
                for name in units_around(ancestor)
            ):
                return "inside the unit of a run"
            marks = _environment(ancestor)
            if marks.get(b"SCHEDULER_STORE_ID") == self._store_id.encode() and b"SCHEDULER_RUN_ID" in marks:
                return f"inside run {_printable(marks[b'SCHEDULER_RUN_ID'])}"
        return None


def _is_within(pid: int, service: str) -> bool:
    return any(f"{group}/".startswith(f"{service}/") for group in control_groups(pid))


def _is_among(uid: int, gids: frozenset[int], members: Members) -> bool:
    return uid in members.uids or not gids.isdisjoint(members.gids)


def _descends_from(pid: int, known: Mapping[int, int]) -> bool:
    """Among the process, its ancestors and its session's leader is one of these (pid -> start ticks)."""
    try:
        line = [*_with_ancestors(pid), os.getsid(pid)]
    except OSError:  # it is gone
        return False
    return any(one in known and _start_ticks(one) == known[one] for one in line)


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


def _start_ticks(pid: int) -> int | None:
    """When the process started (field 22 of /proc/PID/stat, proc(5)); a pid alone may be another's by now."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    return int(stat.rpartition(b")")[2].split()[19])


def _environment(pid: int) -> dict[bytes, bytes]:
    """What the process was started with; nothing where that is not ours to read."""
    try:
        with Path(f"/proc/{pid}/environ").open("rb") as file:
            block = file.read(_ENVIRONMENT_LIMIT)
    except OSError:
        return {}
    pairs = (entry.partition(b"=") for entry in block.split(b"\0"))
    return {name: value for name, _, value in pairs}
