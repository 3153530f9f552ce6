"""The output of runs on disk: the form of the files, reading them, and taking them away.

One directory per run (0700), in it segments (0600) `<claim>-<number>`, numbered in the order of writing. Once
an attempt has written its share, the oldest segments behind the head are deleted: head and tail stay, the
middle goes (`capture` does that). A segment opens with a header that tells how many bytes each stream had
given before it, so a reader knows exactly what is missing between two segments, and no counter has to be
kept anywhere. Then come records: stream, arrival, length, bytes as the job wrote them.

Reading needs no word with the writer: a record that is not complete yet ends the reading for now, and a
`Position` takes it up again, in this process or a later one. Turning bytes into text is `output_text`'s.
"""

from __future__ import annotations

import os
import re
import shutil
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from scheduler.clock import Micros
from scheduler.errors import Invalid


class Stream(StrEnum):
    """Where output came from; what a handler logs, and its traceback, is `stderr`."""

    STDOUT = "stdout"
    STDERR = "stderr"


STREAMS: Final = tuple(Stream)


class Output(Protocol):
    """Takes what an attempt writes, from any thread; never raises for the disk's sake."""

    def write(self, stream: Stream, data: bytes) -> None:
        """The bytes are kept, or counted as lost."""
        ...

    def close(self) -> None:
        """Nothing more comes."""
        ...


MAGIC: Final = b"sched-o1"
HEADER: Final = struct.Struct("<8sqQQ")
"""Opens a segment: magic, when it was opened, the bytes that stdout and stderr had given before it."""

RECORD: Final = struct.Struct("<BqI")
"""Before each piece: index of the stream (+ `LOST`), arrival in microseconds, length of what follows."""

LOST: Final = 0x80
"""Marks a record that says how many bytes could not be kept (full disk): an unsigned 64-bit follows."""

COUNT: Final = struct.Struct("<Q")

_RUN_ID: Final = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the output of one attempt, to go on reading from; the default is its beginning.

    Attributes:
        segment: the segment's number.
        offset: byte offset in it.
        told: bytes of each stream that lie before it, lost and dropped ones included.
    """

    segment: int = 0
    offset: int = 0
    told: tuple[int, ...] = (0,) * len(STREAMS)


START: Final = Position()


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A piece of one stream in its order of arrival.

    Attributes:
        at: when it arrived.
        data: the bytes as they came; empty where `dropped` is not 0.
        dropped: bytes of this stream that are missing here, over the limit or lost to a full disk.
        position: reading goes on behind this chunk from here.
    """

    stream: Stream
    at: Micros
    data: bytes
    dropped: int = 0
    position: Position = field(default=START, repr=False)


def read_output(
    directory: Path,
    run_id: str,
    claim: int,
    *,
    stream: Stream | None = None,
    tail: int | None = None,
    after: Position = START,
) -> Iterator[Chunk]:
    """Everything kept of one attempt's output so far, oldest first; nothing where there is none.

    To follow a run, read again from the last chunk's `position`. Reads the disk as it goes: off the loop.

    Args:
        directory: where the output of all runs is.
        stream: only this one.
        tail: only the last so many lines.
        after: where to begin.

    Raises:
        Invalid: `run_id` is not the id of a run.
        OSError: the disk cannot be read.
    """
    reader = _Reader(run_directory(directory, run_id), claim)
    chunks = reader.chunks(after, stream)
    if tail is None:
        return chunks
    lines = _count_lines(chunks)
    return _without_lines(reader.chunks(after, stream), max(0, lines - max(0, tail)))


def output_exists(directory: Path, run_id: str, claim: int | None = None) -> bool:
    """Something was kept of the run's output, or of that attempt's.

    Raises:
        Invalid: `run_id` is not the id of a run.
    """
    place = run_directory(directory, run_id)
    return any(claim is None or found == claim for found, _ in _all_segments(place))


def remove_output(directory: Path, run_id: str) -> None:
    """Nothing of the run's output is left, whatever its claim; it may not have been there.

    Raises:
        Invalid: `run_id` is not the id of a run.
        OSError: it could not be removed.
    """
    place = run_directory(directory, run_id)
    try:
        shutil.rmtree(place)
    except FileNotFoundError:
        return


def run_directory(directory: Path, run_id: str) -> Path:
    """Where a run's output is kept; an id that is not a UUID in its plain form never becomes a path.

    Raises:
        Invalid: `run_id` is not the id of a run.
    """
    require_run_id(run_id)
    return directory / run_id


