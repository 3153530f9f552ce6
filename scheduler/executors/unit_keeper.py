"""The process that keeps one isolated run: `python -P -m scheduler.executors.unit_keeper FOLDER UNIT`.

It is the main process of the run's unit. It takes its order, starts the command as the daemon would have
done it (own session, the job's user, nothing inherited), and does what the daemon did for it, whether there
is a daemon or not: it writes the output, bounded as ever, and notes the newest word of progress. When the
command ends it notes the end and ends in the same way, by code or by signal, so that systemd keeps the exit
status even where the disk does not.

SIGTERM means that the unit is stopped from outside: systemd sends it to the command as well, so it is noted
and nothing more. The daemon never signals this process, unless it hangs.

Chosen over the command as the unit's main process with output in a plain file: nobody would bound that file
or mark its streams while the daemon is down, and a fifo for progress would be full then, and block the job.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from scheduler.clock import MILLISECOND, SECOND, Clock, Micros, SystemClock
from scheduler.engine.ports import ProgressReport
from scheduler.errors import SpawnFailed
from scheduler.executors.accounts import enter
from scheduler.executors.capture import OutputWriter
from scheduler.executors.output import Stream
from scheduler.executors.processes import ProcessId, boot_id, process_identity, session_members
from scheduler.executors.progress import ProgressReader
from scheduler.executors.pump import PIPE_WAIT, SLICE
from scheduler.executors.spawn import Launch, Spawned, Spawner, reap
from scheduler.executors.unit_files import End, Kept, Order, UnitFolder, UnitName, unit_named
from scheduler.executors.unit_manager import ENDED

NOTE_PERIOD: Final[Micros] = 200 * MILLISECOND
"""Output and progress are noted so often at most."""

_LOOK_MS: Final = 500
_COUNTS: Final = 3
_COUNT_PAUSE: Final = 0.02


def main() -> None:
    """The command has run, and this process ends as it did."""
    name = unit_named(sys.argv[2])
    folder = UnitFolder(Path(sys.argv[1]))
    order = None if name is None else folder.take_order(name)
    if name is None or order is None:
        sys.exit("there is no order for this unit: it was withdrawn, or another keeper has it")
    _end_like(Keeper(folder, name, SystemClock()).run(order))


class Keeper:
    """Keeps one command, from its start to its end."""

    def __init__(self, folder: UnitFolder, name: UnitName, clock: Clock) -> None:
        self._folder = folder
        self._name = name
        self._clock = clock
        self._kept = Kept(
            keeper=ProcessId(ticks=process_identity(os.getpid()) or 0, pid=os.getpid()), boot_id=boot_id()
        )
        self._is_noted = False
        self._noted_at = 0
        self._woken, self._wake = socket.socketpair()
        for end in (self._woken, self._wake):
            end.setblocking(False)

    def run(self, order: Order) -> int | None:
        """The command has run: its exit code, negative for a signal, None where nobody knows.

        Where it could not be started that is noted, if the disk takes it, and the answer is 1.
        """
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._stopped)
        self._note()
        if not self._is_noted:
            return 1  # nobody could follow what it starts
        try:
            spawned = _spawned(order)
        except SpawnFailed as error:
            self._kept = replace(self._kept, refused=error.message)
            self._note()
            return 1
        self._kept = replace(
            self._kept,
            command=ProcessId(ticks=spawned.session.ticks, pid=spawned.pid),
            started_at=self._clock.monotonic(),
        )
        self._note()
        _tell("READY=1", f"STATUS=running as process {spawned.pid}")
        return self._keep(spawned, order)

    def _keep(self, spawned: Spawned, order: Order) -> int | None:
        output = OutputWriter(
            Path(order.output_dir),
            self._name.run_id,
            self._name.claim,
            limit=order.output_limit,
            clock=self._clock,
        )
        self._empty_pipes(spawned, output)
        # Counted before the main process is reaped: until then its pid, and so the session's id, is ours.
        left_behind = _count_left(spawned)
        output.close()
        code = reap(spawned.child)
        self._kept = replace(self._kept, end=_end_of(code, left_behind))
        self._note()
        _tell(f"STATUS={ENDED}")
        return code

    def _empty_pipes(self, spawned: Spawned, output: OutputWriter) -> None:
        """The main process has ended, and its pipes are empty, or were open for too long after it."""

        def keep(stream: Stream) -> Callable[[bytes], None]:
            def sink(data: bytes) -> None:
                output.write(stream, data)
                self._say(output=self._kept.output + len(data))

            return sink

        sinks = {
            spawned.stdout: keep(Stream.STDOUT),
            spawned.stderr: keep(Stream.STDERR),
            spawned.progress: ProgressReader(self._progressed).feed,
        }
        poll = select.poll()
        for descriptor in (*sinks, self._woken.fileno(), _pidfd(spawned.pid)):
            if descriptor is not None:
                poll.register(descriptor, select.POLLIN)
        until: Micros | None = None
        while until is None or (sinks and self._clock.monotonic() < until):
            for descriptor, _ in poll.poll(self._patience_ms()):
                if descriptor == self._woken.fileno():
                    self._woken.recv(64)
                elif not _move(descriptor, sinks.get(descriptor)):
                    poll.unregister(descriptor)
                    os.close(descriptor)
                    sinks.pop(descriptor, None)
            self._note_if_due()
            if until is None and _has_ended(spawned.pid):
                until = self._clock.monotonic() + round(PIPE_WAIT * SECOND)

    def _patience_ms(self) -> int:
        return _LOOK_MS if self._is_noted else NOTE_PERIOD // MILLISECOND

    def _progressed(self, report: ProgressReport) -> None:
        told = report.progress
        said = {"done": told.done, "total": told.total, "message": told.message, "cost": report.cost}
        self._say(**{word: value for word, value in said.items() if value is not None})

    def _say(self, **words: object) -> None:
        """The next note says so."""
        self._kept = replace(self._kept, **words)  # type: ignore[arg-type] # fields of it, named by callers here
        self._is_noted = False

    def _stopped(self, number: int, _frame: object) -> None:
        if number == signal.SIGTERM:
            self._say(stopped=True)

    def _note_if_due(self) -> None:
        if not self._is_noted and self._clock.monotonic() >= self._noted_at + NOTE_PERIOD:
            self._note()

    def _note(self) -> None:
        """The word stands in the file; a disk that does not take it now gets the next one."""
        self._noted_at = self._clock.monotonic()
        self._is_noted = True
        try:
            self._folder.put_kept(self._name, self._kept)
        except OSError:
            self._is_noted = False


def _spawned(order: Order) -> Spawned:
    spawner = Spawner()
    with contextlib.ExitStack() as stack:
        cwd = enter(order.cwd, order.identity, order.who, stack)
        return spawner.spawn(
            Launch(
                program=order.program,
                argv=order.argv,
                environment={**order.environment, "SCHEDULER_PROGRESS_FD": str(spawner.progress_fd)},
                cwd=cwd,
                stdin=order.stdin,
                identity=order.identity,
            )
        )


def _end_of(code: int | None, left_behind: int) -> End:
    if code is not None and code < 0:
        return End(signal=-code, left_behind=left_behind)
    return End(exit_code=code, left_behind=left_behind)


def _move(descriptor: int, sink: Callable[[bytes], None] | None) -> bool:
    """One slice was taken; False at the end of the pipe, and where it is the main process that has ended."""
    if sink is None:
        return False
    try:
        data = os.read(descriptor, SLICE)
    except OSError:
        return False
    if data:
        sink(data)
    return bool(data)


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except OSError:  # an old kernel: the looks every half second will do
        return None


def _has_ended(pid: int) -> bool:
    """The child has ended and waits to be reaped, or was reaped by somebody else."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def _count_left(spawned: Spawned) -> int:
    """Who of the session outlives its leader; a process closes its pipes a moment before it is gone."""
    left = 0
    for _ in range(_COUNTS):
        left = len(session_members(spawned.session))
        if not left:
            break
        select.select((), (), (), _COUNT_PAUSE)
    return left


def _tell(*assignments: str) -> None:
    """The manager has heard it, sd_notify(3); without one nothing happens."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto("\n".join(assignments).encode(), address.replace("@", "\0", 1))


def _end_like(code: int | None) -> None:
    """This process ends by that exit code or signal, without a core of its own."""
    if code is None:
        sys.exit(1)
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError):  # SIGKILL has no handler to be reset
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(abs(code))


if __name__ == "__main__":
    main()
