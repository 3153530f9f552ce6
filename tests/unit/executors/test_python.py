from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from scheduler.clock import SECOND
from scheduler.engine.ports import Ended, EndKind, Execution
from scheduler.errors import HandlerBroken
from scheduler.executors.dispatch import Executors
from scheduler.executors.output import Stream
from scheduler.model.runs import Grant
from tests.support.executors import (
    GRACE,
    Told,
    finish,
    grant,
    handler,
    is_alive,
    open_descriptors,
    run_to_end,
    surroundings,
    until,
    written,
)

Write = Callable[[str], str]


@pytest.fixture
def code(tmp_path: Path) -> Path:
    place = tmp_path / "code"
    place.mkdir()
    return place


@pytest.fixture
def executors(tmp_path: Path, code: Path) -> Iterator[Executors]:
    before = list(sys.path)
    made = Executors(surroundings(tmp_path / "out", python_path=(str(code),)))
    yield made
    made.close()
    sys.path[:] = before


@pytest.fixture
def module(code: Path) -> Write:
    """Writes a module under a fresh name and gives that name."""

    def write(source: str) -> str:
        name = f"handlers_{uuid4().hex}"
        (code / f"{name}.py").write_text("from scheduler import *\n" + textwrap.dedent(source))
        return name

    return write


BOTH = pytest.mark.parametrize("process", [False, True], ids=["on the loop", "in a child"])


async def call(executors: Executors, spec: str, *, process: bool = False, **definition: Any) -> Ended:
    return await run_to_end(executors, grant(handler(spec, process=process), **definition))


def output(tmp_path: Path, granted: Grant) -> str:
    return written(tmp_path / "out", granted, Stream.STDERR).decode()


# --- what a handler sees ----------------------------------------------------------------------------------

SEES = """
    import os
    async def sees(run, *, region):
        run.progress(done=1, total=2, message="half", cost=0.5)
        run.log.info("hello\\nworld", n=1, text="a\\nb")
        return [run.job_id, run.run_id, run.attempt, run.idempotency_key, region, run.args["region"],
                run.fire_time and run.fire_time.isoformat(), run.item, run.checkpoint(), os.getpid()]
"""


@BOTH
async def test_context_is_the_same_on_the_loop_and_in_a_child(
    executors: Executors,
    module: Write,
    tmp_path: Path,
    process: bool,
) -> None:
    """Job, run, attempt, key, args, slot, wish, progress and log mean the same in both."""
    granted = grant(
        handler(f"{module(SEES)}:sees", process=process),
        run={"fire_time": 1_800_000_000 * SECOND, "attempt": 2},
        timezone="Europe/Berlin",
        args={"region": "eu"},
    )
    told = Told(wish="hold")

    ended = await run_to_end(executors, granted, told)

    assert ended.kind is EndKind.RETURNED
    assert isinstance(ended.result, list)
    *facts, pid = ended.result
    assert facts == [
        *("demo", granted.run.id, 2, granted.run.id, "eu", "eu"),
        *("2027-01-15T09:00:00+01:00", None, "hold"),
    ]
    assert (pid == os.getpid()) is not process
    assert [child for child, _ in told.children] == ([pid] if process else [])
    assert [(r.progress.done, r.progress.message, r.cost) for r in told.reports] == [(1, "half", 0.5)]
    (line,) = output(tmp_path, granted).splitlines()
    assert line.split(" ", 1)[1] == 'info hello world n=1 text="a\\nb"'
    assert told.output_size > 0


async def test_sync_function_runs_in_a_child_with_the_jobs_surroundings(
    executors: Executors, module: Write, tmp_path: Path
) -> None:
    """A sync handler is a process of its own: environment, directory, stdin and output are the job's."""
    source = """
        import os, sys
        def f(run):
            print("printed")
            return [os.getpid(), os.getcwd(), os.environ["REGION"], sys.stdin.read(),
                    "PYTEST_CURRENT_TEST" in os.environ, os.getsid(0), "handlers" in str(sys.argv)]
    """
    place = tmp_path / "place"
    place.mkdir()
    granted = grant(
        handler(f"{module(source)}:f"), env={"REGION": "eu"}, cwd=str(place), stdin="asked", args={}
    )

    ended = await run_to_end(executors, granted)

    assert isinstance(ended.result, list)
    pid = ended.result[0]
    assert pid != os.getpid()
    assert ended.result[1:] == [str(place), "eu", "asked", False, pid, False]
    assert written(tmp_path / "out", granted, Stream.STDOUT) == b"printed\n"


