"""Units of isolated runs: what is decided of them, what a manager is asked, and real keepers without one."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scheduler.clock import SECOND, Micros, SystemClock
from scheduler.engine.ports import Ended, EndKind, Execution, Isolated
from scheduler.errors import SpawnFailed
from scheduler.executors.orphans import Orphans
from scheduler.executors.output import Stream, read_output
from scheduler.executors.processes import ProcessId
from scheduler.executors.unit_command import UnitExecutor
from scheduler.executors.unit_execution import UnitExecution, ended_by, worked_until
from scheduler.executors.unit_files import End, Kept, UnitFolder, UnitName, Worked, unit_named
from scheduler.executors.unit_manager import (
    ENDED,
    ManagerFailed,
    Scope,
    Shown,
    UnitManager,
    carry_out,
    manager_scope,
    shown_in,
)
from scheduler.executors.units import Units, may_be_taken_back
from scheduler.model.runs import Grant, Wish
from tests.support.executors import STORE, Told, command, grant, is_alive, shell, surroundings, until

NAME = UnitName(store_id="store1", run_id="01a22de0-433c-7a01-b549-13e558e07fc4", claim=3)
KEPT = Kept(keeper=ProcessId(ticks=5, pid=100), boot_id="boot", started_at=1_000)
STORE_ID = STORE.replace("-", "")


# --- decisions ---


def test_a_name_tells_store_run_and_claim() -> None:
    """What a unit is called is read back; no other unit's name is taken for one of ours."""
    assert unit_named(NAME.service) == unit_named(str(NAME)) == NAME
    for other in (
        "schedulerd.service",
        NAME.service.replace("-3.", "-x."),
        f"x{NAME}",
        "schedulerd-run-a-b-1",
    ):
        assert unit_named(other) is None


@pytest.mark.parametrize(
    ("uid", "environ", "there", "scope"),
    [
        (0, {}, {"/run/systemd/system"}, Scope.SYSTEM),
        (1000, {"XDG_RUNTIME_DIR": "/run/user/1000"}, {"/run/user/1000/systemd/private"}, Scope.USER),
        (0, {"XDG_RUNTIME_DIR": "/run/user/0"}, {"/run/user/0/systemd/private"}, "not started by it"),
        (1000, {}, {"/run/systemd/system"}, "`systemctl --user`"),
        (1000, {"XDG_RUNTIME_DIR": "/run/user/1000"}, {"/run/systemd/system"}, "as user 1000"),
    ],
)
def test_only_root_and_who_has_a_manager_may_start_units(
    uid: int, environ: dict[str, str], there: set[str], scope: Scope | str
) -> None:
    """A daemon of root uses the machine's manager, another one its user's, or is told what to do."""
    found = manager_scope(uid, environ, lambda path: str(path) in there)

    if isinstance(scope, Scope):
        assert found is scope
    else:
        assert not isinstance(found, Scope)
        assert scope in found
        assert 'write "none"' in found


BLOCK = f"Id={NAME.service}\nLoadState=loaded\nActiveState=failed\nExecMainCode=1\nExecMainStatus=3\n"


@pytest.mark.parametrize(
    ("block", "shown"),
    [
        (
            f"{BLOCK}Result=exit-code\nStatusText={ENDED}\nExecStart={{ argv[]=a=b /x ; }}",
            Shown(
                name=NAME,
                is_active=False,
                code="exited",
                status=3,
                result="exit-code",
                said_end=True,
                order="{ argv[]=a=b /x ; }",
            ),
        ),
        (
            BLOCK.replace("failed", "active").replace("Code=1", "Code=0").replace("Status=3", "Status=0"),
            Shown(name=NAME, is_active=True),
        ),
        (BLOCK.replace("Code=1", "Code=2"), Shown(name=NAME, is_active=False, code="killed", status=3)),
        (BLOCK.replace("=loaded", "=not-found"), None),
        (BLOCK.replace("schedulerd-run", "other"), None),
        ("", None),
    ],
)
def test_what_the_manager_says_is_read(block: str, shown: Shown | None) -> None:
    """State, exit and the keeper's last word are told apart; what is not ours or not loaded is nothing."""
    assert shown_in(block) == shown


