"""The guards of `make test` themselves: each goes red when what it guards against is there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(sysconfig.get_path("scripts"))


def tool(name: str, *arguments: str, cwd: Path = ROOT, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SCRIPTS / name, *arguments],
        cwd=cwd,
        input=text,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(cwd), "NO_COLOR": "1", "COLUMNS": "200"},
    )


@pytest.fixture
def skeleton(tmp_path: Path) -> Path:
    """The project's tree of modules with nothing in them, under the project's own contracts."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for path in (ROOT / "scheduler").rglob("*.py"):
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text("")
    return tmp_path


def add_import(tree: Path, importer: str, imported: str) -> None:
    path = tree / "scheduler" / importer.replace(".", "/")
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    assert path.exists()
    with path.open("a") as module:
        module.write(f"import scheduler.{imported}\n")


def broken_contracts(tree: Path) -> list[str]:
    ended = tool("lint-imports", "--no-logo", "--no-cache", cwd=tree)
    assert "Traceback" not in ended.stderr
    broken = [line for line in ended.stdout.splitlines() if line.endswith(" BROKEN")]
    assert bool(broken) == (ended.returncode != 0), ended.stdout + ended.stderr
    return broken


def test_a_skeleton_keeps_all_contracts(skeleton: Path) -> None:
    """Without imports nothing is broken, so that what breaks below is the one import that was added."""
    assert broken_contracts(skeleton) == []


@pytest.mark.parametrize(
    ("importer", "imported", "contract"),
    [
        ("errors", "model.runs", "Imports run one way"),
        ("model.runs", "store.protocol", "Imports run one way"),
        ("rules.reconcile", "store.protocol", "Imports run one way"),
        ("store.protocol", "engine", "Imports run one way"),
        ("engine", "executors", "Imports run one way"),
        ("executors", "control", "Imports run one way"),
        ("systemd", "cli.main", "Imports run one way"),
        ("cli.main", "daemon", "Imports run one way"),
        ("engine.runner", "store.sqlite", "The engine knows the store's protocol"),
        ("executors", "store.sqlite", "The engine knows the store's protocol"),
        ("control", "store.sqlite", "The engine knows the store's protocol"),
        ("control", "engine.runner", "The control API never reaches into the runner"),
        ("cli.main", "engine.runner", "schedctl speaks the API only"),
        ("cli.main", "store.sqlite", "schedctl speaks the API only"),
        ("cli.main", "store.protocol", "schedctl speaks the API only"),
    ],
)
def test_an_import_against_the_layers_is_found(
    skeleton: Path, importer: str, imported: str, contract: str
) -> None:
    """One import against a contract breaks it, by its name."""
    add_import(skeleton, importer, imported)

    assert any(line.startswith(contract) for line in broken_contracts(skeleton))


def test_imports_along_the_layers_are_free(skeleton: Path) -> None:
    """What the architecture allows breaks nothing."""
    for importer, imported in [
        ("engine.runner", "store.protocol"),
        ("engine.runner", "model.runs"),
        ("executors", "engine.ports"),
        ("control", "engine"),
        ("cli.main", "store.offline"),
        ("cli.main", "errors"),
        ("daemon", "store.sqlite"),
        ("store.offline", "store.sqlite"),
    ]:
        add_import(skeleton, importer, imported)

    assert broken_contracts(skeleton) == []


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("import time; time.time()", "TID251"),
        ("import time; time.monotonic()", "TID251"),
        ("from datetime import UTC, datetime; datetime.now(tz=UTC)", "TID251"),
        ("from time import sleep", "TID251"),
        ("async def wait() -> None:\n    import asyncio\n    await asyncio.sleep(1)", "TID251"),
        ("try:\n    pass\nexcept Exception:\n    pass", "BLE001"),
        ("def public() -> None: ...", "D103"),
        ("async def read() -> None:\n    open('x').read()", "ASYNC230"),
        ("# x = compute(1)", "ERA001"),
        ("# TODO: later", "FIX002"),
    ],
)
def test_what_the_house_does_not_do_is_found(line: str, rule: str) -> None:
    """The linter knows the rules of the house in every module but the one that reads time."""
    arguments = ["check", "--no-cache", "--output-format", "concise", "--stdin-filename"]

    assert rule in tool("ruff", *arguments, "scheduler/engine/new.py", "-", text=line + "\n").stdout
    if rule == "TID251":
        assert rule not in tool("ruff", *arguments, "scheduler/clock.py", "-", text=line + "\n").stdout


@pytest.mark.slow
def test_the_wheel_carries_all_that_the_daemon_reads(tmp_path: Path) -> None:
    """What is installed has every module, every .sql file, the type marker and both commands."""
    source = tmp_path / "source"
    source.mkdir()
    for name in ["pyproject.toml", "README.md", "LICENSE"]:
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "scheduler", source / "scheduler", ignore=shutil.ignore_patterns("__pycache__"))

    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "-q",
            "--no-deps",
            "--no-build-isolation",
            "-w",
            tmp_path,
            source,
        ],
        check=True,
    )

    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
        (commands,) = (archive.read(name).decode() for name in packed if name.endswith("entry_points.txt"))
    files = {
        path.relative_to(source).as_posix() for path in (source / "scheduler").rglob("*") if path.is_file()
    }
    assert files <= packed
    assert "schedulerd = scheduler.daemon:main" in commands
    assert "schedctl = scheduler.cli.main:main" in commands
