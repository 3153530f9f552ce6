"""Commands per second: `true`, 50 at a time, by us and by what one would write instead.

Contenders, each in a process of its own, in turns, a few rounds each: a bare asyncio loop (own session, pipes
for stdout and stderr), `xargs -P50`, posix_spawn in a Python loop (about what the machine can do), our
executor alone (environment, output, progress pipe, warden, the count of what is left behind) and the whole
daemon on a real file with `synchronous=FULL` (jobs due at one instant, `max_running = 50`). The CPU is that
of all processes together. Descriptors, threads and zombies of ours are counted at the start, in the middle
and at the end; in the middle of the executor's, 50 commands are under way. With `--full` our two run 100,000.

Prints one markdown table; exits 1 where a ratio is below what we aim at, or where something grows.

Run: `python benchmarks/commands.py [--full] [COMMANDS]`
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from scheduler.clock import SystemClock
from scheduler.config.paths import ConfigFile
from scheduler.config.settings import load_settings
from scheduler.engine.ports import ProgressReport
from scheduler.executors.command import CommandExecutor
from scheduler.executors.spawn import Spawner
from scheduler.executors.surroundings import Surroundings
from scheduler.executors.warden import Warden
from scheduler.model.jobs import CommandAction, JobDefinition, JobId
from scheduler.model.runs import Grant, OwnerId, Run, RunState, RunTrigger, new_run_id
from scheduler.model.triggers import Manual, Schedule
from scheduler.service import Service
from scheduler.telemetry import configure, get_logger

ROUNDS = 3
COMMANDS = 800
"""Of one contender in one round."""

FULL = 100_000
AT_A_TIME = 50
PROGRAM = "/usr/bin/true"
LEAST_OF_ASYNCIO = 0.75
LEAST_OF_XARGS = 0.6
"""What the whole daemon should reach of the two, in commands per second."""

SLACK = 12
"""Descriptors and threads more than at the start that are no growth: idle threads, connections."""

DATABASE = Path("state") / "schedulerd.db"
JOBS_AT_ONCE = 5_000
"""Of the daemon, in the full form: so many are due at each instant."""


@dataclass(frozen=True, slots=True)
class Count:
    """What a process holds at one moment."""

    descriptors: int
    threads: int
    zombies: int

    def __str__(self) -> str:
        return f"{self.descriptors} / {self.threads} / {self.zombies}"


@dataclass(slots=True)
class Measured:
    """Commands run by one contender, the seconds and the CPU seconds of all processes that this took."""

    commands: int
    seconds: float
    cpu: float
    counts: list[Count] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Commands per second."""
        return self.commands / self.seconds


class Deaf:
    """Hooks that take no notice."""

    def child_started(self, pid: int, start_ticks: int) -> None:
        """Not recorded."""

    def progressed(self, report: ProgressReport) -> None:
        """Not recorded."""

    def output_seen(self, size: int) -> None:
        """Not counted."""

    def wish(self) -> str:
        """Always to go on."""
        return "run"


def main() -> int:
    """The table was printed; 1 if we are slower than we aim at, or hold more and more."""
    words = argparse.ArgumentParser(description="Commands per second, ours and others'.")
    words.add_argument("commands", nargs="?", type=int, default=COMMANDS)
    words.add_argument("--full", action="store_true", help=f"{FULL:,} commands by each of ours")
    words.add_argument("--only", choices=CONTENDERS, help=argparse.SUPPRESS)
    asked = words.parse_args()
    if asked.only:
        print(json.dumps(_told(CONTENDERS[asked.only](asked.commands))))
        return 0
    found: dict[str, list[Measured]] = {name: [] for name in CONTENDERS}
    for _ in range(ROUNDS):
        for name, measured in found.items():
            measured.append(_in_own_process(name, asked.commands))
    reached = _table(found)
    if not asked.full:
        return 0 if reached else 1
    long = {name: [_in_own_process(name, FULL)] for name in OURS}
    return 0 if _table(long, found) and reached else 1


def _in_own_process(name: str, commands: int) -> Measured:
    words = [sys.executable, __file__, "--only", name, str(commands)]
    answer = subprocess.run(words, stdout=subprocess.PIPE, check=True, stdin=subprocess.DEVNULL)
    told = json.loads(answer.stdout)
    return Measured(**told | {"counts": [Count(*count) for count in told["counts"]]})


def _told(measured: Measured) -> dict[str, object]:
    counts = [(count.descriptors, count.threads, count.zombies) for count in measured.counts]
    return {
        "commands": measured.commands,
        "seconds": measured.seconds,
        "cpu": measured.cpu,
        "counts": counts,
    }


