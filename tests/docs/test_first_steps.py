"""A newcomer's walk: every line of docs/first-steps.md, word for word, against a real daemon."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.docs.support.pages import ROOT

_PAGE: Final = ROOT / "docs/first-steps.md"
_BLOCK: Final = re.compile(
    r"(?:Put this into `~/(\S+)`:\n\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
_RUN_ID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
_PATIENCE: Final = 20.0


class Newcomer:
    """Somebody with an empty home directory, who reads from the top."""

    def __init__(self, home: Path) -> None:
        self.home = home
        bin_ = Path(sys.executable).parent
        (home / "run").mkdir(mode=0o700)
        self.environment = {
            "HOME": str(home),
            "PATH": f"{bin_}:{os.environ['PATH']}",
            "XDG_RUNTIME_DIR": str(home / "run"),
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "COLUMNS": "200",
        }
        self.daemon: subprocess.Popen[bytes] | None = None
        self.run_ids: dict[str, str] = {}

    def follow(self, kind: str, place: str, text: str) -> None:
        """One block of the page is done as it says."""
        if place:
            (self.home / place).write_text(text, encoding="utf-8")
        elif kind == "console":
            for step in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
                line, _, expected = step.partition("\n")
                self.type(line, expected)

    def type(self, line: str, expected: str) -> None:
        """The line does what the page shows below it."""
        if line == "schedulerd":
            self.start()
            return
        for shown, true in self.run_ids.items():
            line = line.replace(shown, true)
        done = subprocess.run(
            ["/bin/bash", "-c", line],
            env=self.environment,
            cwd=self.home,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_PATIENCE,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"$ {line}\n{done.stdout}"
        self.run_ids |= dict(zip(_RUN_ID.findall(expected), _RUN_ID.findall(done.stdout), strict=True))
        assert shape(done.stdout, self.home) == shape(expected, Path("/home/you")), f"$ {line}\n{done.stdout}"

    def start(self) -> None:
        """`schedulerd` runs in a terminal of its own, and answers."""
        if self.daemon is not None:
            self.daemon.wait(_PATIENCE)  # the page has ended it
        with (self.home / "terminal").open("ab") as terminal:
            self.daemon = subprocess.Popen(
                ["schedulerd"], env=self.environment, cwd=self.home, stdout=terminal, stderr=terminal
            )
        deadline = time.monotonic() + _PATIENCE
        while subprocess.run(
            ["schedctl", "status"], env=self.environment, capture_output=True, check=False
        ).returncode:
            assert time.monotonic() < deadline, (self.home / "terminal").read_text(encoding="utf-8")

    def press_ctrl_c(self) -> int:
        """How the daemon ended."""
        assert self.daemon is not None
        self.daemon.send_signal(signal.SIGINT)
        return self.daemon.wait(_PATIENCE)


def shape(text: str, home: Path) -> list[list[str]]:
    """What is the same on every machine and day: words, without times, ids and the width of columns."""
    text = _RUN_ID.sub("RUN", text.replace(str(home), "~"))
    text = re.sub(r"uid:\d+", "UID", text)
    text = re.sub(r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun) (?=\d{4})", "", text)
    text = re.sub(r"(\d{4}-\d\d-\d\d )?\d\d:\d\d(:\d\d)?\+\d\d:\d\d", "TIME", text)
    span = r"\d+ (?:ms|s|min|h|d)(?: \d+ (?:s|min|h))?"
    text = re.sub(rf"\((?:in {span}|{span} ago|now)\)|in {span}|{span} ago|\bnow\b|{span}", "SPAN", text)
    return [line.split() for line in text.splitlines() if line.strip()]


@pytest.fixture
def newcomer() -> Iterator[Newcomer]:
    with tempfile.TemporaryDirectory(prefix="sd-walk-") as home:  # a socket's path is at most 107 bytes long
        newcomer = Newcomer(Path(home))
        yield newcomer
        if newcomer.daemon is not None and newcomer.daemon.poll() is None:
            newcomer.daemon.kill()
            newcomer.daemon.wait()


@pytest.mark.slow
def test_the_first_steps_work_word_for_word(newcomer: Newcomer) -> None:
    """Each command exits with 0 and prints what the page shows, but for times, ids and widths."""
    found = _BLOCK.findall(_PAGE.read_text(encoding="utf-8"))

    for place, kind, text in found:
        newcomer.follow(kind, place, text)

    assert len(found) > 8
    assert len(newcomer.run_ids) == 1
    assert newcomer.press_ctrl_c() == 0


def test_the_walk_sees_a_wrong_line(newcomer: Newcomer) -> None:
    """The walk is one that can fail: another answer than the page's, or a command that is refused."""
    with pytest.raises(AssertionError, match="no daemon answers"):
        newcomer.type("schedctl list", "hello active\n")
    with pytest.raises(AssertionError, match="y"):
        newcomer.type("echo y", "x\n")
