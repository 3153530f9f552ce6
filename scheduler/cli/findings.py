"""What a look at daemon, store and machine means: findings, each with its remedy. Pure: it judges facts.

A *fault* is something that is wrong now or will be; a *note* is worth knowing and alone fails nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from scheduler.cli.problems import faults_of
from scheduler.cli.wording import Json, duration, instant, moment
from scheduler.clock import DAY, SECOND, Micros

_LONG_PAUSE: Final[Micros] = 7 * DAY
_LITTLE_ROOM: Final = 200 << 20
_LITTLE_SHARE: Final = 0.05
_FEW_INODES: Final = 0.02
_LARGE_LOG: Final = 256 << 20
_OTHERS_WRITE: Final = 0o002
_OTHERS_READ: Final = 0o077


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was found.

    Attributes:
        check: which check found it, a word.
        remedy: what to do about it, one sentence.
        is_note: it is only worth knowing.
    """

    check: str
    message: str
    remedy: str
    is_note: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PathFacts:
    """A file or directory as it lies there; the mode is that of stat(2) without the type."""

    path: str
    kind: str
    mode: int
    uid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskFacts:
    """The file system of the state directory: bytes and inodes, and the size of the store's log."""

    path: str
    free: int
    total: int
    inodes_free: int
    inodes: int
    log: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LingeringProcess:
    """A process of one of our runs that has ended."""

    pid: int
    command: str
    run: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything that was looked at; None or empty where it could not be.

    Attributes:
        daemon_uid: whose process the daemon is, or the owner of the state directory.
        is_synchronised: the kernel says that the clock follows a time server.
        wall_seen: the latest wall time that the store remembers.
        store_faults: what SQLite's own check finds.
        store_refusal: why the store could not be read at all, and the remedy.
        unit: name of the systemd unit that the daemon runs under; `unit_enabled`: it starts at boot.
    """

    now: Micros
    version: str
    status: Json | None = None
    unreachable: str = ""
    jobs: Sequence[Json] = ()
    config_faults: Sequence[str] = ()
    paths: Sequence[PathFacts] = ()
    daemon_uid: int | None = None
    is_synchronised: bool | None = None
    wall_seen: Micros | None = None
    store_faults: Sequence[str] = ()
    store_refusal: tuple[str, str] | None = None
    disk: DiskFacts | None = None
    lingering: Sequence[LingeringProcess] = field(default_factory=tuple)
    has_systemd: bool = False
    unit: str | None = None
    unit_enabled: bool | None = None


def judge(facts: Facts) -> Iterator[Finding]:
    """All findings, faults and notes, in the order in which they would have to be remedied."""
    yield from _daemon(facts)
    yield from _paths(facts)
    yield from _store(facts)
    yield from _clock(facts)
    yield from _files(facts)
    yield from _jobs(facts)
    yield from _processes(facts)
    yield from _unit(facts)


def _daemon(facts: Facts) -> Iterator[Finding]:
    if facts.status is None:
        yield Finding(
            check="daemon",
            message=facts.unreachable,
            remedy="start it: systemctl start schedulerd, or schedulerd --config FILE",
        )
        return
    status, health = facts.status, facts.status.get("health") or {}
    if not health.get("store_ok", True) or status.get("counts") is None:
        yield Finding(
            check="store",
            message="the daemon cannot read or write its store",
            remedy="look at disk space and at the daemon's log (store_unavailable says why)",
        )
    elif not health.get("ok", True):
        yield Finding(
            check="daemon",
            message=f"the daemon does not do its work: last tick {_ago(health.get('last_tick_age'))}",
            remedy="look for loop_blocked in its log: a handler that blocks the loop wants process = true",
        )
    if status.get("draining"):
        yield Finding(
            check="daemon",
            message="the daemon is stopping and starts nothing new",
            remedy="wait for its end, then start it again",
            is_note=True,
        )
    if status.get("version") != facts.version:
        yield Finding(
            check="version",
            message=f"the daemon is version {status.get('version')}, this schedctl is {facts.version}",
            remedy="restart the daemon after an upgrade, or call the schedctl that belongs to it",
        )


def _paths(facts: Facts) -> Iterator[Finding]:
    for path in facts.paths:
        if path.mode & _OTHERS_WRITE:
            yield Finding(
                check="permissions",
                message=f"everybody may write the {path.kind} {path.path} (mode {path.mode:04o})",
                remedy=f"chmod o-w {path.path}",
            )
        elif path.kind in ("state directory", "store") and path.mode & _OTHERS_READ:
            private = "0700" if path.kind == "state directory" else "0600"
            yield Finding(
                check="permissions",
                message=f"others may read the {path.kind} {path.path} (mode {path.mode:04o})",
                remedy=f"chmod {private} {path.path}",
            )
        if facts.daemon_uid is not None and path.uid not in (facts.daemon_uid, 0):
            yield Finding(
                check="permissions",
                message=f"the {path.kind} {path.path} belongs to uid {path.uid}, not to the daemon or root",
                remedy=f"chown {facts.daemon_uid} {path.path}",
            )


def _store(facts: Facts) -> Iterator[Finding]:
    if facts.store_refusal is not None:
        message, remedy = facts.store_refusal
        yield Finding(check="store", message=message, remedy=remedy)
    for fault in facts.store_faults:
        yield Finding(
            check="store",
            message=f"the store is not whole: {fault}",
            remedy="stop the daemon, and put a backup in its place: `schedctl restore FILE`",
        )
    disk = facts.disk
    if disk is None:
        return
    if disk.free < _LITTLE_ROOM or disk.free < disk.total * _LITTLE_SHARE:
        yield Finding(
            check="disk",
            message=f"{disk.free >> 20} MiB of {disk.total >> 20} MiB are free at {disk.path}",
            remedy="free space, or keep less: retention and output_limit in scheduler.toml",
        )
    if disk.inodes and disk.inodes_free < disk.inodes * _FEW_INODES:
        yield Finding(
            check="disk",
            message=f"{disk.inodes_free} of {disk.inodes} inodes are free at {disk.path}",
            remedy="remove small files there, or keep fewer runs: retention in scheduler.toml",
        )
    if disk.log > _LARGE_LOG:
        yield Finding(
            check="store",
            message=f"the store's log has {disk.log >> 20} MiB: a reader keeps it from being taken over",
            remedy="end whoever has schedulerd.db open beside the daemon (a long backup, a shell)",
        )


def _clock(facts: Facts) -> Iterator[Finding]:
    if facts.wall_seen is not None and facts.wall_seen > facts.now + SECOND:
        behind = duration(facts.wall_seen - facts.now)
        yield Finding(
            check="clock",
            message=f"the clock is {behind} behind what the daemon has seen already",
            remedy="set the clock (timedatectl set-ntp true); the daemon re-arms its jobs by itself",
        )
    if facts.is_synchronised is False:
        yield Finding(
            check="clock",
            message="the kernel says that the clock follows no time server",
            remedy="run one: timedatectl set-ntp true, or chrony",
            is_note=True,
        )


def _files(facts: Facts) -> Iterator[Finding]:
    told = [str(fault) for fault in faults_of((facts.status or {}).get("faults"))]
    for fault in dict.fromkeys((*told, *facts.config_faults)):
        yield Finding(
            check="files", message=fault, remedy="repair it, see `schedctl check`, then `schedctl reload`"
        )


def _jobs(facts: Facts) -> Iterator[Finding]:
    paused = (facts.status or {}).get("paused")
    if isinstance(paused, dict) and _is_forgotten(paused, facts.now):
        yield Finding(
            check="pauses",
            message=f"all jobs are paused since {moment(paused.get('since'))} by {paused.get('by')}",
            remedy="schedctl resume --all",
        )
    for job in facts.jobs:
        id, problem, pause = job.get("id"), job.get("problem"), job.get("pause")
        if isinstance(problem, dict):
            yield Finding(
                check="jobs",
                message=f"job {id} is broken: {problem.get('message')}",
                remedy="repair its handler or its definition, then `schedctl reload`",
            )
        if isinstance(pause, dict) and _is_forgotten(pause, facts.now):
            note = f": {pause['note']}" if pause.get("note") else ""
            yield Finding(
                check="pauses",
                message=f"job {id} is paused since {moment(pause.get('since'))} by {pause.get('by')}{note}",
                remedy=f"schedctl resume {id}, or pause it --until a time",
            )
        if job.get("status") == "failed":
            yield Finding(
                check="jobs",
                message=f"job {id} failed too often in a row and does not fire any more",
                remedy=f"see `schedctl runs {id}`, then schedctl resume {id}",
            )


def _processes(facts: Facts) -> Iterator[Finding]:
    for process in facts.lingering:
        yield Finding(
            check="processes",
            message=f"process {process.pid} ({process.command}) is left over from run {process.run}",
            remedy=f"kill {process.pid}, unless the job meant to leave it in the background",
        )


def _unit(facts: Facts) -> Iterator[Finding]:
    if not facts.has_systemd or facts.status is None:
        return
    if facts.unit is None:
        yield Finding(
            check="unit",
            message="the daemon runs under no systemd unit: nothing restarts it",
            remedy="systemctl enable --now schedulerd (make install puts the unit there)",
            is_note=True,
        )
    elif facts.unit_enabled is False:
        yield Finding(
            check="unit",
            message=f"the unit {facts.unit} is not enabled: the daemon does not come back after a boot",
            remedy=f"systemctl enable {facts.unit}",
        )


def _is_forgotten(pause: Json, now: Micros) -> bool:
    """An operator's pause without an end that is older than a week."""
    since = instant(pause.get("since"))
    return since is not None and pause.get("until") is None and now - since > _LONG_PAUSE


def _ago(age: object) -> str:
    return f"{age:.0f} s ago" if isinstance(age, int | float) else "never"
