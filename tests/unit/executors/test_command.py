from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from scheduler.clock import to_micros
from scheduler.engine.ports import EndKind, Execution
from scheduler.errors import SpawnFailed
from scheduler.executors.command import CommandExecutor
from scheduler.executors.output import Stream
from scheduler.executors.processes import Belonging
from scheduler.executors.spawn import Spawner
from scheduler.model.jobs import Action
from scheduler.model.runs import RunTrigger
from tests.support.executors import (
    GRACE,
    STORE,
    Told,
    command,
    finish,
    grant,
    is_alive,
    open_descriptors,
    resident_bytes,
    run_to_end,
    shell,
    stored_size,
    surroundings,
    until,
    written,
)


@pytest.fixture
def spawner() -> Iterator[Spawner]:
    made = Spawner()
    yield made
    made.close()


@pytest.fixture
def executor(tmp_path: Path, spawner: Spawner) -> CommandExecutor:
    return CommandExecutor(surroundings(tmp_path), spawner)


async def output_of(executor: CommandExecutor, tmp_path: Path, action: Action, **definition: Any) -> str:
    granted = grant(action, **definition)
    await run_to_end(executor, granted)
    return written(tmp_path, granted).decode()


@pytest.mark.parametrize(
    ("line", "kind", "exit_code", "signal"),
    [
        ("exit 0", EndKind.EXITED, 0, None),
        ("exit 3", EndKind.EXITED, 3, None),
        ("exit 143", EndKind.EXITED, 143, None),
        ("false | true", EndKind.EXITED, 0, None),
        ("kill -9 $$", EndKind.SIGNALLED, None, 9),
        ("kill -TERM $$", EndKind.SIGNALLED, None, 15),
    ],
)
async def test_exit_code_and_signal_are_told_apart(
    executor: CommandExecutor, line: str, kind: EndKind, exit_code: int | None, signal: int | None
) -> None:
    """An exit code and a signal are facts of their own, and 143 by itself is no signal (B56)."""
    ended = await run_to_end(executor, grant(shell(line)))

    assert (ended.kind, ended.exit_code, ended.signal) == (kind, exit_code, signal)


async def test_argv_reaches_the_program_without_a_shell(executor: CommandExecutor, tmp_path: Path) -> None:
    """Words with blanks, dollars and quotes arrive as they are."""
    words = ["a b", "$HOME", "'", "ü", ""]

    text = await output_of(executor, tmp_path, command("printf", "<%s>", *words))

    assert text == "<a b><$HOME><'><ü><>"


async def test_status_taken_by_somebody_else_is_no_success(executor: CommandExecutor) -> None:
    """An exit status that we did not get is an unknown end, not exit code 0 (B56)."""
    granted = grant(shell("sleep 0.2; exit 4"))
    told = Told()
    execution = await executor.start(granted, told)
    os.waitpid(told.children[0][0], 0)  # noqa: ASYNC222 - so that nobody else is first

    ended = await execution.wait()

    assert ended.exit_code is None
    assert ended.signal is None
    assert "not known" in (ended.message or "")


async def test_streams_are_told_apart(executor: CommandExecutor, tmp_path: Path) -> None:
    """Stdout and stderr are kept with their names, and both count as signs of life."""
    granted = grant(shell("echo out; echo err >&2"))
    told = Told()

    await run_to_end(executor, granted, told)

    assert written(tmp_path, granted, Stream.STDOUT) == b"out\n"
    assert written(tmp_path, granted, Stream.STDERR) == b"err\n"
    assert told.output_size == 8


async def test_wait_may_be_cancelled_and_awaited_again(executor: CommandExecutor) -> None:
    """A cancelled wait ends nothing, and the end can be had any number of times."""
    execution = await executor.start(grant(shell("sleep 0.3; exit 7")), Told())
    waiting = asyncio.ensure_future(execution.wait())
    await asyncio.sleep(0)
    waiting.cancel()

    ends = await asyncio.gather(execution.wait(), execution.wait())

    assert [end.exit_code for end in ends] == [7, 7]


