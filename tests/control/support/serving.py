"""Servers for tests: one with a tiny application, and the whole daemon in the loop of the test."""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from starlette.types import Receive, Scope, Send

from scheduler.clock import SystemClock
from scheduler.config.paths import ConfigFile
from scheduler.config.settings import load_settings
from scheduler.control.intake import Intake
from scheduler.control.limits import Limits
from scheduler.control.server import ControlServer
from scheduler.service import Service
from scheduler.telemetry import get_logger
from tests.control.support.client import Client
from tests.support.executors import until

PIECES = {"/stream": b"tick\n", "/flood": b"x" * 100_000}


class Small:
    """An application of few words.

    `/size` tells the size of the body, `/held` does so once `gate` is open, `/large` answers as many bytes as
    its query says, `/stream` and `/flood` go on until they are told to end.
    """

    def __init__(self, limits: Limits) -> None:
        self.gate = asyncio.Event()
        self.arrived = asyncio.Event()
        self.done: list[str] = []
        self.peers: list[Any] = []
        self.was_cancelled = False
        self._ended = asyncio.Event()
        self._intake = Intake(self._answer, SystemClock(), limits.body)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._intake(scope, receive, send)

    def end_streams(self) -> None:
        self._ended.set()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = (await receive())["body"]
        self.peers.append(scope["state"]["peer"])
        said = str(len(body)).encode()
        if scope["path"] == "/held":
            await self._hold()
        elif scope["path"] == "/large":
            said = b"x" * int(scope["query_string"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while (piece := PIECES.get(scope["path"])) and not self._ended.is_set():
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            await asyncio.sleep(0.01)
        await send({"type": "http.response.body", "body": said})
        self.done.append(scope["path"])

    async def _hold(self) -> None:
        self.arrived.set()
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise


@asynccontextmanager
async def small_server(
    path: Path, limits: Limits | None = None
) -> AsyncIterator[tuple[ControlServer, Small]]:
    """A server with a small application on `path`."""
    limits = limits or Limits()
    small = Small(limits)
    server = ControlServer(small, path, limits=limits)
    await server.start()
    try:
        yield server, small
    finally:
        small.gate.set()
        await server.stop()


@dataclass(slots=True)
class Daemon:
    """A daemon in this process."""

    service: Service
    client: Client
    folder: Path
    life: asyncio.Task[int]

    @property
    def jobs(self) -> Path:
        """Where its job files are."""
        return self.folder / "jobs"

    async def define(self, text: str, *, file: str = "jobs.toml") -> None:
        """The job file says this, and was read."""
        (self.jobs / file).write_text(textwrap.dedent(text))
        answer = await self.client.post("/v1/reload")
        assert answer.status == 200, answer
        assert not answer.json["faults"], answer.json

    async def run(self, job: str, **body: Any) -> str:
        """The id of a run that was started by hand."""
        answer = await self.client.post(f"/v1/jobs/{job}/run", body)
        assert answer.status == 202, answer
        return str(answer.json["id"])

    async def until_run(self, run: str, *states: str) -> Any:
        """The run, once it is in one of the states."""
        return await self.until(f"/v1/runs/{run}", lambda shown: shown["state"] in states)

    async def until(self, target: str, condition: Callable[[Any], bool]) -> Any:
        """What the daemon shows there, once it is as it should be."""
        async with asyncio.timeout(20):
            while True:
                shown = await self.client.value(target)
                if condition(shown):
                    return shown
                await asyncio.sleep(0.02)


@asynccontextmanager
async def daemon_in(folder: Path, **settings: Any) -> AsyncIterator[Daemon]:
    """A whole daemon with its state, socket and job files below `folder`; it is stopped at the end."""
    (folder / "jobs").mkdir(exist_ok=True)
    (folder / "state").mkdir(exist_ok=True)
    socket = folder / "run" / "control.sock"
    read = load_settings(
        ConfigFile(path=folder / "none.toml", named=False), {"TZ": "UTC"}, jobs=[folder / "jobs"]
    )
    service = Service(replace(read, **settings), folder / "state", socket, SystemClock(), get_logger())
    life = asyncio.create_task(service.run())
    await until(lambda: socket.exists() or life.done())
    if life.done():
        await life  # it could not start: this tells why
    try:
        yield Daemon(service=service, client=Client(socket), folder=folder, life=life)
    finally:
        service.stop()
        service.stop()
        await life
