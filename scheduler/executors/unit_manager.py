"""The service manager as the keeper of units: which one there is, and what is asked of it.

Asked through `systemd-run` and `systemctl`, chosen over a D-Bus library: they come with the manager, speak
its version's language, and a start of an isolated run is rare enough for a process of 10 ms. Nothing secret
is told to it: what it knows of a unit every user of the machine may read.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from scheduler.clock import SECOND, Micros, seconds
from scheduler.errors import SchedulerError
from scheduler.executors.surroundings import DEFAULT_PATH
from scheduler.executors.threads import off_loop
from scheduler.executors.unit_files import UnitName, unit_named

START_WAIT: Final[Micros] = 60 * SECOND
"""How long the manager may take to start a unit."""

_ANSWER_WAIT: Final[Micros] = 20 * SECOND
_SYSTEM: Final = Path("/run/systemd/system")
_WANTED: Final = (
    "Id",
    "LoadState",
    "ActiveState",
    "ExecMainCode",
    "ExecMainStatus",
    "Result",
    "StatusText",
    "ExecStart",
)

ENDED: Final = "the command has ended"
"""The keeper's last status: from then on the exit status of its process is the command's."""


class ManagerFailed(SchedulerError):
    """The service manager did not do what it was asked, or did not answer."""


class Scope(StrEnum):
    """Whose service manager: the machine's, or a user's own."""

    SYSTEM = "system"
    USER = "user"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A unit as its manager knows it.

    Attributes:
        is_active: it is starting, running, has ended well and is kept, or is being stopped.
        code: `exited`, `killed`, `dumped`, or "" while its main process lives.
        status: exit code or number of the signal.
        result: the manager's word for it (`success`, `exit-code`, `signal`, `oom-kill`, `timeout`).
        said_end: the keeper has said that the exit status is the command's.
        order: what it was started with, as the manager prints it.
    """

    name: UnitName
    is_active: bool
    code: str = ""
    status: int = 0
    result: str = ""
    said_end: bool = False
    order: str = ""


def manager_scope(
    uid: int, environ: Mapping[str, str], exists: Callable[[Path], bool] = Path.exists
) -> Scope | str:
    """The manager that this process may start units with, or why there is none and what to do."""
    if uid == 0:
        if exists(_SYSTEM):
            return Scope.SYSTEM
        return 'needs systemd, and this machine was not started by it: write "none"'
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    if runtime and exists(Path(runtime) / "systemd" / "private"):
        return Scope.USER
    return (
        "only a daemon that runs as root, or under a user's own service manager, can start units, and this"
        f' one runs as user {uid} without such a manager: write "none", or run it with `systemctl --user`'
        " or with other-users.conf (docs/systemd.md)"
    )


def own_scope() -> Scope | str:
    """As `manager_scope`, for this process as it is."""
    return manager_scope(os.geteuid(), os.environ)


class UnitManager:
    """The units of one service manager.

    Args:
        run: carries a command out and gives its exit code, output and complaint; blocking.
    """

    def __init__(
        self, scope: Scope, run: Callable[[Sequence[str], Micros], tuple[int, str, str]] | None = None
    ) -> None:
        self._scope = scope
        self._run = run or carry_out

    async def start(
        self,
        name: UnitName,
        argv: Sequence[str],
        *,
        description: str,
        stop_timeout: Micros,
        before: str | None = None,
    ) -> None:
        """The unit's main process has said that it is ready.

        Args:
            stop_timeout: what the unit gets when it is told to stop, by whomever.
            before: the unit of this daemon, where it has one.

        Raises:
            ManagerFailed: it has not, or it is not known whether it will.
        """
        properties = [
            "Type=notify",
            "NotifyAccess=main",
            "RemainAfterExit=yes",
            f"TimeoutStartSec={seconds(START_WAIT):g}",
            f"TimeoutStopSec={seconds(stop_timeout):g}",
            "OOMPolicy=continue",
            "LimitCORE=0",
        ]
        if before is not None:
            # At a shutdown of the machine the daemon stops first: it must not see runs end, and retry them.
            properties.append(f"Before={before}")
        await self._ask(
            "systemd-run",
            f"--unit={name.service}",
            f"--description={description}",
            *(f"--property={line}" for line in properties),
            "--",
            *(word.replace("$", "$$") for word in argv),  # the manager would put variables there
            within=START_WAIT + _ANSWER_WAIT,
        )

    async def units(self, store_id: str, run_id: str = "*") -> list[Shown]:
        """The units of that store, or of one run, which the manager still knows.

        Raises:
            ManagerFailed: it does not say.
        """
        pattern = f"schedulerd-run-{store_id}-{run_id}-*.service"
        said = await self._ask("systemctl", "show", f"--property={','.join(_WANTED)}", "--", pattern)
        return [shown for block in said.split("\n\n") if (shown := shown_in(block)) is not None]

    async def collect(self, name: UnitName) -> None:
        """The manager forgets the unit, and ends what is left in it; returns before that is done.

        Raises:
            ManagerFailed: the manager cannot be asked.
        """
        for verb in (("stop", "--no-block"), ("reset-failed",)):
            await self._ask("systemctl", *verb, "--", name.service, lenient=True)

    async def _ask(
        self, program: str, *words: str, within: Micros = _ANSWER_WAIT, lenient: bool = False
    ) -> str:
        argv = [program, f"--{self._scope}", "--no-ask-password", *words]
        code, said, complaint = await off_loop(lambda: self._run(argv, within))
        if code != 0 and not lenient:
            why = complaint.strip().splitlines() or [f"{program} ended with exit code {code}"]
            raise ManagerFailed(" ".join(why[0].split())[:500])
        return said


def shown_in(block: str) -> Shown | None:
    """The unit in a block of KEY=VALUE lines; None where it is none of ours, or not loaded."""
    said = dict(line.partition("=")[::2] for line in block.splitlines())
    name = unit_named(said.get("Id", ""))
    if name is None or said.get("LoadState") != "loaded":
        return None
    status = said.get("ExecMainStatus", "")
    return Shown(
        name=name,
        is_active=said.get("ActiveState") not in ("inactive", "failed"),
        code={"1": "exited", "2": "killed", "3": "dumped"}.get(said.get("ExecMainCode", ""), ""),
        status=int(status) if status.isdecimal() else 0,
        result=said.get("Result", ""),
        said_end=said.get("StatusText", "").startswith(ENDED),
        order=said.get("ExecStart", ""),
    )


def carry_out(argv: Sequence[str], within: Micros) -> tuple[int, str, str]:
    """Exit code, output and complaint of a command that got our way to the manager, and nothing else.

    Raises:
        ManagerFailed: it is not there, or has not ended in time.
    """
    kept = ("XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS")
    environ = {name: os.environ[name] for name in kept if name in os.environ}
    environ |= {"PATH": DEFAULT_PATH, "LC_ALL": "C", "SYSTEMD_PAGER": "", "SYSTEMD_COLORS": "0"}
    program = shutil.which(argv[0], path=DEFAULT_PATH)
    if program is None:
        raise ManagerFailed(f"{argv[0]} is not installed; it comes with systemd")
    try:
        done = subprocess.run(
            [program, *argv[1:]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            env=environ,
            cwd="/",
            timeout=seconds(within),
        )
    except subprocess.TimeoutExpired as error:
        raise ManagerFailed(f"systemd has not answered {argv[0]} within {seconds(within):g} s") from error
    except OSError as error:
        raise ManagerFailed(f"{argv[0]} cannot be started: {error.strerror}") from error
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
