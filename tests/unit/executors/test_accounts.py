"""Attempts as another user: what he is, what he reaches, and what is kept from him."""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from scheduler.errors import SpawnFailed
from scheduler.executors import accounts
from scheduler.executors.accounts import account_of, looking_as
from scheduler.executors.command import CommandExecutor
from scheduler.executors.dispatch import Executors
from scheduler.executors.python import PythonExecutor
from scheduler.executors.spawn import Spawner
from scheduler.executors.threads import off_loop
from scheduler.model.jobs import Action
from tests.support.executors import (
    Told,
    command,
    finish,
    grant,
    handler,
    is_alive,
    run_to_end,
    shell,
    surroundings,
    until,
    written,
)

ROOT = Path(accounts.__file__).parents[2]
NOBODY = pwd.getpwnam("nobody")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that everybody may enter."""
    with TemporaryDirectory(prefix="users-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def spawner() -> Iterator[Spawner]:
    made = Spawner()
    yield made
    made.close()


@pytest.fixture
def executor(tmp_path: Path, spawner: Spawner) -> CommandExecutor:
    return CommandExecutor(surroundings(tmp_path), spawner)


async def said(executor: CommandExecutor, directory: Path, action: Action, **definition: Any) -> str:
    granted = grant(action, **{"user": "nobody", "cwd": "/", **definition})
    await run_to_end(executor, granted)
    return written(directory, granted).decode()


@as_root
async def test_every_right_of_root_is_dropped(executor: CommandExecutor, tmp_path: Path) -> None:
    """Real, effective, saved and file-system ids, all groups and all capabilities are the user's."""
    own_groups = os.getgroups()
    os.setgroups([*own_groups, 4])
    try:
        lines = await said(executor, tmp_path, shell("cat /proc/self/status"))
    finally:
        os.setgroups(own_groups)

    status = dict(line.split(":\t", 1) for line in lines.splitlines() if ":\t" in line)
    uid, gid = str(NOBODY.pw_uid), str(NOBODY.pw_gid)
    assert status["Uid"].split() == [uid] * 4
    assert status["Gid"].split() == [gid] * 4
    assert status["Groups"].split() == [gid]
    for capabilities in ("CapPrm", "CapEff", "CapAmb"):
        assert int(status[capabilities], 16) == 0


@as_root
async def test_supplementary_groups_are_those_of_the_user(executor: CommandExecutor, tmp_path: Path) -> None:
    """A user is in the groups that the group database gives him (initgroups)."""
    name, groups = next(
        (entry.pw_name, found)
        for entry in pwd.getpwall()
        if len(found := os.getgrouplist(entry.pw_name, entry.pw_gid)) > 0 and entry.pw_uid not in (0, 65534)
    )

    told = await said(executor, tmp_path, shell("id -G"), user=name)

    assert {int(group) for group in told.split()} == set(groups)


@as_root
async def test_the_environment_is_the_users(executor: CommandExecutor, tmp_path: Path, place: Path) -> None:
    """HOME, USER, LOGNAME and SHELL come from the user database, umask and directory as documented (B32)."""
    told = await said(
        executor,
        tmp_path,
        shell('echo "$HOME $USER $LOGNAME $SHELL"; umask; pwd; echo ok > /dev/stderr; touch mine'),
        cwd=str(place),
    )
    first, mask, where, *rest = told.splitlines()

    assert first == f"{NOBODY.pw_dir} nobody nobody {NOBODY.pw_shell}"
    assert (mask, where) == ("0022", str(place))
    assert "ok" in rest
    assert any("Permission denied" in line for line in rest)  # the directory is root's


@as_root
async def test_progress_and_stdin_work_for_another_user(executor: CommandExecutor, tmp_path: Path) -> None:
    """The progress pipe and stdin, also opened by name, are within the user's reach."""
    hooks = Told()
    granted = grant(
        shell("cat /dev/stdin; echo '{\"done\": 3}' > /dev/fd/$SCHEDULER_PROGRESS_FD"),
        user="nobody",
        cwd="/",
        stdin="in",
    )
    await run_to_end(executor, granted, hooks)

    assert written(tmp_path, granted) == b"in"
    await until(lambda: [report.progress.done for report in hooks.reports] == [3])


