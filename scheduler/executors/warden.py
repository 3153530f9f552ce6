"""The warden: a small process that ends what the daemon runs, when the daemon itself cannot any more.

A SIGKILL, a crash of the interpreter or an out-of-memory kill leaves commands without their daemon; under
systemd the control group is ended with it, elsewhere nothing is. The warden is told of every session that an
attempt starts and hears by a closed pipe that the daemon is gone. This side promises: telling never blocks
and never raises; a warden that died, or that does not listen, is replaced and told everything again; without
one, work goes on, and the next start ends what is left (`orphans`). The other side is `warden_watch`.

A second process, chosen over PR_SET_PDEATHSIG: that signal reaches the main process alone and follows the
thread that started it, and setuid programs shake it off.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Final

from scheduler.clock import MINUTE, SECOND, Clock, Micros
from scheduler.executors import warden_watch
from scheduler.executors.spawn import exited, reap
from scheduler.executors.threads import NoThread, off_loop
from scheduler.executors.wards import Ward

_FIRST_PAUSE: Final[Micros] = SECOND // 10
_LONGEST_PAUSE: Final[Micros] = MINUTE
_LAST_WORD: Final = 2.0
"""Seconds that the warden gets to end by itself, and by SIGKILL, when the daemon stops in order."""

_START_WAIT: Final = 5.0
"""Seconds that its interpreter gets to start."""

_LOG: Final = logging.getLogger("scheduler.warden")


class Warden:
    """The daemon's end of the pipe. Fulfils `wards.Guard`.

    Args:
        store_id: of the store that the runs are recorded in.
        clock: paces new starts of a warden that does not stay alive.
    """

    def __init__(self, store_id: str, clock: Clock) -> None:
        self._store_id = store_id
        self._clock = clock
        self._wards: set[Ward] = set()
        self._untold: list[bytes] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: int | None = None
        self._keeping: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The process that watches now; None where none does."""
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """A warden watches, and will be replaced if it dies; if none can be started now, that is told."""
        await self._begin()
        self._keeping = asyncio.create_task(self._keep(), name="warden")

    async def stop(self) -> None:
        """The warden has ended what was not forgotten, and is gone; safe to call twice and before `start`."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)  # a turn: now all is told
            self._keeping = None
        self._close_pipe()
        if self._process is None:
            return
        try:
            await asyncio.wait_for(exited(self._process.pid), _LAST_WORD)
        except TimeoutError:
            self._process.kill()
            await exited(self._process.pid)
        self._buried()

    def watch(self, ward: Ward) -> None:
        self._wards.add(ward)
        self._tell_soon(ward.told("+"))

    def forget(self, ward: Ward) -> None:
        if ward in self._wards:
            self._wards.discard(ward)
            self._tell_soon(ward.told("-"))

    async def _keep(self) -> None:
        """Whenever the warden is gone, there is a new one, which knows what the old one knew."""
        pause = _FIRST_PAUSE
        while True:
            if self._process is not None:
                began = self._clock.monotonic()
                await exited(self._process.pid)
                self._buried()
                pause = _FIRST_PAUSE if self._clock.monotonic() - began > _LONGEST_PAUSE else pause
                _LOG.warning("the warden has ended; a new one takes its place")
            await self._clock.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            await self._begin()

    async def _begin(self) -> None:
        known = frozenset(self._wards)
        try:
            started = await off_loop(lambda: self._spawn(known), discard=_dismiss)
        except (OSError, NoThread) as error:
            _LOG.warning("no warden can be started, so a crash would leave commands running: %s", error)
            return
        self._process, self._pipe = started
        self._untold.clear()
        changes = [ward.told("+") for ward in self._wards - known]
        changes += [ward.told("-") for ward in known - self._wards]
        self._tell(b"".join(changes))

    def _spawn(self, known: frozenset[Ward]) -> tuple[subprocess.Popen[bytes], int]:
        """A warden whose pipe held all that is known before it began to run, and our end of that pipe."""
        reading, writing = os.pipe()
        try:
            os.set_blocking(writing, False)
            with contextlib.suppress(OSError):  # more than is granted: then a smaller one has to do
                fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 1 << 20)
            _fill(writing, b"".join(ward.told("+") for ward in known))
            script = Path(warden_watch.__file__)
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(script), str(os.getpid()), self._store_id],
                stdin=reading,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={},
                cwd="/",
                start_new_session=True,
            )
        except BaseException:
            os.close(writing)
            raise
        finally:
            os.close(reading)
        _wait_until_ready(process)
        return process, writing

    def _tell_soon(self, line: bytes) -> None:
        """The warden hears of it before the loop turns again: all that a turn brings wakes it once."""
        if not self._untold:
            asyncio.get_running_loop().call_soon(self._tell_all)
        self._untold.append(line)

    def _tell_all(self) -> None:
        lines = b"".join(self._untold)
        self._untold.clear()
        self._tell(lines)

    def _tell(self, lines: bytes) -> None:
        """The warden has the lines; one that is gone or does not take them is replaced, and told again."""
        if self._pipe is None or self._process is None or not lines:
            return
        try:
            if os.write(self._pipe, lines) == len(lines):
                return
        except OSError:  # gone, or its pipe is full
            pass
        # The pipe stays open until it is dead: one that comes to itself must not take that for our end.
        self._process.kill()

    def _close_pipe(self) -> None:
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None

    def _buried(self) -> None:
        if self._process is not None:
            reap(self._process)
        self._process = None
        self._close_pipe()


def _fill(pipe: int, lines: bytes) -> None:
    if lines and os.write(pipe, lines) != len(lines):
        raise BlockingIOError("its pipe does not hold what it has to know")


def _wait_until_ready(process: subprocess.Popen[bytes]) -> None:
    """The warden ignores signals by now; one that did not get there is killed, and so replaced."""
    if process.stdout is None:
        return
    with process.stdout as ready:
        if not select.select([ready], [], [], _START_WAIT)[0] or not ready.read(1):
            process.kill()


def _dismiss(started: tuple[subprocess.Popen[bytes], int]) -> None:
    """A warden that nobody waits for any more hears at once that it is not needed."""
    process, pipe = started
    os.close(pipe)
    process.returncode = 0  # a child of an ending daemon: whoever inherits it reaps it
