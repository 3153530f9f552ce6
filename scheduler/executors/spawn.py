"""Starting one process: own session, nothing inherited but stdio, the progress pipe and what is named.

`subprocess.Popen` does the starting (chosen over asyncio's transports, whose wait hangs on a grandchild that
keeps stdout open, and over posix_spawn, which can neither change directory nor close what we inherited). The
end is learnt from a pidfd and the exit status taken by ourselves, because `Popen` reads a status that
somebody else took as exit code 0, and an unknown end is never a success.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from scheduler.executors.accounts import Identity
from scheduler.executors.environment import encode
from scheduler.executors.processes import Session, start_ticks
from scheduler.executors.program import explain
from scheduler.executors.threads import NoThread, off_loop, start_thread

UMASK: Final = 0o022
"""Of every attempt, whatever the daemon's own, which is stricter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What to start.

    Attributes:
        program: the file to execute, found before.
        cwd: an absolute directory, or one relative to the daemon's.
        identity: the user to become, with nothing of root left; None: the daemon's own.
        stdin: text to read; None = end of file at once.
        passed: further descriptors to hand on, under the same numbers.
    """

    program: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    cwd: str
    stdin: str | None = None
    passed: tuple[int, ...] = ()
    identity: Identity | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawned:
    """A started process that nobody has reaped yet, and our ends of its pipes."""

    child: subprocess.Popen[bytes]
    session: Session
    stdout: int
    stderr: int
    progress: int

    @property
    def pid(self) -> int:
        """The main process, leader of its session and process group."""
        return self.child.pid


class Spawner:
    """Starts processes, one at a time.

    The progress pipe has the same number in every child, kept free in this process from the beginning: dash,
    the usual /bin/sh, understands `>&N` with one digit only, so it is the lowest number that was free when
    the spawner was made. Make it early.
    """

    def __init__(self) -> None:
        null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        self.progress_fd: Final = null if null > 2 else above_stdio(null)
        if null <= 2:
            os.close(null)
        self._starting = threading.Lock()

    def close(self) -> None:
        """Nothing can be started any more."""
        os.close(self.progress_fd)

    def spawn(self, launch: Launch) -> Spawned:
        """The process runs. Blocks: to be called in a thread.

        Raises:
            SpawnFailed: it could not be started; nothing of it is left.
        """
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            try:
                stdin = _open_stdin(launch.stdin)
                theirs.callback(os.close, stdin)
                stdout, child_stdout = _pipe(ours, theirs)
                stderr, child_stderr = _pipe(ours, theirs)
                progress, child_progress = _pipe(ours, theirs)
                _give(launch.identity, child_stdout, child_stderr, child_progress)
                with self._progress_end(child_progress):
                    child = _start(launch, stdin, child_stdout, child_stderr, self.progress_fd)
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                raise explain(
                    error, program=launch.program, argv=launch.argv, environment=launch.environment
                ) from error
            ours.pop_all()
        session = Session(leader=child.pid, ticks=start_ticks(child.pid) or 0)
        return Spawned(child=child, session=session, stdout=stdout, stderr=stderr, progress=progress)

    @contextlib.contextmanager
    def _progress_end(self, descriptor: int) -> Iterator[None]:
        """The number kept free is the child's end of its progress pipe, for as long as one process starts."""
        with self._starting:
            os.dup2(descriptor, self.progress_fd, inheritable=False)
            try:
                yield
            finally:
                null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
                os.dup2(null, self.progress_fd, inheritable=False)
                os.close(null)


async def exited(pid: int) -> None:
    """The process, a child of ours, has ended and waits to be reaped."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:  # an old kernel, a sandbox, no descriptor left
        await off_loop(lambda: os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT))
        return
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    loop.add_reader(descriptor, _settle, over)
    try:
        await over
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _settle(over: asyncio.Future[None]) -> None:
    if not over.done():
        over.set_result(None)


def reap(child: subprocess.Popen[bytes]) -> int | None:
    """The exit code of an ended child, negative for a signal; None if somebody else took its status."""
    try:
        _, status = os.waitpid(child.pid, 0)
    except ChildProcessError:
        child.returncode = 0  # so that `subprocess` does not look for it; the value is not used
        return None
    child.returncode = os.waitstatus_to_exitcode(status)
    return child.returncode


def abandon(spawned: Spawned) -> None:
    """The process nobody has begun to watch is killed with its group, and reaped when it is gone."""
    for descriptor in (spawned.stdout, spawned.stderr, spawned.progress):
        os.close(descriptor)
    # Not reaped yet, so the number still names this group.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(spawned.pid, signal.SIGKILL)
    with contextlib.suppress(NoThread):
        start_thread(lambda: _forget(spawned.child), name="reap")


def _forget(child: subprocess.Popen[bytes]) -> None:
    reap(child)


def memory_file(data: bytes) -> int:
    """A descriptor, not inherited, that reads `data` from its beginning and never makes a writer wait.

    Raises:
        OSError: the machine gives none.
    """
    descriptor = os.memfd_create("schedulerd", os.MFD_CLOEXEC)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
        return above_stdio(descriptor)
    finally:
        os.close(descriptor)


def above_stdio(descriptor: int) -> int:
    """A copy, not inherited, whose number is none of 0, 1 and 2, as it must be to be handed on."""
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)


def _give(identity: Identity | None, *pipes: int) -> None:
    """The pipes are the user's, so that he may open them by name (/dev/stderr)."""
    if identity is not None:
        for pipe in pipes:
            os.fchown(pipe, identity.uid, identity.gid)


def _start(launch: Launch, stdin: int, stdout: int, stderr: int, progress: int) -> subprocess.Popen[bytes]:
    """The process; as another user all of its ids are his before it executes anything (setreuid(2))."""
    identity = launch.identity
    return subprocess.Popen(
        [encode(word) for word in launch.argv],
        executable=encode(launch.program),
        env={encode(name): encode(value) for name, value in launch.environment.items()},
        cwd=encode(launch.cwd),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        close_fds=True,
        pass_fds=(progress, *launch.passed),
        start_new_session=True,
        umask=UMASK,
        user=None if identity is None else identity.uid,
        group=None if identity is None else identity.gid,
        extra_groups=None if identity is None else identity.groups,
    )


def _open_stdin(text: str | None) -> int:
    if text is None:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    return memory_file(encode(text))


def _pipe(ours: contextlib.ExitStack, theirs: contextlib.ExitStack) -> tuple[int, int]:
    """A pipe's two ends, each to be closed by its stack."""
    reading, writing = os.pipe()
    ours.callback(os.close, reading)
    theirs.callback(os.close, writing)
    return reading, writing