@as_root
async def test_a_directory_is_entered_with_the_users_rights(executor: CommandExecutor, place: Path) -> None:
    """What root may enter and the user may not is no place for his job, and nothing is started."""
    closed = place / "closed"
    (closed / "inner").mkdir(parents=True)
    closed.chmod(0o700)
    for cwd in (closed, closed / "inner"):
        with pytest.raises(SpawnFailed, match="user nobody"):
            await run_to_end(executor, grant(shell("pwd"), user="nobody", cwd=str(cwd)))


@as_root
async def test_a_home_that_is_not_there_asks_for_a_cwd(executor: CommandExecutor) -> None:
    """Without `cwd` the user's home is it; one that he cannot enter is told with the remedy."""
    with pytest.raises(SpawnFailed, match="home of user nobody: set cwd"):
        await run_to_end(executor, grant(shell("pwd"), user="nobody"))


@as_root
async def test_a_program_is_found_with_the_users_rights(executor: CommandExecutor, place: Path) -> None:
    """A program that only root may execute is named as such."""
    program = place / "tool"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    with pytest.raises(SpawnFailed, match="not executable"):
        await run_to_end(executor, grant(command(str(program)), user="nobody", cwd="/"))


@as_root
async def test_a_user_who_is_gone_is_told_at_the_start(executor: CommandExecutor) -> None:
    """A user can be removed after his job was loaded: the attempt cannot be started, and says why."""
    with pytest.raises(SpawnFailed, match="there is no user ghost"):
        await run_to_end(executor, grant(shell("id"), user="ghost", cwd="/"))


@as_root
async def test_what_a_user_started_is_ended(executor: CommandExecutor, tmp_path: Path) -> None:
    """I11: processes of another user, one in a session of its own too, are ended like our own."""
    hooks = Told()
    granted = grant(shell("setsid sleep 300 & echo $!; sleep 300"), user="nobody", cwd="/")
    execution = await executor.start(granted, hooks)
    await until(lambda: written(tmp_path, granted).endswith(b"\n"))
    pids = [hooks.children[0][0], int(written(tmp_path, granted))]

    await finish(execution)

    assert not [pid for pid in pids if is_alive(pid)]


# --- env_file ---
async def secret_of(executor: CommandExecutor, directory: Path, file: Path) -> str:
    return await said(executor, directory, shell('echo "$TOKEN"'), env_file=str(file))


def env_file(path: Path, mode: int, uid: int = 0) -> Path:
    path.write_text("TOKEN=hush\n")
    path.chmod(mode)
    os.chown(path, uid, -1)
    return path


@as_root
async def test_secrets_of_root_or_the_user_reach_the_job(
    executor: CommandExecutor, tmp_path: Path, place: Path
) -> None:
    """The user's own file and one of root's that he may read are read; nobody else may write them."""
    for name, mode, uid in (("own", 0o600, NOBODY.pw_uid), ("roots", 0o644, 0)):
        file = env_file(place / name, mode, uid)
        assert await secret_of(executor, tmp_path, file) == "hush\n", name


@as_root
async def test_a_secret_of_roots_comes_from_roots_place_alone(
    executor: CommandExecutor, tmp_path: Path
) -> None:
    """What the user may not read is read for him where only root can have put it, never below /tmp."""
    with TemporaryDirectory(dir="/etc", prefix="schedulerd-test-") as name:
        file = env_file(Path(name) / "env", 0o600)
        assert await secret_of(executor, tmp_path, file) == "hush\n"
        for link in (Path(name) / "link", tmp_path / "link"):
            link.symlink_to(file)
            with pytest.raises(SpawnFailed, match="Permission denied"):
                await secret_of(executor, tmp_path, link)