async def test_arguments_of_a_start_by_hand_replace_the_jobs(executors: Executors, module: Write) -> None:
    """A run with arguments of its own gets those."""
    spec = f"{module('async def f(run, **args): return args')}:f"
    granted = grant(handler(spec), args={"a": 1}, run={"args": json.dumps({"b": [None, "ü"]})})

    assert (await run_to_end(executors, granted)).result == {"b": [None, "ü"]}


# --- how a handler ends -----------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return {'rows': (1, 2)}", Ended(kind=EndKind.RETURNED, result={"rows": [1, 2]})),
        ("return None", Ended(kind=EndKind.RETURNED)),
        ("return 'ü\\ud83d\\ude00'.encode('utf-16', 'surrogatepass').decode('utf-16')",
         Ended(kind=EndKind.RETURNED, result="ü😀")),
        ("return Completed({'all': True})",
         Ended(kind=EndKind.RETURNED, result={"all": True}, completed=True)),
        ("raise ValueError('no\\nrows')", Ended(kind=EndKind.RAISED, message="ValueError: no rows")),
        ("raise Retry(after=1.5)",
         Ended(kind=EndKind.RETRY_ASKED, retry_after=1_500_000, message="the handler asked for a later try")),
        ("raise SystemExit(0)", Ended(
            kind=EndKind.RAISED, message="SystemExit: 0; a handler returns or raises, it does not exit")),
        ("raise KeyboardInterrupt", Ended(kind=EndKind.RAISED, message="KeyboardInterrupt")),
        ("raise GeneratorExit", Ended(kind=EndKind.RAISED, message="GeneratorExit")),
        ("raise type('E', (ValueError,), {'__str__': exits})",
         Ended(kind=EndKind.RAISED, message="E: (its text cannot be read)")),
        ("raise type('E', (Retry,), {'__str__': exits})(after=1)",
         Ended(kind=EndKind.RAISED, message="E: (its text cannot be read)")),
        ("raise Retry(after=-1)", Ended(
            kind=EndKind.RAISED, message="Retry(after=-1) wants a number of seconds, 0 or more")),
        ("return 'x' * 70_000", Ended(
            kind=EndKind.RAISED,
            message="the result is larger than 65536 bytes of JSON; keep it elsewhere, return its place")),
        ("return object", Ended(
            kind=EndKind.RAISED,
            message="the result is not JSON: Object of type type is not JSON serializable")),
    ],
)  # fmt: skip
async def test_end_is_told_as_it_was(
    executors: Executors,
    module: Write,
    body: str,
    expected: Ended,
    process: bool,
) -> None:
    """Results, Completed, Retry, exceptions and exits are told apart, in a child as on the loop (B56)."""
    source = f"async def f(run): {body}\ndef exits(self): raise SystemExit"

    ended = await call(executors, f"{module(source)}:f", process=process)

    assert ended == expected


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize(
    "body", ["return 7", "raise ValueError", "await asyncio.sleep(60)", "await in_a_task()"]
)
async def test_process_that_a_handler_forks_does_not_come_back_to_the_loop(
    executors: Executors, module: Write, capfd: pytest.CaptureFixture[str], body: str
) -> None:
    """I14: there would be a second daemon on the same sockets; one that execs or exits is left alone."""
    source = f"""
        import asyncio, os
        async def f(run):
            strayed, good = os.fork(), 1
            if not strayed: {body}
            good = os.fork()
            if not good: os._exit(4)
            return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in (strayed, good)]
        async def in_a_task():
            await asyncio.create_task(asyncio.sleep(60))
    """

    ended = await call(executors, f"{module(source)}:f")

    assert ended == Ended(kind=EndKind.RETURNED, result=[1, 4])
    assert "it has to exec or exit" in capfd.readouterr().err


async def test_task_of_a_handler_bears_the_name_of_its_run(executors: Executors, module: Write) -> None:
    """I15: what holds the loop is known by it, though `create_task` of Python 3.12 sets None afterwards."""
    source = """
        import asyncio
        async def f(run):
            task = asyncio.create_task(asyncio.sleep(0))
            names = [task.get_name()]
            task.set_name(None)
            names.append(task.get_name())
            return [name.removeprefix("run:") == run.run_id for name in names]
    """

    ended = await call(executors, f"{module(source)}:f")

    assert ended == Ended(kind=EndKind.RETURNED, result=[True, True])


