"""Ways to call schedctl: in this process, as a process, and as a process on a terminal."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from unittest import mock

from scheduler.cli.main import run

_STYLE = re.compile("\x1b\\[[0-9;]*m")
_MAIN = "from scheduler.cli.main import main; main()"


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """How a call ended and what it printed."""

    code: int
    out: str
    err: str = ""

    @property
    def json(self) -> Any:
        """The one object on stdout."""
        [line] = self.out.splitlines()
        return json.loads(line)

    @property
    def lines(self) -> list[Any]:
        """The JSON lines on stdout."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def plain(self) -> str:
        """Stdout without colours."""
        return _STYLE.sub("", self.out)


def command(*arguments: str) -> list[str]:
    """The argv of a schedctl of its own process."""
    return [sys.executable, "-c", _MAIN, *arguments]


def call(*arguments: str, env: Mapping[str, str], stdin: str = "") -> Called:
    """What a process of that environment would do, in this one: to start one costs a quarter of a second."""
    out, err = _Captured(), _Captured()
    streams = sys.stdin, sys.stdout, sys.stderr
    with mock.patch.dict(os.environ, env, clear=True):
        time.tzset()
        sys.stdin, sys.stdout, sys.stderr = _Captured(stdin.encode()), out, err
        try:
            code = run(arguments)
        except SystemExit as left:
            code = int(left.code or 0)
        finally:
            sys.stdin, sys.stdout, sys.stderr = streams
    time.tzset()
    return Called(code=code, out=out.text, err=err.text)


class _Captured(io.TextIOWrapper):
    """A stream that is a pipe's end in memory."""

    def __init__(self, data: bytes = b"") -> None:
        self._bytes = io.BytesIO(data)
        super().__init__(self._bytes, encoding="utf-8", write_through=True)

    @property
    def text(self) -> str:
        """What was written."""
        return self._bytes.getvalue().decode()


def call_process(*arguments: str, env: Mapping[str, str], stdin: str = "") -> Called:
    """A real process, its output in pipes."""
    done = subprocess.run(
        command(*arguments),
        env=dict(env),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return Called(code=done.returncode, out=done.stdout, err=done.stderr)


def call_on_terminal(*arguments: str, env: Mapping[str, str], width: int) -> Called:
    """A real process whose stdout and stderr are a terminal of that width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    process = subprocess.Popen(
        command(*arguments), env={**env, "TERM": "xterm-256color"}, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    seen = b""
    try:
        while chunk := _read(ours):
            seen += chunk
    finally:
        os.close(ours)
    return Called(code=process.wait(timeout=30), out=seen.decode().replace("\r\n", "\n"))


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # EIO: the last one who had the other end open has gone
        return b""
