"""The signals of the process before its loop hears them, and after.

By default SIGHUP ends a process. Who asks a daemon that still starts to read its files again must not end it,
and who ends it then has nothing to wait for: nothing has begun.
"""

# ruff: noqa: ARG001, ARG002 - the system says what a handler is handed

from __future__ import annotations

import signal
from types import FrameType
from typing import Final, NoReturn, Self

_STOPPING: Final = (signal.SIGTERM, signal.SIGINT)


class EarlySignals:
    """What was asked of the process by signals before somebody took these over.

    Attributes:
        reload_wanted: SIGHUP came.
    """

    def __init__(self) -> None:
        self.reload_wanted = False

    @classmethod
    def heard(cls) -> Self:
        """From now on SIGHUP is remembered, and SIGTERM or SIGINT ends the process at once, exit code 0."""
        early = cls()
        signal.signal(signal.SIGHUP, early._remember)
        for number in _STOPPING:
            signal.signal(number, _leave)
        return early

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self.reload_wanted = True


def turn_deaf() -> None:
    """Signals that ask for something wait from now on: the process is about to end, with its own code."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP, *_STOPPING})


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(0)
