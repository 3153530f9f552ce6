"""What every attempt is given by the daemon it runs under, whatever its job."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from scheduler.clock import Clock
from scheduler.executors.accounts import Account, own_account
from scheduler.executors.output import Output
from scheduler.executors.wards import Guard, Unguarded
from scheduler.model.runs import Grant

DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Fixed, not the daemon's own: a job finds the same programs however the daemon was started."""

DEFAULT_OUTPUT_LIMIT: Final = 10 << 20

Mask = Callable[[Iterable[str]], None]
"""Takes values that must not be printed by anyone from now on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The daemon's side of an attempt.

    Attributes:
        clock: measures graces, stamps output.
        output_dir: where output is kept; made private when it is first needed.
        output_limit: bytes kept on disk of one attempt's output, marks included.
        socket_path: of the control API, told to the attempt.
        store_id: of the store that the run is recorded in; marks our processes.
        python_path: further directories that handlers are imported from.
        mask: told the values read from an `env_file` before anything can print them.
        timezone: of jobs whose definition names none.
        account: whose PATH HOME USER LOGNAME an attempt gets, unless its job names another user.
        path: the PATH of an attempt whose job sets none.
        guard: ends processes should the daemon die.
        output: opens the output of an attempt that does not get a file of its own (an item of a batch).
    """

    clock: Clock
    output_dir: Path
    socket_path: str
    store_id: str
    mask: Mask
    output_limit: int = DEFAULT_OUTPUT_LIMIT
    python_path: tuple[str, ...] = ()
    timezone: str = "UTC"
    account: Account = field(default_factory=own_account)
    path: str = DEFAULT_PATH
    guard: Guard = field(default_factory=Unguarded)
    output: Callable[[Grant], Output] | None = None
