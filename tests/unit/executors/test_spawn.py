from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from scheduler.errors import SpawnFailed
from scheduler.executors import posix_spawn, spawn
from scheduler.executors.posix_spawn import PosixSpawn
from scheduler.executors.spawn import Launch, Spawner, abandon, exited, memory_file, reap
from tests.support.executors import open_descriptors, until


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


@pytest.fixture(params=[True, False], ids=["posix_spawn", "subprocess"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Spawner]:
    """A spawner that starts by the C library, or has to do without."""
    if not request.param:
        monkeypatch.setattr(PosixSpawn, "part_thread", lambda _self, _umask: False)
    made = Spawner()
    yield made
    made.close()


async def said(spawner: Spawner, started: Launch) -> tuple[spawn.Spawned, str]:
    """The process, which has ended and was reaped, and what it wrote on stdout."""
    spawned = await spawner.off_loop(lambda: spawner.spawn(started), identity_may_change=False)
    await asyncio.wait_for(exited(spawned.pid, spawner.readiness), 30)
    assert reap(spawned.child) == 0
    return spawned, os.read(spawned.stdout, 10_000).decode()


FACTS = """
import os
print(os.getcwd(), os.getsid(0) == os.getpgid(0) == os.getpid(), oct(os.umask(0)))
print([n for n in range(1000) if os.path.exists(f"/proc/self/fd/{n}")], sorted(os.environ))
"""


async def test_both_ways_of_starting_give_the_same(either: Spawner) -> None:
    """Session, directory, umask, descriptors, environment and signals are what is promised, either way."""
    null = os.open(os.devnull, os.O_RDONLY)
    leaky = [fcntl.fcntl(null, fcntl.F_DUPFD, number) for number in (0, 60, 900)]
    before = os.umask(0o077)
    started = replace(launch(sys.executable, "-S", "-c", FACTS), cwd="/usr", environment={"B": "ü", "A": ""})

    try:
        spawned, text = await said(either, started)
    finally:
        ours = os.umask(before)
        for descriptor in (null, *leaky):
            os.close(descriptor)

    first, second = text.splitlines()
    assert first == "/usr True 0o22"
    assert second.startswith(f"[0, 1, 2, {either.progress_fd}] ['A', 'B'")
    assert ours == 0o077
    close(spawned)


async def test_signals_that_python_ignores_are_not_ignored(either: Spawner) -> None:
    """A command dies of a closed pipe as it would in a terminal."""
    spawned, text = await said(either, launch("/bin/grep", "SigIgn", "/proc/self/status"))

    ignored = int(text.split()[1], 16)
    assert not ignored & (1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1)
    close(spawned)


@pytest.mark.parametrize(
    ("program", "cwd", "words"),
    [
        ("/bin/no-such", "/", "does not exist"),
        ("/etc/passwd", "/", "Permission denied"),
        ("/bin/true\0", "/", "null byte"),
        ("/bin/true", "/no/such", "does not exist"),
    ],
)
async def test_what_cannot_be_started_is_told_and_leaves_nothing(
    either: Spawner, program: str, cwd: str, words: str
) -> None:
    """The error of either way is one for a person, and no descriptor is left open."""
    await said(either, launch("/bin/true"))
    before = open_descriptors()

    with pytest.raises(SpawnFailed, match=words):
        await said(either, replace(launch(program), cwd=cwd))

    assert open_descriptors() <= before


async def test_variable_that_no_kernel_takes_is_refused(either: Spawner) -> None:
    """A name with an equals sign would make another variable."""
    with pytest.raises(SpawnFailed, match="environment variable name"):
        await said(either, replace(launch("/bin/true"), environment={"A=B": "c"}))


@pytest.mark.usefixtures("either")
async def test_low_numbers_that_became_free_are_no_matter() -> None:
    """Pipes that got numbers below that of the progress pipe reach the process under the right ones."""
    low = [fcntl.fcntl(2, fcntl.F_DUPFD_CLOEXEC, 3) for _ in range(10)]
    spawner = Spawner()
    for descriptor in low:
        os.close(descriptor)

    line = f"cat; echo out; echo error >&2; echo p >/dev/fd/{spawner.progress_fd}"
    spawned, text = await said(spawner, launch("/bin/sh", "-c", line))

    assert text == "out\n"
    assert os.read(spawned.stderr, 10) == b"error\n"
    assert os.read(spawned.progress, 10) == b"p\n"
    close(spawned)
    spawner.close()


def test_c_library_without_all_of_it_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a call is missing processes are started all the same."""
    monkeypatch.setattr(posix_spawn, "_NEEDED", ("a_call_of_no_library",))
    spawner = Spawner()

    spawned = spawner.spawn(launch("/bin/true"))

    assert reap(spawned.child) == 0
    close(spawned)
    spawner.close()


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

    await asyncio.wait_for(exited(spawned.pid), 30)

    assert reap(spawned.child) == 6
    close(spawned)


async def test_exit_that_somebody_else_took_is_an_exit(spawner: Spawner) -> None:
    """A process that was reaped already has ended; that is no error."""
    spawned = spawner.spawn(launch("/bin/true"))
    os.waitpid(spawned.pid, 0)  # noqa: ASYNC222 - by somebody else

    await asyncio.wait_for(exited(spawned.pid), 30)

    assert reap(spawned.child) is None
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
