"""The files by which a daemon, the keeper of a run's unit, and the next daemon speak with each other.

One folder (0700) in the state directory, files of 0600, named after the unit:
- `.order`: what the keeper is to start, secrets included. The keeper takes it away when it begins. Whoever
  removes it decides whether the run starts: a recovery that gets it knows that nothing ever will.
- `.kept`: the keeper's word: its identity, the command's, progress, output, the end. Replaced as a whole.
- `.clock`: the daemon's: how long the work has run, frozen time left out.

Plain blocking calls.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final, TypeVar

from scheduler.clock import Micros
from scheduler.executors.accounts import Identity
from scheduler.executors.processes import ProcessId

T = TypeVar("T")

PREFIX: Final = "schedulerd-run-"
_NAME: Final = re.compile(
    PREFIX + r"([0-9a-zA-Z]+)-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-([0-9]{1,18})"
)
_LARGEST: Final = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitName:
    """Store, run and claim: no other daemon, run or attempt has this name."""

    store_id: str
    run_id: str
    claim: int

    def __str__(self) -> str:
        return f"{PREFIX}{self.store_id}-{self.run_id}-{self.claim}"

    @property
    def service(self) -> str:
        """As systemd knows it."""
        return f"{self}.service"


def unit_named(text: str) -> UnitName | None:
    """The name that stands in the text, with or without `.service`; None where it is none of ours."""
    found = _NAME.fullmatch(text.removesuffix(".service"))
    return None if found is None else UnitName(store_id=found[1], run_id=found[2], claim=int(found[3]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a keeper is to start.

    Attributes:
        cwd: the directory as the job names it; entered with the rights of `identity`.
        identity: the user to become; None: the keeper's own.
        who: the same, in words.
        output_dir: where the output of all runs is.
        output_limit: bytes kept of it.
    """

    program: str
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    cwd: str
    stdin: str | None = None
    identity: Identity | None = None
    who: str
    output_dir: str
    output_limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How the command ended: by a code, a signal, or (both None) in a way that nobody knows."""

    exit_code: int | None = None
    signal: int | None = None
    left_behind: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The keeper's word.

    Attributes:
        keeper: the process that speaks.
        boot_id: of the boot that the processes are of.
        command: the main process, leader of its session, once it is started.
        started_at: monotonic, of that boot.
        output: bytes of output so far.
        done, total, message, cost: the newest word of the work on each.
        stopped: the unit was told to stop by somebody other than the daemon.
        end: how the command ended.
        refused: why it could not be started.
    """

    keeper: ProcessId
    boot_id: str
    command: ProcessId | None = None
    started_at: Micros = 0
    output: int = 0
    done: int | None = None
    total: int | None = None
    message: str | None = None
    cost: float | None = None
    stopped: bool = False
    end: End | None = None
    refused: str | None = None

    @property
    def is_over(self) -> bool:
        """What became of the command is said."""
        return self.end is not None or self.refused is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Worked:
    """How long the work had run at a monotonic moment, and whether it stood still then."""

    worked: Micros
    at: Micros
    frozen: bool


class UnitFolder:
    """The files of all units of one state directory."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def units(self, run_id: str | None = None) -> set[UnitName]:
        """The units that a file is named after, of all runs or of one."""
        try:
            found = {unit_named(entry.partition(".")[0]) for entry in os.listdir(self.place)}  # noqa: PTH208 - names
        except FileNotFoundError:
            return set()
        return {name for name in found if name is not None and run_id in (None, name.run_id)}

    def put_order(self, name: UnitName, order: Order) -> None:
        """The keeper finds its order.

        Raises:
            OSError: it cannot be written.
        """
        self.place.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._put(name, "order", asdict(order))

    def take_order(self, name: UnitName) -> Order | None:
        """The order, which is nobody else's from now on; None: it was withdrawn."""
        path = self._path(name, "order")
        order = _read(path, _order_of)
        try:
            path.unlink()
        except FileNotFoundError:
            return None
        return order

    def withdraw(self, name: UnitName) -> bool:
        """The unit starts nothing any more; False: its keeper has the order already, or never had one."""
        try:
            self._path(name, "order").unlink()
        except FileNotFoundError:
            return False
        return True

    def put_kept(self, name: UnitName, kept: Kept) -> None:
        """The keeper's word stands, the one before it does not."""
        self._put(name, "kept", asdict(kept))

    def kept(self, name: UnitName) -> Kept | None:
        """The keeper's last word; None: it has said nothing, or nothing that can be read."""
        return _read(self._path(name, "kept"), _kept_of)

    def kept_stamp(self, name: UnitName) -> tuple[int, int] | None:
        """Another one for each word of the keeper."""
        try:
            seen = self._path(name, "kept").stat()
        except OSError:
            return None
        return seen.st_ino, seen.st_mtime_ns

    def put_worked(self, name: UnitName, worked: Worked) -> None:
        """The next daemon knows how long the work has run."""
        self._put(name, "clock", asdict(worked))

    def worked(self, name: UnitName) -> Worked | None:
        """What was noted last, if anything was."""
        return _read(self._path(name, "clock"), lambda said: Worked(**_known(Worked, said)))

    def forget(self, name: UnitName) -> None:
        """No file of the unit is left."""
        for suffix in ("order", "clock", "kept"):
            for path in (self._path(name, suffix), self._path(name, f"{suffix}.new")):
                with contextlib.suppress(OSError):
                    path.unlink()

    def _path(self, name: UnitName, suffix: str) -> Path:
        return self.place / f"{name}.{suffix}"

    def _put(self, name: UnitName, suffix: str, said: dict[str, Any]) -> None:
        path = self._path(name, suffix)
        fresh = path.with_name(f"{path.name}.new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        with os.fdopen(os.open(fresh, flags, 0o600), "w", encoding="ascii") as file:
            json.dump(said, file)
        fresh.replace(path)


def _read(path: Path, made: Callable[[dict[str, Any]], T]) -> T | None:
    try:
        with path.open("rb") as file:
            said = json.loads(file.read(_LARGEST))
        return made(said) if isinstance(said, dict) else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _order_of(said: dict[str, Any]) -> Order:
    identity = said["identity"]
    if identity is not None:
        identity = Identity(uid=identity["uid"], gid=identity["gid"], groups=tuple(identity["groups"]))
    return Order(**{**said, "argv": tuple(said["argv"]), "identity": identity})


def _kept_of(said: dict[str, Any]) -> Kept:
    command, end = said.get("command"), said.get("end")
    return Kept(
        **{
            **_known(Kept, said),
            "keeper": ProcessId(*said["keeper"]),
            "command": None if command is None else ProcessId(*command),
            "end": None if end is None else End(**_known(End, end)),
        }
    )


def _known(kind: type, said: dict[str, Any]) -> dict[str, Any]:
    """What this version understands: a keeper may be of another one, for a daemon is upgraded beside it."""
    names = {one.name for one in fields(kind)}
    return {word: value for word, value in said.items() if word in names}
