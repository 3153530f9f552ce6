from __future__ import annotations

import os
from pathlib import Path

import pytest

from scheduler.errors import StoreRefused
from scheduler.store.statefiles import FILES, check_state
from scheduler.store.statelock import StateLock

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    path = tmp_path / "state"
    path.mkdir(mode=0o700)
    return path


def refusal(state: Path) -> str:
    with pytest.raises(StoreRefused) as refused:
        StateLock.take(state)
    return refused.value.message


def test_a_directory_of_ours_is_taken(state: Path) -> None:
    """Nothing is wrong with what a daemon has left there itself."""
    StateLock.take(state).release()
    (state / "output").mkdir(mode=0o700)
    StateLock.take(state).release()


def test_a_directory_that_everybody_writes_is_refused(state: Path) -> None:
    """Whoever writes there could put another store in place of ours."""
    state.chmod(0o777)
    assert refusal(state).endswith(f"may be written by everybody: chmod o-w {state}")


@as_root
def test_a_directory_of_another_user_is_refused(state: Path) -> None:
    """Its owner could do so too."""
    os.chown(state, 65534, -1)
    assert "belongs to user 65534" in refusal(state)


@pytest.mark.parametrize("name", FILES)
def test_links_in_place_of_our_files_are_refused(state: Path, tmp_path: Path, name: str) -> None:
    """Neither a symbolic nor a hard link is opened, and where it leads nothing is changed."""
    target = tmp_path / "target"
    target.write_text("precious")
    (state / name).symlink_to(target)
    assert "is a symbolic link" in refusal(state)

    (state / name).unlink()
    (state / name).hardlink_to(target)
    assert "has 2 names" in refusal(state)
    assert target.read_text() == "precious"


def test_output_is_a_directory_of_its_own(state: Path, tmp_path: Path) -> None:
    """What jobs print is not written where a link leads."""
    (state / "output").symlink_to(tmp_path)
    assert "is a symbolic link" in refusal(state)


def test_a_linked_state_directory_is_followed(state: Path, tmp_path: Path) -> None:
    """The directory itself may be reached by a link, as systemd makes one; what counts is where it leads."""
    link = tmp_path / "link"
    link.symlink_to(state)
    check_state(link)
    state.chmod(0o707)
    with pytest.raises(StoreRefused, match="everybody"):
        check_state(link)
