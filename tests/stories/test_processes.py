"""Stories of real processes: what they print, ask, leave behind, and how they end."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler.clock import MINUTE, SECOND
from scheduler.engine.ports import Ended, EndKind
from scheduler.errors import Draining, SpawnFailed
from scheduler.executors.command import CommandExecutor
from scheduler.executors.environment import build_environment
from scheduler.executors.spawn import Spawner
from scheduler.model.jobs import Overlap
from scheduler.model.runs import RunState
from tests.support.builders import make_definition
from tests.support.engine import bench
from tests.support.executors import (
    Told,
    command,
    grant,
    is_alive,
    run_to_end,
    shell,
    stored_size,
    surroundings,
    until,
    written,
)


@pytest.fixture
def executor(tmp_path: Path) -> Iterator[CommandExecutor]:
    spawner = Spawner()
    yield CommandExecutor(surroundings(tmp_path, output_limit=64 << 10), spawner)
    spawner.close()


async def test_b23_a_stop_lets_what_runs_come_to_its_end(tmp_path: Path) -> None:
    """B23: within the drain time the run ends by itself and is a success; nothing else starts meanwhile."""
    async with bench(tmp_path) as here:
        await here.desk.add(make_definition(every=5 * SECOND, overlap="queue"))
        await here.desk.add(make_definition("long", manual=True, overlap="queue"))
        run = await here.by_hand("long")
        queued = await here.by_hand("long", overlap=Overlap.QUEUE)
        await here.settle()
        draining = asyncio.create_task(here.drain.run())
        await here.settle()
        with pytest.raises(Draining):
            await here.by_hand()
        await here.pass_time(7 * SECOND)
        assert not draining.done()

        await here.end("long")
        await draining

        assert (await here.desk.run(run)).state is RunState.SUCCEEDED
        assert (await here.desk.run(queued)).state is RunState.QUEUED
        assert len(here.executor.started) == 1


@pytest.mark.parametrize(
    "line", ["sleep 300 & sleep 300; true", "trap '' TERM; sleep 300; sleep 300", "sleep 300 | cat"]
)
async def test_b25_ending_a_run_ends_all_that_it_started(executor: CommandExecutor, line: str) -> None:
    """B25: background children, what ignores SIGTERM and pipelines are gone with their shell."""
    mark = f"300.{os.getpid()}"
    told = Told()
    execution = await executor.start(grant(shell(line.replace("sleep 300", f"sleep {mark}"))), told)
    await until(lambda: _sleeping(mark))

    assert await asyncio.wait_for(execution.end(SECOND // 5), 30)

    assert not _sleeping(mark)
    assert not is_alive(told.children[0][0])


def _sleeping(argument: str) -> bool:
    found = False
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found = found or entry.read_bytes() == f"sleep\0{argument}\0".encode()
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    "line",
    [
        "head -c 5000000 /dev/zero | tr '\\0' x; echo; echo tail",
        "yes y | head -c 5000000; echo tail",
        "(head -c 5000000 /dev/zero >&2) & head -c 5000000 /dev/zero; wait; echo tail",
    ],
    ids=["no newline", "many lines", "both streams"],
)
async def test_b29_a_flood_of_output_fails_nothing(
    executor: CommandExecutor, tmp_path: Path, line: str
) -> None:
    """B29: the run succeeds, head and tail are kept within the limit, and the pipe never fills."""
    granted = grant(shell(line))

    ended = await asyncio.wait_for(run_to_end(executor, granted), 60)

    assert (ended.kind, ended.exit_code) == (EndKind.EXITED, 0)
    assert stored_size(tmp_path, granted) < 2 * (64 << 10)
    if ">&2" not in line:  # of two pipes nobody can say which one's bytes came last
        assert written(tmp_path, granted).endswith(b"tail\n")


async def test_b31_bytes_that_are_no_text_fail_nothing(executor: CommandExecutor, tmp_path: Path) -> None:
    """B31: they are kept as they came, and shown as U+FFFD with the rest intact."""
    granted = grant(command("printf", r"a\342\050\241\377\000\033[31m\rend"))

    ended = await run_to_end(executor, granted)

    raw = written(tmp_path, granted)
    assert ended.exit_code == 0
    assert raw == b"a\xe2\x28\xa1\xff\x00\x1b[31m\rend"
    shown = raw.decode("utf-8", "replace")
    assert (shown[0], shown[-3:], "\ufffd" in shown) == ("a", "end", True)


async def test_b32_a_job_has_what_a_terminal_has(executor: CommandExecutor, tmp_path: Path) -> None:
    """B32: HOME, LOGNAME, PATH and SHELL are set, nothing of the daemon's is passed on, the PATH is told."""
    os.environ["NOTIFY_SOCKET"] = "/run/secret"
    try:
        granted = grant(shell('set -u; echo "$HOME $LOGNAME $PATH $SHELL"; env'))
        assert (await run_to_end(executor, granted)).exit_code == 0
    finally:
        del os.environ["NOTIFY_SOCKET"]
    text = written(tmp_path, granted).decode()
    assert "NOTIFY_SOCKET" not in text
    assert text.splitlines()[0].endswith("/bin/sh")

    made = build_environment(grant(shell("x")), surroundings(tmp_path), cwd="/", progress_fd=3)
    assert {"HOME", "USER", "LOGNAME", "PATH", "SHELL", "LANG", "TZ"} <= made.keys()
    with pytest.raises(SpawnFailed, match=re.escape(made["PATH"])):
        await executor.start(grant(command("no-such-command")), Told())


