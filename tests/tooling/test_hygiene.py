"""What the daemon's code never does, whoever wrote the line: no pickle, no eval, no shell of Python's own."""

from __future__ import annotations

import ast
import os
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUFF = Path(sysconfig.get_path("scripts")) / "ruff"

MODULES = {
    "pickle",
    "marshal",
    "shelve",
    "dill",
    "cloudpickle",
    "yaml",
    "jinja2",
    "xml",
    "telnetlib",
    "ftplib",
}
CALLS = {"eval", "exec", "compile", "__import__"}
ATTRIBUTES = {"system", "popen", "getoutput", "getstatusoutput", "mktemp", "create_subprocess_shell"}


def faults(text: str) -> Iterator[str]:
    """Every use of what is forbidden."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import(names=names):
                yield from (name.name for name in names if name.name.partition(".")[0] in MODULES)
            case ast.ImportFrom(module=str(module)) if module.partition(".")[0] in MODULES:
                yield module
            case ast.Call(func=ast.Name(id=name)) if name in CALLS:
                yield name
            case ast.Attribute(attr=attr) if attr in ATTRIBUTES:
                yield attr
            case ast.keyword(arg="shell", value=ast.Constant(value=True)):
                yield "shell=True"
            case ast.keyword(arg="verify", value=ast.Constant(value=False)):
                yield "verify=False"
            case _:
                continue


NOT_SHIPPED = {"scripts/mutable.py"}
"""It puts broken variants of the project's own modules into a test process: that is code, not data."""


def test_the_daemon_does_none_of_it() -> None:
    """No module of the package, and no script, has a way to run data as code or text as a command line."""
    found = [
        f"{path.relative_to(ROOT)}: {fault}"
        for folder in ("scheduler", "scripts")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if str(path.relative_to(ROOT)) not in NOT_SHIPPED
        for fault in faults(path.read_text(encoding="utf-8"))
    ]

    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from xml.etree import ElementTree",
        "eval(x)",
        "os.system(x)",
        "subprocess.run(x, shell=True)",
        "asyncio.create_subprocess_shell(x)",
        "get(x, verify=False)",
    ],
)
def test_the_look_finds_what_it_looks_for(line: str) -> None:
    """Each kind of fault is noticed."""
    assert len(list(faults(line))) == 1


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("import subprocess\nsubprocess.run('ls', shell=True)", "S602"),
        ("import hashlib\nhashlib.md5(b'')", "S324"),
        ("password = 'hunter2'", "S105"),
        ("import random\nrandom.random()", "S311"),
        ("import tempfile\ntempfile.mktemp()", "S306"),
        ("import os\nos.chmod('x', 0o777)", "S103"),
        ("def f(x: str) -> str:\n    return f'DELETE FROM {x}'", "S608"),
    ],
)
def test_the_linter_knows_the_rules_of_bandit(line: str, rule: str) -> None:
    """The security rules are on for the daemon's modules."""
    done = subprocess.run(
        [
            RUFF,
            "check",
            "--no-cache",
            "--output-format",
            "concise",
            "--stdin-filename",
            "scheduler/engine/x.py",
            "-",
        ],
        cwd=ROOT,
        input=line + "\n",
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NO_COLOR": "1"},
    )

    assert rule in done.stdout
