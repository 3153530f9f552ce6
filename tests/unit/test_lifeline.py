from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler.clock import SECOND
from scheduler.systemd import Lifeline, Notifier
from tests.support.clock import FakeClock


class Heard:
    """What the service manager was told."""

    def __init__(self, address: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.bind(str(address))

    def words(self) -> list[str]:
        """Since the last look."""
        found = []
        while True:
            try:
                found.append(self._socket.recv(4096).decode())
            except BlockingIOError:
                return found

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def heard(tmp_path: Path) -> Iterator[Heard]:
    heard = Heard(tmp_path / "notify")
    yield heard
    heard.close()


class Health:
    """A daemon that is as well as the test says."""

    def __init__(self) -> None:
        self.is_well = True
        self.line = "0 runs live"

    async def describe(self) -> str:
        return self.line


def lifeline(clock: FakeClock, tmp_path: Path, health: Health, *, interval: int | None) -> Lifeline:
    return Lifeline(
        Notifier(clock, {"NOTIFY_SOCKET": str(tmp_path / "notify")}),
        clock,
        is_well=lambda: health.is_well,
        describe=health.describe,
        interval=interval,
    )


async def test_pings_come_four_to_an_interval_while_all_is_well(heard: Heard, tmp_path: Path) -> None:
    """A watchdog of eight seconds hears of us every two; one ping that is withheld costs nothing."""
    clock, health = FakeClock(), Health()
    running = asyncio.create_task(lifeline(clock, tmp_path, health, interval=8 * SECOND).run())

    await clock.advance(4 * SECOND)

    assert heard.words().count("WATCHDOG=1") == 3
    running.cancel()


async def test_a_daemon_that_is_not_well_is_silent_but_tells_its_state(heard: Heard, tmp_path: Path) -> None:
    """Without health there is no ping, while the status line goes on; with it pings come back."""
    clock, health = FakeClock(), Health()
    running = asyncio.create_task(lifeline(clock, tmp_path, health, interval=8 * SECOND).run())
    await clock.advance(SECOND)
    heard.words()

    health.is_well, health.line = False, "the store hangs"
    await clock.advance(6 * SECOND)
    words = heard.words()
    health.is_well = True
    await clock.advance(2 * SECOND)

    assert set(words) == {"STATUS=the store hangs"}
    assert "WATCHDOG=1" in heard.words()
    running.cancel()


async def test_without_a_watchdog_the_status_line_is_kept(heard: Heard, tmp_path: Path) -> None:
    """The line is told every twenty seconds where nobody asks for pings."""
    clock, health = FakeClock(), Health()
    running = asyncio.create_task(lifeline(clock, tmp_path, health, interval=None).run())

    await clock.advance(40 * SECOND)

    assert heard.words().count("STATUS=0 runs live") == 3
    running.cancel()


async def test_time_is_asked_for_as_long_as_it_is_needed(heard: Heard, tmp_path: Path) -> None:
    """Within `more_time` half a minute is asked for every five seconds, and never after it."""
    clock, health = FakeClock(), Health()

    async with lifeline(clock, tmp_path, health, interval=None).more_time():
        await clock.advance(11 * SECOND)
        asked = heard.words()
    await clock.advance(60 * SECOND)

    assert asked == ["EXTEND_TIMEOUT_USEC=30000000"] * 3
    assert heard.words() == []


ASK = """
import os, socket
from scheduler.errors import ConfigError
from scheduler.systemd import control_socket
os.environ["LISTEN_PID"] = str(os.getpid())
try:
    print(control_socket())
except ConfigError as error:
    print(error.hint)
for fd in (3, 4):
    try:
        os.fstat(fd)
        print("open", os.get_inheritable(fd))
    except OSError:
        print("closed")
"""


def activated(names: str, count: int) -> list[str]:
    """What a process says to which systemd hands `count` sockets with these names, from descriptor 3 on."""
    ends = [socket.socket(socket.AF_UNIX) for _ in range(count)]
    copies = [os.dup2(end.fileno(), 60 + index) for index, end in enumerate(ends)]
    line = " ".join(f"{3 + index}<&{copy}" for index, copy in enumerate(copies))
    try:
        done = subprocess.run(
            ["/bin/bash", "-c", f'exec "$0" -c "$1" {line}', sys.executable, ASK],
            env={**os.environ, "LISTEN_FDS": str(count), "LISTEN_FDNAMES": names},
            pass_fds=copies,
            capture_output=True,
            text=True,
            check=True,
        )
    finally:
        for end, copy in zip(ends, copies, strict=True):
            end.close()
            os.close(copy)
    return done.stdout.splitlines()


def test_the_control_socket_is_found_by_its_name() -> None:
    """Of several sockets the one called `control` is ours, not inherited; the other is closed."""
    assert activated("other:control", 2) == ["4", "closed", "open False"]


def test_a_single_socket_needs_no_name() -> None:
    """A socket unit that names nothing serves as well, as long as it is the only one."""
    assert activated("schedulerd.socket", 1)[:2] == ["3", "open False"]


def test_of_several_unnamed_sockets_none_is_guessed() -> None:
    """Two sockets without ours among them are a fault that says what to write."""
    assert "FileDescriptorName=control" in activated("a:b", 2)[0]


def test_without_activation_there_is_none() -> None:
    """A daemon that was started by hand binds its own socket."""
    assert activated("", 0)[0] == "None"
