"""Files that others may write are not believed; a job of another user needs a daemon of root."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scheduler.config.jobdirs import load_job_dirs
from scheduler.config.jobfile import load_job_file, parse_definition
from scheduler.config.paths import ConfigFile
from scheduler.config.reload import diff
from scheduler.config.settings import Settings, load_settings
from scheduler.errors import ConfigError, Invalid
from scheduler.model.jobs import JobId

JOB = '[jobs.a]\nmanual = true\nshell = "id"\n'
OTHER_GROUP, OTHER_USER = 1, 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "jobs.d").mkdir(mode=0o755)
    path = tmp_path / "jobs.d" / "a.toml"
    path.write_text(JOB)
    path.chmod(0o644)
    return path


def only_fault(file: Path) -> str:
    loaded = load_job_file(file, Settings())
    assert loaded.definitions == ()
    (fault,) = loaded.faults
    assert fault.file == str(file)
    return fault.message


def test_a_job_file_that_everybody_writes_is_refused(file: Path) -> None:
    """The fault is a command that mends it, and the file's jobs stay as they were before."""
    file.chmod(0o646)

    assert only_fault(file) == f"may be written by everybody: chmod o-w {file}"
    loaded = load_job_dirs([file.parent], Settings())
    changes = diff({JobId("a"): (str(file), "{}")}, loaded)
    assert (changes.kept, changes.removed) == (("a",), ())


@as_root
def test_a_job_file_of_another_group_is_refused(file: Path) -> None:
    """Members of a group that may write the file could run what they like."""
    os.chown(file, -1, OTHER_GROUP)
    file.chmod(0o664)

    assert only_fault(file).startswith("may be written by group ")
    assert f"chmod g-w {file}" in only_fault(file)


@as_root
def test_a_job_file_of_another_user_is_refused(file: Path) -> None:
    """Its owner may write it whatever its mode says."""
    os.chown(file, OTHER_USER, -1)

    assert only_fault(file).startswith(f"belongs to user {OTHER_USER}")
    assert f"chown {os.geteuid()} {file}" in only_fault(file)


@as_root
def test_the_private_group_of_the_owner_may_write(file: Path) -> None:
    """An umask of 002, as most systems set it for users with a group of their own, is no fault."""
    os.chown(file, 0, 0)
    file.chmod(0o664)
    file.parent.chmod(0o775)

    loaded = load_job_dirs([file.parent], Settings())

    assert loaded.faults == ()


@pytest.mark.parametrize("mode", [0o757, 0o1777])
def test_a_folder_that_everybody_writes_is_not_believed(file: Path, mode: int) -> None:
    """Everybody could put a job file there, sticky bit or not; the jobs that came from it stay."""
    file.parent.chmod(mode)

    loaded = load_job_dirs([file.parent], Settings())

    (fault,) = loaded.faults
    assert f"may be written by everybody: chmod o-w {file.parent}" in fault.message
    assert not loaded.complete
    assert diff({JobId("a"): (str(file), "{}")}, loaded).kept == ("a",)


@pytest.mark.parametrize(("mode", "folder_mode"), [(0o666, 0o755), (0o644, 0o777)])
def test_settings_that_everybody_writes_keep_the_daemon_from_starting(
    tmp_path: Path, mode: int, folder_mode: int
) -> None:
    """Neither the file nor the folder that it could be replaced in may be open to others."""
    (tmp_path / "etc").mkdir()
    config = tmp_path / "etc" / "scheduler.toml"
    config.write_text("max_running = 3\n")
    config.chmod(mode)
    config.parent.chmod(folder_mode)

    with pytest.raises(ConfigError, match="may be written by everybody: chmod o-w"):
        load_settings(ConfigFile(path=config, named=True), {})


def test_settings_below_a_sticky_folder_are_fine(tmp_path: Path) -> None:
    """/tmp is writable for all, but nobody can replace the file of another there."""
    config = tmp_path / "scheduler.toml"
    config.write_text("max_running = 3\n")
    config.chmod(0o644)
    tmp_path.chmod(0o1777)

    assert load_settings(ConfigFile(path=config, named=True), {}).max_running == 3


# --- user ---
def fault_of(**keys: object) -> str:
    with pytest.raises(Invalid) as refused:
        parse_definition("a", {"manual": True, **keys}, Settings())
    (fault,) = refused.value.faults
    assert fault.key == "user"
    return fault.message


def test_a_user_needs_a_daemon_of_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without root nobody can become somebody else, and that is said at load."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    assert "only a daemon that runs as root" in fault_of(shell="id", user="nobody")


@as_root
def test_a_user_has_to_exist(file: Path) -> None:
    """A misspelt user is told with the one that was probably meant."""
    assert 'did you mean "nobody"?' in fault_of(shell="id", user="nobdy")
    assert "there is no user" in fault_of(shell="id", user="0")


@as_root
def test_a_user_is_part_of_the_definition() -> None:
    """What the store keeps names the user, for commands, shell lines and handlers in a process."""
    for keys in ({"command": ["id"]}, {"shell": "id"}, {"python": "os:getuid", "process": True}):
        definition = parse_definition("a", {"manual": True, "user": "nobody", **keys}, Settings())
        assert definition.user == "nobody"
        assert '"user":"nobody"' in definition.source


@as_root
def test_a_handler_in_the_daemon_has_no_user() -> None:
    """Code in the daemon's own process is the daemon."""
    assert "add process = true" in fault_of(python="os:getuid", user="nobody")
