from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from scheduler.clock import HOUR, SystemClock
from scheduler.executors.orphans import Orphans
from scheduler.executors.processes import start_ticks
from scheduler.model.runs import Run
from tests.support.executors import STORE, grant, is_alive, shell, until

DAEMON = """
import asyncio, os, sys
from pathlib import Path
from scheduler.executors.dispatch import Executors
from tests.support.executors import Told, grant, shell, surroundings

async def main():
    out, line, run_id = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    executors = Executors(surroundings(out))
    told = Told()
    await executors.start(grant(shell(line), run={"id": run_id, "claim": int(sys.argv[4])}), told)
    print(*told.children[0], flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


class Dead:
    """A daemon that was killed in mid-run, and the run it left."""

    def __init__(self, tmp_path: Path, line: str, *, claim: int = 2) -> None:
        fresh = grant(shell(line)).run
        root = Path(__file__).parents[3]
        daemon = subprocess.Popen(
            [sys.executable, "-c", DAEMON, str(tmp_path), f"{line}; true", fresh.id, str(claim)],
            stdout=subprocess.PIPE,
            cwd=root,
        )
        assert daemon.stdout is not None
        pid, ticks = (int(word) for word in daemon.stdout.readline().split())
        self.pids = [pid]
        self.run: Run = replace(fresh, claim=claim, pid=pid, pid_ticks=ticks)
        self._place = tmp_path
        self._daemon = daemon

    async def settle(self, *names: str) -> None:
        """The run's processes have written their pids; then the daemon is killed."""
        for name in names:
            file = self._place / name
            await until(lambda file=file: file.exists() and file.read_text().strip())  # type: ignore[misc]
            self.pids.append(int(file.read_text()))
        self._daemon.send_signal(signal.SIGKILL)
        self._daemon.wait()
        assert self._daemon.stdout is not None
        self._daemon.stdout.close()

    @property
    def alive(self) -> list[int]:
        return [pid for pid in self.pids if is_alive(pid)]


@pytest.fixture
def orphans() -> Orphans:
    return Orphans(STORE, SystemClock())


async def test_tree_of_a_killed_daemon_is_ended(tmp_path: Path, orphans: Orphans) -> None:
    """After kill -9 of the daemon its run's shell, child, and setsid'ed grandchild are ended (I11)."""
    line = (
        f"cd {tmp_path}; sleep 60 & echo $! > child; setsid sh -c 'echo $$ > far; exec sleep 61' & sleep 62"
    )
    dead = Dead(tmp_path, line)
    await dead.settle("child", "far")
    assert len(dead.alive) == 3

    assert await orphans.end_leftovers(dead.run, 5_000_000)

    assert dead.alive == []


async def test_stopped_and_stubborn_orphans_are_ended(tmp_path: Path, orphans: Orphans) -> None:
    """A stopped process is waked to obey, and one that ignores SIGTERM is killed after its grace."""
    line = (
        f"cd {tmp_path}; sleep 60 & kill -STOP $!; echo $! > stopped; "
        "sh -c \"trap '' TERM; echo \\$\\$ > deaf; while :; do sleep 0.1; done\""
    )
    dead = Dead(tmp_path, line)
    await dead.settle("stopped", "deaf")

    assert await orphans.end_leftovers(dead.run, 200_000)

    assert dead.alive == []


async def test_cleared_environment_is_found_by_the_recorded_session(tmp_path: Path, orphans: Orphans) -> None:
    """A member of the recorded session without our marks is ended, also when the leader is gone."""
    line = f"cd {tmp_path}; env -i sleep 60 & echo $! > child; exit 0"
    dead = Dead(tmp_path, line)
    await dead.settle("child")
    await until(lambda: dead.alive == dead.pids[1:])

    assert await orphans.end_leftovers(dead.run, 0)

    assert dead.alive == []


async def test_session_that_was_not_recorded_yet_is_that_of_the_main_process(
    tmp_path: Path, orphans: Orphans
) -> None:
    """I11: a daemon that dies right after a start has recorded no pid; who cleared our marks is ended, too.

    The main process obeys at once, so its session has to be known before the first signal.
    """
    line = f"cd {tmp_path}; env -i sh -c \"trap '' TERM; echo \\$\\$ > deaf; exec sleep 60\" & sleep 61"
    dead = Dead(tmp_path, line)
    await dead.settle("deaf")

    assert await orphans.end_leftovers(replace(dead.run, pid=None, pid_ticks=None), 300_000)

    assert dead.alive == []


async def test_newer_claim_and_other_store_are_left_alone(tmp_path: Path, orphans: Orphans) -> None:
    """What a later claim of the run, or another store, has started is not touched (I8)."""
    dead = Dead(tmp_path, "exec sleep 60", claim=3)
    await dead.settle()
    unknown_session = replace(dead.run, pid=None, pid_ticks=None)

    assert await orphans.end_leftovers(replace(unknown_session, claim=2), 0)
    assert await Orphans("another store", SystemClock()).end_leftovers(unknown_session, 0)
    assert len(dead.alive) == 1

    assert await orphans.end_leftovers(unknown_session, 0)
    assert dead.alive == []


@contextmanager
def stranger() -> Iterator[int]:
    """The pid of a process that bears no marks of ours, leader of its session."""
    child = subprocess.Popen(["/bin/sleep", "60"], env={}, start_new_session=True)
    yield child.pid
    child.kill()
    child.wait()


async def test_session_recorded_before_a_reboot_proves_nothing(orphans: Orphans) -> None:
    """A pid recorded in an earlier boot may be anybody's now, so the session is not searched."""
    now = SystemClock().now()
    with stranger() as pid:
        run = replace(grant(shell("x")).run, pid=pid, pid_ticks=start_ticks(pid))
        for claimed_at in (1, now + HOUR, None):
            assert await orphans.end_leftovers(replace(run, claimed_at=claimed_at), 0)
            assert is_alive(pid)

        assert await orphans.end_leftovers(replace(run, claimed_at=now), 0)
        assert not is_alive(pid)