def _table(found: dict[str, list[Measured]], beside: dict[str, list[Measured]] | None = None) -> bool:
    """The medians were printed; whether all is as it should be."""
    others = beside or found
    asyncio_rate, xargs_rate = (_median(others[name]) for name in ("asyncio", "xargs"))
    if beside is None:
        held = "descriptors / threads / zombies at start, middle, end"
        print(f"| {AT_A_TIME} at a time | commands/s | of asyncio | of xargs | CPU ms each | {held} |")
        print("|---|---|---|---|---|---|")
    good = True
    for name, measured in found.items():
        rate = _median(measured)
        cpu = statistics.median(each.cpu / each.commands for each in measured)
        counts = measured[-1].counts
        held = ", ".join(str(count) for count in counts) or "-"
        title = f"{name}, {measured[0].commands:,}"
        cells = [title, f"{rate:,.0f}", f"{rate / asyncio_rate:.2f}", f"{rate / xargs_rate:.2f}"]
        print(f"| {' | '.join(cells)} | {cpu * 1e3:.2f} | {held} |", flush=True)
        if name == "daemon" and beside is None:
            good &= rate >= LEAST_OF_ASYNCIO * asyncio_rate and rate >= LEAST_OF_XARGS * xargs_rate
        good &= not counts or _is_flat(counts)
    return good


def _median(measured: list[Measured]) -> float:
    return statistics.median(each.rate for each in measured)


def _is_flat(counts: list[Count]) -> bool:
    start, end = counts[0], counts[-1]
    return (
        end.descriptors <= start.descriptors + SLACK
        and end.threads <= start.threads + SLACK
        and end.zombies == 0
    )


# --- What others do -------------------------------------------------------------------------------------


