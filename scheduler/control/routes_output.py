"""The output of a run as text, also while it is written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Final

from fastapi import APIRouter, Query
from fastapi.responses import PlainTextResponse, StreamingResponse

from scheduler.control.asking import RunPath, look
from scheduler.control.ports import Operations, Outputs
from scheduler.control.requests import OutputQuery
from scheduler.executors.output import START, Chunk, Position
from scheduler.executors.threads import off_loop
from scheduler.model.runs import TERMINAL, RunId
from scheduler.store.protocol import Reads

_PIECE: Final = 256 << 10
_LOOK_AGAIN: Final = 0.25


class OutputRoutes:
    """GET /v1/runs/{id}/output.

    Args:
        closing: set when the server stops, so that nobody follows any longer.
    """

    def __init__(
        self, operations: Operations, reads: Reads, outputs: Outputs, closing: asyncio.Event
    ) -> None:
        self._operations = operations
        self._reads = reads
        self._outputs = outputs
        self._closing = closing

    def register(self, router: APIRouter) -> None:
        """The routes are part of the router."""
        router.get("/v1/runs/{id}/output", response_class=PlainTextResponse)(self.output)

    async def output(self, id: RunPath, asked: Annotated[OutputQuery, Query()]) -> StreamingResponse:
        """What the run wrote, byte for byte in its order of arrival.

        A line between two attempts tells the claim; with `tail` only the last attempt is shown.
        """
        await look(self._operations)
        await self._reads.run(id)
        reading = _Reading(self._outputs, id, asked)
        return StreamingResponse(self._pieces(id, reading, follow=asked.follow), media_type="text/plain")

    async def _pieces(self, id: RunId, reading: _Reading, *, follow: bool) -> AsyncIterator[bytes]:
        while True:
            # The state is asked for first: what a run wrote before its end is then read after it.
            run = await self._reads.run(id)
            for claim in [attempt.claim for attempt in await self._reads.attempts(id)]:
                reading.claims.setdefault(claim, START)
            async for piece in reading.news():
                yield piece
            if not follow or run.state in TERMINAL or await self._is_closing():
                return

    async def _is_closing(self) -> bool:
        """The server stops; False after a moment if it does not."""
        try:
            async with asyncio.timeout(_LOOK_AGAIN):
                return await self._closing.wait()
        except TimeoutError:
            return False


class _Reading:
    """How far the output of one run was read: a position for each of its claims."""

    def __init__(self, outputs: Outputs, id: RunId, asked: OutputQuery) -> None:
        self._outputs = outputs
        self._id = id
        self._stream = asked.stream
        self._tail = asked.tail
        self.claims: dict[int, Position] = {}
        self._told: int | None = None

    async def news(self) -> AsyncIterator[bytes]:
        """What was written since the last time, in pieces."""
        claims = sorted(self.claims)
        if self._tail is not None:
            claims = claims[-1:]
        for claim in claims:
            chunks = self._outputs.read(
                self._id, claim, stream=self._stream, tail=self._tail, after=self.claims[claim]
            )
            while batch := await off_loop(lambda chunks=chunks: _batch(chunks)):  # type: ignore[misc]
                self.claims[claim] = batch[-1].position
                yield self._heading(claim) + b"".join(map(_bytes, batch))
        self._tail = None

    def _heading(self, claim: int) -> bytes:
        """A line between two attempts; none above the first."""
        told, self._told = self._told, claim
        return b"" if told in (None, claim) else f"--- attempt with claim {claim} ---\n".encode()


def _batch(chunks: Iterator[Chunk]) -> list[Chunk]:
    """The next chunks, about one piece of them; none where there are no more."""
    batch: list[Chunk] = []
    size = 0
    for chunk in chunks:
        batch.append(chunk)
        size += len(chunk.data)
        if size >= _PIECE:
            break
    return batch


def _bytes(chunk: Chunk) -> bytes:
    if chunk.dropped:
        return f"\n[truncated, {chunk.dropped} bytes of {chunk.stream} are missing here]\n".encode()
    return chunk.data
