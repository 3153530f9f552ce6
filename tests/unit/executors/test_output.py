from __future__ import annotations

import os
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.clock import Micros, SystemClock
from scheduler.errors import Invalid
from scheduler.executors.capture import OutputWriter
from scheduler.executors.output import (
    START,
    Chunk,
    Stream,
    output_exists,
    read_output,
    remove_output,
)
from scheduler.executors.output_text import OutputDecoder, as_text

RUN = "0193f2c4-7a1b-7abc-8000-0123456789ab"


class Ticking(SystemClock):
    """A wall clock that moves by a microsecond with every look."""

    def __init__(self) -> None:
        self._ticks = count(1)

    def now(self) -> Micros:
        return next(self._ticks)


def writer(directory: Path, *, limit: int = 10 << 20, claim: int = 1) -> OutputWriter:
    return OutputWriter(directory, RUN, claim, limit=limit, clock=Ticking())


def read(directory: Path, *, stream: Stream | None = None, tail: int | None = None) -> list[Chunk]:
    return list(read_output(directory, RUN, 1, stream=stream, tail=tail))


def data_of(chunks: list[Chunk]) -> bytes:
    return b"".join(chunk.data for chunk in chunks)


def disk_use(directory: Path) -> int:
    return sum(path.stat().st_size for path in (directory / RUN).iterdir())


def test_what_is_written_is_read_with_its_stream_and_time(tmp_path: Path) -> None:
    """Chunks come in their order of arrival, each with its stream and instant."""
    output = writer(tmp_path)
    output.write(Stream.STDOUT, b"a\n")
    output.write(Stream.STDERR, b"b\n")
    output.write(Stream.STDOUT, b"c\n")

    chunks = read(tmp_path)

    assert [(chunk.stream, chunk.data) for chunk in chunks] == [
        (Stream.STDOUT, b"a\n"),
        (Stream.STDERR, b"b\n"),
        (Stream.STDOUT, b"c\n"),
    ]
    assert chunks[0].at < chunks[1].at < chunks[2].at
    assert data_of(read(tmp_path, stream=Stream.STDOUT)) == b"a\nc\n"


def test_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    """Output is nobody else's to read (B42, B54)."""
    before = os.umask(0)
    try:
        writer(tmp_path / "output").write(Stream.STDOUT, b"secret")
    finally:
        os.umask(before)

    places = [tmp_path / "output", tmp_path / "output" / RUN, *(tmp_path / "output" / RUN).iterdir()]
    assert [place.stat().st_mode & 0o777 for place in places] == [0o700, 0o700, 0o600]


def test_silent_attempt_leaves_nothing_on_disk(tmp_path: Path) -> None:
    """Nothing is made before the first byte."""
    writer(tmp_path).close()

    assert list(tmp_path.iterdir()) == []
    assert not output_exists(tmp_path, RUN)
    assert read(tmp_path) == []


@given(
    st.lists(st.tuples(st.sampled_from(Stream), st.binary(min_size=1, max_size=3000)), max_size=60),
    st.integers(min_value=4096, max_value=20_000),
)
def test_head_and_tail_are_kept_and_the_rest_is_counted(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[tuple[Stream, bytes]], limit: int
) -> None:
    """Whatever is written: the disk holds at most the limit, and what is missing is told to the byte."""
    directory = tmp_path_factory.mktemp("output")
    output = writer(directory, limit=limit)
    for stream, data in pieces:
        output.write(stream, data)
    output.close()

    chunks = read(directory)

    if pieces:
        assert disk_use(directory) <= limit
    for stream in Stream:
        whole = b"".join(data for name, data in pieces if name is stream)
        told = 0
        for chunk in (chunk for chunk in chunks if chunk.stream is stream):
            assert whole[told : told + len(chunk.data)] == chunk.data
            told += len(chunk.data) + chunk.dropped
        assert told == len(whole)


def test_head_and_tail_have_their_share(tmp_path: Path) -> None:
    """Of a flood, about half the limit is kept from its beginning and three eighths from its end."""
    output = writer(tmp_path, limit=80_000)
    for number in range(20_000):
        output.write(Stream.STDOUT, b"line %07d\n" % number)
    output.close()

    head, tail = data_of(read(tmp_path)).split(b"line 0000000\n", 1)[1], data_of(read(tmp_path))
    lines = [
        int(line.split()[1]) for line in tail.splitlines() if line.startswith(b"line ") and len(line) == 12
    ]
    cut = next(i for i in range(1, len(lines)) if lines[i] != lines[i - 1] + 1)

    assert head
    assert disk_use(tmp_path) <= 80_000
    assert lines[0] == 0
    assert lines[-1] == 19_999
    assert cut * 26 > 30_000
    assert (len(lines) - cut) * 26 > 28_000