async def test_main_process_is_named_with_its_start_ticks(executor: CommandExecutor) -> None:
    """The hooks learn the pid and the raw start ticks of the session's leader."""
    told = Told()
    execution = await executor.start(grant(command("sleep", "60")), told)
    ((pid, ticks),) = told.children

    stat = stat_fields(pid)

    assert (int(stat[2]), int(stat[3]), int(stat[19])) == (pid, pid, ticks)
    await finish(execution)


def stat_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


# --- stdin ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", ["read x; echo got:$x", "cat; echo got:", "cat < /dev/tty || echo got:"])
async def test_stdin_is_at_its_end_at_once(executor: CommandExecutor, tmp_path: Path, line: str) -> None:
    """A command that asks, of stdin or of a terminal, gets no answer and does not wait for one (B33)."""
    granted = grant(shell(line))

    await asyncio.wait_for(run_to_end(executor, granted), 30)

    assert b"got:\n" in written(tmp_path, granted)


async def test_large_stdin_text_does_not_block(executor: CommandExecutor, tmp_path: Path) -> None:
    """A text far larger than a pipe is read whole, also by a command that waits before it reads."""
    text = "ä" * 1_000_000
    granted = grant(shell("sleep 0.2; sha256sum"), stdin=text)
    ignoring = grant(command("true"), stdin="x" * 1_000_000)

    ended = [await run_to_end(executor, granted), await run_to_end(executor, ignoring)]

    assert [end.exit_code for end in ended] == [0, 0]
    assert written(tmp_path, granted).decode().split()[0] == hashlib.sha256(text.encode()).hexdigest()


# --- environment, directory, descriptors ------------------------------------------------------------------


async def test_environment_is_clean(
    executor: CommandExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command sees the base, its `env` and SCHEDULER_ names; nothing of the daemon's own (B32)."""
    for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "LISTEN_FDS", "DAEMON_SECRET", "SCHEDULER_CONFIG"):
        monkeypatch.setenv(name, "the daemon's")
    granted = grant(command("env", "-0"), env={"REGION": "eu"}, args={"n": 1}, timezone="Europe/Berlin")

    await run_to_end(executor, granted)

    seen = dict(pair.split("=", 1) for pair in written(tmp_path, granted).decode().split("\0") if pair)
    assert set(seen) == {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "REGION"),
        *("SCHEDULER_JOB", "SCHEDULER_RUN_ID", "SCHEDULER_ATTEMPT", "SCHEDULER_FIRE_TIME"),
        *("SCHEDULER_TRIGGER", "SCHEDULER_ARGS", "SCHEDULER_PROGRESS_FD", "SCHEDULER_SOCKET"),
        *("SCHEDULER_STORE_ID", "SCHEDULER_CLAIM", "SCHEDULER_IDEMPOTENCY_KEY"),
    }
    assert seen["TZ"] == "Europe/Berlin"
    assert seen["SHELL"] == "/bin/sh"
    assert json.loads(seen["SCHEDULER_ARGS"]) == {"n": 1}
    assert seen["SCHEDULER_FIRE_TIME"] == ""
    assert seen["SCHEDULER_IDEMPOTENCY_KEY"] == granted.run.id


async def test_fire_time_has_the_offset_of_the_jobs_zone(executor: CommandExecutor, tmp_path: Path) -> None:
    """SCHEDULER_FIRE_TIME is RFC 3339 in the job's zone."""
    from datetime import datetime  # noqa: PLC0415

    slot = to_micros(datetime(2027, 7, 1, 2, 30, tzinfo=ZoneInfo("Europe/Berlin")))
    granted = grant(
        shell('echo "$SCHEDULER_FIRE_TIME $SCHEDULER_TRIGGER"'),
        run={"fire_time": slot, "trigger": RunTrigger.CATCH_UP},
        timezone="Europe/Berlin",
    )

    await run_to_end(executor, granted)

    assert written(tmp_path, granted) == b"2027-07-01T02:30:00+02:00 catch_up\n"


async def test_starts_in_cwd_or_home_with_a_fixed_umask(executor: CommandExecutor, tmp_path: Path) -> None:
    """`cwd` is where a command starts, HOME without one, and the umask is 022 whatever the daemon's."""
    place = tmp_path / "ein Ort"
    place.mkdir()
    before = os.umask(0o077)
    try:
        there = await output_of(executor, tmp_path, shell("pwd; umask"), cwd=str(place))
        home = await output_of(executor, tmp_path, shell("pwd"), env={"HOME": str(place)})
    finally:
        os.umask(before)

    assert there == f"{place}\n0022\n"
    assert home == f"{place}\n"


