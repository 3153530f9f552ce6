"""The output of runs, while they write and after."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from pathlib import Path

import pytest

from tests.control.support.client import connected, request
from tests.control.support.serving import Daemon, daemon_in

JOBS = """
    [jobs.both]
    manual = true
    shell = "echo one; sleep 0.2; echo two >&2; sleep 0.2; echo three"
    [jobs.twice]
    manual = true
    shell = "echo try $SCHEDULER_ATTEMPT; exit 1"
    retry = { attempts = 1, delay = "0s" }
    [jobs.slow]
    manual = true
    shell = "echo begun; sleep 0.5; echo done"
    [jobs.patient]
    manual = true
    shell = "echo begun; exit 1"
    retry = { attempts = 1, delay = "1h" }
"""


@pytest.fixture
async def jobs(daemon: Daemon) -> Daemon:
    await daemon.define(JOBS, file="output.toml")
    return daemon


async def test_output_is_what_was_written_in_its_order(jobs: Daemon) -> None:
    """Both streams come as they came, as plain text; one alone on wish; the last lines on wish."""
    run = await jobs.run("both")
    await jobs.until_run(run, "succeeded")
    path = f"/v1/runs/{run}/output"

    whole = await jobs.client.get(path)
    assert whole.headers["content-type"].startswith("text/plain")
    assert whole.text == "one\ntwo\nthree\n"
    assert (await jobs.client.get(f"{path}?stream=stderr")).text == "two\n"
    assert (await jobs.client.get(f"{path}?tail=2")).text == "two\nthree\n"
    assert (await jobs.client.get(f"{path}?stream=stdout&tail=1")).text == "three\n"


async def test_a_run_without_output_answers_with_nothing(jobs: Daemon) -> None:
    """No output is an empty body, no error."""
    await jobs.define('[jobs.mute]\nmanual = true\ncommand = ["true"]\n', file="mute.toml")
    run = await jobs.run("mute")
    await jobs.until_run(run, "succeeded")

    answer = await jobs.client.get(f"/v1/runs/{run}/output")
    assert (answer.status, answer.body) == (200, b"")


async def test_attempts_are_told_apart(jobs: Daemon) -> None:
    """Every attempt's output is there, with a line between two; the tail is of the last one."""
    run = await jobs.run("twice")
    await jobs.until_run(run, "failed")

    assert (await jobs.client.get(f"/v1/runs/{run}/output")).text == (
        "try 1\n--- attempt with claim 2 ---\ntry 2\n"
    )
    assert (await jobs.client.get(f"/v1/runs/{run}/output?tail=5")).text == "try 2\n"


async def test_following_shows_lines_as_they_come_and_ends_with_the_run(jobs: Daemon) -> None:
    """The first line comes while the run still works, the last one before the answer ends."""
    run = await jobs.run("slow")
    async with connected(jobs.client.path) as wire:
        await wire.send(request("GET", f"/v1/runs/{run}/output?follow=true"))
        await wire.reader.readuntil(b"\r\n\r\n")
        chunks = wire.chunks()

        first = await anext(chunks)
        state = (await jobs.client.value(f"/v1/runs/{run}"))["state"]
        rest = b"".join([chunk async for chunk in chunks])

    assert (first, state, rest) == (b"begun\n", "running", b"done\n")


async def test_following_ends_when_the_server_stops(jobs: Daemon) -> None:
    """A client that follows a run which outlives the daemon gets a whole answer, and delays nothing."""
    run = await jobs.run("patient")
    await jobs.until_run(run, "waiting")
    async with connected(jobs.client.path) as wire:
        await wire.send(request("GET", f"/v1/runs/{run}/output?follow=true"))
        await wire.reader.readuntil(b"begun\n\r\n")

        jobs.service.stop()
        jobs.service.stop()
        async with asyncio.timeout(30):
            rest = await wire.ended()

    assert rest.endswith(b"0\r\n\r\n")
    assert await jobs.life == 0


async def test_large_output_arrives_whole(jobs: Daemon) -> None:
    """Four megabytes without a newline arrive byte for byte (B43)."""
    program = f'{sys.executable} -c \'print("x" * 4_000_000, end="")\''
    await jobs.define(f'[jobs.large]\nmanual = true\nshell = """{program}"""\n', file="large.toml")
    run = await jobs.run("large")
    await jobs.until_run(run, "succeeded")

    assert (await jobs.client.get(f"/v1/runs/{run}/output")).body == b"x" * 4_000_000


async def test_missing_bytes_are_told(folder: Path) -> None:
    """Where the middle was dropped a line says how much is missing."""
    async with daemon_in(folder, output_limit=200_000) as daemon:
        program = f'{sys.executable} -c \'print("x" * 4_000_000, end="")\''
        await daemon.define(f'[jobs.large]\nmanual = true\nshell = """{program}"""\n')
        run = await daemon.run("large")
        await daemon.until_run(run, "succeeded")

        text = (await daemon.client.get(f"/v1/runs/{run}/output")).text

    assert "\n[truncated, " in text
    assert len(text) < 400_000


async def test_records_tell_stream_time_and_position(jobs: Daemon) -> None:
    """One object a line; a reader goes on behind any of them."""
    run = await jobs.run("both")
    await jobs.until_run(run, "succeeded")
    path = f"/v1/runs/{run}/output?format=jsonl"

    answer = await jobs.client.get(path)
    records = [json.loads(line) for line in answer.text.splitlines()]

    assert answer.headers["content-type"].startswith("application/jsonl")
    assert [(record["claim"], record["stream"]) for record in records] == [
        (1, "stdout"),
        (1, "stderr"),
        (1, "stdout"),
    ]
    assert [base64.b64decode(record["data"]) for record in records] == [b"one\n", b"two\n", b"three\n"]
    assert records[0]["at"] <= records[1]["at"] <= records[2]["at"]
    for index, record in enumerate(records):
        rest = (await jobs.client.get(f"{path}&after={record['after']}")).text
        assert [json.loads(line) for line in rest.splitlines()] == records[index + 1 :]


async def test_a_position_lies_in_its_attempt(jobs: Daemon) -> None:
    """What came before it in earlier attempts is not told again, what comes in later ones is."""
    run = await jobs.run("twice")
    await jobs.until_run(run, "failed")
    path = f"/v1/runs/{run}/output?format=jsonl"
    first, second = [json.loads(line) for line in (await jobs.client.get(path)).text.splitlines()]

    assert [first["claim"], second["claim"]] == [1, 2]
    assert json.loads((await jobs.client.get(f"{path}&after={first['after']}")).text) == second
    assert (await jobs.client.get(f"{path}&after={second['after']}")).text == ""


@pytest.mark.parametrize("after", ["x", "1", "1.2.3", "1.2.3.4.-5", "1.0.0.0.0.0", "9" * 30 + ".0.0.0.0"])
async def test_a_position_that_is_none_is_refused(jobs: Daemon, after: str) -> None:
    """422, and the key is named."""
    run = await jobs.run("both")

    answer = await jobs.client.get(f"/v1/runs/{run}/output?format=jsonl&after={after}")

    assert answer.status == 422
    assert answer.json["faults"][0]["key"] == "after"
