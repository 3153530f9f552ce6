"""The machine looked at for `doctor`: files and their modes, disk, clock, processes, the systemd unit.

What this user may not see is None or empty, never a guess. Nothing is changed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
import subprocess
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scheduler.cli.findings import DiskFacts, LingeringProcess, PathFacts

_PROC: Final = Path("/proc")
_STORE_NAME: Final = "schedulerd.db"
_TIMEX_SIZE: Final = 256
_TIME_ERROR: Final = 5
_UNIT_TIMEOUT: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonProcess:
    """The daemon as the kernel shows it.

    Attributes:
        state: directory of the store that it has open, or None where this user may not look.
        config: what its `--config` names, or None.
        unit: the systemd service that it belongs to, or None.
    """

    pid: int
    uid: int | None
    state: Path | None
    config: Path | None
    unit: str | None


def daemon_process(pid: int) -> DaemonProcess:
    """The process with that pid."""
    place = _PROC / str(pid)
    uid = None
    with contextlib.suppress(OSError):
        uid = place.stat().st_uid
    return DaemonProcess(
        pid=pid, uid=uid, state=_open_store(place), config=_config_of(place), unit=_unit_of(place)
    )


def path_facts(paths: Sequence[tuple[str, Path]]) -> Iterator[PathFacts]:
    """Mode and owner of those paths that are there; each comes with the word for what it is."""
    for kind, path in paths:
        try:
            found = path.lstat()
        except OSError:
            continue
        if not stat.S_ISLNK(found.st_mode):
            yield PathFacts(path=str(path), kind=kind, mode=stat.S_IMODE(found.st_mode), uid=found.st_uid)


def disk_facts(state: Path) -> DiskFacts | None:
    """The file system of the state directory, or None where it cannot be seen."""
    try:
        found = os.statvfs(state)
    except OSError:
        return None
    log = 0
    with contextlib.suppress(OSError):
        log = (state / f"{_STORE_NAME}-wal").stat().st_size
    return DiskFacts(
        path=str(state),
        free=found.f_bavail * found.f_frsize,
        total=found.f_blocks * found.f_frsize,
        inodes_free=found.f_favail,
        inodes=found.f_files,
        log=log,
    )


def clock_is_synchronised() -> bool | None:
    """Whether the kernel's clock follows a time server (adjtimex(2)); None where it does not say."""
    try:
        adjtimex = ctypes.CDLL(None, use_errno=True).adjtimex
    except (OSError, AttributeError):
        return None
    state = adjtimex(ctypes.create_string_buffer(_TIMEX_SIZE))  # modes = 0: only reads
    return None if state < 0 else state != _TIME_ERROR


def lingering(store_id: str, unfinished: Container[str]) -> Iterator[LingeringProcess]:
    """Processes that bear this store's id and a run that has ended, as far as this user may see."""
    spared = _ancestors(os.getpid())
    for entry in _PROC.iterdir():
        if not entry.name.isdecimal() or int(entry.name) in spared:
            continue
        found = _environment(entry)
        run = found.get("SCHEDULER_RUN_ID", "")
        if found.get("SCHEDULER_STORE_ID") == store_id and run and run not in unfinished:
            command = _command(entry)
            if command:  # a zombie has none, and is its parent's business
                yield LingeringProcess(pid=int(entry.name), command=command, run=run)


def has_systemd() -> bool:
    """This machine was booted with systemd (sd_booted(3))."""
    return Path("/run/systemd/system").is_dir()


def unit_is_enabled(unit: str) -> bool | None:
    """Whether the unit starts at boot, by itself or by its socket; None where systemd does not say."""
    told = []
    for name in (unit, unit.replace(".service", ".socket")):
        try:
            done = subprocess.run(  # noqa: S603  fixed words and a unit's name
                ["systemctl", "is-enabled", name],  # noqa: S607  wherever systemd is installed
                capture_output=True,
                text=True,
                timeout=_UNIT_TIMEOUT,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        told.append(done.stdout.strip())
    return bool({"enabled", "enabled-runtime", "static", "generated", "linked"} & set(told))


def _open_store(place: Path) -> Path | None:
    """The directory of the store that the process has open."""
    with contextlib.suppress(OSError):
        for entry in (place / "fd").iterdir():
            with contextlib.suppress(OSError):
                target = entry.readlink()
                if target.name == _STORE_NAME:
                    return target.parent
    return None


def _config_of(place: Path) -> Path | None:
    words = _words(place / "cmdline")
    for index, word in enumerate(words):
        if word == "--config" and index + 1 < len(words):
            return _within(place, words[index + 1])
        if word.startswith("--config="):
            return _within(place, word.partition("=")[2])
    return None


def _within(place: Path, named: str) -> Path | None:
    """The path as the process means it."""
    try:
        return (place / "cwd").readlink() / named
    except OSError:
        return Path(named) if named.startswith("/") else None


def _unit_of(place: Path) -> str | None:
    """The service in whose cgroup the process is."""
    try:
        lines = (place / "cgroup").read_text().splitlines()
    except OSError:
        return None
    parts = [part for line in lines for part in line.split("/") if part.endswith(".service")]
    return next((part for part in reversed(parts) if part.startswith("schedulerd")), None)


def _ancestors(pid: int) -> set[int]:
    """The process and all those above it: schedctl may be called from within a run."""
    found: set[int] = set()
    while pid > 0 and pid not in found:
        found.add(pid)
        try:
            pid = int((_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            break
    return found


def _environment(place: Path) -> dict[str, str]:
    pairs = (word.partition("=") for word in _words(place / "environ"))
    return {name: value for name, _, value in pairs}


def _command(place: Path) -> str:
    return " ".join(_words(place / "cmdline"))[:80]


def _words(path: Path) -> list[str]:
    """The words of a file that separates them by NUL; none where it may not be read."""
    try:
        data = path.read_bytes()
    except OSError:
        return []
    return data.decode(errors="replace").rstrip("\0").split("\0") if data else []
