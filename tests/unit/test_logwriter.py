from __future__ import annotations

import errno
import fcntl
import io
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from scheduler.logwriter import DescriptorSink, LineWriter, sink_for


class Pipe:
    """A pipe whose reader reads when the test says so; the writing end as a text stream."""

    def __init__(self) -> None:
        self.reader, fd = os.pipe()
        self.stream = os.fdopen(fd, "w")

    def fill(self) -> int:
        """Write until the pipe takes no more; how many bytes that was."""
        os.set_blocking(self.stream.fileno(), False)
        size = 0
        try:
            while True:
                size += os.write(self.stream.fileno(), b"." * 4096)
        except BlockingIOError:
            os.set_blocking(self.stream.fileno(), True)
        return size

    def read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            data += os.read(self.reader, size - len(data))
        return data

    def hang_up(self) -> None:
        if self.reader >= 0:
            os.close(self.reader)
        self.reader = -1

    def close(self) -> None:
        self.hang_up()
        self.stream.close()


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.close()


@pytest.fixture
def make_writer() -> Iterator[Callable[..., LineWriter]]:
    writers: list[LineWriter] = []

    def make(stream: io.TextIOBase, **options: int) -> LineWriter:
        writers.append(LineWriter(sink_for(stream), **options))  # type: ignore[arg-type]  # TextIOBase is it
        return writers[-1]

    yield make
    for writer in writers:
        writer.close(0)


def test_lines_come_out_whole_and_in_order(pipe: Pipe, make_writer: Callable[..., LineWriter]) -> None:
    """What is put is what is read, line after line."""
    writer = make_writer(pipe.stream)
    lines = [b"%d %s\n" % (index, b"x" * (index * 37 % 3000)) for index in range(200)]

    for line in lines:
        writer.put(line)

    expected = b"".join(lines)
    assert pipe.read(len(expected)) == expected
    assert writer.lines_lost == 0


def test_lines_that_gather_go_out_together() -> None:
    """The first line goes out by itself; those that come while it is written make one piece of work."""
    taken: list[list[bytes]] = []
    entered, may_go_on = threading.Event(), threading.Event()

    def sink(lines: Sequence[bytes]) -> int:
        taken.append(list(lines))
        entered.set()
        may_go_on.wait(30)
        return 0

    writer = LineWriter(sink)
    writer.put(b"first\n")
    assert entered.wait(30)
    for number in range(100):
        writer.put(b"%d\n" % number)
    may_go_on.set()
    writer.close(30)

    assert taken == [[b"first\n"], [b"%d\n" % number for number in range(100)]]


def test_lines_go_into_a_pipe_in_pieces_that_stay_whole() -> None:
    """What is written at once is whole lines and no more than a pipe keeps together (pipe(7))."""
    reader, writer = os.pipe2(os.O_DIRECT)  # what is written at once is read at once
    lines = [b"%d %s\n" % (index, b"x" * (index * 37 % 900)) for index in range(100)]
    with os.fdopen(writer, "w") as stream:
        assert sink_for(stream)(lines) == 0
    pieces = []
    while piece := os.read(reader, 1 << 20):
        pieces.append(piece)
    os.close(reader)

    assert b"".join(pieces) == b"".join(lines)
    assert all(piece.endswith(b"\n") for piece in pieces)
    assert len(pieces) < len(lines) / 2


