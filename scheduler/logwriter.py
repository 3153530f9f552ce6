"""Writes log lines to a descriptor without ever making the caller wait for it.

Promises: `put` neither blocks nor raises, whatever became of the reader; lines come out whole and in order;
what could not be written is counted in `lines_lost`, never silently gone.

The thread is woken for a lone line only, which is written at once; lines that come while it writes, or rests
after that, go out together. So thousands of lines cost the loop few handovers of the interpreter.

A thread of its own, not O_NONBLOCK: that flag belongs to the open file, which a terminal or pipe shares
with other processes, and would break their writes. What a line says is left to `scheduler.logline`.
"""

from __future__ import annotations

import os
import select
import stat
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Final, TextIO, TypeAlias

QUEUE_LIMIT: Final = 4096
"""Lines that wait for a slow reader; those beyond are lost and counted."""

READER_PATIENCE_MS: Final = 5_000
"""How long one line waits for a descriptor that somebody else made non-blocking."""

REST: Final = 0.015
"""Seconds in which lines gather after a write; half a queue of them, a flush and a close end it."""

TAKEN_AT_ONCE: Final = 256
"""Lines that are given to the sink together, at most."""

WRITTEN_AT_ONCE: Final = 64 * 1024
"""Bytes of several lines in one write, at most."""

_LINE_END: Final = ord("\n")

Sink: TypeAlias = Callable[[Sequence[bytes]], int]
"""Writes the lines, each whole, in order; how many could not be written. It raises nothing."""


