"""How the output of a run with several claims is read: as a whole, or its tail, and on from there."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler.clock import SystemClock
from scheduler.control.outputs import OutputReading
from scheduler.control.ports import OutputFiles
from scheduler.control.requests import OutputQuery
from scheduler.executors.capture import OutputWriter
from scheduler.executors.output import Stream
from scheduler.model.runs import RunId

RUN = RunId("01a22de0-433c-7a01-b549-13e558e07fc4")


def write(folder: Path, claim: int, text: str) -> OutputWriter:
    """The attempt of that claim has written this, and goes on."""
    writer = OutputWriter(folder, RUN, claim, limit=1 << 20, clock=SystemClock())
    writer.write(Stream.STDOUT, text.encode())
    return writer


async def news(reading: OutputReading) -> str:
    return b"".join([piece async for piece in reading.news()]).decode()


@pytest.mark.parametrize("known", [[1, 2], [1, 2, 3]])
async def test_a_tail_is_of_the_last_attempt_that_wrote_and_goes_on_with_it(
    tmp_path: Path, known: list[int]
) -> None:
    """A run that was taken up under claim 3 still writes as claim 2; what was before the tail stays out."""
    write(tmp_path, 1, "old\n").close()
    writer = write(tmp_path, 2, "one\ntwo\n")
    reading = OutputReading(OutputFiles(tmp_path), RUN, OutputQuery(tail=1), str)

    reading.know(known)
    assert await news(reading) == "two\n"
    writer.write(Stream.STDOUT, b"three\n")
    reading.know(known)
    assert await news(reading) == "three\n"
    writer.close()
