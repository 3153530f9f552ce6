"""The stream of transitions: ids, resuming, filters, and an end that is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

from scheduler.control import routes_events
from scheduler.telemetry import Event
from tests.control.support.client import Client, Wire, connected, request
from tests.control.support.serving import Daemon

REASONS = ("one", "two", "three", "four", "five")


class Stream:
    """The blocks of an event stream, as they come."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self._chunks = wire.chunks()
        self._held = b""

    async def block(self) -> dict[str, str] | None:
        """The fields of the next block; None at the end of the stream."""
        async with asyncio.timeout(20):
            while b"\n\n" not in self._held:
                try:
                    self._held += await anext(self._chunks)
                except StopAsyncIteration:
                    return None
        block, _, self._held = self._held.partition(b"\n\n")
        pairs = (line.partition(": ") for line in block.decode().split("\n"))
        return {name: value for name, _, value in pairs}

    async def event(self) -> tuple[str, Any, str]:
        """The next event: name, data, id."""
        while True:
            block = await self.block()
            assert block is not None, "the stream ended"
            if "event" in block:
                return block["event"], json.loads(block["data"]), block["id"]


@asynccontextmanager
async def following(
    client: Client, query: str = "", headers: dict[str, str] | None = None
) -> AsyncIterator[Stream]:
    """A stream that is open."""
    async with connected(client.path) as wire:
        await wire.send(request("GET", f"/v1/events?{query}", None, headers))
        head = (await wire.reader.readuntil(b"\r\n\r\n")).decode()
        assert " 200 " in head.split("\r\n")[0], head
        assert "text/event-stream" in head
        stream = Stream(wire)
        assert await stream.block() == {"retry": "2000"}
        yield stream


async def say(client: Client, *reasons: str) -> None:
    """One event for each."""
    for reason in reasons:
        assert (await client.post("/v1/jobs/nightly/pause", {"reason": reason})).status == 200


async def test_transitions_come_as_they_happen(client: Client) -> None:
    """Each with its name, its moment and what the log says of it; the id counts up within the instance."""
    instance = (await client.value("/v1/status"))["instance"]
    async with following(client) as stream:
        await say(client, *REASONS)
        got = [await stream.event() for _ in REASONS]

    assert [name for name, _, _ in got] == ["job_paused"] * 5
    assert [data["message"] for _, data, _ in got] == list(REASONS)
    assert got[0][1].keys() >= {"id", "at", "event", "job", "by", "mode"}
    numbers = [int(id.removeprefix(f"{instance}-")) for _, _, id in got]
    assert numbers == list(range(numbers[0], numbers[0] + 5))


async def test_a_reader_goes_on_where_it_was(client: Client) -> None:
    """Nothing is missed and nothing comes twice, by `since` and by the header, which wins."""
    async with following(client) as stream:
        await say(client, "one")
        _, _, first = await stream.event()
    await say(client, "two", "three")
    async with following(client, f"since={first}") as stream:
        _, data, second = await stream.event()
        assert data["message"] == "two"
    async with following(client, f"since={first}", {"Last-Event-ID": second}) as stream:
        _, data, _ = await stream.event()
        assert data["message"] == "three"


async def test_an_unknown_id_is_told_to_list_again(client: Client) -> None:
    """An id of another process, or none at all, gets `reset`, and goes on from now."""
    for id in ("0123456789abcdef-1", "nonsense", (await client.value("/v1/status"))["instance"] + "-99999"):
        async with following(client, f"since={id}") as stream:
            name, data, place = await stream.event()
            await say(client, id)
            _, after, _ = await stream.event()

        assert (name, data["reason"]) == ("reset", "unknown_id")
        assert after["message"] == id
        async with following(client, f"since={place}&follow=false") as stream:
            _, again, _ = await stream.event()
            assert again["message"] == id


async def test_filters_choose(daemon: Daemon) -> None:
    """By job and by name; what is not wanted does not come."""
    client = daemon.client
    await daemon.define('[jobs.other]\nmanual = true\nshell = ":"', file="other.toml")
    async with following(client, "job=nightly&event=job_resumed&event=job_paused") as stream:
        await client.post("/v1/jobs/other/pause")
        await client.post("/v1/jobs/nightly/skip-next")
        await say(client, "one")
        await client.post("/v1/jobs/nightly/resume")

        assert [(await stream.event())[0] for _ in range(2)] == ["job_paused", "job_resumed"]
    assert (await client.get("/v1/events?event=nonsense")).status == 422


async def test_it_may_end_with_what_there_is(client: Client) -> None:
    """`tail` begins before now, counted in what is wanted; `follow=false` does not wait."""
    await say(client, *REASONS)
    await client.post("/v1/jobs/nightly/resume")

    answer = await client.get("/v1/events?tail=2&event=job_paused&follow=false")

    told = [json.loads(line[6:])["message"] for line in answer.text.split("\n") if line.startswith("data: ")]
    assert told == ["four", "five"]


async def test_a_slow_reader_is_cut_with_an_end(daemon: Daemon) -> None:
    """The ring runs past who takes nothing, and keeps nothing for it: that is the last thing it is told."""
    ring = daemon.service._given.ring  # noqa: SLF001 - a test fills it faster than jobs could
    async with following(daemon.client) as slow:
        transport = cast("asyncio.Transport", slow.wire.writer.transport)
        transport.pause_reading()
        for _ in range(30):
            for number in range(1_000):
                ring.append(Event.JOB_CHANGED, {"job": "x" * 200, "n": number})
            await asyncio.sleep(0.01)
        transport.resume_reading()

        blocks = []
        while (block := await slow.block()) is not None:
            blocks.append(block)

    assert (blocks[-1]["event"], json.loads(blocks[-1]["data"])["reason"]) == ("end", "too_slow")
    assert 0 < len(blocks) < 20_000


async def test_silence_has_signs_of_life(client: Client, monkeypatch: Any) -> None:
    """A comment and the present id, so that a client knows that the daemon is there, and where it is."""
    monkeypatch.setattr(routes_events, "KEEP_ALIVE", 0.1)
    async with following(client, "event=run_failed") as stream:
        await say(client, "unwanted")
        block = await stream.block()

    assert block is not None
    assert "event" not in block
    assert block["id"].startswith((await client.value("/v1/status"))["instance"])


async def test_a_stop_ends_the_stream(daemon: Daemon) -> None:
    """Followers get the last transitions and the reason, and hold nobody up."""
    async with following(daemon.client) as stream:
        daemon.service.stop()
        events = []
        while (block := await stream.block()) is not None:
            events.append(block)
        async with asyncio.timeout(30):
            await daemon.life

    assert next(block["event"] for block in events if "event" in block) == "daemon_draining"
    assert (events[-1]["event"], json.loads(events[-1]["data"])["reason"]) == ("end", "stopping")


async def test_followers_leave_room_for_others(client: Client, monkeypatch: Any) -> None:
    """One too many is told so, and everybody else is answered."""
    monkeypatch.setattr(routes_events, "FOLLOWERS", 1)
    async with following(client):
        answer = await client.get("/v1/events")

        assert (answer.status, answer.json["code"]) == (503, "busy")
        assert (await client.get("/healthz")).status == 200
    for _ in range(100):  # the daemon has yet to see that the other one has gone
        if (answer := await client.get("/v1/events?follow=false")).status == 200:
            break
        await asyncio.sleep(0.05)
    assert answer.status == 200
