"""`restore` puts a copy into the store that was meant, or asks which one it is; never into another's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from subprocess import Popen

import pytest

from scheduler.store.schema import prepare
from scheduler.store.sqlite import FILE_NAME
from scheduler.store.statelock import StateLock
from tests.cli.conftest import Schedctl
from tests.cli.support.stub import StubDaemon


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    """A store with nothing in it, as `backup` makes one."""
    path = tmp_path / "backup.db"
    prepare(path)
    return path


@pytest.fixture
def default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The store in the default place, which no test here means."""
    state = tmp_path / "home" / "schedulerd"
    state.mkdir(parents=True)
    (state / FILE_NAME).write_bytes(b"the store of somebody else")
    monkeypatch.setenv("XDG_STATE_HOME", str(state.parent))
    monkeypatch.delenv("SCHEDULER_STATE", raising=False)
    yield state
    assert [path.read_bytes() for path in state.iterdir()] == [b"the store of somebody else"]


@pytest.mark.usefixtures("default")
def test_the_daemon_that_answers_has_the_store(
    schedctl: Schedctl, daemon: StubDaemon, backup: Path, tmp_path: Path
) -> None:
    """Its state directory is the one that is meant, and its lock refuses: exit 4, stop it first."""
    state = tmp_path / "state"
    lock = StateLock.take(state)
    with (state / FILE_NAME).open("wb") as store, Popen(["sleep", "60"], stdin=store) as holder:
        daemon.on("GET", "/v1/status", {"pid": holder.pid})  # /proc shows that it has the store open
        called = schedctl("restore", str(backup))
        holder.kill()
    lock.release()

    assert (called.code, "stop the daemon first" in called.err) == (4, True)
    assert str(state) in called.err


@pytest.mark.usefixtures("default")
@pytest.mark.parametrize("by_flag", [True, False])
def test_a_named_socket_without_a_store_asks_which(
    schedctl: Schedctl, backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, by_flag: bool
) -> None:
    """A folder that only exists is no lost store, and the default one is another's: exit 6, nothing made."""
    folder = tmp_path / "run"
    folder.mkdir()
    socket = str(folder / "control.sock")
    monkeypatch.setenv("SCHEDULER_SOCKET", "/nowhere" if by_flag else socket)

    called = schedctl("restore", str(backup), *(["--socket", socket] if by_flag else []))

    assert called.code == 6
    assert f"no store in {folder}; which store? name it with --state DIR" in called.err
    assert list(folder.iterdir()) == []


@pytest.mark.usefixtures("default")
def test_a_lost_store_is_known_by_what_it_left(
    schedctl: Schedctl, daemon: StubDaemon, backup: Path, folder: Path
) -> None:
    """The lock of a daemon that is gone stays in its directory: the copy is put there."""
    StateLock.take(folder).release()
    elsewhere = ["--socket", str(daemon.socket.with_name("stopped.sock"))]

    called = schedctl("restore", str(backup), *elsewhere)

    assert (called.code, called.out.split(" (")[0]) == (0, f"{backup} is the store in {folder} now")
    assert (folder / FILE_NAME).exists()
