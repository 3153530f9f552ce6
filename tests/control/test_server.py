"""The server against clients of every kind, and its stop, which none of them can delay."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest

from scheduler.clock import MILLISECOND, SECOND
from scheduler.control.limits import Limits
from scheduler.control.peer import Credentials
from scheduler.control.server import ControlServer
from scheduler.errors import AlreadyServed
from tests.control.support.client import Client, connected, request
from tests.control.support.serving import Small, small_server
from tests.support.executors import until

BRIEF = Limits(
    body=1_000,
    head=2_000,
    connections=4,
    idle_timeout=200 * MILLISECOND,
    head_timeout=200 * MILLISECOND,
    body_timeout=200 * MILLISECOND,
    write_timeout=200 * MILLISECOND,
)
ENDING = b"HTTP/1.1 408 Request Timeout\r\n"


@pytest.fixture
def path(folder: Path) -> Path:
    return folder / "control.sock"


class TestServing:
    async def test_requests_follow_one_another_on_a_connection(self, path: Path) -> None:
        """A connection is kept, and each request has its answer, with a date."""
        async with small_server(path), connected(path) as wire:
            first = await wire.ask("POST", "/size", b"12345")
            second = await wire.ask("GET", "/size")

        assert (first.text, second.text) == ("5", "0")
        assert first.headers["date"].endswith("GMT")
        assert "server" not in first.headers

    async def test_pipelined_requests_are_answered_in_their_order(self, path: Path) -> None:
        """Requests that were sent at once get their answers one after another."""
        async with small_server(path), connected(path) as wire:
            await wire.send(b"".join(request("POST", "/size", b"x" * size) for size in (1, 22, 333)))

            assert [(await wire.answer()).text for _ in range(3)] == ["1", "2" * 2, "3" * 3]

    async def test_the_peer_is_known_from_the_connection(self, path: Path) -> None:
        """Each request bears the ids of the process that connected, as the kernel gives them."""
        async with small_server(path) as (_, small):
            await Client(path).get("/size")

        assert small.peers == [Credentials(pid=os.getpid(), uid=os.geteuid(), gid=os.getegid())]

    async def test_a_large_answer_arrives_whole(self, path: Path) -> None:
        """Ten megabytes come byte for byte (B43)."""
        async with small_server(path):
            assert (await Client(path).get("/large?10000000")).body == b"x" * 10_000_000

    async def test_a_chunked_body_arrives_whole(self, path: Path) -> None:
        """A body without a declared length is read to its end."""
        async with small_server(path), connected(path) as wire:
            await wire.send(
                b"POST /size HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
            )

            assert (await wire.answer()).text == "5"

    async def test_a_second_server_on_the_path_is_refused(self, path: Path) -> None:
        """A live server is not taken over, and goes on."""
        async with small_server(path) as (_, small):
            with pytest.raises(AlreadyServed):
                await ControlServer(small, path).start()

            assert (await Client(path).get("/size")).status == 200


class TestLimits:
    async def test_a_body_at_the_limit_is_taken_and_one_above_refused(self, path: Path) -> None:
        """The limit is exact; the refusal is typed, and the connection lives on (B43)."""
        async with small_server(path, BRIEF), connected(path) as wire:
            taken = await wire.ask("POST", "/size", b"x" * 1_000)
            refused = await wire.ask("POST", "/size", b"x" * 1_001)
            again = await wire.ask("POST", "/size", b"x")

        assert (taken.text, again.text) == ("1000", "1")
        assert (refused.status, refused.json["code"]) == (413, "too_large")
        assert refused.headers["content-type"] == "application/problem+json"

    async def test_a_client_that_sends_all_of_a_large_body_reads_the_refusal(self, path: Path) -> None:
        """Eight megabytes are discarded while they come, so that a plain client comes to read the answer."""
        async with small_server(path), connected(path) as wire:
            wire.writer.write(request("POST", "/size", b"x" * 8_000_000))
            await wire.writer.drain()

            assert (await wire.answer()).json["code"] == "too_large"

    async def test_a_body_that_is_declared_too_large_is_refused_at_once(self, path: Path) -> None:
        """The answer does not wait for a body that is not wanted."""
        async with small_server(path), connected(path) as wire:
            await wire.send(b"POST /size HTTP/1.1\r\nContent-Length: 10000000000\r\n\r\n")

            assert (await wire.answer()).json["code"] == "too_large"

    async def test_a_chunked_body_is_counted(self, path: Path) -> None:
        """A body that does not declare its length is refused where it passes the limit."""
        async with small_server(path, BRIEF), connected(path) as wire:
            await wire.send(b"POST /size HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
            for _ in range(3):
                await wire.send(b"200\r\n" + b"x" * 0x200 + b"\r\n")

            assert (await wire.answer()).json["code"] == "too_large"

    async def test_headers_without_end_are_refused(self, path: Path) -> None:
        """A request line or header that never ends takes no memory (B43)."""
        async with small_server(path, BRIEF), connected(path) as wire:
            await wire.send(b"GET /" + b"x" * 5_000)
            answer = await wire.answer()

            assert (answer.status, answer.json["code"]) == (413, "too_large")
            assert await wire.ended() == b""

    async def test_the_longest_idle_client_makes_room(self, path: Path) -> None:
        """A new client is served although idle ones hold all places; the oldest of them has to go."""
        async with small_server(path, Limits(connections=4)), contextlib.AsyncExitStack() as opened:
            idle = [await opened.enter_async_context(connected(path)) for _ in range(4)]
            await idle[0].ask("GET", "/size")

            assert (await Client(path).get("/size")).status == 200
            assert await idle[1].ended() == b""
            assert (await idle[0].ask("GET", "/size")).status == 200

    async def test_busy_clients_keep_their_place(self, path: Path) -> None:
        """While all places are taken by requests at work a newcomer is told to come again."""
        async with (
            small_server(path, Limits(connections=2)) as (_, small),
            connected(path) as first,
            connected(path) as second,
        ):
            for wire in (first, second):
                small.arrived.clear()
                await wire.send(request("GET", "/held"))
                await small.arrived.wait()
            async with connected(path) as third:
                answer = await third.answer()
            small.gate.set()

            assert (answer.status, answer.json["code"]) == (503, "busy")
            assert (await first.answer()).status == (await second.answer()).status == 200


class TestBadClients:
    @pytest.mark.parametrize(
        "garbage",
        [
            b"\x00\x01\x02\x03" * 100,
            b"GET\r\n\r\n",
            b"GET / HTTP/9.9\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            b"POST /size HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
            b"POST /size HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            b"POST /size HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"GET /\xff HTTP/1.1\r\n\r\n",
            b"CONNECT somewhere:80 HTTP/1.1\r\n\r\n",
            b"x" * 300_000,
        ],
    )
    async def test_garbage_gets_an_error_and_costs_its_connection_only(
        self, path: Path, garbage: bytes
    ) -> None:
        """What is no request is answered as a problem, and others are served as before (B43)."""
        async with small_server(path), connected(path) as wire:
            await wire.send(garbage)
            answer = await wire.answer()
            await wire.ended()

            assert answer.status in (400, 413)
            assert answer.json["code"] in ("invalid", "too_large")
            assert (await Client(path).get("/size")).status == 200

    async def test_garbage_behind_a_request_does_not_spoil_its_answer(self, path: Path) -> None:
        """A request that came whole is carried out and answered, whatever follows it."""
        async with small_server(path) as (_, small), connected(path) as wire:
            await wire.send(request("GET", "/held"))
            await small.arrived.wait()
            await wire.send(b"\x00\x00\x00")
            await asyncio.sleep(0.05)
            small.gate.set()
            answer = await wire.answer()

            assert (answer.status, answer.text) == (200, "0")
            assert await wire.ended() == b""

    async def test_an_upgrade_is_not_followed(self, path: Path) -> None:
        """A client that asks for another protocol is answered in this one."""
        async with small_server(path), connected(path) as wire:
            answer = await wire.ask(
                "GET",
                "/size",
                headers={"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Key": "x"},
            )

        assert answer.status == 200

    @pytest.mark.parametrize(
        "part",
        [
            b"G",
            b"GET /size HTTP/1.1\r\nHost: x\r\n",
            b"POST /size HTTP/1.1\r\nContent-Length: 10\r\n\r\nhalf",
        ],
    )
    async def test_half_requests_time_out(self, path: Path, part: bytes) -> None:
        """A client that does not finish what it began is told so and let go; nothing of it is done (B43)."""
        async with small_server(path, BRIEF) as (_, small), connected(path) as wire:
            await wire.send(part)
            rest = await wire.ended()

            assert rest.startswith(ENDING)
            assert b'"code":"timeout"' in rest
            assert small.done == []

    async def test_a_half_request_behind_a_whole_one_times_out_as_soon(self, path: Path) -> None:
        """A client that may be idle for long may not be in the middle of a request for so long."""
        async with small_server(path, replace(BRIEF, idle_timeout=60 * SECOND)), connected(path) as wire:
            await wire.ask("GET", "/size")
            await wire.send(b"GET /si")

            assert (await wire.ended()).startswith(ENDING)

    async def test_a_request_in_drops_times_out(self, path: Path) -> None:
        """Single bytes do not stretch the time for a request."""
        async with small_server(path, BRIEF):
            began = time.monotonic()
            said = await asyncio.to_thread(drip, path, request("GET", "/size", headers={"X": "y" * 1_000}))

            assert said.startswith(ENDING)
            assert time.monotonic() - began < 5

    @pytest.mark.parametrize("noise", [b"", b"\r\n\r\n"])
    async def test_silent_clients_are_let_go(self, path: Path, noise: bytes) -> None:
        """A client that asks nothing, or nothing more, does not stay; empty lines are no question."""
        async with small_server(path, BRIEF), connected(path) as fresh, connected(path) as used:
            await used.ask("GET", "/size")
            await fresh.send(noise)
            await used.send(noise)

            assert await fresh.ended() == await used.ended() == b""

    async def test_a_client_that_never_reads_is_cut(self, path: Path) -> None:
        """An answer that nobody takes does not hold its connection for ever (B43)."""
        async with small_server(path, BRIEF) as (_, small), connected(path) as wire:
            wire.writer.transport.pause_reading()  # type: ignore[attr-defined]  # the transport can read
            await wire.send(request("GET", "/large?5000000"))
            await until(lambda: small.done)
            await asyncio.sleep(1)
            wire.writer.transport.resume_reading()  # type: ignore[attr-defined]

            assert len(await wire.ended()) < 5_000_000

    async def test_a_stream_that_nobody_takes_is_cut(self, path: Path) -> None:
        """An answer without end does not hold the connection of a client that is deaf to it."""
        async with small_server(path, BRIEF), connected(path) as wire:
            wire.writer.transport.pause_reading()  # type: ignore[attr-defined]  # the transport can read
            await wire.send(request("GET", "/flood"))
            await asyncio.sleep(1)
            wire.writer.transport.resume_reading()  # type: ignore[attr-defined]

            assert not (await wire.ended()).endswith(b"0\r\n\r\n")

    async def test_a_small_rest_that_nobody_takes_is_dropped(self, path: Path) -> None:
        """Also the last kilobytes of an answer, which hold up no writer, do not hold their connection."""
        size = capacity() + 30_000
        async with small_server(path, BRIEF), connected(path) as wire:
            wire.writer.transport.pause_reading()  # type: ignore[attr-defined]  # the transport can read
            await wire.send(request("GET", f"/large?{size}"))
            await asyncio.sleep(1)
            wire.writer.transport.resume_reading()  # type: ignore[attr-defined]

            assert 0 < len(await wire.ended()) < size

    async def test_a_slow_reader_that_goes_on_reading_gets_everything(self, path: Path) -> None:
        """Slow is not dead: as long as something is taken within the time limit the answer goes on."""
        async with small_server(path, BRIEF):
            taken = await asyncio.to_thread(sip, path, request("GET", "/large?5000000"))

        assert taken > 5_000_000

    async def test_a_vanished_client_does_not_undo_its_command(self, path: Path) -> None:
        """What came whole is carried out to its end, although nobody waits for the answer (B43)."""
        async with small_server(path) as (_, small):
            async with connected(path) as wire:
                await wire.send(request("GET", "/held"))
                await small.arrived.wait()
            small.gate.set()
            await until(lambda: small.done)

        assert small.done == ["/held"]

    async def test_others_are_answered_while_some_misbehave(self, path: Path) -> None:
        """Among 200 silent, half and deaf clients a decent one is answered within 100 ms (B43)."""
        async with small_server(path), contextlib.AsyncExitStack() as opened:
            for number in range(200):
                wire = await opened.enter_async_context(connected(path))
                await wire.send([b"", b"GET /si", request("GET", "/large?1000000")][number % 3])
            took = []
            for _ in range(20):
                began = time.perf_counter()
                assert (await Client(path).get("/size")).status == 200
                took.append(time.perf_counter() - began)

        assert sorted(took)[10] < 0.1


class TestStop:
    async def test_nothing_is_left_after_a_stop(self, path: Path) -> None:
        """The socket file is gone, nobody can connect, and a second stop finds nothing to do."""
        async with small_server(path) as (server, _):
            await server.stop()
            await server.stop()

            assert not is_there(path)
            with pytest.raises(FileNotFoundError):
                await asyncio.open_unix_connection(path)

    async def test_a_stop_before_the_start_is_no_error(self, path: Path) -> None:
        """A daemon whose start failed elsewhere can stop everything."""
        await ControlServer(Small(Limits()), path).stop()

    @pytest.mark.parametrize(
        "part",
        [b"", b"GET /", b"POST /size HTTP/1.1\r\nContent-Length: 10\r\n\r\nhalf", request("GET", "/size")],
    )
    async def test_idle_and_half_clients_do_not_delay_it(self, path: Path, part: bytes) -> None:
        """Whoever is owed nothing is let go at once, well within the grace."""
        async with small_server(path) as (server, _), connected(path) as wire:
            await wire.send(part)
            await asyncio.sleep(0.05)
            began = time.monotonic()
            await server.stop(20 * SECOND)

            assert time.monotonic() - began < 3
            await wire.ended()

    async def test_a_client_that_does_not_read_delays_it_by_the_grace_at_most(self, path: Path) -> None:
        """An answer that nobody takes is dropped."""
        async with small_server(path) as (server, small), connected(path) as wire:
            wire.writer.transport.pause_reading()  # type: ignore[attr-defined]  # the transport can read
            await wire.send(request("GET", "/large?5000000"))
            await until(lambda: small.done)
            began = time.monotonic()
            await server.stop(300 * MILLISECOND)

            assert time.monotonic() - began < 3

    async def test_an_answer_that_is_owed_is_given(self, path: Path) -> None:
        """A request that was at work when the stop began gets its answer, and its connection ends with it."""
        async with small_server(path) as (server, small), connected(path) as wire:
            await wire.send(request("POST", "/held", b"123"))
            await small.arrived.wait()
            stopping = asyncio.create_task(server.stop(20 * SECOND))
            await asyncio.sleep(0.05)
            assert not stopping.done()
            small.gate.set()
            answer = await wire.answer()
            await stopping

            assert (answer.text, answer.headers["connection"]) == ("3", "close")
            assert await wire.ended() == b""

    async def test_work_that_does_not_end_is_left_behind(self, path: Path) -> None:
        """A request that never ends delays the stop by its grace and a moment."""
        async with small_server(path) as (server, small), connected(path) as wire:
            await wire.send(request("GET", "/held"))
            await small.arrived.wait()
            began = time.monotonic()
            await server.stop(200 * MILLISECOND)

            assert time.monotonic() - began < 5
            assert await wire.ended() == b""
            assert small.done == []
            assert small.was_cancelled

    async def test_streams_end_whole(self, path: Path) -> None:
        """A client of a stream gets a complete answer."""
        async with small_server(path) as (server, _), connected(path) as wire:
            await wire.send(request("GET", "/stream"))
            await wire.reader.readuntil(b"tick\n")
            await server.stop(20 * SECOND)

            assert (await wire.ended()).endswith(b"0\r\n\r\n")

    async def test_the_socket_of_a_successor_stays(self, path: Path) -> None:
        """A server whose file was replaced leaves the new one alone."""
        async with small_server(path) as (server, _):
            remove(path)
            async with small_server(path):
                await server.stop()

                assert (await Client(path).get("/size")).status == 200


async def test_an_activated_socket_is_served_and_stays(path: Path) -> None:
    """A descriptor of the service manager serves like a socket of our own; its file outlives the server."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        server = ControlServer(Small(Limits()), Path("/unused"), activated=os.dup(listener.fileno()))
        await server.start()
        answer = await Client(path).get("/size")
        await server.stop()

        assert answer.status == 200
        assert server.path == Path("/unused")
        assert is_there(path)