def test_follower_loses_nothing_and_sees_nothing_twice(tmp_path: Path) -> None:
    """Reading on from a position gives exactly what came since, over segments and through the loss."""
    output = writer(tmp_path, limit=8000)
    seen: list[Chunk] = []
    position = START
    for number in range(600):
        output.write(Stream.STDOUT, b"%04d\n" % number)
        if number % 7 == 0:
            fresh = list(read_output(tmp_path, RUN, 1, after=position))
            position = fresh[-1].position if fresh else position
            seen += fresh
    seen += read_output(tmp_path, RUN, 1, after=position)

    assert data_of(seen) == b"".join(b"%04d\n" % number for number in range(600))
    assert not any(chunk.dropped for chunk in seen)


def test_follower_that_falls_behind_is_told_what_it_missed(tmp_path: Path) -> None:
    """A position in a segment that was deleted goes on behind it, with the exact number of bytes missed."""
    output = writer(tmp_path, limit=4096)
    output.write(Stream.STDOUT, b"x" * 3000)
    position = read(tmp_path)[-1].position
    output.write(Stream.STDOUT, b"y" * 50_000)

    late = list(read_output(tmp_path, RUN, 1, after=position))

    assert sum(len(chunk.data) + chunk.dropped for chunk in late) == 50_000
    assert sum(chunk.dropped for chunk in late) > 40_000


def test_writer_moving_on_between_two_looks_hides_nothing(tmp_path: Path) -> None:
    """A segment that is ended, and followed by another, while it is read, is read to its end first."""
    output = writer(tmp_path, limit=8000)
    output.write(Stream.STDOUT, b"a" * 500)
    reading = read_output(tmp_path, RUN, 1)
    first = next(reading)
    output.write(Stream.STDOUT, b"b" * 1500)

    rest = list(reading)

    assert data_of([first, *rest]) == b"a" * 500 + b"b" * 1500


def test_half_a_record_waits_for_its_other_half(tmp_path: Path) -> None:
    """A record that is not complete yet ends the reading, and is read once it is."""
    output = writer(tmp_path)
    output.write(Stream.STDOUT, b"first")
    output.write(Stream.STDOUT, b"second")
    (file,) = (tmp_path / RUN).iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[:-3])

    before = read(tmp_path)
    file.write_bytes(whole)
    after = list(read_output(tmp_path, RUN, 1, after=before[-1].position))

    assert data_of(before) == b"first"
    assert data_of(after) == b"second"


def test_attempts_are_kept_apart(tmp_path: Path) -> None:
    """Each claim has output of its own; a claim handed out again (a restored store) begins afresh."""
    writer(tmp_path).write(Stream.STDOUT, b"one")
    writer(tmp_path, claim=2).write(Stream.STDOUT, b"two")
    writer(tmp_path).write(Stream.STDOUT, b"again")

    assert data_of(read(tmp_path)) == b"again"
    assert data_of(list(read_output(tmp_path, RUN, 2))) == b"two"
    assert output_exists(tmp_path, RUN, 2)
    assert not output_exists(tmp_path, RUN, 3)


@pytest.mark.parametrize(
    ("tail", "expected"),
    [
        (0, b""),
        (1, b"five"),
        (2, b"four\nfive"),
        (4, b"two\nthree\nfour\nfive"),
        (99, b"one\ntwo\nthree\nfour\nfive"),
    ],
)
def test_tail_gives_the_last_lines(tmp_path: Path, tail: int, expected: bytes) -> None:
    """`tail` counts lines over all chunks, and an unfinished last line is one."""
    output = writer(tmp_path)
    for data in (b"one\ntw", b"o\n", b"three\nfour", b"\nfive"):
        output.write(Stream.STDOUT, data)

    assert data_of(read(tmp_path, tail=tail)) == expected


def test_removal_takes_every_claim_and_is_safe_twice(tmp_path: Path) -> None:
    """Nothing of a removed run's output is left."""
    writer(tmp_path).write(Stream.STDOUT, b"one")
    writer(tmp_path, claim=2).write(Stream.STDOUT, b"two")

    remove_output(tmp_path, RUN)
    remove_output(tmp_path, RUN)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "run_id", ["", "..", "../../etc", "a/b", RUN.upper(), "{" + RUN + "}", RUN.replace("-", ""), RUN + "\n"]
)
def test_only_a_plain_uuid_becomes_a_path(tmp_path: Path, run_id: str) -> None:
    """No run id leads outside the output directory (B45)."""
    (tmp_path / "keep").mkdir()
    for verb in (
        lambda: read_output(tmp_path / "keep", run_id, 1),
        lambda: remove_output(tmp_path / "keep", run_id),
        lambda: output_exists(tmp_path / "keep", run_id),
        lambda: OutputWriter(tmp_path, run_id, 1, limit=5000, clock=SystemClock()),
    ):
        with pytest.raises(Invalid):
            verb()

    assert (tmp_path / "keep").is_dir()


