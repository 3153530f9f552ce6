"""Writes log lines to a file descriptor without ever making the caller wait for it.

Promises: `put` neither blocks nor raises, whatever became of the reader; lines come out whole and in
order, one `write` each; what could not be written is counted in `lines_lost`, never silently gone.

A thread of its own, not O_NONBLOCK: that flag belongs to the open file, which a terminal or pipe shares
with other processes, and would break their writes. What a line says is left to `scheduler.logline`.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final, TextIO, TypeAlias

QUEUE_LIMIT: Final = 4096
"""Lines that wait for a slow reader; those beyond are lost and counted."""

READER_PATIENCE_MS: Final = 5_000
"""How long one line waits for a descriptor that somebody else made non-blocking."""

Sink: TypeAlias = Callable[[bytes], None]


class LineWriter:
    """A bounded queue and the thread that empties it into `sink`."""

    def __init__(self, sink: Sink, *, limit: int = QUEUE_LIMIT) -> None:
        self._sink = sink
        self._limit = limit
        self._queue: SimpleQueue[bytes | threading.Event | None] = SimpleQueue()
        # Re-entrant: a destructor that logs may interrupt the counting of the same thread.
        self._lock = threading.RLock()
        self._lost = 0
        self._closed = False
        # A daemon thread: a reader that never reads must not hold the exit of the process.
        self._thread = threading.Thread(target=self._write_all, name="log-writer", daemon=True)
        self._thread.start()

    @property
    def lines_lost(self) -> int:
        """Lines that were given to `put` and can no longer reach the reader."""
        return self._lost

    def put(self, line: bytes) -> None:
        """The line (with its newline) is queued, or counted as lost."""
        if self._closed or self._queue.qsize() >= self._limit:
            self.count_lost()
        else:
            self._queue.put(line)

    def count_lost(self, lines: int = 1) -> None:
        """The lines are known to be lost."""
        with self._lock:
            self._lost += lines

    def flush(self, timeout: float = 1.0) -> bool:
        """What was queued before the call is written; False when `timeout` seconds did not suffice."""
        if not self._thread.is_alive():
            return self._queue.empty()
        reached = threading.Event()
        self._queue.put(reached)
        return reached.wait(timeout)

    def close(self, timeout: float = 1.0) -> None:
        """The queue is written and the thread gone, or `timeout` seconds are over and the rest is lost."""
        if self._closed:
            return
        self._closed = True
        self._queue.put(None)
        self._thread.join(timeout)
        if self._thread.is_alive():
            # The line that the thread cannot get rid of is no longer in the queue, but our None is.
            self.count_lost(self._queue.qsize())

    def _write_all(self) -> None:
        while (entry := self._queue.get()) is not None:
            if isinstance(entry, threading.Event):
                entry.set()
                continue
            try:
                self._sink(entry)
            except (OSError, ValueError):  # gone, full, closed: the next line may fare better
                self.count_lost()


def sink_for(stream: TextIO) -> Sink:
    """Where lines for `stream` go: its descriptor where it has one, else the stream itself."""
    try:
        return DescriptorSink(stream)
    except (OSError, ValueError):
        return _text_sink(stream)


class DescriptorSink:
    """Writes each line with one `os.write`, past Python's buffers.

    The buffer of `sys.stdout` has a lock which a stuck writer would hold at the exit of the interpreter.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream  # as long as it lives, its descriptor is not given to another file
        self._fd = stream.fileno()
        self._torn = False

    def __call__(self, line: bytes) -> None:
        """The whole line is written.

        Raises:
            OSError: the descriptor does not take it; a part may have been written.
            ValueError: the stream was closed.
        """
        if self._stream.closed:
            raise ValueError("the stream is closed")
        # A part of an earlier line stands there without its end: the next one starts on a line of its own.
        rest = memoryview(b"\n" + line if self._torn else line)
        while rest:
            try:
                written = os.write(self._fd, rest)
            except BlockingIOError:
                self._wait_for_room()
                continue
            rest = rest[written:]
            self._torn = bool(rest)

    def _wait_for_room(self) -> None:
        poll = select.poll()
        poll.register(self._fd, select.POLLOUT)
        if not poll.poll(READER_PATIENCE_MS):
            raise TimeoutError("nobody reads the log")


def _text_sink(stream: TextIO) -> Sink:
    def write(line: bytes) -> None:
        stream.write(line.decode())
        stream.flush()

    return write
