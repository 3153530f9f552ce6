"""Starting one process: own session, nothing inherited but stdio, the progress pipe and what is named.

The C library's posix_spawn does the starting where it can (`posix_spawn` says when), else `subprocess.Popen`;
asyncio's transports do not, for their wait hangs on a grandchild that keeps stdout open. The end is learnt
from a pidfd and the exit status taken by ourselves, because `Popen` reads a status that somebody else took as
exit code 0, and an unknown end is never a success.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from scheduler.executors.accounts import Identity
from scheduler.executors.environment import encode
from scheduler.executors.posix_spawn import PosixSpawn
from scheduler.executors.processes import Session, start_ticks
from scheduler.executors.program import explain
from scheduler.executors.readiness import Readiness
from scheduler.executors.threads import NoThread, Workers, off_loop, start_thread

_STARTS_AT_ONCE: Final = 4
"""Some look for their programs while others are in the kernel; more only wait for the interpreter."""

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


class Child(Protocol):
    """A process that we started and have to reap."""

    @property
    def pid(self) -> int:
        """Its number, ours until it is reaped."""
        ...


@dataclass(frozen=True, slots=True)
class Bare:
    """A child that no `Popen` knows. Fulfils `Child`."""

    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawned:
    """A started process that nobody has reaped yet, and our ends of its pipes."""

    child: Child
    session: Session
    stdout: int
    stderr: int
    progress: int

    @property
    def pid(self) -> int:
        """The main process, leader of its session and process group."""
        return self.child.pid


class Spawner:
    """Starts processes, and has what their watching needs: threads, and word of descriptors.

    The progress pipe has the same number in every child, kept free in this process from the beginning: dash,
    the usual /bin/sh, understands `>&N` with one digit only, so it is the lowest number that was free when
    the spawner was made. Make it early.

    Attributes:
        progress_fd: that number.
        readiness: tells when pipes have something, and when a process has ended.
        pumping: threads for what is read.
    """

    def __init__(self) -> None:
        null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        self.progress_fd: Final = null if null > 2 else above_stdio(null)
        if null <= 2:
            os.close(null)
        self.readiness: Final = Readiness()
        self.pumping: Final = Workers("pump")
        self._starting = threading.Lock()
        self._quick = _posix_spawn()
        self._parted = threading.local()
        self._spawning = Workers("spawn", prepare=self._part, at_once=_STARTS_AT_ONCE)

    def close(self) -> None:
        """Nothing can be started any more, and nobody hears of what runs."""
        self._spawning.close()
        self.pumping.close()
        self.readiness.close()
        os.close(self.progress_fd)

    async def off_loop(self, spawn: Callable[[], Spawned], *, identity_may_change: bool) -> Spawned:
        """`spawn` has returned, called in a thread from which starts are quick.

        Args:
            identity_may_change: the thread may look at files as somebody else; then it is used only once.

        Raises:
            NoThread: there is none; `spawn` was not called.

        Cancellation:
            What was started is killed.
        """
        if identity_may_change:
            return await off_loop(spawn, discard=abandon)
        return await self._spawning.run(spawn, discard=abandon)

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
                child = self._start(
                    launch,
                    *(
                        self._lifted(end, theirs)
                        for end in (stdin, child_stdout, child_stderr, child_progress)
                    ),
                )
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                raise explain(
                    error, program=launch.program, argv=launch.argv, environment=launch.environment
                ) from error
            ours.pop_all()
        session = Session(leader=child.pid, ticks=start_ticks(child.pid) or 0)
        return Spawned(child=child, session=session, stdout=stdout, stderr=stderr, progress=progress)

    def _part(self) -> None:
        self._parted.has_umask = self._quick is not None and self._quick.part_thread(UMASK)

    def _lifted(self, descriptor: int, stack: contextlib.ExitStack) -> int:
        """The descriptor, under a number that is none of those which the process gets."""
        if descriptor > self.progress_fd:
            return descriptor
        copy = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, self.progress_fd + 1)
        stack.callback(os.close, copy)
        return copy

    def _start(self, launch: Launch, stdin: int, stdout: int, stderr: int, progress: int) -> Child:
        is_plain = launch.identity is None and not launch.passed
        if self._quick is not None and is_plain and getattr(self._parted, "has_umask", False):
            handed = {0: stdin, 1: stdout, 2: stderr, self.progress_fd: progress}
            return Bare(_start_quick(self._quick, launch, handed))
        with self._progress_end(progress):
            return _start(launch, stdin, stdout, stderr, self.progress_fd)

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


async def exited(pid: int, readiness: Readiness | None = None) -> None:
    """The process, a child of ours, has ended and waits to be reaped, unless somebody else did that.

    Args:
        readiness: where there is one, it is cheaper.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:  # an old kernel, a sandbox, no descriptor left
        with contextlib.suppress(ChildProcessError):
            await off_loop(lambda: os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT))
        return
    try:
        await (_readable(descriptor) if readiness is None else readiness.ready(descriptor))
    finally:
        os.close(descriptor)


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    loop.add_reader(descriptor, _settle, over)
    try:
        await over
    finally:
        loop.remove_reader(descriptor)


def _settle(over: asyncio.Future[None]) -> None:
    if not over.done():
        over.set_result(None)


def reap(child: Child) -> int | None:
    """The exit code of an ended child, negative for a signal; None if somebody else took its status."""
    try:
        _, status = os.waitpid(child.pid, 0)
        code = os.waitstatus_to_exitcode(status)
    except ChildProcessError:
        code = None
    if isinstance(child, subprocess.Popen):
        child.returncode = code or 0  # so that `subprocess` does not look for it
    return code


def abandon(spawned: Spawned) -> None:
    """The process nobody has begun to watch is killed with its group, and reaped when it is gone."""
    for descriptor in (spawned.stdout, spawned.stderr, spawned.progress):
        os.close(descriptor)
    # Not reaped yet, so the number still names this group.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(spawned.pid, signal.SIGKILL)
    with contextlib.suppress(NoThread):
        start_thread(lambda: _forget(spawned.child), name="reap")


def _forget(child: Child) -> None:
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


def _posix_spawn() -> PosixSpawn | None:
    try:
        return PosixSpawn()
    except OSError:
        return None


def _start_quick(quick: PosixSpawn, launch: Launch, handed: Mapping[int, int]) -> int:
    if any("=" in name for name in launch.environment):
        raise ValueError("illegal environment variable name")
    return quick.start(
        encode(launch.program),
        [encode(word) for word in launch.argv],
        [encode(f"{name}={value}") for name, value in launch.environment.items()],
        cwd=encode(launch.cwd),
        handed=handed,
    )


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
