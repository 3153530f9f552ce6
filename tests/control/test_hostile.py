"""Issue 5, point 7: clients that mean harm, beside a job that is due each second."""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from datetime import datetime
from pathlib import Path

import pytest

from tests.control.support.serving import small_server
from tests.support.daemon import Daemon
from tests.support.executors import until

_JOBS = """
[jobs.each-second]
every = "1s"
command = ["true"]
"""
_MIB = 1 << 20
_MUCH = 64 * _MIB
_HEAD = b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\n"
_CHUNK = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
_LATEST = 3.0
"""Seconds: a busy machine gets some; a loop that is held, or a queue that clients fill, takes more."""


def _connected(daemon: Daemon) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(str(daemon.socket))  # waits where the queue is full
    except OSError:
        connection.close()
        raise
    connection.settimeout(20)
    return connection


def _rest(connection: socket.socket) -> bytes:
    """Everything that still comes."""
    parts = []
    with suppress(OSError):
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts)


def _answer(daemon: Daemon, data: bytes) -> bytes:
    """What is answered to a request; again where another client's connection took the room of ours."""
    for _ in range(50):
        with closing(_connected(daemon)) as connection:
            with suppress(OSError):
                connection.sendall(data)
            if answer := _rest(connection):
                return answer
    raise AssertionError(f"no answer to {data[:200]!r}")


def _post(target: bytes, body: bytes, *headers: bytes) -> bytes:
    lines = b"".join(header + b"\r\n" for header in headers)
    size = str(len(body)).encode()
    head = b"POST " + target + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + lines
    return head + b"Content-Length: " + size + b"\r\n\r\n" + body


# --- what hostile clients do ---
def _random_bytes(daemon: Daemon) -> None:
    dice = random.Random(7)  # noqa: S311 - the same bytes each time
    for _ in range(200):
        with closing(_connected(daemon)) as connection, suppress(ConnectionError):
            connection.sendall(dice.randbytes(dice.randrange(1, 4096)))
            connection.shutdown(socket.SHUT_WR)
            answer = _rest(connection)
            assert answer == b"" or answer.startswith(b"HTTP/1.1 4")


def _half_requests(daemon: Daemon) -> None:
    whole = _post(b"/v1/jobs", b'{"id": "x"}')
    with ExitStack() as open_ones:
        for cut in range(len(whole) - 1):
            connection = open_ones.enter_context(closing(_connected(daemon)))
            with suppress(OSError):
                connection.sendall(whole[:cut])
        time.sleep(1)


def _ten_thousand_connections(daemon: Daemon) -> None:
    for _ in range(50):
        with ExitStack() as open_ones:
            for _ in range(200):
                open_ones.enter_context(closing(_connected(daemon)))


def _a_gibibyte(daemon: Daemon) -> None:
    """Among many clients the connection may be the one that makes room; much is never taken."""
    assert _stream(daemon)[1] < _MUCH


def _stream(daemon: Daemon) -> tuple[bytes, int]:
    """A body of a gibibyte in chunks: what is answered, and what was taken until then."""
    answer, sent, rest = b"", 0, memoryview(_CHUNK)
    with closing(_connected(daemon)) as connection, suppress(ConnectionError):
        connection.sendall(_HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        connection.setblocking(False)
        give_up = time.monotonic() + 15
        while sent < 1024 * _MIB and not answer and time.monotonic() < give_up:
            with suppress(BlockingIOError):
                written = connection.send(rest)
                sent += written
                rest = rest[written:] or memoryview(_CHUNK)
            with suppress(BlockingIOError):
                answer += connection.recv(65536)
    return answer, sent


def _slow_readers(daemon: Daemon) -> None:
    with ExitStack() as open_ones:
        for _ in range(40):
            connection = open_ones.enter_context(closing(_connected(daemon)))
            connection.setblocking(False)
            with suppress(OSError):
                connection.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 100)
        time.sleep(3)


