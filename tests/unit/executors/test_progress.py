from __future__ import annotations

import tracemalloc

import pytest

from scheduler.engine.ports import ProgressReport
from scheduler.executors.progress import LONGEST_LINE, ProgressReader, parse_line
from scheduler.model.runs import Progress


def reports_of(*pieces: bytes) -> list[ProgressReport]:
    told: list[ProgressReport] = []
    reader = ProgressReader(told.append)
    for piece in pieces:
        reader.feed(piece)
    return told


def test_fields_are_read() -> None:
    """A line tells done, total, message and cost."""
    report = parse_line(b'{"done": 3, "total": 10.0, "message": "chapter 3", "cost": 0.02}')

    assert report == ProgressReport(progress=Progress(done=3, total=10, message="chapter 3"), cost=0.02)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"working...",
        b"[1, 2]",
        b"3",
        b"null",
        b"{}",
        b'{"done": "3"}',
        b'{"done": true}',
        b'{"done": -1}',
        b'{"done": 9223372036854775808}',
        b'{"done": 1.5}',
        b'{"cost": NaN}',
        b'{"cost": 1e999}',
        b'{"cost": -1}',
        b'{"message": 3}',
        b'{"percent": 3}',
        b'{"done": 3',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_what_is_no_progress_is_ignored(line: bytes) -> None:
    """No line, however wrong, fails anything."""
    assert parse_line(line) is None


def test_wrong_field_does_not_spoil_the_right_ones() -> None:
    """Each field stands for itself."""
    assert parse_line(b'{"done": 2, "total": "ten"}') == ProgressReport(progress=Progress(done=2))


def test_message_is_cut_and_fit_for_a_database() -> None:
    """A message is bounded, and a lone surrogate is replaced."""
    report = parse_line(b'{"message": "' + b"x" * 2000 + b'"}')
    other = parse_line(rb'{"message": "\ud800"}')

    assert report is not None
    assert other is not None
    assert len(report.progress.message or "") == 500
    assert (other.progress.message or "").encode() == b"?"


def test_lines_may_come_in_pieces_and_in_crowds() -> None:
    """A line over several slices is read once it ends; many lines in a slice give one merged report."""
    split = reports_of(b'{"do', b'ne": 1}', b"\n")
    crowd = reports_of(b'{"done": 1, "cost": 1}\n{"done": 2}\nnonsense\n{"done": 3, "message": "m"}\n{"do')

    assert [report.progress.done for report in split] == [1]
    assert crowd == [ProgressReport(progress=Progress(done=3, message="m"), cost=1.0)]


def test_endless_line_costs_no_memory_and_hides_no_later_one() -> None:
    """A line over the limit is skipped as it comes; the next one counts."""
    told: list[ProgressReport] = []
    reader = ProgressReader(told.append)
    reader.feed(b"x" * (LONGEST_LINE - 1))
    tracemalloc.start()
    slice_ = b"x" * 65536
    for _ in range(200):
        reader.feed(slice_)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    reader.feed(b'{"done": 1}\n{"done": 2}\n')

    assert peak < 1_000_000
    assert [report.progress.done for report in told] == [2]