def test_a_failure_costs_only_the_line_that_it_met(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of lines that are written together, those before and behind the one that failed are written (I14)."""
    path = tmp_path / "log"
    really_write = os.write
    calls = []

    def write(fd: int, text: bytes) -> int:
        calls.append(text)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "full")
        return really_write(fd, text[:11] if len(calls) == 1 else text)

    with path.open("w") as stream:
        sink = DescriptorSink(stream)
        monkeypatch.setattr("scheduler.logwriter.os.write", write)
        lost = sink([b"one\n", b"two\n", b"three\n", b"four\n", b"five\n"])
        monkeypatch.undo()

    assert lost == 1
    assert path.read_text() == "one\ntwo\nthr\nfour\nfive\n"


def test_a_reader_that_does_not_read_holds_nobody(pipe: Pipe, make_writer: Callable[..., LineWriter]) -> None:
    """With a full pipe `put` returns at once, and the lines beyond the queue are counted (I14, I15)."""
    filled = pipe.fill()
    writer = make_writer(pipe.stream, limit=10)
    started = time.monotonic()

    for index in range(1000):
        writer.put(b"%03d\n" % index)

    assert time.monotonic() - started < 1
    assert writer.flush(0.05) is False
    assert writer.lines_lost == 990
    pipe.read(filled)
    assert pipe.read(40).splitlines() == [b"%03d" % index for index in range(10)]


def test_a_reader_that_went_away_costs_its_lines_only(
    pipe: Pipe, make_writer: Callable[..., LineWriter]
) -> None:
    """A broken pipe raises nothing in the caller; every line is counted as lost (I14)."""
    writer = make_writer(pipe.stream)
    pipe.hang_up()

    writer.put(b"one\n")
    writer.put(b"two\n")

    assert writer.flush() is True
    assert writer.lines_lost == 2


def test_a_closed_stream_costs_its_lines_only(make_writer: Callable[..., LineWriter]) -> None:
    """A stream that was closed under the writer raises nothing in the caller."""
    stream = io.StringIO()
    writer = make_writer(stream)
    stream.close()

    writer.put(b"one\n")

    assert writer.flush() is True
    assert writer.lines_lost == 1


def test_a_closed_descriptor_is_not_written_to(
    make_writer: Callable[..., LineWriter], tmp_path: Path
) -> None:
    """After a close the number belongs to whatever file was opened next, which must not get the log."""
    stream = (tmp_path / "log").open("w")
    writer = make_writer(stream)
    stream.close()

    with (tmp_path / "other").open("w") as other:
        writer.put(b"one\n")
        writer.flush()

    assert (tmp_path / "other").read_bytes() == b""
    assert other.closed
    assert writer.lines_lost == 1


def test_a_stream_without_a_descriptor_gets_the_text(make_writer: Callable[..., LineWriter]) -> None:
    """A stream in memory serves as well."""
    stream = io.StringIO()
    writer = make_writer(stream)

    writer.put("one … two\n".encode())
    writer.flush()

    assert stream.getvalue() == "one … two\n"


def test_lines_come_again_when_the_disk_has_room_again(tmp_path: Path) -> None:
    """A full disk loses lines and counts them; a torn line is ended before the next one begins (I14)."""
    path = tmp_path / "log"
    code = f"""
import resource, signal
from scheduler.logwriter import LineWriter, sink_for
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
stream = open({str(path)!r}, "w")
writer = LineWriter(sink_for(stream))
writer.put(b"before\\n"); writer.flush()
resource.setrlimit(resource.RLIMIT_FSIZE, (10, resource.RLIM_INFINITY))
writer.put(b"torn line\\n"); writer.put(b"lost\\n"); writer.flush()
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
writer.put(b"after\\n"); writer.put(b"last\\n"); writer.close()
print(writer.lines_lost)
"""

    lost = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert path.read_bytes() == b"before\ntor\nafter\nlast\n"
    assert lost == "2\n"


def test_a_descriptor_that_is_not_to_block_is_waited_for(
    pipe: Pipe, make_writer: Callable[..., LineWriter]
) -> None:
    """A terminal that another program made non-blocking tears no line."""
    os.set_blocking(pipe.stream.fileno(), False)
    writer = make_writer(pipe.stream)
    line = b"x" * 300_000 + b"\n"

    writer.put(line)

    assert pipe.read(len(line)) == line
    assert writer.lines_lost == 0


def test_the_flags_of_the_stream_stay_as_they_are(pipe: Pipe, make_writer: Callable[..., LineWriter]) -> None:
    """The stream is shared with others; making it non-blocking would break their writes."""
    flags = fcntl.fcntl(pipe.stream.fileno(), fcntl.F_GETFL)

    make_writer(pipe.stream).put(b"one\n")

    assert pipe.read(4) == b"one\n"
    assert fcntl.fcntl(pipe.stream.fileno(), fcntl.F_GETFL) == flags


def test_close_writes_what_is_queued(make_writer: Callable[..., LineWriter]) -> None:
    """Nothing that was put before the close is missing; what comes later is counted as lost."""
    stream = io.StringIO()
    writer = make_writer(stream)
    for _ in range(1000):
        writer.put(b"line\n")

    writer.close()
    writer.put(b"late\n")

    assert stream.getvalue() == "line\n" * 1000
    assert writer.lines_lost == 1
    assert writer.flush() is True


def test_close_does_not_wait_for_a_reader_that_does_not_read(
    pipe: Pipe, make_writer: Callable[..., LineWriter]
) -> None:
    """The exit of the daemon does not hang on its log; what could not be written is counted (I12)."""
    pipe.fill()
    writer = make_writer(pipe.stream)
    for _ in range(3):
        writer.put(b"line\n")
    started = time.monotonic()

    writer.close(0.05)

    assert time.monotonic() - started < 5
    assert writer.lines_lost == 3


def test_an_exit_with_a_stuck_writer_is_clean(pipe: Pipe) -> None:
    """The interpreter ends, with its own exit code, while the writer thread hangs in a full pipe (I12)."""
    pipe.fill()
    code = """
import sys
from scheduler.logwriter import LineWriter, sink_for
writer = LineWriter(sink_for(sys.stdout))
writer.put(b"stuck\\n")
writer.close(0.05)
"""

    ended = subprocess.run(
        [sys.executable, "-c", code], stdout=pipe.stream, stderr=subprocess.PIPE, timeout=30, check=False
    )

    assert (ended.returncode, ended.stderr) == (0, b"")