async def test_no_descriptor_is_inherited(
    executor: CommandExecutor, tmp_path: Path, spawner: Spawner
) -> None:
    """A command has stdio and the progress pipe, also where the daemon has inheritable descriptors."""
    leaky = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(leaky, True)
    try:
        text = await output_of(executor, tmp_path, command("ls", "/proc/self/fd"))
    finally:
        os.close(leaky)

    numbers = {int(word) for word in text.split()}
    # `ls` itself opens the directory that it lists, under the lowest free number.
    own = min(set(range(3, 64)) - {spawner.progress_fd})
    assert numbers == {0, 1, 2, spawner.progress_fd, own}


# --- what cannot be started -------------------------------------------------------------------------------


async def refusal(executor: CommandExecutor, action: Action, **definition: Any) -> str:
    with pytest.raises(SpawnFailed) as caught:
        await executor.start(grant(action, **definition), Told())
    return caught.value.message


async def test_command_not_found_shows_the_path_used(executor: CommandExecutor) -> None:
    """A missing command is told with the PATH it was looked for in (B32)."""
    message = await refusal(executor, command("exprot-nightly"), env={"PATH": "/opt/a:/opt/b"})

    assert "command not found: exprot-nightly (PATH=/opt/a:/opt/b)" in message


@pytest.mark.parametrize(
    ("content", "mode", "expected"),
    [
        (None, 0, "does not exist"),
        ("#!/bin/sh\n", 0o644, "is not executable"),
        ("#!/usr/bin/pyhton9\n", 0o755, "its interpreter /usr/bin/pyhton9"),
        ("echo hello\n", 0o755, "needs a first line like #!/bin/sh"),
    ],
)
async def test_each_kind_of_unstartable_program_is_named(
    executor: CommandExecutor, tmp_path: Path, content: str | None, mode: int, expected: str
) -> None:
    """A program that is missing, not executable or has a bad interpreter is told as that."""
    program = tmp_path / "program"
    if content is not None:
        program.write_text(content)
        program.chmod(mode)

    message = await refusal(executor, command(str(program)))

    assert expected in message
    assert str(program) in message


async def test_missing_cwd_is_told_as_that(executor: CommandExecutor, tmp_path: Path) -> None:
    """A missing or wrong `cwd` is not told as a missing command."""
    (tmp_path / "file").touch()

    missing = await refusal(executor, command("true"), cwd=str(tmp_path / "nowhere"))
    wrong = await refusal(executor, command("true"), cwd=str(tmp_path / "file"))

    assert "cwd" in missing
    assert "does not exist" in missing
    assert "is not a directory" in wrong


async def test_too_large_an_environment_is_told_without_values(executor: CommandExecutor) -> None:
    """What the kernel would refuse is named by size and variable; no value shows (B54)."""
    one = await refusal(executor, command("true"), env={"BIG": "secret" * 40_000})
    argument = await refusal(executor, command("echo", "x" * 200_000))
    all_of_it = await refusal(
        executor, command("true"), env={f"BIG{n}": "secret" * 20_000 for n in range(60)}
    )

    assert "variable BIG has 240004 bytes" in one
    assert "an argument has 200000 bytes" in argument
    assert "too many for the kernel" in all_of_it
    assert "secretsecret" not in one + argument + all_of_it


async def test_refused_start_leaves_no_descriptor(executor: CommandExecutor, tmp_path: Path) -> None:
    """A start that fails closes all that it opened."""
    await refusal(executor, command("no-such-command"))
    script = tmp_path / "script"
    script.write_text("no interpreter")
    script.chmod(0o755)
    before = len(open_descriptors())

    for _ in range(5):
        await refusal(executor, command(str(script)))

    assert len(open_descriptors()) <= before


