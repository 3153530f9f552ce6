"""The output of a run as it is sent: text byte for byte, or records that tell stream, time and position.

A record (`format=jsonl`) is one JSON object a line: `claim stream at data dropped after`. `data` is base64,
for output is bytes and a piece of it may end within a character; `after` is the cursor behind the record,
with which a reader goes on later, also at another daemon. An empty line between records is a sign of life.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from typing import Final

from scheduler.clock import Micros
from scheduler.control.ports import Outputs
from scheduler.control.requests import OutputQuery
from scheduler.errors import Fault, Invalid
from scheduler.executors.output import START, STREAMS, Chunk, Position
from scheduler.executors.threads import off_loop
from scheduler.model.runs import RunId

SIGN_OF_LIFE: Final = b"\n"
_PIECE: Final = 256 << 10
_CURSOR_PARTS: Final = 3 + len(STREAMS)


class OutputReading:
    """How far the output of one run was read: a position for each of its claims.

    Args:
        told: an instant as text.

    Raises:
        Invalid: `after` is no cursor of an output.
    """

    def __init__(
        self, outputs: Outputs, id: RunId, asked: OutputQuery, told: Callable[[Micros], str]
    ) -> None:
        self._outputs = outputs
        self._id = id
        self._asked = asked
        self._tail = asked.tail if asked.after is None else None
        self._render = _Records(told) if asked.format == "jsonl" else _Text()
        self._from = None if asked.after is None else _read_cursor(asked.after)
        self._claims: dict[int, Position] = {}

    def know(self, claims: Sequence[int]) -> None:
        """The run has had these claims by now; new ones are read from their beginning."""
        for claim in claims:
            if self._from is None or claim > self._from[0]:
                self._claims.setdefault(claim, START)
            elif claim == self._from[0]:
                self._claims.setdefault(claim, self._from[1])

    async def news(self) -> AsyncIterator[bytes]:
        """What was written since the last time, in pieces."""
        last_first = self._tail is not None
        for claim in sorted(self._claims, reverse=last_first):
            chunks = self._outputs.read(
                self._id, claim, stream=self._asked.stream, tail=self._tail, after=self._claims[claim]
            )
            # Rendering belongs to the thread too: a piece may be tens of thousands of lines.
            found = False
            while (piece := await off_loop(partial(self._piece, claim, chunks))) is not None:
                found = True
                yield piece
            if last_first and found:
                self._leave_out_before(claim)
                break
        self._tail = None

    def _leave_out_before(self, last: int) -> None:
        """A tail is of the last attempt that wrote: one in a unit may go on under a later claim."""
        self._claims = {claim: position for claim, position in self._claims.items() if claim >= last}
        self._from = (last, self._claims[last])

    def _piece(self, claim: int, chunks: Iterator[Chunk]) -> bytes | None:
        """The next chunks, about one piece of them; None where there are no more."""
        rendered: list[bytes] = []
        size = 0
        for chunk in chunks:
            rendered.append(self._render(claim, chunk))
            self._claims[claim] = chunk.position
            size += len(rendered[-1])
            if size >= _PIECE:
                break
        return b"".join(rendered) if rendered else None


class _Text:
    """Bytes as they were written; a line between two attempts, none above the first."""

    def __init__(self) -> None:
        self._told: int | None = None

    def __call__(self, claim: int, chunk: Chunk) -> bytes:
        told, self._told = self._told, claim
        heading = b"" if told in (None, claim) else f"--- attempt with claim {claim} ---\n".encode()
        if chunk.dropped:
            return (
                heading
                + f"\n[truncated, {chunk.dropped} bytes of {chunk.stream} are missing here]\n".encode()
            )
        return heading + chunk.data


class _Records:
    """One JSON object a line."""

    def __init__(self, told: Callable[[Micros], str]) -> None:
        self._told = told

    def __call__(self, claim: int, chunk: Chunk) -> bytes:
        record = {
            "claim": claim,
            "stream": chunk.stream,
            "at": self._told(chunk.at),
            "data": base64.b64encode(chunk.data).decode(),
            "dropped": chunk.dropped,
            "after": _cursor(claim, chunk.position),
        }
        return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def _cursor(claim: int, position: Position) -> str:
    return ".".join(map(str, (claim, position.segment, position.offset, *position.told)))


def _read_cursor(text: str) -> tuple[int, Position]:
    parts = text.split(".")
    if len(parts) != _CURSOR_PARTS or not all(
        part.isascii() and part.isdecimal() and len(part) < 19 for part in parts
    ):
        message = "it is no position of an output: write the `after` of a record, or leave it out"
        raise Invalid(f"after: {message}", faults=[Fault(key="after", message=message)])
    claim, segment, offset, *told = map(int, parts)
    return claim, Position(segment, offset, tuple(told))