async def test_nothing_of_the_server_reaches_stdout(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Start, requests, garbage and stop print nothing."""
    async with small_server(path), connected(path) as wire:
        await wire.send(b"\x00\x00")
        await wire.ended()
        await Client(path).get("/size")

    assert capfd.readouterr().out == ""


def drip(path: Path, data: bytes) -> bytes:
    """What a client reads that sends its request byte by byte, for two seconds at most."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        with contextlib.suppress(OSError):
            for byte in data[:200]:
                client.send(bytes([byte]))
                time.sleep(0.01)
        answer = b""
        with contextlib.suppress(ConnectionError):
            while part := client.recv(65_536):
                answer += part
        return answer


def sip(path: Path, data: bytes) -> int:
    """How much a client reads that takes a second and more for it, a little at a time."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        client.send(data)
        taken = 0
        while part := client.recv(200_000):
            taken += len(part)
            time.sleep(0.05)
        return taken


def capacity() -> int:
    """How many bytes the kernel takes for a socket that nobody reads."""
    ours, theirs = socket.socketpair()
    taken = 0
    with ours, theirs, contextlib.suppress(BlockingIOError):
        ours.setblocking(False)
        while True:
            taken += ours.send(b"x" * 300_000)
    return taken


def is_there(path: Path) -> bool:
    return path.exists()


def remove(path: Path) -> None:
    path.unlink()