async def test_env_file_values_reach_the_command_and_the_mask(tmp_path: Path, spawner: Spawner) -> None:
    """Values of an `env_file` win over `env`, are read at each start, and are masked from then on."""
    masked: list[str] = []
    executor = CommandExecutor(surroundings(tmp_path / "out", mask=masked.extend), spawner)
    secrets = tmp_path / "secrets.env"
    granted = grant(shell('echo "$TOKEN"'), env={"TOKEN": "old"}, env_file=str(secrets))

    secrets.write_text("TOKEN='first'\n")
    await run_to_end(executor, granted)

    assert written(tmp_path / "out", granted) == b"first\n"
    assert masked == ["first"]


# --- the end of a run -------------------------------------------------------------------------------------


async def test_grandchild_that_holds_stdout_does_not_hold_the_run(
    executor: CommandExecutor, tmp_path: Path
) -> None:
    """A run ends with its main process (+ 2 s for the pipes), and what it left behind is counted."""
    granted = grant(shell("sleep 60 & echo $!; exit 5"))
    begun = time.monotonic()
    execution = await executor.start(granted, Told())

    ended = await execution.wait()

    assert time.monotonic() - begun < 4
    assert (ended.exit_code, ended.left_behind) == (5, 1)
    assert is_alive(int(written(tmp_path, granted)))
    assert await execution.end(GRACE)
    assert not is_alive(int(written(tmp_path, granted)))


async def test_background_child_is_not_killed_by_a_closed_pipe(
    executor: CommandExecutor, tmp_path: Path
) -> None:
    """What a job leaves on purpose may go on writing after the run has ended, and is not told SIGPIPE."""
    marker = tmp_path / "survived"
    line = f"(sleep 2.5; echo late && echo later && touch '{marker}') & echo main"
    granted = grant(shell(line))
    told = Told()

    await run_to_end(executor, granted, told)

    await until(marker.exists)
    assert written(tmp_path, granted) == b"main\n"
    assert told.output_size == 5


async def test_straggler_in_the_pipes_is_still_read(executor: CommandExecutor, tmp_path: Path) -> None:
    """What a `tee` still passes on within two seconds after the main process is kept."""
    granted = grant(shell("(sleep 0.5; echo straggler) & exit 0"))

    ended = await run_to_end(executor, granted)

    assert written(tmp_path, granted) == b"straggler\n"
    assert ended.left_behind == 0


async def ended_within(execution: Execution, grace: int, limit: float) -> bool:
    begun = time.monotonic()
    ended = await execution.end(grace)
    await execution.wait()
    return ended and time.monotonic() - begun < limit


@pytest.mark.parametrize(
    "line",
    [
        "sleep 300 & sleep 301; true",
        "sleep 302 | cat",
        "trap '' TERM; echo ready; while :; do sleep 303; done",
        "(trap '' TERM; sleep 304 & wait) & sleep 305",
        "sleep 306 & sleep 0.2; kill -STOP $!; kill -STOP $$",
        "setsid sleep 307 & sleep 308",
        "setsid setsid sh -c 'sleep 309 & sleep 310' & sleep 311",
        "env -i sleep 312 & env -i sleep 313",
    ],
)
async def test_end_ends_every_process_of_the_attempt(executor: CommandExecutor, line: str) -> None:
    """Shell, children, pipelines, what ignores SIGTERM, is stopped or has left the session (B25, I11)."""
    # A fraction of our own tells these processes from those of any other test.
    line = re.sub(r"sleep (3\d\d)", rf"sleep \1.{os.getpid()}", line)
    numbers = re.findall(r"sleep (3[\d.]+)", line)
    execution = await executor.start(grant(shell(line)), Told())
    await until(lambda: all(sleeping(number) for number in numbers))

    assert await ended_within(execution, 300_000, 3)

    assert not any(sleeping(number) for number in numbers)


async def test_term_lets_a_command_clean_up_within_its_grace(
    executor: CommandExecutor, tmp_path: Path
) -> None:
    """SIGTERM comes once and first; a command that ends on it tells its own exit code."""
    line = "trap 'echo term; exit 9' TERM; echo ready; while :; do sleep 0.05; done"
    granted = grant(shell(line))
    execution = await executor.start(granted, Told())
    await until(lambda: written(tmp_path, granted))

    assert await execution.end(GRACE)

    assert (await execution.wait()).exit_code == 9
    assert written(tmp_path, granted, Stream.STDOUT) == b"ready\nterm\n"


