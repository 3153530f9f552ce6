"""A client of the control socket that also can do what no decent client does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_REAL_SECONDS = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer as it came over the wire."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body's value."""
        return json.loads(self.body)

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()


class Wire:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        """The bytes are on their way; what the other side does not take waits in buffers."""
        self.writer.write(data)
        await asyncio.sleep(0)

    async def ask(
        self, method: str, target: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """The answer to one request on this connection."""
        await self.send(request(method, target, body, headers))
        return await self.answer()

    async def answer(self) -> Answer:
        """The next answer, whole."""
        async with asyncio.timeout(_REAL_SECONDS):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin1").split("\r\n")
            status = int(head[0].split()[1])
            pairs = (line.split(": ", 1) for line in head[1:] if line)
            headers = {name.lower(): value for name, value in pairs}
            return Answer(status=status, headers=headers, body=await self._body(headers))

    async def _body(self, headers: Mapping[str, str]) -> bytes:
        if headers.get("transfer-encoding") != "chunked":
            return await self.reader.readexactly(int(headers.get("content-length", "0")))
        parts = [part async for part in self.chunks()]
        return b"".join(parts)

    async def chunks(self) -> AsyncIterator[bytes]:
        """The chunks of a body, as they come."""
        while True:
            size = int(await self.reader.readuntil(b"\r\n"), 16)
            part = await self.reader.readexactly(size + 2)
            if size == 0:
                return
            yield part[:-2]

    async def ended(self) -> bytes:
        """What still came before the other side closed the connection."""
        async with asyncio.timeout(_REAL_SECONDS):
            try:
                return await self.reader.read()
            except ConnectionError:  # what had come before is there all the same
                return bytes(self.reader._buffer)  # type: ignore[attr-defined]  # noqa: SLF001


def request(
    method: str, target: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
) -> bytes:
    """A request as bytes."""
    given = {"Host": "localhost", **(headers or {})}
    if body is not None:
        given |= {"Content-Length": str(len(body))}
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return f"{method} {target} HTTP/1.1\r\n{lines}\r\n".encode() + (body or b"")


@asynccontextmanager
async def connected(path: Path) -> AsyncIterator[Wire]:
    """A connection to the socket; it is closed at the end."""
    reader, writer = await asyncio.open_unix_connection(path, limit=64 << 20)
    try:
        yield Wire(reader, writer)
    finally:
        writer.close()


class Client:
    """Asks one request per connection, as schedctl does."""

    def __init__(self, path: Path) -> None:
        self.path = path

    async def ask(
        self, method: str, target: str, value: Any = None, *, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """The answer to a request with a JSON body, or without one."""
        body = None if value is None else json.dumps(value).encode()
        async with connected(self.path) as wire:
            return await wire.ask(method, target, body, {"Connection": "close", **(headers or {})})

    async def get(self, target: str) -> Answer:
        """The answer to a read."""
        return await self.ask("GET", target)

    async def post(
        self, target: str, value: Any = None, *, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """The answer to a verb."""
        return await self.ask("POST", target, value, headers=headers)

    async def value(self, target: str) -> Any:
        """The value that a read answers with; it says yes."""
        answer = await self.get(target)
        assert answer.status == 200, answer
        return answer.json
