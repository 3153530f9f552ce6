"""Real daemon processes without the half second that Python takes to import one.

A process of this module has imported the daemon and forks a child for each that a test wants: its own pid,
session, files, signals and death, as if it had been started by its command line. Tests whose subject is the
start itself start Python afresh (`Daemon(fresh=True)`), and so do those that change how Python starts.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

_LONGEST: Final = 1 << 20
_POLL: Final = 0.005
_MOST_FDS: Final = 1 << 20


class Nursery:
    """The process that forks daemons for this one; started when it is first needed."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ends: dict[int, int] = {}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())], pass_fds=[theirs.fileno()]
            )
        atexit.register(self.close)

    def daemon(
        self,
        flags: Sequence[str],
        *,
        out: BinaryIO,
        errors: BinaryIO,
        env: Mapping[str, str],
        door: str = "scheduler.daemon",
    ) -> Nursling:
        """A `schedulerd` with these flags, its stdin at an end, in a session of its own.

        Args:
            door: the module whose `main` is called with the flags.
        """
        told = {"flags": list(flags), "env": dict(env), "cwd": str(Path.cwd()), "door": door}
        order = json.dumps(told).encode()
        socket.send_fds(self._socket, [order], [out.fileno(), errors.fileno()])
        while "pid" not in (answer := self._told()):
            self._ends[answer["ended"]] = answer["status"]
        self._ends.pop(answer["pid"], None)  # of an earlier child: the system uses numbers again
        return Nursling(answer["pid"], self)

    def end_of(self, pid: int) -> int | None:
        """The exit code of a child, minus its signal where one killed it; None while it lives."""
        self._socket.setblocking(False)
        try:
            while True:
                told = self._told()
                self._ends[told["ended"]] = told["status"]
        except BlockingIOError:
            pass
        finally:
            self._socket.setblocking(True)
        return self._ends.get(pid)

    def close(self) -> None:
        """The process is gone; its children stay."""
        self._socket.close()
        self._process.wait()

    def _told(self) -> dict[str, int]:
        message = self._socket.recv(_LONGEST)
        if not message:
            raise RuntimeError("the process that forks daemons has died; its stderr says why")
        told: dict[str, int] = json.loads(message)
        return told


class Nursling:
    """What tests use of a `subprocess.Popen`, for a child of the nursery."""

    def __init__(self, pid: int, nursery: Nursery) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._nursery = nursery

    def poll(self) -> int | None:
        """The exit code; None while it lives."""
        if self.returncode is None:
            self.returncode = self._nursery.end_of(self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, once it has ended.

        Raises:
            subprocess.TimeoutExpired: it has not within `timeout` seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and timeout is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("schedulerd", timeout)
            time.sleep(_POLL)
        return code

    def send_signal(self, number: int) -> None:
        """The signal was sent, if it still lives."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL was sent, if it still lives."""
        self.send_signal(signal.SIGKILL)


_NURSERIES: Final[dict[int, Nursery]] = {}


def nursery() -> Nursery:
    """The one of this process."""
    pid = os.getpid()
    if pid not in _NURSERIES:
        _NURSERIES[pid] = Nursery()
    return _NURSERIES[pid]


# --- the process that forks ---
def _serve(orders: socket.socket) -> dict[str, Any]:
    """Returns in each child, with its order; the parent serves until nobody is left to serve."""
    wake, woken = socket.socketpair()
    wake.setblocking(False)
    woken.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests; they end their daemons
    while True:
        ready, _, _ = select.select([orders, woken], [], [])
        if woken in ready:
            woken.recv(4096)
            _tell_ended(orders)
        if orders not in ready:
            continue
        message, fds, _, _ = socket.recv_fds(orders, _LONGEST, 2)
        if not message:
            sys.exit(0)
        pid = os.fork()
        if pid == 0:
            for one in (wake, woken, orders):
                one.detach()
            _settle_in(fds)
            order: dict[str, Any] = json.loads(message)
            return order
        for fd in fds:
            os.close(fd)
        orders.send(json.dumps({"pid": pid}).encode())


def _tell_ended(orders: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        orders.send(json.dumps({"ended": pid, "status": os.waitstatus_to_exitcode(status)}).encode())


def _settle_in(fds: Sequence[int]) -> None:
    """The child is as its command line would have made it: signals, session, the three descriptors."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    for target, fd in enumerate((nothing, *fds)):
        os.dup2(fd, target)
    os.closerange(3, _MOST_FDS)


def _live(order: Mapping[str, Any]) -> None:
    """The daemon's life, from its command line to the exit of the process."""
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    time.tzset()
    importlib.import_module(order["door"]).main(order["flags"])


if __name__ == "__main__":
    for module in ("scheduler.daemon", "scheduler.process"):  # what a daemon imports on its way
        importlib.import_module(module)
    _live(_serve(socket.socket(fileno=int(sys.argv[1]))))
