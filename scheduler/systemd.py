"""The service manager's side of the daemon: readiness, watchdog, inherited sockets; no library needed.

Promises: without systemd everything here does nothing; a message never blocks and never raises, because a
deaf service manager is no reason to stop working. What is well, and what a status line says, is left to the
daemon.
Source: sd_notify(3), sd_watchdog_enabled(3), sd_listen_fds(3).
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from scheduler.clock import SECOND, Clock, Micros
from scheduler.errors import ConfigError

FIRST_FD: Final = 3
CONTROL: Final = "control"
"""The name that our socket unit gives to the control socket."""

UNNAMED: Final = "unknown"
"""What sd_listen_fds(3) calls a descriptor without a name."""


_STATUS_PERIOD: Final[Micros] = 20 * SECOND
_EXTENSION: Final[Micros] = 30 * SECOND
_EXTENSION_PERIOD: Final[Micros] = 5 * SECOND


class Notifier:
    """Tells the service manager how the daemon is: datagrams to the socket in `NOTIFY_SOCKET`.

    Args:
        clock: its monotonic time is CLOCK_MONOTONIC, by which systemd dates a reload.
        environ: where the variable is looked up, once; it stays there, for `systemd-notify` in hooks.
    """

    def __init__(self, clock: Clock, environ: Mapping[str, str] = os.environ) -> None:
        self._clock = clock
        self._address = _address(environ.get("NOTIFY_SOCKET", ""))

    def ready(self) -> None:
        """The start, or a reload, is over: also one that kept the old configuration."""
        self._send("READY=1")

    def reloading(self) -> None:
        """A reload has begun; `ready` ends it."""
        # One message: without its time `systemctl reload` waits for an answer until it gives up.
        self._send("RELOADING=1", f"MONOTONIC_USEC={self._clock.monotonic()}")

    def stopping(self) -> None:
        """The daemon is on its way out."""
        self._send("STOPPING=1")

    def status(self, text: str) -> None:
        """`systemctl status` shows this line; line ends and control characters in it become spaces."""
        self._send("STATUS=" + "".join(char if char.isprintable() else " " for char in text))

    def watchdog(self) -> None:
        """The watchdog starts counting anew."""
        self._send("WATCHDOG=1")

    def extend_timeout(self, duration: Micros) -> None:
        """The start or stop that is under way may take `duration` more, counted from now."""
        self._send(f"EXTEND_TIMEOUT_USEC={duration}")

    def _send(self, *assignments: str) -> None:
        if self._address is None:
            return
        message = "\n".join(assignments).encode(errors="replace")
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)
                sender.sendto(message, self._address)
        except OSError:
            return  # gone or overrun: the manager will say so in its own way


class Lifeline:
    """What the service manager hears as long as the event loop turns: pings, a status line, pleas for time.

    Pings come from the loop that they vouch for, four to a watchdog's interval, so that one that is late, or
    withheld for a moment, does not cost the daemon its life.

    Args:
        is_well: whether a ping may be sent now.
        describe: the status line; never raises.
        interval: the watchdog's; None where there is none.
    """

    def __init__(
        self,
        notifier: Notifier,
        clock: Clock,
        *,
        is_well: Callable[[], bool],
        describe: Callable[[], Awaitable[str]],
        interval: Micros | None,
    ) -> None:
        self._notifier = notifier
        self._clock = clock
        self._is_well = is_well
        self._describe = describe
        self._period = _STATUS_PERIOD if interval is None else min(_STATUS_PERIOD, interval // 4)

    async def run(self) -> None:
        """Pings and tells for as long as the daemon lives."""
        while True:
            if self._is_well():
                self._notifier.watchdog()
            await self.tell()
            await self._clock.sleep(self._period)

    async def tell(self) -> None:
        """The status line is as things are now."""
        self._notifier.status(await self._describe())

    @asynccontextmanager
    async def more_time(self) -> AsyncIterator[None]:
        """A start or stop may take as long as this lasts, and half a minute more, because the loop turns.

        How long that can be at most is bounded by what is done inside, not here.
        """
        asking = asyncio.create_task(self._ask_for_time(), name="more-time")
        try:
            yield
        finally:
            asking.cancel()

    async def _ask_for_time(self) -> None:
        while True:
            self._notifier.extend_timeout(_EXTENSION)
            await self._clock.sleep(_EXTENSION_PERIOD)


def watchdog_interval(environ: Mapping[str, str] = os.environ) -> Micros | None:
    """How long the manager waits for a sign of life before it kills us; None when it does not watch us.

    Ping well within it, from what the pings vouch for.
    """
    pid, interval = environ.get("WATCHDOG_PID"), _number(environ.get("WATCHDOG_USEC"))
    if not interval or (pid is not None and _number(pid) != os.getpid()):
        return None
    return interval


def service_group(environ: Mapping[str, str] = os.environ) -> str | None:
    """The control group of the service that this very process is the main one of; None: it is none.

    Whatever else lives there was started by this process, directly or not. Source: systemd.exec(5), from
    systemd 248 on; cgroups(7).
    """
    if _number(environ.get("SYSTEMD_EXEC_PID")) != os.getpid():
        return None
    return next((group for group in control_groups(os.getpid()) if group.endswith(".service")), None)


def control_groups(pid: int) -> list[str]:
    """The control groups of the process, one a hierarchy; none where there is no such process."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return [line.split(":", 2)[-1] for line in lines]


