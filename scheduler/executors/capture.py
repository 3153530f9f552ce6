"""Writing the output of one attempt: bounded on disk, nothing held in memory, never a reason to fail a job.

The limit is shared by eight segments. The first four are the head and stay; behind them the newest four are
the tail, and the oldest of it is deleted before a further one is opened. So the files never exceed the limit,
the last three to four eighths are always there, and a gigabyte without a newline costs a few renewed files.
A disk that takes nothing (full, gone, read-only) loses bytes, not jobs: the loss is counted, and written down
as soon as something can be written. The form of the files is told in `output`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from pathlib import Path
from typing import Final

from scheduler.clock import Clock
from scheduler.executors.output import (
    COUNT,
    HEADER,
    LOST,
    MAGIC,
    RECORD,
    STREAMS,
    Output,
    Stream,
    require_run_id,
    run_directory,
    segment_path,
    segments,
)
from scheduler.executors.surroundings import Surroundings
from scheduler.model.runs import Grant

HEAD_SEGMENTS: Final = 4
TAIL_SEGMENTS: Final = 4
SMALLEST_LIMIT: Final = 4096


def open_output(grant: Grant, around: Surroundings) -> Output:
    """Where the output of this attempt goes: a file of its own, unless the daemon's side says otherwise."""
    if around.output is not None:
        return around.output(grant)
    run = grant.run
    return OutputWriter(around.output_dir, run.id, run.claim, limit=around.output_limit, clock=around.clock)


class OutputWriter:
    """Appends to the output of one attempt; nothing is made on disk before the first byte.

    Calls may come from several threads. None raises for the disk's sake.

    Args:
        directory: where the output of all runs is; made (0700) where it is missing.
        limit: bytes on disk for this attempt, marks included; at least `SMALLEST_LIMIT`.

    Raises:
        Invalid: `run_id` is not the id of a run.
    """

    def __init__(self, directory: Path, run_id: str, claim: int, *, limit: int, clock: Clock) -> None:
        require_run_id(run_id)
        self._directory = directory
        self._run_id = run_id
        self._claim = claim
        self._segment_limit = max(limit, SMALLEST_LIMIT) // (HEAD_SEGMENTS + TAIL_SEGMENTS)
        self._clock = clock
        self._lock = threading.Lock()
        self._file: int | None = None
        self._number = -1
        self._size = 0
        self._told = [0] * len(STREAMS)
        self._lost = [0] * len(STREAMS)
        self._closed = False

    def write(self, stream: Stream, data: bytes) -> None:
        """The bytes are on file, or counted as lost; after `close` they are ignored."""
        index = STREAMS.index(stream)
        rest = memoryview(data)
        with self._lock:
            if self._closed:
                return
            try:
                while rest:
                    self._tell_losses()
                    piece = rest[: self._room()]
                    self._append(index, piece)
                    self._told[index] += len(piece)
                    rest = rest[len(piece) :]
            except OSError:
                self._lost[index] += len(rest)

    def close(self) -> None:
        """Nothing more is written; what was lost is told in the files, if they take it now."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            if any(self._lost):
                with contextlib.suppress(OSError):
                    self._tell_losses()
            self._close_file()

    @property
    def _place(self) -> Path:
        """Asked for with each new segment only: most attempts write nothing."""
        return run_directory(self._directory, self._run_id)

    def _tell_losses(self) -> None:
        for index, lost in enumerate(self._lost):
            if lost:
                self._room(COUNT.size)
                self._append(index | LOST, memoryview(COUNT.pack(lost)))
                self._told[index] += lost
                self._lost[index] = 0

    def _room(self, wanted: int = 1) -> int:
        """How many bytes the next record may carry: `wanted` at least, in a new segment if need be."""
        room = self._segment_limit - self._size - RECORD.size
        if self._file is None or room < wanted:
            self._next_segment()
            room = self._segment_limit - self._size - RECORD.size
        return room

    def _append(self, kind: int, data: memoryview) -> None:
        assert self._file is not None  # noqa: S101 - `_room` has just seen to it
        head = RECORD.pack(kind, self._clock.now(), len(data))
        size = len(head) + len(data)
        if os.writev(self._file, (head, data)) != size:
            # Half a record would end every later reading of this segment: cut it off, or begin another one.
            try:
                os.ftruncate(self._file, self._size)
            except OSError:
                self._close_file()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._size += size

    def _next_segment(self) -> None:
        self._close_file()
        self._make_way()
        path = segment_path(self._place, self._claim, self._number + 1)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        file = os.open(path, flags, 0o600)
        try:
            header = HEADER.pack(MAGIC, self._clock.now(), *self._told)
            if os.write(file, header) != len(header):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            os.close(file)
            path.unlink(missing_ok=True)
            raise
        self._file = file
        self._number += 1
        self._size = len(header)

    def _make_way(self) -> None:
        """The directory is there, and the files that the next segment takes the place of are gone."""
        if self._number < 0:
            self._place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._place.mkdir(mode=0o700, exist_ok=True)
            if self._place.is_symlink():
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            # A store put back from a backup hands out claims a second time; what is here is of another life.
            gone = segments(self._place, self._claim)
        else:
            oldest = self._number + 1 - TAIL_SEGMENTS
            gone = [oldest] if oldest >= HEAD_SEGMENTS else []
        for number in gone:
            segment_path(self._place, self._claim, number).unlink(missing_ok=True)

    def _close_file(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