def _asyncio(commands: int) -> Measured:
    async def one() -> None:
        child = await asyncio.create_subprocess_exec(
            PROGRAM,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        await child.communicate()

    return asyncio.run(_timed(commands, one))


def _xargs(commands: int) -> Measured:
    words = ["xargs", f"-P{AT_A_TIME}", "-n1", PROGRAM]
    numbers = "".join(f"{number}\n" for number in range(commands)).encode()
    began, cpu = time.perf_counter(), _cpu()
    subprocess.run(words, input=numbers, check=True)
    return Measured(commands, time.perf_counter() - began, _cpu() - cpu)


def _posix_spawn(commands: int) -> Measured:
    began, cpu = time.perf_counter(), _cpu()
    running = 0
    for _ in range(commands):
        if running == AT_A_TIME:
            os.wait()
            running -= 1
        os.posix_spawn(PROGRAM, [PROGRAM], {}, setsid=True)
        running += 1
    for _ in range(running):
        os.wait()
    return Measured(commands, time.perf_counter() - began, _cpu() - cpu)


# --- Ours -----------------------------------------------------------------------------------------------


def _executor(commands: int) -> Measured:
    return asyncio.run(_run_executor(commands))


async def _run_executor(commands: int) -> Measured:
    with TemporaryDirectory(prefix="bench-commands-") as folder:
        clock = SystemClock()
        warden = Warden("store", clock)
        around = Surroundings(
            clock=clock,
            output_dir=Path(folder) / "output",
            socket_path=f"{folder}/s.sock",
            store_id="store",
            mask=lambda _values: None,
            guard=warden,
        )
        spawner = Spawner()
        executor = CommandExecutor(around, spawner)
        job = JobDefinition(
            id=JobId("true"),
            schedule=Schedule(Manual()),
            action=CommandAction(argv=("true",)),
            source="{}",
        )

        async def one() -> None:
            execution = await executor.start(_grant(job, clock), Deaf())
            ended = await execution.wait()
            if ended.exit_code != 0 or ended.left_behind:
                raise SystemExit(f"a command ended {ended}")

        await warden.start()
        try:
            return await _timed(commands, one, counting=True)
        finally:
            await warden.stop()
            spawner.close()


def _grant(job: JobDefinition, clock: SystemClock) -> Grant:
    now = clock.now()
    run = Run(
        id=new_run_id(now),
        seq=1,
        job=job.id,
        state=RunState.RUNNING,
        trigger=RunTrigger.MANUAL,
        claim=1,
        owner=OwnerId("owner"),
        claimed_at=now,
    )
    return Grant(run=run, definition=job)


def _daemon(commands: int) -> Measured:
    os.umask(0o077)
    with Path(os.devnull).open("w") as nowhere:
        telemetry = configure("json", "info", nowhere)
        measured = asyncio.run(_run_daemon(commands))
        telemetry.close()
    return measured


async def _run_daemon(commands: int) -> Measured:
    each = min(commands, JOBS_AT_ONCE)
    rounds = commands // each
    measured = Measured(rounds * each, 0.0, 0.0)
    with TemporaryDirectory(prefix="bench-commands-") as path:
        folder = Path(path)
        async with _served(folder, each) as service:
            for number in range(rounds):
                due = datetime.now(UTC) + timedelta(seconds=2 + each / 1_000)
                _write_jobs(folder, each, due)
                service.reload()
                await _until(due - timedelta(seconds=0.2))
                if number in (0, rounds // 2):
                    measured.counts.append(_count())
                cpu = _cpu()
                await _until(due)
                began = time.perf_counter()
                await _all_done(folder / DATABASE, (number + 1) * each)
                measured.seconds += time.perf_counter() - began
                measured.cpu += _cpu() - cpu
            measured.counts.append(_count())
    return measured


def _write_jobs(folder: Path, count: int, due: datetime) -> None:
    """The daemon's jobs, all due at that instant."""
    at = due.isoformat(timespec="milliseconds")
    jobs = (f'[jobs.true{number}]\nat = {at}\ncommand = ["true"]\n' for number in range(count))
    file = folder / "jobs.d" / "many.new"
    file.write_text("".join(jobs))
    file.rename(folder / "jobs.d" / "many.toml")


@asynccontextmanager
async def _served(folder: Path, count: int) -> AsyncIterator[Service]:
    """A whole daemon that serves the folder."""
    (folder / "jobs.d").mkdir()
    (folder / "state").mkdir()
    _write_jobs(folder, count, datetime.now(UTC) + timedelta(days=1))
    config = folder / "scheduler.toml"
    config.write_text(f"max_running = {AT_A_TIME}\n")
    settings = load_settings(ConfigFile(path=config, named=True), {"TZ": "UTC"})
    service = Service(settings, folder / "state", folder / "s.sock", SystemClock(), get_logger())
    life = asyncio.create_task(service.run())
    try:
        while not (folder / "s.sock").exists():
            if life.done():
                raise SystemExit(f"the daemon ended: {life.exception()}")
            await asyncio.sleep(0.05)
        yield service
    finally:
        service.stop()
        await life


async def _until(instant: datetime) -> None:
    await asyncio.sleep((instant - datetime.now(UTC)).total_seconds())


async def _all_done(database: Path, commands: int) -> None:
    with closing(sqlite3.connect(database)) as connection:
        while True:
            states = dict(connection.execute("SELECT state, count(*) FROM runs GROUP BY state"))
            if set(states) - {"succeeded", "running", "queued"}:
                raise SystemExit(f"runs ended otherwise: {states}")
            if states.get("succeeded", 0) >= commands:
                return
            await asyncio.sleep(0.05)


# --- Measuring ------------------------------------------------------------------------------------------


async def _timed(commands: int, one: Callable[[], Awaitable[None]], *, counting: bool = False) -> Measured:
    """`one` was awaited so many times, as many at a time as is the rule here."""
    left = commands
    counts = [_count()] if counting else []

    async def lane() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            if counting and left == commands // 2:
                counts.append(_count())
            await one()

    began, cpu = time.perf_counter(), _cpu()
    await asyncio.gather(*(lane() for _ in range(AT_A_TIME)))
    measured = Measured(commands, time.perf_counter() - began, _cpu() - cpu, counts)
    if counting:
        counts.append(_count())
    return measured


def _cpu() -> float:
    """CPU seconds of this process, of its children that were reaped, and of those that live (the warden)."""
    used = sum(
        usage.ru_utime + usage.ru_stime
        for usage in (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )
    ticks = sum(int(fields[11]) + int(fields[12]) for fields in _children() if fields[0] != "Z")
    return used + ticks / os.sysconf("SC_CLK_TCK")


def _count() -> Count:
    return Count(
        descriptors=_entries("fd") - 1,
        threads=_entries("task"),
        zombies=sum(fields[0] == "Z" for fields in _children()),
    )


def _entries(name: str) -> int:
    return sum(1 for _ in Path("/proc/self", name).iterdir())


def _children() -> list[list[str]]:
    """The fields of /proc/PID/stat from the state on, of every child of this process."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == os.getpid():
                found.append(fields)
    return found


CONTENDERS: dict[str, Callable[[int], Measured]] = {
    "asyncio": _asyncio,
    "xargs": _xargs,
    "posix_spawn": _posix_spawn,
    "executor": _executor,
    "daemon": _daemon,
}
OURS = ("executor", "daemon")


if __name__ == "__main__":
    sys.exit(main())