@pytest.mark.parametrize(
    ("shown", "kept", "may"),
    [
        (Shown(name=NAME, is_active=True), KEPT, True),
        (Shown(name=NAME, is_active=True), None, True),
        (Shown(name=NAME, is_active=False), KEPT, True),
        (Shown(name=NAME, is_active=False), None, False),
        (None, KEPT, False),
        (None, replace(KEPT, end=End(exit_code=0)), True),
        (None, replace(KEPT, refused="no such program"), True),
        (None, None, False),
    ],
)
def test_a_run_is_taken_back_where_it_goes_on_or_its_end_is_known(
    shown: Shown | None, kept: Kept | None, *, may: bool
) -> None:
    """A unit that is gone without a word, as after a power cut, is a crash; so is one that began nothing."""
    assert may_be_taken_back(shown, kept) is may


@pytest.mark.parametrize(
    ("kept", "shown", "ended", "words"),
    [
        (replace(KEPT, end=End(exit_code=3)), None, Ended(kind=EndKind.EXITED, exit_code=3), None),
        (
            replace(KEPT, end=End(signal=9, left_behind=2)),
            None,
            Ended(kind=EndKind.SIGNALLED, signal=9, left_behind=2),
            None,
        ),
        (replace(KEPT, end=End()), None, Ended(kind=EndKind.EXITED), "somebody else"),
        (
            replace(KEPT, stopped=True, end=End(signal=15)),
            None,
            Ended(kind=EndKind.STOPPED, signal=15),
            "stopped from outside",
        ),
        (
            None,
            Shown(name=NAME, is_active=False, code="exited", status=4, said_end=True),
            Ended(kind=EndKind.EXITED, exit_code=4),
            None,
        ),
        (
            None,
            Shown(name=NAME, is_active=False, code="killed", status=6, said_end=True),
            Ended(kind=EndKind.SIGNALLED, signal=6),
            None,
        ),
        (
            None,
            Shown(name=NAME, is_active=False, code="exited", status=1),
            Ended(kind=EndKind.EXITED),
            "the keeper of its unit ended (exit code 1)",
        ),
        (
            None,
            Shown(name=NAME, is_active=False, code="killed", status=9, result="oom-kill"),
            Ended(kind=EndKind.SIGNALLED, signal=9),
            "killed by signal 9 (oom-kill)",
        ),
        (None, None, Ended(kind=EndKind.EXITED), "its unit is gone"),
    ],
)
def test_the_end_is_the_keepers_word_else_the_managers(
    kept: Kept | None, shown: Shown | None, ended: Ended, words: str | None
) -> None:
    """A keeper's exit status counts as the command's only where it has said so; else no code is made up."""
    found = ended_by(kept, shown)

    assert replace(found, message=None) == ended
    assert (found.message is None) is (words is None)
    assert (words or "") in (found.message or "")


@pytest.mark.parametrize(
    ("noted", "worked"),
    [
        (None, 9_000),
        (Worked(worked=500, at=4_000, frozen=False), 6_500),
        (Worked(worked=500, at=4_000, frozen=True), 500),
    ],
)
def test_time_in_which_the_work_was_frozen_is_left_out(noted: Worked | None, worked: Micros) -> None:
    """It has worked since its start, or since what was noted last, and not at all since a freeze."""
    assert worked_until(KEPT, noted, 10_000) == worked


# --- what the manager is asked ---


