"""Keys of a terminal, one at a time, without Enter, not shown; the terminal is restored at the end."""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import termios
import tty
from collections import deque
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Final, Self

from scheduler.clock import SECOND, Micros

_ARROWS: Final = {b"\x1b[A": "up", b"\x1b[B": "down", b"\x1bOA": "up", b"\x1bOB": "down"}
_SEQUENCE: Final = re.compile(rb"\x1b[\[O][0-9;]*[A-Za-z~]|[\x00-\xff]")
_ENDINGS: Final = (signal.SIGTERM, signal.SIGHUP)
_OFF: Final = b"\x00"


class Keyboard:
    """Within `with`, keys arrive as they are pressed.

    SIGTERM and SIGHUP become `KeyboardInterrupt`, so that whoever draws leaves the screen as it was; Ctrl-Z
    is off, for it would stop the process on a screen that is not the shell's.
    """

    def __init__(self) -> None:
        self._descriptor = sys.stdin.fileno()
        self._pressed: deque[str] = deque()
        self._before: list[int | list[bytes | int]] | None = None
        self._handlers: list[
            tuple[signal.Signals, Callable[[int, FrameType | None], object] | int | None]
        ] = []

    def __enter__(self) -> Self:
        self._before = termios.tcgetattr(self._descriptor)
        self._handlers = [(number, signal.signal(number, _interrupt)) for number in _ENDINGS]
        tty.setcbreak(self._descriptor)
        changed = termios.tcgetattr(self._descriptor)
        changed[6][termios.VSUSP] = _OFF
        termios.tcsetattr(self._descriptor, termios.TCSANOW, changed)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)
        for number, handler in self._handlers:
            signal.signal(number, handler)

    def wait(self, longest: Micros) -> str | None:
        """The next key: a character, `up`, `down` or `escape`; None where none was pressed in that time.

        Raises:
            KeyboardInterrupt: the terminal is gone.
        """
        if not self._pressed:
            ready, _, _ = select.select([self._descriptor], [], [], max(longest, 0) / SECOND)
            if not ready:
                return None
            data = os.read(self._descriptor, 1_024)
            if not data:
                raise KeyboardInterrupt
            self._pressed.extend(keys_in(data))
        return self._pressed.popleft()


def keys_in(data: bytes) -> Iterator[str]:
    """The keys that a terminal sent as these bytes; unknown sequences are `other`."""
    for sequence in _SEQUENCE.findall(data):
        if sequence == b"\x1b":
            yield "escape"
        elif sequence.startswith(b"\x1b"):
            yield _ARROWS.get(sequence, "other")
        else:
            yield sequence.decode("ascii", "replace")


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
