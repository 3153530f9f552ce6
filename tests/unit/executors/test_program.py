from __future__ import annotations

import errno
from pathlib import Path

import pytest

from scheduler.errors import SpawnFailed
from scheduler.executors.program import explain, find_directory, find_program


def program(place: Path, *, mode: int = 0o755) -> Path:
    place.parent.mkdir(exist_ok=True)
    place.write_text("#!/bin/sh\n")
    place.chmod(mode)
    return place


def test_first_executable_file_of_the_path_is_taken(tmp_path: Path) -> None:
    """Missing directories, directories by that name and files without the x bit are passed over."""
    (tmp_path / "a" / "tool").mkdir(parents=True)
    program(tmp_path / "b" / "tool", mode=0o644)
    right = program(tmp_path / "c" / "tool")
    program(tmp_path / "d" / "tool")
    path = ":".join(str(tmp_path / name) for name in ("missing", "a", "b", "c", "d"))

    assert find_program("tool", path=path, cwd="/") == str(right)


def test_name_with_a_slash_starts_from_cwd(tmp_path: Path) -> None:
    """`./tool` is looked for where the command will stand, and nowhere else."""
    right = program(tmp_path / "bin" / "tool")

    assert Path(find_program("./bin/tool", path="", cwd=str(tmp_path))) == right
    assert find_program(str(right), path="", cwd="/") == str(right)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("", "the command is empty"),
        ("nothing", "command not found: nothing (PATH="),
        ("plain", "plain is not executable (chmod +x?), and PATH="),
        ("./directory", "./directory is a directory"),
        ("./plain", "./plain is not executable; chmod +x it"),
        ("./nothing", "command not found: ./nothing does not exist"),
    ],
)
def test_what_cannot_be_executed_is_told_with_a_remedy(tmp_path: Path, name: str, expected: str) -> None:
    """Each way in which a program is not there has words of its own (B32)."""
    (tmp_path / "directory").mkdir()
    program(tmp_path / "plain", mode=0o644)

    with pytest.raises(SpawnFailed) as caught:
        find_program(name, path=str(tmp_path), cwd=str(tmp_path))

    assert expected in caught.value.message


def test_directory_is_cwd_then_home_then_root(tmp_path: Path) -> None:
    """A job without `cwd` starts at home; a user without a home starts in `/`."""
    (tmp_path / "sub").mkdir()

    assert find_directory(None, str(tmp_path)) == str(tmp_path)
    assert find_directory(None, str(tmp_path / "gone")) == "/"
    assert find_directory("sub", str(tmp_path)) == str(tmp_path / "sub")
    assert find_directory("/usr", str(tmp_path)) == "/usr"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.EAGAIN, ""), "the limit on processes is reached"),
        (OSError(errno.EMFILE, ""), "no file descriptor left"),
        (OSError(errno.ENOMEM, ""), "no memory"),
        (OSError(errno.EACCES, "Permission denied"), "Permission denied"),
        (OSError(errno.ENOENT, ""), "it, or the loader it needs, does not exist"),
        (ValueError("embedded null byte"), "embedded null byte"),
    ],
)
def test_failed_start_is_explained(error: Exception, expected: str) -> None:
    """The error of the kernel becomes a sentence with the program's name."""
    explained = explain(error, program="/opt/tool", argv=("tool",), environment={"A": "secret"})

    assert explained.message.startswith("/opt/tool cannot be started: ")
    assert expected in explained.message
    assert "secret" not in explained.message
