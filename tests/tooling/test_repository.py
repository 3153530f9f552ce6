"""What must be true of the repository itself, file by file."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import scheduler

ROOT = Path(__file__).parents[2]

# In two halves, or this file would be its own first finding.
REGISTRY = re.compile(
    "|".join(
        re.escape(first + second)
        for first, second in [
            ("pypi", ".org"),
            ("pypi", ".python.org"),
            ("python", "hosted.org"),
            ("registry.", "npmjs"),
            ("npm", "js.org"),
            ("deb.", "debian.org"),
            ("proxy.", "golang"),
            ("crates", ".io"),
            ("--index", "-url"),
            ("--extra-index", "-url"),
            ("--find", "-links"),
            ("--trusted", "-host"),
        ]
    ),
    re.IGNORECASE,
)


def ignored_patterns() -> list[str]:
    lines = (ROOT / ".gitignore").read_text().splitlines()
    return [".git", *(line.strip("/") for line in lines if line and not line.startswith("#"))]


def project_files() -> Iterator[Path]:
    """Every file that is or will be tracked; git itself may be absent where the tests run."""
    patterns = ignored_patterns()
    pending = [ROOT]
    while pending:
        for entry in sorted(pending.pop().iterdir()):
            if any(fnmatch(entry.name, pattern) for pattern in patterns):
                continue
            if entry.is_dir():
                pending.append(entry)
            else:
                yield entry


def functions_that_test(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node


def test_the_walk_finds_the_project_and_nothing_else() -> None:
    """The files looked at are those of the project: sources, tests, hidden ones; no environment, no cache."""
    found = {path.relative_to(ROOT).as_posix() for path in project_files()}

    assert {"pyproject.toml", ".ci/run", "scheduler/errors.py", "requirements.lock"} <= found
    assert not [
        path for path in found if path.startswith((".git/", ".venv", "var/")) or path.endswith(".pyc")
    ]


def test_no_file_names_a_registry() -> None:
    """Where packages come from is the business of the machine: no file holds the address of a registry."""
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in project_files()
        for match in REGISTRY.finditer(path.read_text(encoding="utf-8", errors="replace"))
    ]

    assert not found


def test_every_test_says_what_is_true() -> None:
    """Each test function has a docstring of one present-tense sentence, and no two in a file share a name."""
    found = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        names: set[str] = set()
        for function in functions_that_test(ast.parse(path.read_text(encoding="utf-8"))):
            where = f"{path.relative_to(ROOT)}:{function.lineno} {function.name}"
            docstring = ast.get_docstring(function) or ""
            if not docstring.split("\n\n")[0].rstrip().endswith((".", "!", "?")):
                found.append(f"{where}: no sentence")
            if function.name in names:
                found.append(f"{where}: the name stands twice")
            names.add(function.name)

    assert not found


def test_packages_speak_in_their_modules() -> None:
    """An `__init__` file carries a docstring and nothing else; the root's is the contract of handlers."""
    found = []
    for path in sorted((ROOT / "scheduler").glob("*/**/__init__.py")):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        if len(body) != 1 or not isinstance(body[0], ast.Expr):
            found.append(str(path.relative_to(ROOT)))

    assert not found


def test_the_version_is_one() -> None:
    """The version that is installed is the one that the daemon tells."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert project["version"] == scheduler.__version__


def test_modules_stay_readable() -> None:
    """No module has more than 400 lines, no function more than 50."""
    found = []
    for path in sorted((ROOT / "scheduler").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if (length := text.count("\n")) > 400:
            found.append(f"{path.relative_to(ROOT)}: {length} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > 50:
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: {length} lines")

    assert not found