class LineWriter:
    """A bounded queue and the thread that empties it into `sink`."""

    def __init__(self, sink: Sink, *, limit: int = QUEUE_LIMIT) -> None:
        self._sink = sink
        self._limit = limit
        self._crowd = max(1, limit // 2)
        # Lines stay in it until they are written, so that each is counted, wherever the thread hangs.
        self._queue: deque[bytes | threading.Event] = deque()
        # Both are safe in a destructor that logs and so interrupts `put` in its own thread.
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._lock = threading.RLock()
        self._sleeps = False
        self._lost = 0
        self._closed = False
        self._given_up = False
        # A daemon thread: a reader that never reads must not hold the exit of the process.
        self._thread = threading.Thread(target=self._write_all, name="log-writer", daemon=True)
        self._thread.start()

    @property
    def lines_lost(self) -> int:
        """Lines that were given to `put` and can no longer reach the reader."""
        return self._lost

    def put(self, line: bytes) -> None:
        """The line (with its newline) is queued, or counted as lost."""
        waiting = len(self._queue)
        if self._closed or waiting >= self._limit:
            self.count_lost()
            return
        self._queue.append(line)
        if self._sleeps or waiting == self._crowd:
            self._sleeps = False  # those that follow need not ring again
            self._bell.put(None)

    def count_lost(self, lines: int = 1) -> None:
        """The lines are known to be lost."""
        with self._lock:
            self._lost += lines

    def flush(self, timeout: float = 1.0) -> bool:
        """What was queued before the call is written; False when `timeout` seconds did not suffice."""
        if not self._thread.is_alive():
            return not self._queue
        reached = threading.Event()
        self._queue.append(reached)
        self._bell.put(None)
        return reached.wait(timeout)

    def close(self, timeout: float = 1.0) -> None:
        """The queue is written and the thread gone, or `timeout` seconds are over and the rest is lost."""
        if self._closed:
            return
        self._closed = True
        self._bell.put(None)
        self._thread.join(timeout)
        self._given_up = True
        self.count_lost(sum(isinstance(entry, bytes) for entry in self._queue.copy()))

    def _write_all(self) -> None:
        while not self._closed:
            self._sleep()
            self._write_waiting()
            if not self._closed:
                with suppress(Empty):
                    self._bell.get(timeout=REST)
        self._write_waiting()

    def _sleep(self) -> None:
        """Something waits, or the bell was rung."""
        self._sleeps = True
        if not self._queue and not self._closed:  # what came before it was seen to sleep does not ring
            self._bell.get()
        self._sleeps = False

    def _write_waiting(self) -> None:
        while self._queue:
            lines = self._next_lines()
            lost = self._sink(lines) if lines else 0
            if self._given_up:  # while it was writing: they are counted
                return
            for _ in lines:
                self._queue.popleft()
            if lost:
                self.count_lost(lost)
            if self._queue and isinstance(reached := self._queue[0], threading.Event):
                self._queue.popleft()
                reached.set()

    def _next_lines(self) -> list[bytes]:
        """The first lines of the queue, up to a flush that waits for them."""
        lines: list[bytes] = []
        for index in range(min(len(self._queue), TAKEN_AT_ONCE)):
            entry = self._queue[index]
            if isinstance(entry, threading.Event):
                break
            lines.append(entry)
        return lines


def each(write: Callable[[bytes], None]) -> Sink:
    """A sink that writes line by line; one that fails is lost, the next may fare better."""

    def write_each(lines: Sequence[bytes]) -> int:
        return sum(not _succeeds(write, line) for line in lines)

    return write_each


def _succeeds(write: Callable[[bytes], None], line: bytes) -> bool:
    try:
        write(line)
    except (OSError, ValueError):  # gone, full, closed
        return False
    return True


def sink_for(stream: TextIO) -> Sink:
    """Where lines for `stream` go: its descriptor where it has one, else the stream itself."""
    try:
        return DescriptorSink(stream)
    except (OSError, ValueError):
        return each(_text_writer(stream))


class DescriptorSink:
    """Writes lines with `os.write`, past Python's buffers; several with one call, where they stay whole.

    The buffer of `sys.stdout` has a lock which a stuck writer would hold at the exit of the interpreter.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream  # as long as it lives, its descriptor is not given to another file
        self._fd = stream.fileno()
        # A pipe keeps only so much together when others write into it, too (pipe(7)).
        is_pipe = stat.S_ISFIFO(os.fstat(self._fd).st_mode)
        self._at_once = select.PIPE_BUF if is_pipe else WRITTEN_AT_ONCE
        self._torn = False
        self._written = 0

    def __call__(self, lines: Sequence[bytes]) -> int:
        """The lines are written; how many are not, because the descriptor did not take them."""
        return sum(self._write_together(some) for some in _portions(lines, self._at_once))

    def _write_together(self, lines: list[bytes]) -> int:
        if _succeeds(self._write, b"".join(lines)):
            return 0
        written = self._written
        while written >= len(lines[0]):
            written -= len(lines.pop(0))
        # The first of the rest is the one that failed; those behind it may fare better.
        return 1 + sum(not _succeeds(self._write, line) for line in lines[1:])

    def _write(self, text: bytes) -> None:
        """All of it is written; else `_written` says how much of it.

        Raises:
            OSError: the descriptor does not take it.
            ValueError: the stream was closed.
        """
        self._written = 0
        if self._stream.closed:
            raise ValueError("the stream is closed")
        if self._torn:  # a part of an earlier line stands there: the next one starts on a line of its own
            self._write_some(b"\n")
            self._torn = False
        rest = memoryview(text)
        while rest:
            written = self._write_some(rest)
            self._torn = rest[written - 1] != _LINE_END
            self._written += written
            rest = rest[written:]

    def _write_some(self, text: bytes | memoryview) -> int:
        while True:
            try:
                return os.write(self._fd, text)
            except BlockingIOError:
                self._wait_for_room()

    def _wait_for_room(self) -> None:
        poll = select.poll()
        poll.register(self._fd, select.POLLOUT)
        if not poll.poll(READER_PATIENCE_MS):
            raise TimeoutError("nobody reads the log")


def _portions(lines: Iterable[bytes], most: int) -> Iterator[list[bytes]]:
    """The lines in lists of at most so many bytes; a longer line stands alone."""
    portion: list[bytes] = []
    size = 0
    for line in lines:
        if portion and size + len(line) > most:
            yield portion
            portion, size = [], 0
        portion.append(line)
        size += len(line)
    if portion:
        yield portion


def _text_writer(stream: TextIO) -> Callable[[bytes], None]:
    def write(line: bytes) -> None:
        stream.write(line.decode())
        stream.flush()

    return write
