from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from scheduler.clock import SystemClock
from scheduler.executors.command import CommandExecutor
from scheduler.executors.processes import Session, start_ticks
from scheduler.executors.spawn import Spawner
from scheduler.executors.warden import Warden
from scheduler.executors.wards import Ward
from tests.support.daemon import is_alive
from tests.support.executors import STORE, Told, finish, grant, shell, surroundings, until

pytestmark = pytest.mark.slow

# A daemon in small: a warden, and a command that it is told of.
DAEMON = """
import asyncio, subprocess, sys
from scheduler.clock import SystemClock
from scheduler.executors.processes import Session, start_ticks
from scheduler.executors.warden import Warden
from scheduler.executors.wards import Ward

async def main():
    warden = Warden(sys.argv[1], SystemClock())
    await warden.start()
    def begin(line, env):
        child = subprocess.Popen(["/bin/sh", "-c", line], start_new_session=True, env=env)
        return Ward(session=Session(leader=child.pid, ticks=start_ticks(child.pid)), run_id="r-1", claim=2)
    wards = [begin(line, {}) for line in sys.argv[3:]]
    for ward in wards:
        warden.watch(ward)
    if sys.argv[2] == "forget":
        for ward in wards:
            warden.forget(ward)
    await asyncio.sleep(0)
    if sys.argv[2] == "fork":
        import os
        forked = os.fork()
        if forked == 0:
            import time
            time.sleep(60)
            os._exit(0)
        print(forked, end=" ")
    print(warden.pid, *(ward.session.leader for ward in wards), flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


class SmallDaemon:
    """A process with a warden, started and killed."""

    def __init__(self, how: str, *lines: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", DAEMON, STORE, how, *lines],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.warden, *self.leaders = (int(word) for word in self.process.stdout.readline().split())

    def kill(self) -> float:
        """SIGKILL; the moment of it."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        return time.monotonic()


def wait_gone(*pids: int, seconds: float = 10) -> float:
    """The moment at which none of them lived any more."""
    deadline = time.monotonic() + seconds
    while any(is_alive(pid) for pid in pids):
        assert time.monotonic() < deadline, [pid for pid in pids if is_alive(pid)]
        time.sleep(0.01)
    return time.monotonic()


def session_of(leader: int) -> list[int]:
    found = subprocess.run(
        ["ps", "-o", "pid=", "-s", str(leader)], capture_output=True, text=True, check=False
    )
    return [int(word) for word in found.stdout.split()]


def test_what_ran_is_gone_soon_after_its_daemon_was_killed() -> None:
    """Within a second and a half of a SIGKILL of the daemon its commands and their children are dead."""
    daemon = SmallDaemon("watch", "sleep 600 & sleep 601 & wait")
    (leader,) = daemon.leaders
    members = [*session_of(leader)]
    assert len(members) == 3

    killed_at = daemon.kill()

    assert wait_gone(*members, daemon.warden) - killed_at < 1.5


def test_what_ignores_sigterm_or_is_stopped_is_killed() -> None:
    """A command that traps SIGTERM, and one that is frozen, end by SIGKILL after the short grace."""
    daemon = SmallDaemon("watch", "trap '' TERM; while :; do sleep 1; done", "kill -STOP $$; sleep 600")
    time.sleep(0.2)

    killed_at = daemon.kill()

    assert wait_gone(*daemon.leaders) - killed_at < 3


def test_what_was_forgotten_lives_on() -> None:
    """A session that the daemon has let go of is left alone, and the warden ends with the daemon."""
    daemon = SmallDaemon("forget", "sleep 600")
    try:
        daemon.kill()
        wait_gone(daemon.warden)

        assert all(is_alive(leader) for leader in daemon.leaders)
    finally:
        for leader in daemon.leaders:
            os.killpg(leader, signal.SIGKILL)


def test_a_fork_that_holds_the_pipe_does_not_hide_the_death() -> None:
    """The warden watches the daemon itself, too: a forked copy of it keeps nothing alive."""
    daemon = SmallDaemon("fork", "sleep 600")
    forked, [warden, leader] = daemon.warden, daemon.leaders
    try:
        daemon.kill()

        wait_gone(leader, warden)
        assert is_alive(forked)
    finally:
        os.kill(forked, signal.SIGKILL)


def test_signals_of_a_terminal_do_not_reach_the_warden() -> None:
    """SIGTERM, SIGINT and SIGHUP leave the warden at work; it is in a session of its own."""
    daemon = SmallDaemon("watch", "sleep 600")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(daemon.warden, number)
    assert os.getsid(daemon.warden) == daemon.warden

    daemon.kill()

    wait_gone(*daemon.leaders)


