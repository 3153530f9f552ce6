"""Ending processes for good: ask, wake, wait, kill, and look again until nothing is left twice.

INVARIANT: a signal reaches only the process that was looked at. The pidfd is opened first and the start
ticks are read after it: if they still agree, the descriptor is that very process, whatever its pid is
used for later.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from typing import Final

from scheduler.clock import MILLISECOND, SECOND, Clock, Micros
from scheduler.executors.processes import ProcessId, process_identity
from scheduler.executors.threads import NoThread, off_loop

KILL_WAIT: Final[Micros] = 2 * SECOND
"""How long a killed process may take to be gone; one that takes longer hangs in the kernel."""

_SHORTEST_PAUSE: Final[Micros] = 5 * MILLISECOND
_LONGEST_PAUSE: Final[Micros] = 100 * MILLISECOND
_LONGEST_LOOK: Final = 5.0
"""Seconds: reading the environment of a process that hangs in the kernel may hang too."""

Find = Callable[[], Sequence[ProcessId]]
"""Who is alive now and has to end; blocking, oldest first."""


async def end_processes(find: Find, *, clock: Clock, grace: Micros) -> bool:
    """Two looks in a row found nobody: True. False: somebody outlived `grace`, SIGKILL and two seconds more.

    Each process gets SIGTERM once (a second one means "hurry" to many programs) and SIGCONT, so that a
    stopped one can obey; from `grace` on SIGKILL, again and again, because what forks must be caught too.

    Args:
        find: looks for the processes; called in a thread.
        clock: measures the grace, on its monotonic side.
        grace: microseconds between SIGTERM and SIGKILL.

    Cancellation:
        Nothing more is signalled.
    """
    kill_at = clock.monotonic() + max(0, grace)
    asked: set[ProcessId] = set()
    pause = _SHORTEST_PAUSE
    empty_looks = 0
    while True:
        killing = clock.monotonic() >= kill_at
        left = await _look(find, asked, killing=killing)
        empty_looks = 0 if left else empty_looks + 1
        if empty_looks == 2:
            return True
        if left and clock.monotonic() >= kill_at + KILL_WAIT:
            return False
        if left:
            pause = min(pause * 2, _LONGEST_PAUSE)
            await clock.sleep(pause if killing else min(pause, max(0, kill_at - clock.monotonic())))


def send_signal(process: ProcessId, number: signal.Signals) -> None:
    """The process got the signal, if it still is that process and we may signal it."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    except OSError:  # an old kernel, a sandbox, no descriptor left: the check alone, right before the signal
        if process_identity(process.pid) == process.ticks:
            with contextlib.suppress(OSError):
                os.kill(process.pid, number)
        return
    try:
        if process_identity(process.pid) == process.ticks:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(descriptor, number)
    finally:
        os.close(descriptor)


async def _look(find: Find, asked: set[ProcessId], *, killing: bool) -> bool:
    """Somebody was found, or the look itself failed, so that nothing is known to be gone."""
    look = off_loop(lambda: _look_and_signal(find, asked, killing=killing))
    try:
        return await asyncio.wait_for(look, _LONGEST_LOOK) > 0
    except (NoThread, TimeoutError):
        return True


def _look_and_signal(find: Find, asked: set[ProcessId], *, killing: bool) -> int:
    """How many were found; each was signalled as its turn is, parents first, so that none respawns."""
    found = find()
    for process in found:
        if killing:
            send_signal(process, signal.SIGKILL)
        elif process not in asked:
            asked.add(process)
            send_signal(process, signal.SIGTERM)
            send_signal(process, signal.SIGCONT)
    return len(found)
