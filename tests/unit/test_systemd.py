from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler.clock import SECOND, SystemClock
from scheduler.systemd import Notifier, listen_fds, service_group, watchdog_interval


class Manager:
    """What systemd holds at its end of NOTIFY_SOCKET."""

    def __init__(self, address: str) -> None:
        self.variable = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(30)
        self._socket.bind("\0" + address[1:] if address.startswith("@") else address)

    @property
    def message(self) -> str:
        return self._socket.recv(4096).decode()

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    address = str(tmp_path / "notify") if request.param == "path" else f"@schedulerd-test-{os.getpid()}"
    manager = Manager(address)
    yield manager
    manager.close()


def notifier_for(address: str) -> Notifier:
    return Notifier(SystemClock(), {"NOTIFY_SOCKET": address})


def test_each_word_arrives_as_its_own_message(manager: Manager) -> None:
    """The service manager gets the assignments of sd_notify(3), on a path as on an abstract socket."""
    notifier = notifier_for(manager.variable)

    for tell, message in [
        (notifier.ready, "READY=1"),
        (notifier.stopping, "STOPPING=1"),
        (notifier.watchdog, "WATCHDOG=1"),
        (lambda: notifier.extend_timeout(90 * SECOND), "EXTEND_TIMEOUT_USEC=90000000"),
        (lambda: notifier.status("3 runs live, draining…"), "STATUS=3 runs live, draining…"),
    ]:
        tell()
        assert manager.message == message


def test_a_reload_is_dated_in_the_same_message(manager: Manager) -> None:
    """RELOADING=1 bears CLOCK_MONOTONIC in microseconds, without which `systemctl reload` times out."""
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000

    notifier_for(manager.variable).reloading()

    word, moment = manager.message.split("\n")
    assert word == "RELOADING=1"
    name, value = moment.split("=")
    assert name == "MONOTONIC_USEC"
    assert before <= int(value) <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000


def test_a_status_cannot_forge_another_word(manager: Manager) -> None:
    """Line ends in a status become spaces, so that a name in it cannot say STOPPING=1."""
    notifier_for(manager.variable).status("job\nSTOPPING=1\x00\udcff")

    assert manager.message == "STATUS=job STOPPING=1  "


@pytest.mark.parametrize("address", ["", "relative", "vsock:2:1234"])
def test_without_an_address_nothing_is_sent(address: str) -> None:
    """Outside systemd every word does nothing."""
    notifier_for(address).ready()


def test_a_manager_that_is_gone_is_no_error(tmp_path: Path) -> None:
    """A socket that nobody reads any more raises nothing: the daemon goes on (I14)."""
    notifier_for(str(tmp_path / "nobody")).ready()


def test_a_manager_that_does_not_read_holds_nobody(tmp_path: Path) -> None:
    """When the buffer of the socket is full the word is dropped, and the loop goes on (I15)."""
    manager = Manager(str(tmp_path / "notify"))
    notifier = notifier_for(manager.variable)
    started = time.monotonic()

    for _ in range(5000):
        notifier.watchdog()

    assert time.monotonic() - started < 5
    assert manager.message == "WATCHDOG=1"
    manager.close()


@pytest.mark.parametrize(
    ("environ", "interval"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "20000000"}, 20 * SECOND),
        ({"WATCHDOG_USEC": "20000000", "WATCHDOG_PID": str(os.getpid())}, 20 * SECOND),
        ({"WATCHDOG_USEC": "20000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "20000000", "WATCHDOG_PID": "x"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "-5"}, None),
        ({"WATCHDOG_USEC": "²"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_the_watchdog_is_ours_only_if_it_names_us(environ: dict[str, str], interval: int | None) -> None:
    """The interval counts when it is a number and meant for this process."""
    assert watchdog_interval(environ) == interval


PUT_WHERE_SYSTEMD_WOULD = """
import os, sys
first, second = int(sys.argv[1]), int(sys.argv[2])
os.dup2(first, 100), os.dup2(second, 101), os.dup2(100, 3), os.dup2(101, 4)
os.closerange(5, 200)
os.execv(sys.executable, [sys.executable, "-c", *sys.argv[3:]])
"""

ACTIVATED = """
import os, socket, sys
from scheduler.systemd import listen_fds
os.environ["LISTEN_PID"] = str(os.getpid() + int(sys.argv[1]))
found = listen_fds()
left = [name for name in os.environ if name.startswith("LISTEN_")]
names = [(name, fd, os.get_inheritable(fd), socket.socket(fileno=os.dup(fd)).getsockname())
         for name, fd in found.items()]
still_open = [fd for fd in (3, 4, 5) if os.path.exists(f"/proc/self/fd/{fd}")]
print(names, left, still_open)
"""


def activated(tmp_path: Path, names: str | None, *, pid_offset: int = 0) -> str:
    """What a process finds that was started with two listening sockets at the descriptors 3 and 4."""
    sockets = [socket.socket(socket.AF_UNIX) for _ in range(2)]
    for index, listening in enumerate(sockets):
        listening.bind(str(tmp_path / f"{index}.sock"))
        listening.listen()
    fds = [listening.fileno() for listening in sockets]
    environment = {**os.environ, "LISTEN_FDS": "2"}
    if names is not None:
        environment["LISTEN_FDNAMES"] = names
    arguments = [str(fds[0]), str(fds[1]), ACTIVATED, str(pid_offset)]
    try:
        return subprocess.run(
            [sys.executable, "-c", PUT_WHERE_SYSTEMD_WOULD, *arguments],
            pass_fds=fds,
            env=environment,
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.replace(str(tmp_path), "")
    finally:
        for listening in sockets:
            listening.close()


def test_inherited_sockets_are_found_by_name(tmp_path: Path) -> None:
    """Each socket has its name, no child inherits it, and the variables are gone."""
    assert activated(tmp_path, "control:extra") == (
        "[('control', 3, False, '/0.sock'), ('extra', 4, False, '/1.sock')] [] [3, 4]\n"
    )


def test_a_socket_without_a_name_is_unknown(tmp_path: Path) -> None:
    """A missing name is `unknown`, as sd_listen_fds(3) has it; a second of a name is closed."""
    assert activated(tmp_path, None) == "[('unknown', 3, False, '/0.sock')] [] [3]\n"


def test_sockets_of_another_process_are_not_ours(tmp_path: Path) -> None:
    """With a foreign LISTEN_PID nothing is taken, but the variables go all the same."""
    assert activated(tmp_path, "control:extra", pid_offset=1) == "[] [] [3, 4]\n"


def test_without_systemd_there_are_no_sockets() -> None:
    """Without the variables nothing is found."""
    assert listen_fds({}) == {}


def test_an_announced_socket_that_is_not_open_is_a_clear_error() -> None:
    """A wrong LISTEN_FDS ends the start with what, where and what to do."""
    code = """
import os
from scheduler.errors import ConfigError
from scheduler.systemd import listen_fds
try:
    listen_fds({"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"})
except ConfigError as error:
    print(error, error.hint, sep="|")
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert out.startswith("LISTEN_FDS announces a socket at descriptor 3, but none is open there (Bad file")
    assert "LISTEN_PID" in out.split("|")[1]


def test_only_the_main_process_of_a_service_has_a_group_of_its_own() -> None:
    """A daemon that was started by hand shares its group with who started it, so it counts as none."""
    assert service_group({}) is None
    assert service_group({"SYSTEMD_EXEC_PID": str(os.getpid() + 1)}) is None