@pytest.fixture
async def warden() -> AsyncIterator[Warden]:
    warden = Warden(STORE, SystemClock())
    await warden.start()
    yield warden
    await warden.stop()


def sleeper(environment: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["/bin/sleep", "600"], start_new_session=True, env=environment or {})


def ward_of(child: subprocess.Popen[bytes], *, ticks: int | None = None, claim: int = 1) -> Ward:
    known = start_ticks(child.pid) if ticks is None else ticks
    return Ward(session=Session(leader=child.pid, ticks=known or 0), run_id="r-1", claim=claim)


async def ended(child: subprocess.Popen[bytes]) -> bool:
    """Whether it ends within two seconds."""
    for _ in range(100):
        if child.poll() is not None:
            return True
        await asyncio.sleep(0.02)
    return False


def end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait()


async def test_a_dead_warden_is_replaced_and_knows_what_it_knew(warden: Warden) -> None:
    """After a SIGKILL of the warden another one ends what the first was told of."""
    child = sleeper()
    warden.watch(ward_of(child))
    first = warden.pid
    assert first is not None

    os.kill(first, signal.SIGKILL)
    await until(lambda: warden.pid not in (None, first))
    assert child.poll() is None
    await warden.stop()

    assert await ended(child)


async def test_a_warden_that_does_not_listen_is_replaced(warden: Warden) -> None:
    """A stopped warden whose pipe is full is killed, not waited for, and ends nobody meanwhile."""
    child = sleeper()
    ward = ward_of(child)
    warden.watch(ward)
    first = warden.pid
    assert first is not None
    os.kill(first, signal.SIGSTOP)

    for _ in range(40_000):
        warden.forget(ward)
        warden.watch(ward)
    await until(lambda: warden.pid not in (None, first))

    assert child.poll() is None
    await warden.stop()
    assert await ended(child)


async def test_what_was_forgotten_last_lives_on(warden: Warden) -> None:
    """A ward that is forgotten at the very moment of the stop is left alone by it."""
    child = sleeper()
    warden.watch(ward_of(child))
    await asyncio.sleep(0)
    warden.forget(ward_of(child))

    await warden.stop()

    assert child.poll() is None
    end(child)


async def test_the_session_of_a_reused_pid_is_left_alone(warden: Warden) -> None:
    """A leader whose start ticks are not those recorded is somebody else, and lives on."""
    child = sleeper()
    warden.watch(ward_of(child, ticks=1))

    await warden.stop()

    assert child.poll() is None
    end(child)


async def test_a_later_attempt_of_the_run_is_left_alone(warden: Warden) -> None:
    """What bears a later claim belongs to the daemon that came after ours; what bears ours ends, anywhere."""
    marks = {"SCHEDULER_STORE_ID": STORE, "SCHEDULER_RUN_ID": "r-1", "SCHEDULER_CLAIM": "2"}
    later, ours, other = (
        sleeper(marks),
        sleeper({**marks, "SCHEDULER_CLAIM": "1"}),
        sleeper({**marks, "SCHEDULER_STORE_ID": "another", "SCHEDULER_CLAIM": "1"}),
    )
    leader = sleeper()
    warden.watch(ward_of(leader))

    await warden.stop()

    assert await ended(ours)
    assert await ended(leader)
    assert (later.poll(), other.poll()) == (None, None)
    end(later)
    end(other)


async def test_an_attempt_is_watched_from_its_start_to_its_end(tmp_path: Path) -> None:
    """An execution tells its guard of its session at the start, and lets go of it when it has ended."""
    guard = Recorder()
    spawner = Spawner()
    executor = CommandExecutor(surroundings(tmp_path, guard=guard), spawner)
    granted = grant(shell("sleep 600"))

    execution = await executor.start(granted, Told())
    (ward,) = guard.watched
    assert (ward.run_id, ward.claim) == (granted.run.id, granted.run.claim)
    assert is_alive(ward.session.leader)
    await finish(execution)

    assert guard.forgotten == [ward]
    spawner.close()


class Recorder:
    """A guard that remembers."""

    def __init__(self) -> None:
        self.watched: list[Ward] = []
        self.forgotten: list[Ward] = []

    def watch(self, ward: Ward) -> None:
        self.watched.append(ward)

    def forget(self, ward: Ward) -> None:
        if ward not in self.forgotten:
            self.forgotten.append(ward)