class Asked:
    """Carries out nothing, and remembers what was to be."""

    def __init__(self, code: int = 0, said: str = "", complaint: str = "") -> None:
        self.argv: list[Sequence[str]] = []
        self.answer = code, said, complaint

    def __call__(self, argv: Sequence[str], within: Micros) -> tuple[int, str, str]:
        self.argv.append(argv)
        return self.answer


async def test_a_start_that_is_refused_says_why() -> None:
    """The manager's first line is the message, and what it was asked holds nothing of the job but its id."""
    asked = Asked(1, "", "Failed to start: Access denied\nSee journalctl")

    with pytest.raises(ManagerFailed, match="Failed to start: Access denied") as refused:
        await UnitManager(Scope.USER, asked).start(
            NAME, ["keeper", "/a$b"], description="d", stop_timeout=SECOND, before="schedulerd.service"
        )

    assert "journalctl" not in refused.value.message
    (argv,) = asked.argv
    assert argv[:3] == ["systemd-run", "--user", "--no-ask-password"]
    assert argv[-3:] == ["--", "keeper", "/a$$b"]
    assert {"--property=RemainAfterExit=yes", "--property=Before=schedulerd.service"} < set(argv)


def test_a_program_that_is_missing_or_slow_is_an_error_of_ours() -> None:
    """Neither a missing client nor one without an answer raises anything foreign."""
    with pytest.raises(ManagerFailed, match="comes with systemd"):
        carry_out(["no-such-program"], SECOND)
    with pytest.raises(ManagerFailed, match=r"has not answered sleep within 0\.01 s"):
        carry_out(["sleep", "30"], SECOND // 100)


# --- real keepers, started by the test in the manager's place ---


class Manager(UnitManager):
    """Starts keepers as plain processes; knows a unit until it is collected."""

    def __init__(self) -> None:
        super().__init__(Scope.SYSTEM, Asked())
        self.keepers: dict[UnitName, subprocess.Popen[bytes]] = {}
        self.collected: list[UnitName] = []
        self.refusal: str | None = None
        self.late = False

    async def start(
        self,
        name: UnitName,
        argv: Sequence[str],
        *,
        description: str,
        stop_timeout: Micros,
        before: Any = None,
    ) -> None:
        if self.refusal is not None:
            if self.late:
                self.keepers[name] = _started(argv)
                await until(lambda: Path(argv[-2], f"{name}.kept").exists())
            raise ManagerFailed(self.refusal)
        self.keepers[name] = _started(argv)

    async def units(self, store_id: str, run_id: str = "*") -> list[Shown]:
        return [Shown(name=name, is_active=True) for name in self.keepers if run_id in ("*", name.run_id)]

    async def collect(self, name: UnitName) -> None:
        self.collected.append(name)
        keeper = self.keepers.pop(name, None)
        if keeper is not None:
            keeper.wait(30)


def _started(argv: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(argv, stderr=subprocess.DEVNULL)


class Case:
    """A folder for units, and the parts of a daemon that use it."""

    def __init__(self, tmp_path: Path) -> None:
        self.clock = SystemClock()
        self.output = tmp_path / "output"
        self.folder = UnitFolder(tmp_path / "units")
        self.manager = Manager()
        self.units = Units(
            self.folder, STORE_ID, self.manager, orphans=Orphans(STORE_ID, self.clock), clock=self.clock
        )
        self.executor = UnitExecutor(surroundings(self.output, store_id=STORE_ID), self.units)

    async def start(self, granted: Grant, hooks: Told | None = None) -> UnitExecution:
        execution = await self.executor.start(granted, hooks or Told())
        assert isinstance(execution, UnitExecution)
        assert isinstance(execution, Isolated)
        return execution

    async def follow(self, granted: Grant, hooks: Told) -> Execution:
        """As another daemon would, later, under the next claim."""
        later = replace(granted, run=replace(granted.run, claim=2), unit_claim=1)
        return await self.executor.start(later, hooks)

    def written(self, granted: Grant, stream: Stream) -> bytes:
        chunks = read_output(self.output, granted.run.id, 1, stream=stream)
        return b"".join(chunk.data for chunk in chunks)


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Case]:
    made = Case(tmp_path)
    yield made
    for keeper in made.manager.keepers.values():
        kept = made.folder.kept(next(name for name, one in made.manager.keepers.items() if one is keeper))
        if kept is not None and kept.command is not None:
            with suppress(ProcessLookupError):
                os.killpg(kept.command.pid, signal.SIGKILL)
        keeper.kill()
        keeper.wait(30)


async def test_a_keeper_runs_a_command_as_the_daemon_would(case: Case) -> None:
    """Output by stream, stdin, variables, progress, and an exit code that is the keeper's own too."""
    hooks = Told()
    line = (
        'read word; echo "$word $SECRET"; echo err >&2; ps -o sid= -p $$ | grep -qw $$ || exit 9;'
        ' echo \'{"done": 2, "total": 5}\' >&"$SCHEDULER_PROGRESS_FD"; exit 7'
    )
    granted = grant(shell(line), stdin="in\n", env={"SECRET": "hush"}, isolate="unit")

    execution = await case.start(granted, hooks)
    ended = await execution.wait()

    assert ended == Ended(kind=EndKind.EXITED, exit_code=7)
    assert case.written(granted, Stream.STDOUT) == b"in hush\n"
    assert case.written(granted, Stream.STDERR) == b"err\n"
    await until(lambda: hooks.reports)
    assert (hooks.reports[-1].progress.done, hooks.reports[-1].progress.total) == (2, 5)
    assert hooks.output_size == len(b"in hush\nerr\n")
    (keeper,) = case.manager.keepers.values()
    assert keeper.wait(30) == 7
    await execution.collect()
    assert case.folder.units() == set()


async def test_files_of_a_unit_are_for_its_user_alone_and_hold_no_secret_once_begun(case: Case) -> None:
    """The order with the environment is 0600 in a folder of 0700, and gone when the keeper has it."""
    granted = grant(shell("sleep 600"), env={"SECRET": "hush"}, isolate="unit")
    case.manager.refusal = "not now"

    with pytest.raises(SpawnFailed, match="systemd does not start its unit: not now"):
        await case.start(granted)
    assert case.folder.units() == set()  # withdrawn: nothing could begin it later

    case.manager.refusal = None
    await case.start(granted)
    (kept,) = case.folder.place.iterdir()
    assert case.folder.place.stat().st_mode & 0o777 == 0o700
    assert kept.stat().st_mode & 0o777 == 0o600
    assert "hush" not in kept.read_text()


async def test_another_daemon_follows_what_goes_on(case: Case) -> None:
    """Process, progress told meanwhile, further output and the signal that ends it: all of it is had anew."""
    granted = grant(
        shell('echo \'{"done": 1}\' >&"$SCHEDULER_PROGRESS_FD"; read _ < "$FIFO"; echo more; kill -USR1 $$'),
        env={"FIFO": str(case.output.with_name("fifo"))},
        isolate="unit",
    )
    os.mkfifo(case.output.with_name("fifo"))
    first = await case.start(granted)
    name = UnitName(store_id=STORE_ID, run_id=granted.run.id, claim=1)
    await until(lambda: (kept := case.folder.kept(name)) and kept.done == 1)
    hooks = Told()

    assert await case.units.find(replace(granted.run, claim=1)) == 1
    second = await case.follow(granted, hooks)
    await until(lambda: hooks.reports)
    case.output.with_name("fifo").write_text("go\n")
    ended = await second.wait()

    assert ended == Ended(kind=EndKind.SIGNALLED, signal=signal.SIGUSR1)
    kept = case.folder.kept(name)
    assert kept is not None
    assert kept.command is not None
    assert hooks.children == [(kept.command.pid, kept.command.ticks)]
    assert case.written(granted, Stream.STDOUT) == b"more\n"
    (keeper,) = case.manager.keepers.values()
    assert keeper.wait(30) == -signal.SIGUSR1
    assert await first.wait() == ended
    late = await case.follow(granted, Told())  # one that comes when all is over learns the same
    assert await late.wait() == ended


async def test_a_freeze_and_an_end_reach_all_of_it_but_the_keeper(case: Case) -> None:
    """What left the session is stopped and ended as well (I11); worked time stands still meanwhile."""
    granted = grant(shell("trap '' TERM; setsid sleep 600 & echo $!; sleep 600"), isolate="unit")
    hooks = Told()
    execution = await case.start(granted, hooks)
    await until(lambda: case.written(granted, Stream.STDOUT).endswith(b"\n"))
    pids = [hooks.children[0][0], int(case.written(granted, Stream.STDOUT))]

    execution.heed(Wish.FREEZE)
    await until(lambda: all(_state(pid) == "T" for pid in pids))
    worked = execution.worked()
    execution.heed(Wish.RUN)
    await until(lambda: not any(_state(pid) == "T" for pid in pids))
    assert await execution.end(SECOND // 10)

    assert not any(is_alive(pid) for pid in pids)
    assert (await execution.wait()).signal == signal.SIGKILL
    assert worked <= execution.worked()
    (keeper,) = case.manager.keepers.values()
    assert keeper.wait(30) == -signal.SIGKILL


async def test_a_frozen_run_that_is_followed_stays_frozen_until_it_is_resumed(case: Case) -> None:
    """What was noted at the freeze is what it had worked; a resume in the meantime is made up for."""
    granted = grant(shell("sleep 600"), isolate="unit")
    hooks = Told()
    execution = await case.start(granted, hooks)
    pid = hooks.children[0][0]
    execution.heed(Wish.FREEZE)
    name = UnitName(store_id=STORE_ID, run_id=granted.run.id, claim=1)
    await until(lambda: _state(pid) == "T" and case.folder.worked(name) is not None)

    still = await case.follow(granted, Told(wish="freeze"))
    assert isinstance(still, UnitExecution)
    noted = case.folder.worked(name)
    assert noted is not None
    await until(lambda: case.folder.worked(name) != noted)  # it has done what it was to do
    assert _state(pid) == "T"
    before = still.worked()
    await asyncio.sleep(0.01)
    assert before == still.worked() >= noted.worked
    resumed = await case.follow(granted, Told(wish="run"))
    await until(lambda: _state(pid) != "T")

    assert await resumed.end(0)


async def test_a_withdrawn_order_is_never_carried_out(case: Case) -> None:
    """A recovery that comes between order and keeper decides: the keeper starts nothing (I1)."""
    granted = grant(shell(f"touch {case.output}"), isolate="unit")
    name = UnitName(store_id=STORE_ID, run_id=granted.run.id, claim=1)
    order = case.executor._launch(granted)  # noqa: SLF001 - a start that got no further than this
    case.folder.put_order(name, order)

    assert await case.units.find(granted.run) is None
    # A client of the manager has outlived its daemon, and the unit starts only now.
    await case.manager.start(name, _keeper(case.folder, name), description="", stop_timeout=0)

    assert case.manager.keepers[name].wait(30) == 1
    assert not case.output.exists()


async def test_a_start_without_an_answer_counts_if_the_keeper_has_begun(case: Case) -> None:
    """What runs is followed, whatever the manager says, so that nothing runs unseen."""
    case.manager.refusal, case.manager.late = "no answer", True
    hooks = Told()

    execution = await case.start(grant(shell("exit 5"), isolate="unit"), hooks)

    assert (await execution.wait()).exit_code == 5


async def test_what_cannot_be_started_is_told_in_the_words_of_any_command(case: Case) -> None:
    """A program that is missing at the look, or refused by the kernel, fails the start; nothing is left."""
    script = case.output.with_name("script")
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    for line, words in [("/no/such/program", "does not exist"), (str(script), "interpreter")]:
        with pytest.raises(SpawnFailed, match=words):
            await case.start(grant(command(line), isolate="unit"))
    assert case.folder.units() == set()


async def test_leftovers_in_a_unit_are_ended_before_another_attempt(case: Case) -> None:
    """Nothing of an earlier claim's unit runs, and the manager has forgotten it (I11)."""
    granted = grant(shell("sleep 600"), isolate="unit")
    hooks = Told()
    await case.start(granted, hooks)

    assert await case.units.end_leftovers(granted.run, 0)

    assert not is_alive(hooks.children[0][0])
    assert case.manager.collected == [UnitName(store_id=STORE_ID, run_id=granted.run.id, claim=1)]
    assert case.folder.units() == set()


async def test_units_that_were_started_on_another_folder_are_not_ours(case: Case) -> None:
    """Without a file here a unit is ours only if its order names this folder: a copied store has others."""
    ours, theirs, filed = (replace(NAME, store_id=STORE_ID, claim=claim) for claim in (1, 2, 3))

    async def units(store_id: str, run_id: str = "*") -> list[Shown]:
        return [
            Shown(name=ours, is_active=True, order=f"argv[]=python {case.folder.place} {ours} ;"),
            Shown(name=theirs, is_active=True, order=f"argv[]=python {case.folder.place}/x {theirs} ;"),
        ]

    case.manager.units = units  # type: ignore[method-assign] # what the manager says
    case.folder.place.mkdir()
    case.folder.put_kept(filed, KEPT)

    assert sorted(await case.units.started()) == [(NAME.run_id, 1), (NAME.run_id, 3)]


async def test_without_a_manager_a_start_fails_and_says_what_to_do(case: Case) -> None:
    """A definition that came from elsewhere is not run in any other way than it says."""
    case.units.manager = None

    with pytest.raises(SpawnFailed, match='isolate = "unit"'):
        await case.start(grant(shell("true"), isolate="unit"))
    assert await case.units.find(grant(shell("true")).run) is None


def test_a_word_of_another_version_is_understood_as_far_as_it_goes(tmp_path: Path) -> None:
    """A keeper outlives an upgrade of its daemon: what one side does not know is left out, or the default."""
    folder = UnitFolder(tmp_path)
    word = {"keeper": [5, 100], "boot_id": "boot", "end": {"exit_code": 3, "core": True}, "news": 1}
    (tmp_path / f"{NAME}.kept").write_text(json.dumps(word))

    assert folder.kept(NAME) == replace(KEPT, started_at=0, end=End(exit_code=3))


async def test_a_keeper_that_cannot_note_starts_nothing(case: Case) -> None:
    """What nobody could follow is not begun: a disk that takes no note fails the start."""
    granted = grant(shell(f"touch {case.output}"), isolate="unit")
    name = UnitName(store_id=STORE_ID, run_id=granted.run.id, claim=1)
    case.folder.put_order(name, case.executor._launch(granted))  # noqa: SLF001 - as a start does
    (case.folder.place / f"{name}.kept.new").mkdir()

    await case.manager.start(name, _keeper(case.folder, name), description="", stop_timeout=0)

    assert case.manager.keepers[name].wait(30) == 1
    assert not case.output.exists()


def test_a_word_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    """A file that was cut short by a power cut, or is of another version, is as if it were not there."""
    folder = UnitFolder(tmp_path)
    for text in ("", "{", "[]", json.dumps({"keeper": [1, 2], "news": 1})):
        (tmp_path / f"{NAME}.kept").write_text(text)
        assert folder.kept(NAME) is None


def _keeper(folder: UnitFolder, name: UnitName) -> list[str]:
    return [sys.executable, "-P", "-m", "scheduler.executors.unit_keeper", str(folder.place), str(name)]


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