def require_run_id(run_id: str) -> None:
    """It is the id of a run: a UUID in its plain form.

    Raises:
        Invalid: it is not.
    """
    if _RUN_ID.fullmatch(run_id) is None:
        raise Invalid(
            f"{run_id[:80]!r} is not the id of a run: a UUID in lower case, as `schedctl runs` shows"
        )


def segment_path(place: Path, claim: int, number: int) -> Path:
    """The file of one segment of an attempt's output."""
    return place / f"{claim}-{number:06d}"


def segments(place: Path, claim: int) -> list[int]:
    """The numbers of the segments that are there, in order."""
    return sorted(number for found, number in _all_segments(place) if found == claim)


class _Reader:
    """Walks the records of one attempt, also while they are written and the middle is deleted."""

    def __init__(self, place: Path, claim: int) -> None:
        self._place = place
        self._claim = claim

    def chunks(self, after: Position, stream: Stream | None) -> Iterator[Chunk]:
        """The chunks of one stream, or of both, that lie behind `after`."""
        return (chunk for chunk in self._all_chunks(after) if stream is None or chunk.stream is stream)

    def _all_chunks(self, position: Position) -> Iterator[Chunk]:
        number = self._first_from(position.segment)
        while number is not None:
            if number != position.segment:
                position = Position(number, 0, position.told)
            # Looked for first: once a later segment is there, this one gets no more records.
            following = self._first_from(number + 1)
            for chunk in self._records(position):
                position = chunk.position
                yield chunk
            if following is None:
                if self._first_from(number + 1) is None:
                    return
                following = number  # the writer has moved on since: what it still wrote here comes first
            number = following

    def _first_from(self, number: int) -> int | None:
        return next((found for found in segments(self._place, self._claim) if found >= number), None)

    def _records(self, position: Position) -> Iterator[Chunk]:
        try:
            path = segment_path(self._place, self._claim, position.segment)
            file = os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), "rb")
        except FileNotFoundError:
            return  # deleted since it was listed; the next header tells what is missing
        with file:
            yield from _read_segment(file, position)


def _read_segment(file: BinaryIO, position: Position) -> Iterator[Chunk]:
    told = list(position.told)
    offset = position.offset
    if offset == 0:
        header = file.read(HEADER.size)
        if len(header) < HEADER.size or not header.startswith(MAGIC):
            return
        offset = HEADER.size
        _, opened_at, *befores = HEADER.unpack(header)
        for index, before in enumerate(befores):
            if before > told[index]:
                missing, told[index] = before - told[index], before
                here = Position(position.segment, 0, tuple(told))
                yield Chunk(stream=STREAMS[index], at=opened_at, data=b"", dropped=missing, position=here)
    else:
        file.seek(offset)
    while (record := _read_record(file)) is not None:
        kind, at, data = record
        index = kind & ~LOST
        lost = COUNT.unpack(data)[0] if kind & LOST else 0
        told[index] += lost or len(data)
        offset += RECORD.size + len(data)
        here = Position(position.segment, offset, tuple(told))
        yield Chunk(stream=STREAMS[index], at=at, data=b"" if lost else data, dropped=lost, position=here)


def _read_record(file: BinaryIO) -> tuple[int, Micros, bytes] | None:
    """The next record; None where it is not complete (yet), or not one of ours."""
    head = file.read(RECORD.size)
    if len(head) < RECORD.size:
        return None
    kind, at, length = RECORD.unpack(head)
    if kind & ~LOST >= len(STREAMS) or (kind & LOST and length != COUNT.size):
        return None
    data = file.read(length)
    return (kind, at, data) if len(data) == length else None


def _all_segments(place: Path) -> Iterator[tuple[int, int]]:
    """Claim and number of every segment of a run."""
    try:
        names = [entry.name for entry in place.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        match = re.fullmatch(r"([0-9]+)-([0-9]{6,})", name)
        if match is not None:
            yield int(match[1]), int(match[2])


def _count_lines(chunks: Iterator[Chunk]) -> int:
    lines = 0
    complete = True
    for chunk in chunks:
        if chunk.data:
            lines += chunk.data.count(b"\n")
            complete = chunk.data.endswith(b"\n")
    return lines if complete else lines + 1


def _without_lines(chunks: Iterator[Chunk], skip: int) -> Iterator[Chunk]:
    for chunk in chunks:
        lines = chunk.data.count(b"\n")
        if skip == 0:
            yield chunk
        elif lines < skip:
            skip -= lines
        else:
            parts = chunk.data.split(b"\n", skip)
            skip = 0
            if parts[-1]:
                yield Chunk(stream=chunk.stream, at=chunk.at, data=parts[-1], position=chunk.position)