def _control_characters(daemon: Daemon) -> None:
    odd = bytes(range(1, 32)) + b"\x7f\xff\xe2\x80\xae"
    for number in odd:
        sign = bytes([number])
        for request in (
            b"GET /v1/jobs/" + sign + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
            _post(b"/v1/jobs/each-second/pause", b"{}", b"Idempotency-Key: a" + sign),
            _post(b"/v1/jobs", b'{"id": "a' + sign + b'", "manual": true, "shell": "x"}'),
            _post(b"/v1/jobs", json.dumps({"id": "a" + chr(number), "manual": True, "shell": "x"}).encode()),
        ):
            answer = _answer(daemon, request)
            assert b"Traceback" not in answer
            assert not answer.startswith(b"HTTP/1.1 5"), (request, answer)
    assert daemon.ask("POST", "/v1/jobs/each-second/resume", {}).status in (200, 409)


def _deep_json(daemon: Daemon) -> None:
    for deep in (b"[" * 500_000, b'{"a":' * 150_000, b"[" * 400_000 + b"]" * 400_000, b"9" * 900_000):
        for target in (b"/v1/jobs", b"/v1/preview", b"/v1/jobs/each-second/pause"):
            answer = _answer(daemon, _post(target, deep))
            assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 422")), answer[:300]


_ATTACKS: tuple[Callable[[Daemon], None], ...] = (
    _random_bytes,
    _half_requests,
    _ten_thousand_connections,
    _a_gibibyte,
    _slow_readers,
    _control_characters,
    _deep_json,
)


# --- what the daemon makes of it ---
def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def _lateness(run: dict[str, str]) -> float:
    began, due = (datetime.fromisoformat(run[key]) for key in ("started_at", "fire_time"))
    return (began - due).total_seconds()


def _is_answering(daemon: Daemon) -> bool:
    """The queue at the socket has room again."""
    with suppress(BlockingIOError):
        return daemon.ask("GET", "/readyz").status == 200
    return False


@pytest.mark.slow
def test_hostile_clients_neither_delay_a_fire_nor_fill_the_memory() -> None:
    """I15: whatever clients send, leave half, or do not take, fires stay on time and memory bounded."""
    with Daemon(_JOBS) as daemon:
        daemon.get("/openapi.json")
        daemon.until(lambda: daemon.runs("each-second"))
        before = _resident(daemon.pid)
        with ThreadPoolExecutor(len(_ATTACKS)) as pool:
            for done in [pool.submit(attack, daemon) for attack in _ATTACKS]:
                done.result()
        daemon.until(lambda: _is_answering(daemon))
        runs = [run for run in daemon.runs("each-second") if run["started_at"]]

        assert daemon.get("/v1/status")["counts"]["jobs"]["active"] == 1
        assert len(runs) >= 3
        assert max(_lateness(run) for run in runs) < _LATEST
        assert _resident(daemon.pid) - before < 192 * _MIB
        daemon.until(lambda: _descriptors(daemon.pid) < 320)
        assert not [line for line in daemon.logs() if "exception" in line]
        assert daemon.stop() == 0


def test_a_gibibyte_is_refused_early() -> None:
    """A body that is said or found to be too large is answered with 413 long before its end."""
    with Daemon() as daemon:
        before = _resident(daemon.pid)
        with closing(_connected(daemon)) as connection:
            connection.sendall(_HEAD + b"Content-Length: 1073741824\r\n\r\n")
            declared = connection.recv(65536)
        streamed, sent = _stream(daemon)

        assert declared.startswith(b"HTTP/1.1 413")
        assert streamed.startswith(b"HTTP/1.1 413")
        assert sent < _MUCH
        assert _resident(daemon.pid) - before < _MUCH


async def test_a_crowd_at_the_door_is_let_in_bit_by_bit(folder: Path) -> None:
    """I15: clients that connect at the same time share the loop with whatever else is due."""
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with small_server(folder / "s.sock") as (_, small):
        with ExitStack() as crowd:
            for _ in range(200):
                client = crowd.enter_context(closing(socket.socket(socket.AF_UNIX)))
                client.connect(str(folder / "s.sock"))
                client.sendall(b"GET /size HTTP/1.1\r\nHost: x\r\n\r\n")
            turning = asyncio.create_task(turn())
            await until(lambda: len(small.done) == 200)
            turning.cancel()

    assert turns > 20
