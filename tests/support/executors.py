"""Real attempts for tests: grants of made-up jobs, hooks that remember, and what was written."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from scheduler.clock import SystemClock
from scheduler.engine.ports import Ended, Execution, Executor, ProgressReport
from scheduler.executors.output import Stream, read_output
from scheduler.executors.surroundings import Surroundings
from scheduler.model.jobs import Action, CommandAction, JobDefinition, JobId, PythonAction, ShellAction
from scheduler.model.runs import Grant, OwnerId, Run, RunState, RunTrigger, new_run_id
from scheduler.model.triggers import Manual, Schedule

STORE = "store-of-" + "-".join(
    os.environ.get(name, "one") for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_TESTRUNUID")
)
"""Of these tests and their children alone: what belongs to a store is ended wherever it is on the machine."""

GRACE = 5_000_000


class Told:
    """Hooks that remember what they were told."""

    def __init__(self, wish: str = "run") -> None:
        self.children: list[tuple[int, int]] = []
        self.reports: list[ProgressReport] = []
        self.output_size = 0
        self.wanted = wish

    def child_started(self, pid: int, start_ticks: int) -> None:
        self.children.append((pid, start_ticks))

    def progressed(self, report: ProgressReport) -> None:
        self.reports.append(report)

    def output_seen(self, size: int) -> None:
        self.output_size += size

    def wish(self) -> str:
        return self.wanted


def surroundings(output_dir: Path, **changes: Any) -> Surroundings:
    """A daemon's side of attempts whose output is kept under `output_dir`."""
    plain = Surroundings(
        clock=SystemClock(),
        output_dir=output_dir,
        socket_path="/run/schedulerd/control.sock",
        store_id=STORE,
        mask=forget,
    )
    return replace(plain, **changes)


def forget(values: Iterable[str]) -> None:
    """A mask that masks nothing."""


def shell(line: str) -> ShellAction:
    return ShellAction(line=line)


def command(*argv: str) -> CommandAction:
    return CommandAction(argv=argv)


def handler(spec: str, *, process: bool = False) -> PythonAction:
    return PythonAction(handler=spec, process=process)


def grant(action: Action, *, run: dict[str, Any] | None = None, **definition: Any) -> Grant:
    """A committed claim of a fresh manual run; name what the case is about."""
    now = SystemClock().now()
    job = JobId("demo")
    fresh = Run(
        id=new_run_id(now),
        seq=1,
        job=job,
        state=RunState.RUNNING,
        trigger=RunTrigger.MANUAL,
        claim=1,
        owner=OwnerId("owner"),
        claimed_at=now,
    )
    return Grant(
        run=replace(fresh, **(run or {})),
        definition=JobDefinition(
            id=job, schedule=Schedule(Manual()), action=action, source="{}", **definition
        ),
    )


async def run_to_end(executor: Executor, granted: Grant, hooks: Told | None = None) -> Ended:
    """The end of an attempt that is started and left alone."""
    execution = await executor.start(granted, hooks or Told())
    return await execution.wait()


async def finish(execution: Execution) -> None:
    """Nothing of the attempt is left."""
    assert await execution.end(0)
    await execution.wait()


def written(directory: Path, granted: Grant, stream: Stream | None = None) -> bytes:
    """The bytes that an attempt wrote, as far as they were kept."""
    chunks = read_output(directory, granted.run.id, granted.run.claim, stream=stream)
    return b"".join(chunk.data for chunk in chunks)


def stored_size(directory: Path, granted: Grant) -> int:
    """Bytes on disk of a run's output."""
    return sum(path.stat().st_size for path in (directory / granted.run.id).iterdir())


async def until(condition: Callable[[], object], *, seconds: float = 30.0) -> None:
    """The condition has become true; real processes take real time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it has not come true"
        await asyncio.sleep(0.01)


def is_alive(pid: int) -> bool:
    """The process exists and is no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def open_descriptors() -> set[int]:
    """The descriptors of this process, with that of this look; one of an earlier test may be about to go."""
    return {int(entry.name) for entry in Path("/proc/self/fd").iterdir()}


def resident_bytes() -> int:
    """Memory of this process that is in RAM."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