@BOTH
async def test_largest_result_fits(
    executors: Executors,
    module: Write,
    process: bool,
) -> None:
    """A result of exactly 64 KiB is kept, one byte more is not."""
    source = "async def f(run, n): return 'ü' * n + 'x' * 2"
    spec = f"{module(source)}:f"

    fits = await call(executors, spec, process=process, args={"n": (65536 - 4) // 2})
    larger = await call(executors, spec, process=process, args={"n": (65536 - 2) // 2})

    assert fits.kind is EndKind.RETURNED
    assert larger.kind is EndKind.RAISED


@BOTH
async def test_traceback_goes_to_the_runs_output(
    executors: Executors,
    module: Write,
    tmp_path: Path,
    process: bool,
) -> None:
    """The traceback begins at the handler's own frame and is in the output, not in the message."""
    source = """
        async def f(run):
            inner()
        def inner():
            raise LookupError("gone")
    """
    granted = grant(handler(f"{module(source)}:f", process=process))

    await run_to_end(executors, granted)

    text = output(tmp_path, granted)
    assert text.startswith("Traceback (most recent call last):\n")
    assert "in inner" in text
    assert text.endswith("LookupError: gone\n")
    assert "scheduler/executors/task.py" not in text


async def test_wrong_arguments_fail_the_attempt(executors: Executors, module: Write) -> None:
    """A handler that does not take the arguments fails with Python's own words."""
    ended = await call(executors, f"{module('async def f(run): pass')}:f", args={"n": 1})

    assert ended.kind is EndKind.RAISED
    assert "unexpected keyword argument 'n'" in (ended.message or "")


async def test_exit_in_a_task_of_a_handler_does_not_reach_the_loop(
    executors: Executors, module: Write
) -> None:
    """`sys.exit()` in a task that a handler has begun fails that handler, not the daemon."""
    source = """
        import asyncio, sys
        async def leave(): sys.exit(0)
        async def f(run): await asyncio.create_task(leave())
    """

    ended = await call(executors, f"{module(source)}:f")

    assert ended.kind is EndKind.RAISED
    assert "SystemExit in a task of a handler" in (ended.message or "")


async def test_child_that_ends_without_a_word_is_no_success(executors: Executors, module: Write) -> None:
    """os._exit(0) in a handler is a failure, and a fatal signal is told as one (B56)."""
    name = module("""
        import os, signal
        def leave(run): os._exit(0)
        def die(run): os.kill(os.getpid(), signal.SIGSEGV)
    """)

    left, died = await call(executors, f"{name}:leave"), await call(executors, f"{name}:die")

    assert (left.kind, left.exit_code) == (EndKind.RAISED, 0)
    assert "before the handler had returned" in (left.message or "")
    assert (died.kind, died.signal) == (EndKind.SIGNALLED, signal.SIGSEGV)


async def test_result_counts_whatever_the_interpreter_does_afterwards(
    executors: Executors, module: Write
) -> None:
    """A handler that had returned has returned, also if its process then falls over."""
    source = """
        import atexit, os
        def f(run):
            atexit.register(os._exit, 3)
            return 1
    """

    ended = await call(executors, f"{module(source)}:f")

    assert (ended.kind, ended.result) == (EndKind.RETURNED, 1)


# --- broken handlers --------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(
    ("source", "attribute", "expected"),
    [
        ("import no_such_module_here", "f", "ModuleNotFoundError: No module named 'no_such_module_here'"),
        ("raise SystemExit(0)", "f", "SystemExit: 0"),
        ("def f(:", "f", "SyntaxError"),
        ("", "f", "has no attribute 'f'"),
        ("f = 3", "f", "is not a function but int"),
    ],
)
async def test_handler_that_cannot_be_imported_is_broken(
    executors: Executors,
    module: Write,
    source: str,
    attribute: str,
    expected: str,
    process: bool,
) -> None:
    """A failing import, also one that exits, is told as a broken job with the reason."""
    spec = f"{module(source)}:{attribute}"

    with pytest.raises(HandlerBroken) as caught:
        await executors.start(grant(handler(spec, process=process)), Told())

    assert spec in caught.value.message
    assert expected in caught.value.message


async def test_import_that_ends_its_process_is_broken(executors: Executors, module: Write) -> None:
    """A child that leaves while it imports, without a word, is told as a broken job."""
    with pytest.raises(HandlerBroken, match="exit code 3 before its import was done"):
        await call(executors, f"{module('import os; os._exit(3)')}:f", process=True)


async def test_import_does_not_hold_the_loop(executors: Executors, module: Write) -> None:
    """The loop is free while a handler's module takes its time to import (I15)."""
    spec = f"{module('import time; time.sleep(0.3)' + chr(10) + 'async def f(run): pass')}:f"
    starting = asyncio.ensure_future(executors.start(grant(handler(spec)), Told()))
    slowest = 0.0

    while not starting.done():
        begun = time.perf_counter()
        await asyncio.sleep(0.005)
        slowest = max(slowest, time.perf_counter() - begun)

    await (await starting).wait()
    assert slowest < 0.2


async def test_child_sees_changed_code(executors: Executors, module: Write, code: Path) -> None:
    """A sync handler is run as it is now, also under a name that is new in a module we know."""
    name = module("def f(run): return 'old'")
    before = await call(executors, f"{name}:f")
    (code / f"{name}.py").write_text("def f(run): return 'new'\ndef added(run): return 'added'\n# longer\n")

    after, added = await call(executors, f"{name}:f"), await call(executors, f"{name}:added")

    assert [before.result, after.result, added.result] == ["old", "new", "added"]


async def test_repaired_import_works_without_a_restart(
    executors: Executors, module: Write, code: Path
) -> None:
    """A module that could not be imported is tried again at the next attempt."""
    name = module("import no_such_module_here")
    with pytest.raises(HandlerBroken):
        await call(executors, f"{name}:f")
    (code / f"{name}.py").write_text("async def f(run): return 'repaired'\n")

    assert (await call(executors, f"{name}:f")).result == "repaired"


# --- being ended ------------------------------------------------------------------------------------------


async def test_ended_task_is_cancelled_and_may_clean_up(executors: Executors, module: Write) -> None:
    """`end` cancels a coroutine and waits for its `finally`."""
    source = """
        import asyncio
        async def f(run):
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(0.05)
                run.progress(message="cleaned")
    """
    told = Told()
    execution = await executors.start(grant(handler(f"{module(source)}:f")), told)
    await asyncio.sleep(0.01)

    assert await execution.end(GRACE)

    assert await execution.wait() == Ended(kind=EndKind.CANCELLED)
    assert [report.progress.message for report in told.reports] == ["cleaned"]


async def test_task_ended_before_its_first_step_is_cancelled(executors: Executors, module: Write) -> None:
    """A handler that is ended before it has begun has an end, too."""
    execution = await executors.start(grant(handler(f"{module('async def f(run): pass')}:f")), Told())

    assert await execution.end(GRACE)
    assert (await execution.wait()).kind is EndKind.CANCELLED


async def test_cancelled_wait_ends_neither_the_handler_nor_another_wait(
    executors: Executors, module: Write
) -> None:
    """Each wait for a handler on the loop is its own."""
    source = """
        import asyncio
        async def f(run):
            await asyncio.sleep(0.01)
            return "done"
    """
    execution = await executors.start(grant(handler(f"{module(source)}:f")), Told())
    given_up, other = asyncio.ensure_future(execution.wait()), asyncio.ensure_future(execution.wait())

    given_up.cancel()

    assert (await other).result == "done"
    assert (await execution.wait()).result == "done"


async def test_task_that_swallows_cancellation_is_told_as_stuck(executors: Executors, module: Write) -> None:
    """`end` says False after the grace and can be tried again; the result counts when it comes."""
    source = """
        import asyncio
        async def f(run, times):
            for _ in range(times):
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    pass
            return "at last"
    """
    granted = grant(handler(f"{module(source)}:f"), args={"times": 2})
    execution = await executors.start(granted, Told())
    await asyncio.sleep(0.01)
    begun = time.monotonic()

    assert not await execution.end(100_000)
    assert time.monotonic() - begun < 1
    assert await execution.end(GRACE)
    assert (await execution.wait()).result == "at last"


async def test_cancel_from_inside_is_a_failure(executors: Executors, module: Write) -> None:
    """A handler that raises CancelledError by itself was not cancelled by us."""
    source = "import asyncio\nasync def f(run): raise asyncio.CancelledError"

    ended = await call(executors, f"{module(source)}:f")

    assert ended.kind is EndKind.RAISED
    assert "cancelled from inside" in (ended.message or "")


SYNC = """
    import time, pathlib
    def f(run, mark):
        run.progress(message="begun")
        try:
            time.sleep(60)
        finally:
            time.sleep(0.05)
            pathlib.Path(mark).touch()
"""
ASYNC = """
    import asyncio, pathlib
    async def f(run, mark):
        run.progress(message="begun")
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.05)
            pathlib.Path(mark).touch()
"""


async def begun(executors: Executors, granted: Grant) -> tuple[Execution, int]:
    """A child whose handler has told its first progress, and its pid."""
    told = Told()
    execution = await executors.start(granted, told)
    await until(lambda: told.reports)
    return execution, told.children[0][0]


@pytest.mark.parametrize("source", [SYNC, ASYNC], ids=["sync", "async"])
async def test_ended_child_may_clean_up_and_tells_the_signal(
    executors: Executors, module: Write, tmp_path: Path, source: str
) -> None:
    """SIGTERM lets `finally` run in a child; the end is told as the signal it was."""
    mark = tmp_path / "cleaned"
    granted = grant(handler(f"{module(source)}:f", process=True), args={"mark": str(mark)})
    execution, pid = await begun(executors, granted)

    assert await execution.end(GRACE)

    assert mark.exists()
    assert not is_alive(pid)
    assert await execution.wait() == Ended(kind=EndKind.SIGNALLED, signal=signal.SIGTERM)


async def test_child_that_ignores_everything_is_killed(executors: Executors, module: Write) -> None:
    """A child that swallows what it can is killed after its grace, with what it has started."""
    source = """
        import subprocess, time
        def f(run):
            child = subprocess.Popen(["sleep", "60"], start_new_session=True)
            run.progress(done=child.pid)
            while True:
                try:
                    time.sleep(60)
                except BaseException:
                    pass
    """
    told = Told()
    execution = await executors.start(grant(handler(f"{module(source)}:f")), told)
    await until(lambda: told.reports)
    grandchild = told.reports[0].progress.done
    assert grandchild is not None
    assert is_alive(grandchild)

    assert await execution.end(200_000)

    assert not is_alive(grandchild)
    assert (await execution.wait()).signal == signal.SIGKILL


async def test_cancelled_start_leaves_no_child(executors: Executors, module: Write) -> None:
    """A start that is cancelled while the child imports ends that child."""
    told = Told()
    spec = f"{module('import time; time.sleep(60)')}:f"
    starting = asyncio.create_task(executors.start(grant(handler(spec, process=True)), told))
    await until(lambda: told.children)
    starting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await starting

    assert not is_alive(told.children[0][0])


async def test_child_without_its_daemon_is_told_to_cancel(tmp_path: Path) -> None:
    """`checkpoint()` answers `cancel` where nobody answers any more."""
    import socket  # noqa: PLC0415

    from scheduler.executors.child import DaemonLine  # noqa: PLC0415

    ours, theirs = socket.socketpair()
    ours.close()
    line = DaemonLine(theirs)

    assert line.ask_wish() == "cancel"
    theirs.close()


async def test_handler_starts_inherit_neither_channel_nor_order(executors: Executors, module: Write) -> None:
    """What a handler starts has stdio only."""
    source = """
        import subprocess
        def f(run):
            ls = ["ls", "/proc/self/fd"]
            return subprocess.run(ls, close_fds=False, capture_output=True, text=True).stdout
    """

    ended = await call(executors, f"{module(source)}:f")

    numbers = {int(word) for word in str(ended.result).split()}
    # stdio, the directory that `ls` lists, and the progress pipe, which is for whoever the job starts.
    assert len(numbers) == 5


async def test_logging_after_the_end_is_ignored(executors: Executors, module: Write, tmp_path: Path) -> None:
    """A context that outlives its handler writes nothing and raises nothing."""
    source = """
        kept = []
        async def f(run):
            kept.append(run)
    """
    name = module(source)
    granted = grant(handler(f"{name}:f"))
    await run_to_end(executors, granted)

    sys.modules[name].kept[0].log.info("late")

    assert output(tmp_path, granted) == ""


@BOTH
async def test_wrong_progress_is_the_handlers_error(
    executors: Executors,
    module: Write,
    process: bool,
) -> None:
    """`progress(done="3")` raises in the handler, where it can be repaired."""
    spec = f"{module('async def f(run): run.progress(done=' + repr('3') + ')')}:f"

    ended = await call(executors, spec, process=process)

    assert ended.message == "TypeError: progress(done=) wants int, not str"


async def test_finished_attempts_leave_no_descriptor(executors: Executors, module: Write) -> None:
    """Channels, pipes and pidfds of ended attempts are closed."""
    spec = f"{module('def f(run): pass')}:f"
    await call(executors, spec)
    before = len(open_descriptors())

    for _ in range(3):
        await finish(await executors.start(grant(handler(spec)), Told()))

    await until(lambda: len(open_descriptors()) <= before)
