"""What a job names and the machine does not have is found without running any of it."""

from pathlib import Path

import pytest

from scheduler.config.jobfile import parse_definition
from scheduler.config.presence import absence_notes
from scheduler.config.settings import Settings


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A `python_path` with a package; whoever imports it fails the test."""
    package = tmp_path / "goods"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit\n")
    (package / "work.py").write_text(
        "import os.path as p\nraise SystemExit\nasync def go(run): pass\nalias = go\n"
    )
    (package / "lazy.py").write_text("def __getattr__(name): return 1\n")
    (package / "star.py").write_text("from os import *\n")
    (package / "broken.py").write_text("def go(:\n")
    return tmp_path


def told(folder: Path, **keys: object) -> list[tuple[str, str]]:
    definition = parse_definition("a", {"manual": True, **keys}, Settings())
    return list(absence_notes([folder])(definition))


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        ("nowhere:go", "no module nowhere in"),
        ("goods.wrok:go", "no module goods.wrok in"),
        ("goods.deep.er:go", "no module goods.deep.er in"),
        ("goods.work:og", "work.py defines no og"),
        ("json:lods", "has no lods"),
        ("os.path:joyn", "module os.path has no joyn"),
    ],
)
def test_a_handler_that_is_not_there_is_told(folder: Path, handler: str, says: str) -> None:
    """A module that no folder has, or a name that its text never binds."""
    ((key, message),) = told(folder, python=handler)

    assert key == "python"
    assert says in message


@pytest.mark.parametrize(
    "handler",
    [
        *("goods.work:go", "goods.work:alias", "goods.work:p.join", "goods.lazy:any", "goods.star:join"),
        *(
            "goods.broken:go",
            "os.path:join",
            "json:loads",
            "math:sqrt",
            "sys:exit",
            "xml.sax.saxutils:escape",
        ),
    ],
)
def test_what_cannot_be_known_without_running_it_is_not_doubted(folder: Path, handler: str) -> None:
    """Names that a module makes when it runs, built-in ones, and a syntax error are left to the run."""
    assert told(folder, python=handler) == []


def test_paths_and_programs_that_are_missing_are_told(folder: Path) -> None:
    """Each under its key."""
    gone = str(folder / "gone")

    found = told(folder, command=[gone], cwd=gone, env_file=gone)
    named = told(folder, command=["no-such-program"])

    assert [key for key, _ in found] == ["cwd", "env_file", "command"]
    assert all(message.startswith(f"{gone} is not there") for _, message in found)
    assert named[0][1].startswith("no-such-program is not there")
    assert "in PATH=/" in named[0][1]


def test_what_is_there_or_starts_elsewhere_is_not_told(folder: Path) -> None:
    """A relative path starts in the job's directory, PATH may be the job's, a line is the shell's."""
    (folder / "mine").write_text("")
    (folder / "mine").chmod(0o755)

    assert (
        told(
            folder,
            command=["sh"],
            cwd=str(folder),
        )
        == []
    )
    assert told(folder, command=["./x"]) == []
    assert told(folder, command=["mine"], env={"PATH": str(folder)}) == []
    assert told(folder, shell="no-such-program") == []
