"""Processes as /proc shows them: identities that survive the reuse of pids, and who belongs to a run.

A process is named by its pid *and* its start ticks (field 22 of /proc/PID/stat, raw clock ticks since boot):
a pid alone may be another process a moment later. Everything here is a plain blocking read of /proc; callers
on the loop go through `threads.off_loop`. Ending processes is the business of `ending`.

Source: proc(5), setsid(2).
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from scheduler.model.runs import Owner, OwnerId

_LARGEST_ENVIRONMENT: Final = 16 << 20
_MACHINE_ID: Final = Path("/etc/machine-id")
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class ProcessId(NamedTuple):
    """One process, never another one that got its pid later.

    Sorts by age, so that parents come before their children.
    """

    ticks: int
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A living process at the moment of the look."""

    id: ProcessId
    parent: int
    session: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The session that an attempt was started in: its leader, the main process, and the leader's ticks."""

    leader: int
    ticks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Belonging:
    """What makes a process part of a run: its environment, or the session it was started in.

    Attributes:
        store_id: of the store the run is recorded in; another store's runs are none of our business.
        run_id: the run.
        claim: the highest claim meant; a later claim is another attempt, started since.
        session: the recorded session, where it is known and of this boot.
        effect_key: of one item of a batch, whose neighbours are none of our business; None: the whole run.
    """

    store_id: str
    run_id: str
    claim: int
    session: Session | None = None
    effect_key: str | None = None

    def processes(self) -> list[ProcessId]:
        """Who is alive now and belongs to the run, oldest first; never this process or its ancestors."""
        seen = _LOOKS.now()
        everyone = {process.id.pid: process for process, _ in seen}
        spared = _with_ancestors(os.getpid(), everyone)
        session = self._session_to_search(everyone)
        return sorted(
            process.id
            for process, marks in seen
            if process.id.pid not in spared
            and self._has(process, marks, in_session=process.session == session)
        )

    def led_session(self) -> Session | None:
        """The session that the claim's main process leads, while it is alive; for where none is on record."""
        for process, marks in sorted(_LOOKS.now(), key=lambda seen: seen[0].id):
            leads = process.id.pid == process.session
            if leads and marks is not None and marks.claim == self.claim and self._has(process, marks):
                return Session(leader=process.id.pid, ticks=process.id.ticks)
        return None

    def _session_to_search(self, everyone: dict[int, Process]) -> int | None:
        """The session's number, unless it is known to be another session by now."""
        if self.session is None or self.session.leader == os.getsid(0):
            return None
        leader = everyone.get(self.session.leader)
        if leader is not None and leader.id.ticks != self.session.ticks:
            return None  # the pid was used again, so the old session had become empty
        return self.session.leader

    def _has(self, process: Process, marks: _Marks | None, *, in_session: bool = False) -> bool:
        if marks is not None and marks.run_id:
            same_run = marks.store_id == self.store_id and marks.run_id == self.run_id
            if self.effect_key is not None and marks.effect_key != self.effect_key:
                return False
            return same_run and marks.claim is not None and marks.claim <= self.claim
        # No word of a run in it: cleared, overwritten, or not ours to read. Then the session decides.
        return in_session and self.session is not None and process.id.ticks >= self.session.ticks


def process_identity(pid: int) -> int | None:
    """The raw start ticks of a living process; None where there is none (a zombie does not live)."""
    process = _read(pid)
    return None if process is None else process.id.ticks


def start_ticks(pid: int) -> int | None:
    """The raw start ticks of a process that may have ended but was not reaped yet."""
    fields = _stat_fields(pid)
    return None if fields is None else int(fields[19])


def session_members(session: Session) -> list[ProcessId]:
    """The living processes of a session but its leader, which the caller has not reaped yet."""
    return _members(session, _pids())


def session_survivors(session: Session) -> list[ProcessId]:
    """The living processes of a session whose leader, a child of ours, was reaped a moment ago."""
    pids = _pids()
    # While anybody is in the session its number is nobody's pid.
    return [] if session.leader in pids else _members(session, pids)


def is_unused(number: int, probe: int) -> bool:
    """No process, living or not, bears it as the number of itself, its group or its session; False: one may.

    The kernel looks the number up when it is named as the owner of a descriptor, and does not find it once
    the last of those is gone. The group is asked for as well, because not every kernel that behaves like
    Linux knows of sessions there.

    Args:
        probe: a descriptor whose owner means nothing.

    Source: fcntl(2), F_SETOWN; f_setown() in fs/fcntl.c, since Linux 4.14.
    """
    try:
        os.killpg(number, 0)
    except ProcessLookupError:
        pass
    except OSError:
        return False
    else:
        return False
    try:
        fcntl.fcntl(probe, fcntl.F_SETOWN, number)
    except OSError as error:
        return error.errno == errno.ESRCH
    return False