async def test_end_is_safe_twice_and_after_the_end(executor: CommandExecutor) -> None:
    """Ending what has ended is no error."""
    execution = await executor.start(grant(command("true")), Told())
    await execution.wait()

    assert await execution.end(0)
    assert await execution.end(GRACE)


async def test_another_run_is_left_alone(executor: CommandExecutor) -> None:
    """Ending one attempt touches no process of another one of the same store."""
    told = Told()
    bystander = await executor.start(grant(command("sleep", "60")), told)
    execution = await executor.start(grant(command("sleep", "61")), Told())

    assert await execution.end(0)

    assert is_alive(told.children[0][0])
    await finish(bystander)


async def test_cancelled_start_leaves_no_process(executor: CommandExecutor) -> None:
    """A start that is cancelled while the process is made kills that process."""
    granted = grant(command("sleep", "60"))
    starting = asyncio.create_task(executor.start(granted, Told()))
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting

    await asyncio.sleep(0.3)  # the thread has made the process by now
    left = Belonging(store_id=STORE, run_id=granted.run.id, claim=1)
    await until(lambda: not left.processes())


def sleeping(seconds: str) -> bool:
    """A living `sleep` with that argument exists."""
    wanted = f"sleep\0{seconds}\0".encode()
    for entry in Path("/proc").iterdir():
        try:
            found = entry.name.isdecimal() and (entry / "cmdline").read_bytes() == wanted
        except (FileNotFoundError, ProcessLookupError):
            continue
        if found and is_alive(int(entry.name)):
            return True
    return False


# --- output and progress ----------------------------------------------------------------------------------


async def test_gigabyte_without_newline_costs_no_memory(executor: CommandExecutor, tmp_path: Path) -> None:
    """1 GB without a newline succeeds in bounded memory and disk, and the loop stays free (B29, I15)."""
    granted = grant(shell("head -c 1G /dev/zero; echo tail"))
    before = resident_bytes()
    slowest = 0.0
    execution = await executor.start(granted, Told())
    waiting = asyncio.ensure_future(execution.wait())

    peak = before
    while not waiting.done():
        begun = time.perf_counter()
        await asyncio.sleep(0.002)
        slowest = max(slowest, time.perf_counter() - begun)
        peak = max(peak, resident_bytes())

    assert (await waiting).exit_code == 0
    assert peak - before < 20_000_000
    assert stored_size(tmp_path, granted) <= 10 << 20
    assert written(tmp_path, granted).endswith(b"\0tail\n")
    assert slowest < 0.25


async def test_bytes_are_kept_as_they_are(executor: CommandExecutor, tmp_path: Path) -> None:
    """Bytes that are no UTF-8, NUL, escapes and a lone CR neither fail a run nor change (B31)."""
    granted = grant(command("printf", r"\342\050\241\377\000\033[31m\rend"))

    ended = await run_to_end(executor, granted)

    assert ended.exit_code == 0
    assert written(tmp_path, granted) == b"\xe2\x28\xa1\xff\x00\x1b[31m\rend"


async def test_disk_that_takes_nothing_does_not_fail_the_job(tmp_path: Path, spawner: Spawner) -> None:
    """Output that cannot be kept is lost; the job is not (I14)."""
    obstacle = tmp_path / "output"
    obstacle.write_text("a file where a directory should be")
    executor = CommandExecutor(surroundings(obstacle), spawner)

    ended = await run_to_end(executor, grant(shell("head -c 1M /dev/zero; exit 0")))

    assert ended.exit_code == 0


async def test_progress_lines_are_reported(executor: CommandExecutor) -> None:
    """JSON lines on the progress descriptor are told; what is no progress is ignored."""
    line = """exec > /dev/fd/$SCHEDULER_PROGRESS_FD
        echo '{"done": 3, "total": 10}'; echo nonsense; sleep 0.3; echo '{"cost": 0.5}'"""
    told = Told()

    await run_to_end(executor, grant(shell(line)), told)

    assert [report.progress.done for report in told.reports] == [3, None]
    assert told.reports[1].cost == 0.5
