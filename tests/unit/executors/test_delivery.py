"""One notice to a real receiver: what counts as delivered, and that nothing of a receiver is trusted."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from scheduler.clock import SECOND
from scheduler.engine.alerts import Alert, AlertKind, PingCall
from scheduler.engine.deliveries import Undelivered
from scheduler.executors.delivery import Messenger, with_run
from scheduler.model.alerts import Hook, HookCommand, Webhook
from scheduler.model.jobs import JobId
from tests.support.receiver import Receiver

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def ping(url: str) -> PingCall:
    return PingCall(job=JobId("a"), url=url, run_id="run-1")


def alert(hook: Hook, **facts: object) -> Alert:
    return Alert(job=JobId("a"), kind=AlertKind.FAILURE, hook=hook, facts={"alert": "failure", **facts})


@asynccontextmanager
async def server(talk: Talk) -> AsyncIterator[str]:
    """A server that talks as it is told; its address."""
    talking: set[asyncio.Task[None] | None] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talking.add(asyncio.current_task())
        with suppress(ConnectionError):
            await talk(reader, writer)
            writer.close()
            await writer.wait_closed()

    listening = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/"
        await asyncio.gather(*[task for task in talking if task is not None])


async def refused(url: str, *, seconds: float = 5) -> Undelivered:
    with pytest.raises(Undelivered) as found:
        await Messenger(http_timeout=round(seconds * SECOND)).ping(ping(url))
    return found.value


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        ("http://h/p", "http://h/p?rid=run-1"),
        ("http://h/p?a=1&b", "http://h/p?a=1&b&rid=run-1"),
        ("http://h/p?rid=mine", "http://h/p?rid=mine"),
    ],
)
def test_a_ping_names_its_run_and_keeps_the_query_as_written(url: str, asked: str) -> None:
    """The author's query is not rewritten, and a `rid` of his own wins."""
    assert with_run(url, "run-1") == asked


async def test_a_webhook_is_a_post_of_json_and_201_is_yes() -> None:
    """Any 2xx is a delivery; text beyond ASCII arrives as UTF-8."""
    with Receiver() as receiver:
        receiver.answers = [201]

        await Messenger().alert(alert(Webhook(url=receiver.url("/hook")), message="größer"))

    [asked] = receiver.requests
    assert asked.method == "POST"
    assert asked.json == {"alert": "failure", "message": "größer"}


@pytest.mark.parametrize(
    ("status", "final"), [(301, True), (404, True), (408, False), (429, False), (500, False), (503, False)]
)
async def test_an_answer_that_is_no_yes_says_whether_another_try_helps(status: int, *, final: bool) -> None:
    """A redirect is not followed; what the receiver calls our fault is not repeated."""
    with Receiver() as receiver:
        receiver.answers = [status]

        error = await refused(receiver.url("/"))

    assert str(status) in str(error)
    assert error.final is final
    assert len(receiver.requests) == 1


async def test_nobody_listens() -> None:
    """A refused connection is worth another try."""
    async with server(lambda _reader, _writer: asyncio.sleep(0)) as url:
        pass

    error = await refused(url)

    assert not error.final
    assert "refused" in str(error)


async def test_a_receiver_that_drips_is_cut_at_the_deadline() -> None:
    """A byte now and then does not put the deadline off."""

    async def drip(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(200):
            writer.write(b"H")
            await writer.drain()
            await asyncio.sleep(0.05)

    async with server(drip) as url:
        began = time.monotonic()
        error = await refused(url, seconds=0.3)

    assert time.monotonic() - began < 3
    assert "no answer in 0.3 s" in str(error)


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 200", b"SSH-2.0-x\r\n", b"x" * 200_000, b"HTTP/1.1 999 x\r\n"]
)
async def test_what_is_no_http_is_no_delivery(answer: bytes) -> None:
    """Nothing, half a line, another protocol or an endless line: refused, and never a crash."""

    async def say(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        await writer.drain()

    async with server(say) as url:
        error = await refused(url)

    assert "failed" in str(error)


async def test_tls_that_does_not_prove_itself_is_refused() -> None:
    """Plain HTTP behind an https address is no delivery; and a certificate is checked."""
    with Receiver() as receiver:
        error = await refused(receiver.url("/").replace("http:", "https:"))

    assert "TLS failed" in str(error)
    assert ssl.create_default_context().verify_mode is ssl.CERT_REQUIRED
    assert Messenger().tls is ssl.create_default_context


async def test_a_command_that_ends_well_is_a_delivery(tmp_path: Path) -> None:
    """Its arguments are as written; a NUL in a text does not keep it from being told."""
    place = tmp_path / "told"
    argv = ("/bin/sh", "-c", 'cat > "$0"; printf %s "$SCHEDULER_MESSAGE" >> "$0"', str(place))

    await Messenger().alert(alert(HookCommand(argv=argv), message="a\0b"))

    assert place.read_text() == '{"alert": "failure", "message": "a\\u0000b"}ab'


async def test_a_command_is_told_where_the_daemon_is(tmp_path: Path) -> None:
    """A schedctl in the hook asks the daemon that called it."""
    place = tmp_path / "told"
    argv = ("/bin/sh", "-c", 'printf %s "$SCHEDULER_SOCKET" > "$0"', str(place))

    await Messenger(socket="/run/other/control.sock").alert(alert(HookCommand(argv=argv)))

    assert place.read_text() == "/run/other/control.sock"


@pytest.mark.parametrize(
    ("script", "why"),
    [("exit 3", "exit code 3"), ("kill -9 $$", "signal 9"), ("sleep 60", "killed after 0.5 s")],
)
async def test_a_command_that_ends_otherwise_is_none(script: str, why: str) -> None:
    """What it said or why it was killed is in the message."""
    messenger = Messenger(command_timeout=SECOND // 2)

    with pytest.raises(Undelivered, match=why):
        await messenger.alert(alert(HookCommand(argv=("/bin/sh", "-c", script))))


async def test_a_command_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    """Nothing of its group outlives the deadline."""
    mark = tmp_path / "alive"
    script = f"(sleep 2; touch {mark}) & wait"

    with pytest.raises(Undelivered):
        await Messenger(command_timeout=SECOND // 2).alert(alert(HookCommand(argv=("/bin/sh", "-c", script))))

    await asyncio.sleep(2.2)
    assert not mark.exists()


async def test_a_command_that_is_not_there_says_what_is_missing() -> None:
    """The words are those of a run that cannot be started."""
    with pytest.raises(Undelivered, match="command not found: /nowhere/hook"):
        await Messenger().alert(alert(HookCommand(argv=("/nowhere/hook",))))