@as_root
@pytest.mark.parametrize(
    ("mode", "uid", "why"), [(0o664, 0, "written by others"), (0o644, 1, "belongs to user 1")]
)
async def test_a_file_that_others_write_is_no_env_file(
    executor: CommandExecutor, tmp_path: Path, place: Path, mode: int, uid: int, why: str
) -> None:
    """Whoever writes the variables of a job (LD_PRELOAD) has its rights, so the file is in no other hands."""
    file = env_file(place / "env", mode, uid)
    with pytest.raises(SpawnFailed, match=why):
        await secret_of(executor, tmp_path, file)


# --- this thread's rights ---
@as_root
async def test_looking_as_another_leaves_everyone_else_as_they_are(place: Path) -> None:
    """Only the thread that looks has the user's rights, and only inside of the block."""
    closed = place / "closed"
    closed.touch(mode=0o600)

    def look() -> tuple[bool, int]:
        with looking_as(account_of("nobody").identity):
            refused = not _opens(closed)
            seen = fs_uid("self")
        return refused and _opens(closed), seen

    assert await off_loop(look) == (True, 0)  # /proc/self is the process: its main thread did not change
    assert fs_uid("thread-self") == 0


def _opens(path: Path) -> bool:
    try:
        os.close(os.open(path, os.O_RDONLY))
    except PermissionError:
        return False
    return True


def fs_uid(task: str) -> int:
    """The user for file access, as the kernel has it for a task."""
    lines = Path(f"/proc/{task}/status").read_text().splitlines()
    return next(int(line.split()[4]) for line in lines if line.startswith("Uid:"))


# --- handlers ---
@as_root
async def test_a_handler_needs_a_python_that_its_user_may_execute(
    tmp_path: Path, spawner: Spawner, monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    """An interpreter out of the user's reach is told, with what to do."""
    closed = place / "python"
    closed.write_text("#!/bin/sh\n")
    closed.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(closed))
    executor = PythonExecutor(surroundings(tmp_path), spawner)
    with pytest.raises(SpawnFailed, match="needs schedulerd and its Python where he may read them"):
        await executor.start(grant(handler("os:getuid", process=True), user="nobody", cwd="/"), Told())


def public_python(place: Path) -> Path:
    """A Python of this version, with our packages, that everybody may execute."""
    found = Path(f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}")
    if not found.exists() or not Path(accounts.__file__).stat().st_mode & 0o004:
        pytest.skip("no Python of this version, or no checkout, that everybody may read")
    script = place / "python"
    paths = ":".join(path for path in sys.path if path and not path.startswith(sys.base_prefix))
    script.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT}:{paths} exec {found} "$@"\n')
    script.chmod(0o755)
    return script


@as_root
async def test_a_handler_runs_as_its_user(
    tmp_path: Path, spawner: Spawner, monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    """A handler's process is the user's from its first instruction on, and tells its result as ever."""
    monkeypatch.setattr(sys, "executable", str(public_python(place)))
    (place / "of_a_user.py").write_text(
        "import os\ndef run(run):\n    return [os.getuid(), os.getgroups()]\n"
    )
    executor = PythonExecutor(surroundings(tmp_path, python_path=(str(place),)), spawner)

    ended = await run_to_end(executor, grant(handler("of_a_user:run", process=True), user="nobody", cwd="/"))

    assert ended.result == [NOBODY.pw_uid, [NOBODY.pw_gid]]


@as_root
async def test_the_code_of_a_user_is_never_imported_by_the_daemon(tmp_path: Path, spawner: Spawner) -> None:
    """The look at a broken job leaves a user's module to his own process."""
    (tmp_path / "users_module.py").write_text(f"open({str(tmp_path / 'trace')!r}, 'w')\n")
    executors = Executors(surroundings(tmp_path, python_path=(str(tmp_path),)), spawner)
    granted = grant(handler("users_module:run", process=True), user="nobody")

    await executors.check(granted.definition)

    assert not (tmp_path / "trace").exists()


def test_without_root_nobody_else_can_be_become(monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon of an ordinary user says so; it does not run the job as itself."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(SpawnFailed, match="only a daemon that runs as root"):
        account_of("nobody")
