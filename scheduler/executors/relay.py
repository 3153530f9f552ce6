"""Carrying what an attempt tells from any thread to its hooks on the loop; a flood becomes one call."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from dataclasses import replace

from scheduler.engine.ports import AttemptHooks, ProgressReport
from scheduler.executors.progress import merge
from scheduler.telemetry import concealed


class HookRelay:
    """Calls the hooks on their loop; at most one call waits there, however much is told.

    Args:
        loop: by default the one that it is made on.
    """

    def __init__(self, hooks: AttemptHooks, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._hooks = hooks
        self._loop = loop or asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._waiting = False
        self._size = 0
        self._report: ProgressReport | None = None

    def output_seen(self, size: int) -> None:
        """The hooks hear of `size` more bytes soon."""
        with self._lock:
            self._size += size
            self._call_soon()

    def progressed(self, report: ProgressReport) -> None:
        """The hooks hear of the report soon, merged with those that wait, and without secrets."""
        message = report.progress.message
        if message is not None:
            report = replace(report, progress=replace(report.progress, message=concealed(message)))
        with self._lock:
            self._report = report if self._report is None else merge(self._report, report)
            self._call_soon()

    def _call_soon(self) -> None:
        if self._waiting:
            return
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody listens
            self._loop.call_soon_threadsafe(self._deliver)
            self._waiting = True

    def _deliver(self) -> None:
        with self._lock:
            size, report = self._size, self._report
            self._size, self._report, self._waiting = 0, None, False
        if size:
            self._hooks.output_seen(size)
        if report is not None:
            self._hooks.progressed(report)