def listen_fds(environ: MutableMapping[str, str] = os.environ) -> dict[str, int]:
    """The sockets that systemd opened for us, by the name of their unit or `FileDescriptorName=`.

    They are ours alone from now on: no child inherits them, and the variables that announce them are gone,
    so that no child takes its own descriptors for them. Of two with the same name the first is kept and the
    others are closed, since nobody could ask for them.

    Raises:
        ConfigError: a descriptor that was announced is not open.
    """
    pid = _number(environ.pop("LISTEN_PID", None))
    count = _number(environ.pop("LISTEN_FDS", None)) or 0
    names = environ.pop("LISTEN_FDNAMES", "").split(":")
    if pid != os.getpid():
        return {}
    found: dict[str, int] = {}
    for index in range(count):
        fd = FIRST_FD + index
        name = (names[index] if index < len(names) else "") or UNNAMED
        _keep_from_children(fd)
        if found.setdefault(name, fd) != fd:
            os.close(fd)
    return found


def control_socket(environ: MutableMapping[str, str] = os.environ) -> int | None:
    """The listening control socket that systemd opened for us, or None; any other that it gave is closed.

    Raises:
        ConfigError: a descriptor that was announced is not open, or there are several and none is named.
    """
    found = listen_fds(environ)
    if len(found) > 1 and CONTROL not in found:
        raise ConfigError(
            f"systemd opened {len(found)} sockets, and none is called {CONTROL!r}",
            hint=f"write FileDescriptorName={CONTROL} into the socket unit of the control socket",
        )
    chosen = CONTROL if CONTROL in found else next(iter(found), None)
    for name, descriptor in found.items():
        if name != chosen:
            os.close(descriptor)
    return None if chosen is None else found[chosen]


def _keep_from_children(fd: int) -> None:
    try:
        os.set_inheritable(fd, False)
    except OSError as error:
        raise ConfigError(
            f"LISTEN_FDS announces a socket at descriptor {fd}, but none is open there ({error.strerror})",
            hint="Start schedulerd by its socket unit, or without the variables LISTEN_PID and LISTEN_FDS.",
        ) from error


def _address(value: str) -> bytes | None:
    """The address of a path, or of the abstract socket that a leading @ stands for; others are not ours."""
    if value.startswith("@"):
        return b"\0" + os.fsencode(value[1:])
    return os.fsencode(value) if value.startswith("/") else None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None