@pytest.mark.parametrize("line", ["read x; echo got:$x", "cat; echo got:", "cat < /dev/tty || echo got:"])
async def test_b33_a_command_that_asks_gets_no_answer(
    executor: CommandExecutor, tmp_path: Path, line: str
) -> None:
    """B33: standard input is at its end, and there is no terminal: it ends at once."""
    granted = grant(shell(line))

    await asyncio.wait_for(run_to_end(executor, granted), 30)

    assert b"got:\n" in written(tmp_path, granted)


@pytest.mark.parametrize(
    ("line", "kind", "exit_code", "signal"),
    [
        ("exit 0", EndKind.EXITED, 0, None),
        ("exit 3", EndKind.EXITED, 3, None),
        ("exit 143", EndKind.EXITED, 143, None),
        ("kill -9 $$", EndKind.SIGNALLED, None, 9),
        ("false | true", EndKind.EXITED, 0, None),
    ],
)
async def test_b56_how_a_run_ended_is_told_as_it_was(
    executor: CommandExecutor, line: str, kind: EndKind, exit_code: int | None, signal: int | None
) -> None:
    """B56: exit code and signal are fields of their own, and no guess is made about either."""
    ended = await run_to_end(executor, grant(shell(line)))

    assert (ended.kind, ended.exit_code, ended.signal) == (kind, exit_code, signal)
    assert "memory" not in (ended.message or "")


async def test_b56_who_ended_a_run_is_told(tmp_path: Path) -> None:
    """B56: timeout and cancel are verdicts of their own, whatever exit code or signal came of them."""
    async with bench(tmp_path) as here:
        await here.desk.add(make_definition(manual=True, timeout=60))
        run = await here.by_hand()
        await here.settle()
        await here.pass_time(MINUTE + SECOND)
        timed_out = await here.desk.run(run)
        assert (timed_out.state, timed_out.reason, timed_out.signal) == ("failed", "timeout", 15)

        second = await here.by_hand()
        await here.settle()
        await here.operations.cancel(second.id, here.desk.peer)
        await here.settle()
        cancelled = await here.desk.run(second)
        assert (cancelled.state, cancelled.reason) == ("cancelled", "cancelled")

        third = await here.by_hand()
        await here.settle()
        await here.end(ended=Ended(kind=EndKind.EXITED))
        unknown = await here.desk.run(third)
        assert unknown.state is RunState.FAILED