def test_loss_is_told_once_the_disk_takes_something_again(tmp_path: Path) -> None:
    """Bytes that could not be kept are counted, and the count is written at the next chance (I14)."""
    (tmp_path / RUN).write_text("in the way")
    output = writer(tmp_path)
    output.write(Stream.STDOUT, b"lost")
    output.write(Stream.STDERR, b"too")
    (tmp_path / RUN).unlink()
    output.write(Stream.STDOUT, b"kept")
    output.close()

    chunks = read(tmp_path)

    assert [(chunk.stream, chunk.dropped, chunk.data) for chunk in chunks] == [
        (Stream.STDOUT, 4, b""),
        (Stream.STDERR, 3, b""),
        (Stream.STDOUT, 0, b"kept"),
    ]


FULL_DISK = """
import resource, sys
from pathlib import Path
from scheduler.clock import SystemClock
from scheduler.executors.capture import OutputWriter
from scheduler.executors.output import Stream
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, resource.RLIM_INFINITY))
output = OutputWriter(Path(sys.argv[1]), sys.argv[2], 1, limit=80_000, clock=SystemClock())
for number in range(40):
    output.write(Stream.STDOUT, b"%04d" % number * 50)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
output.write(Stream.STDOUT, b"end")
output.close()
"""


def test_record_that_was_cut_by_a_full_disk_is_taken_back(tmp_path: Path) -> None:
    """A file that takes half a record is cut to the last whole one, so that what follows can be read."""
    subprocess.run([sys.executable, "-c", FULL_DISK, str(tmp_path), RUN], check=True)

    chunks = read(tmp_path)

    kept = b"".join(b"%04d" % number * 50 for number in range(40)) + b"end"
    assert chunks[-1].data == b"end"
    assert sum(chunk.dropped for chunk in chunks) > 1000
    assert sum(len(chunk.data) + chunk.dropped for chunk in chunks) == len(kept)
    assert kept.startswith(data_of(chunks[:5]))


def texts(chunks: list[Chunk]) -> str:
    return "".join(piece.text for piece in as_text(chunks))


def test_character_split_between_chunks_is_whole_in_text(tmp_path: Path) -> None:
    """Halves of a character meet again within their stream, also with the other stream between them."""
    output = writer(tmp_path)
    euro = "€".encode()
    for stream, data in (
        (Stream.STDOUT, euro[:1]),
        (Stream.STDERR, euro[:2]),
        (Stream.STDOUT, euro[1:]),
        (Stream.STDERR, euro[2:]),
    ):
        output.write(stream, data)

    pieces = list(as_text(read(tmp_path)))

    assert [(piece.stream, piece.text) for piece in pieces] == [(Stream.STDOUT, "€"), (Stream.STDERR, "€")]


@pytest.mark.parametrize("shift", range(4))
def test_character_on_the_limit_becomes_a_replacement_not_an_error(tmp_path: Path, shift: int) -> None:
    """Where the middle was dropped through a character, its remains are U+FFFD, the rest intact (B31)."""
    output = writer(tmp_path, limit=4096)
    output.write(Stream.STDOUT, b"a" * shift + "🙂".encode() * 5000 + b"end")
    output.close()

    text = texts(read(tmp_path))

    assert text.startswith("a" * shift + "🙂🙂")
    assert text.endswith("🙂end")
    assert "\n[truncated, " in text
    assert text.count("�") <= 6


def test_bytes_that_are_no_text_are_replaced_in_text_only(tmp_path: Path) -> None:
    """Decoding never fails, and the bytes on disk stay as they came (B31)."""
    raw = b"\xe2\x28\xa1 \xff \x00 \x1b[0m \r end \xe2\x82"
    output = writer(tmp_path)
    output.write(Stream.STDOUT, raw)

    assert data_of(read(tmp_path)) == raw
    assert texts(read(tmp_path)) == "�(� � \x00 \x1b[0m \r end �"


def test_decoder_of_a_follower_keeps_half_a_character(tmp_path: Path) -> None:
    """A decoder may be fed over several readings; only `finish` gives up on half a character."""
    decoder = OutputDecoder()
    half = Chunk(stream=Stream.STDOUT, at=1, data="ü".encode()[:1])

    assert decoder.decode(half) == ""
    assert decoder.finish(Stream.STDOUT) == "�"
