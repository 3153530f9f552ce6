"""The output of a run as text or as records, also while it is written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Final

from fastapi import APIRouter, Query
from fastapi.responses import PlainTextResponse, StreamingResponse

from scheduler.control.asking import RunPath, look
from scheduler.control.outputs import SIGN_OF_LIFE, OutputReading
from scheduler.control.ports import Operations, Outputs
from scheduler.control.requests import OutputQuery
from scheduler.control.views import Views
from scheduler.model.runs import TERMINAL, RunId
from scheduler.store.protocol import Reads

_LOOK_AGAIN: Final = 0.25
_SILENT_LOOKS: Final = 20
"""After as many looks without news a reader of records gets a sign of life: five seconds."""

_TYPES: Final = {"text": "text/plain", "jsonl": "application/jsonl"}


class OutputRoutes:
    """GET /v1/runs/{id}/output.

    Args:
        closing: set when the server stops, so that nobody follows any longer.
    """

    def __init__(
        self, operations: Operations, reads: Reads, outputs: Outputs, views: Views, closing: asyncio.Event
    ) -> None:
        self._operations = operations
        self._reads = reads
        self._outputs = outputs
        self._views = views
        self._closing = closing

    def register(self, router: APIRouter) -> None:
        """The routes are part of the router."""
        content = {media_type: {"schema": {"type": "string"}} for media_type in _TYPES.values()}
        router.get(
            "/v1/runs/{id}/output", response_class=PlainTextResponse, responses={200: {"content": content}}
        )(self.output)

    async def output(self, id: RunPath, asked: Annotated[OutputQuery, Query()]) -> StreamingResponse:
        """What the run wrote, byte for byte in its order of arrival, or (`format=jsonl`) as records.

        A line between two attempts tells the claim; with `tail` only the last one that wrote is shown.
        """
        await look(self._operations)
        await self._reads.run(id)
        reading = OutputReading(self._outputs, id, asked, self._views.time)
        return StreamingResponse(self._pieces(id, reading, asked), media_type=_TYPES[asked.format])

    async def _pieces(self, id: RunId, reading: OutputReading, asked: OutputQuery) -> AsyncIterator[bytes]:
        silent = 0
        while True:
            # The state is asked for first: what a run wrote before its end is then read after it.
            run = await self._reads.run(id)
            reading.know([attempt.claim for attempt in await self._reads.attempts(id)])
            async for piece in reading.news():
                silent = 0
                yield piece
            if not asked.follow or run.state in TERMINAL or await self._is_closing():
                return
            silent += 1
            if silent % _SILENT_LOOKS == 0 and asked.format == "jsonl":
                yield SIGN_OF_LIFE

    async def _is_closing(self) -> bool:
        """The server stops; False after a moment if it does not."""
        try:
            async with asyncio.timeout(_LOOK_AGAIN):
                return await self._closing.wait()
        except TimeoutError:
            return False