def walk() -> Iterator[Process]:
    """Every living process of the machine that /proc shows us."""
    for pid in _pids():
        process = _read(pid)
        if process is not None:
            yield process


def this_owner(owner_id: OwnerId) -> Owner:
    """This process as the owner of claims: what identifies it on its host, through pid reuse and reboots."""
    return Owner(
        id=owner_id,
        machine_id=_first_line(_MACHINE_ID),
        boot_id=boot_id(),
        pid=os.getpid(),
        start_ticks=process_identity(os.getpid()) or 0,
    )


def boot_id() -> str:
    """What tells this boot of the machine from every other one."""
    return _first_line(_BOOT_ID)


def members_of_unit(service: str) -> list[ProcessId]:
    """The living processes in the control group of a unit, oldest first."""
    return sorted(process.id for process in walk() if service in units_around(process.id.pid))


def units_around(pid: int) -> list[str]:
    """The names on the way to the process's control group, cgroups(7); none where there is no process."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [part for line in lines.splitlines() for part in line.split(":", 2)[-1].split("/")]


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208 - thousands of names


def _members(session: Session, pids: list[int]) -> list[ProcessId]:
    """Who of them lives in the session; the kernel is asked for theirs first, a tenth of a look at /proc."""
    found = [_read(pid) for pid in pids if pid != session.leader and _may_be_in(session, pid)]
    return sorted(
        process.id for process in found if process is not None and process.session == session.leader
    )


def _may_be_in(session: Session, pid: int) -> bool:
    try:
        return os.getsid(pid) == session.leader
    except ProcessLookupError:
        return False
    except OSError:  # a security module does not tell: /proc may
        return True


class _Marks(NamedTuple):
    store_id: str
    run_id: str
    claim: int | None
    effect_key: str


def _marks(pid: int) -> _Marks | None:
    """What the environment that the process was started with says of a run; None where it is not readable."""
    try:
        with Path(f"/proc/{pid}/environ").open("rb") as file:
            block = file.read(_LARGEST_ENVIRONMENT)
    except OSError:
        return None
    found: dict[bytes, str] = {}
    for entry in block.split(b"\0"):
        if entry.startswith(b"SCHEDULER_"):
            name, _, value = entry.partition(b"=")
            found[name] = value.decode(errors="replace")
    claim = found.get(b"SCHEDULER_CLAIM", "")
    return _Marks(
        store_id=found.get(b"SCHEDULER_STORE_ID", ""),
        run_id=found.get(b"SCHEDULER_RUN_ID", ""),
        claim=int(claim) if claim.isascii() and claim.isdecimal() else None,
        effect_key=found.get(b"SCHEDULER_IDEMPOTENCY_KEY", ""),
    )


class Looks:
    """Looks at all processes and their marks, shared by threads that ask at the same time.

    After a crash hundreds of runs are looked for at once, each twice; whoever asks while another look is
    under way gets one that began after he asked, and so do all others that wait with him.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun = self._ended = 0
        self._seen: list[tuple[Process, _Marks | None]] = []

    def now(self) -> list[tuple[Process, _Marks | None]]:
        """Everyone who was alive at some moment after this call."""
        asked = self._begun
        with self._lock:
            if self._ended <= asked:
                self._begun += 1
                self._seen = [(process, _marks(process.id.pid)) for process in walk()]
                self._ended = self._begun
            return self._seen


_LOOKS: Final = Looks()


def _with_ancestors(pid: int, everyone: dict[int, Process]) -> set[int]:
    spared: set[int] = set()
    while pid not in spared:
        spared.add(pid)
        process = everyone.get(pid)
        if process is None:
            break
        pid = process.parent
    return spared


def _read(pid: int) -> Process | None:
    fields = _stat_fields(pid)
    if fields is None:
        return None
    state, threads = fields[0], int(fields[17])
    # A main thread that ended while others go on shows as Z too; only with no other thread it is over.
    if state in "ZXx" and threads <= 1:
        return None
    return Process(
        id=ProcessId(ticks=int(fields[19]), pid=pid),
        parent=int(fields[1]),
        session=int(fields[3]),
    )


def _stat_fields(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the third (state) on; the name before them may hold anything."""
    try:
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        text = os.read(descriptor, 4096)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    fields = text[text.rfind(b")") + 1 :].decode("ascii").split()
    return fields if len(fields) > 19 else None


def _first_line(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
