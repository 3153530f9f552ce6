from __future__ import annotations

import asyncio
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler.executors import spawn
from scheduler.executors.spawn import Launch, Spawner, abandon, exited, memory_file, reap
from tests.support.executors import until


@pytest.fixture
def spawner() -> Iterator[Spawner]:
    made = Spawner()
    yield made
    made.close()


def launch(*argv: str) -> Launch:
    return Launch(program=argv[0], argv=argv, environment={"PATH": "/bin:/usr/bin"}, cwd="/")


def close(spawned: spawn.Spawned) -> None:
    for descriptor in (spawned.stdout, spawned.stderr, spawned.progress):
        os.close(descriptor)


def test_progress_number_is_the_lowest_free_one() -> None:
    """A spawner made early keeps a number that every /bin/sh understands in `>&N`."""
    lowest = fcntl.fcntl(2, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(lowest)
    spawner = Spawner()

    assert spawner.progress_fd == lowest
    spawner.close()


EARLY = """
import asyncio, sys
from pathlib import Path
from scheduler.executors.dispatch import Executors
from tests.support.executors import Told, grant, run_to_end, shell, surroundings

async def main():
    executors = Executors(surroundings(Path(sys.argv[1])))
    told = Told()
    granted = grant(shell("echo '{\\"done\\": 4}' >&$SCHEDULER_PROGRESS_FD"))
    ended = await run_to_end(executors, granted, told)
    print(ended.exit_code, [report.progress.done for report in told.reports])

asyncio.run(main())
"""


@pytest.mark.parametrize("closed", [(), (0,), (0, 1, 2)])
def test_daemon_started_without_stdio_runs_jobs_all_the_same(tmp_path: Path, closed: tuple[int, ...]) -> None:
    """Closed descriptors 0, 1 and 2 of the daemon confuse no pipe, and dash writes progress (B33)."""
    result = tmp_path / "result"
    shut = " ".join(f"{number}>&-" for number in closed)
    code = EARLY.replace(
        "print(ended.exit_code, [report.progress.done for report in told.reports])",
        f"Path({str(result)!r}).write_text(f'{{ended.exit_code}} {{told.reports[0].progress.done}}')",
    )
    subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {shut}', "sh", sys.executable, "-c", code, str(tmp_path / "out")],
        cwd=Path(__file__).parents[3],
        check=True,
    )

    assert result.read_text() == "0 4"


def test_progress_pipe_is_not_held_by_the_daemon(spawner: Spawner) -> None:
    """Once the process has ended, its progress pipe is at its end: no copy of the other end is left here."""
    spawned = spawner.spawn(launch("/bin/true"))

    assert reap(spawned.child) == 0
    assert os.read(spawned.progress, 10) == b""
    close(spawned)


def test_starts_at_the_same_time_do_not_mix_their_pipes(spawner: Spawner) -> None:
    """Each process writes its progress to its own pipe, however many start at once."""
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

    def begin(number: int) -> spawn.Spawned:
        line = f"echo {number} > /dev/fd/{spawner.progress_fd}"
        return spawner.spawn(launch("/bin/sh", "-c", line))

    with ThreadPoolExecutor(8) as pool:
        started = list(pool.map(begin, range(24)))

    for number, spawned in enumerate(started):
        assert reap(spawned.child) == 0
        assert os.read(spawned.progress, 100) == b"%d\n" % number
        close(spawned)


@pytest.mark.parametrize("pidfd", [True, False])
async def test_exit_is_learnt_without_reaping(
    spawner: Spawner,
    monkeypatch: pytest.MonkeyPatch,
    pidfd: bool,
) -> None:
    """`exited` returns at the end and leaves the status to be taken, also where there is no pidfd."""
    if not pidfd:
        monkeypatch.setattr(os, "pidfd_open", lambda _pid: (_ for _ in ()).throw(OSError(38, "ENOSYS")))
    spawned = spawner.spawn(launch("/bin/sh", "-c", "sleep 0.1; exit 6"))

    await asyncio.wait_for(exited(spawned.pid), 5)

    assert reap(spawned.child) == 6
    close(spawned)


async def test_abandoned_process_is_killed_and_reaped(spawner: Spawner) -> None:
    """Nothing is left of a process that nobody has begun to watch, not even a zombie."""
    spawned = spawner.spawn(launch("/bin/sleep", "60"))

    abandon(spawned)

    await until(lambda: not Path(f"/proc/{spawned.pid}").exists())


def test_memory_file_reads_from_its_beginning_and_is_not_inherited() -> None:
    """A text of any size is there at once, to be read once, under a number that can be handed on."""
    descriptor = memory_file(b"x" * 300_000)

    assert descriptor > 2
    assert not os.get_inheritable(descriptor)
    assert len(os.read(descriptor, 400_000)) == 300_000
    assert os.read(descriptor, 1) == b""
    os.close(descriptor)
