"""Pauses with an end, and the pause of all jobs, over the socket."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.control.support.client import Client
from tests.control.support.serving import Daemon

LONG = """
    [jobs.long]
    manual = true
    shell = "sleep 30"
    kill_grace = "1s"
"""


def soon(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


@pytest.mark.parametrize("length", [3600, "1h", "60m", 3600.0])
async def test_a_pause_may_have_a_length(client: Client, length: object) -> None:
    """`for` is a number of seconds or a duration as job files write it; the answer says when it ends."""
    answer = await client.post("/v1/jobs/nightly/pause", {"for": length, "reason": "move"})

    pause = answer.json["job"]["pause"]
    ends_in = datetime.fromisoformat(pause["until"]) - datetime.fromisoformat(pause["since"])
    assert answer.status == 200
    assert timedelta(minutes=59) < ends_in <= timedelta(hours=1)
    assert (await client.value("/v1/jobs/nightly/why"))["next_possible_at"] == pause["until"]


async def test_a_pause_lifts_itself(daemon: Daemon) -> None:
    """The daemon wakes up for its end, tells it, and the job fires again."""
    await daemon.client.post("/v1/jobs/nightly/pause", {"until": soon(0.6)})
    assert (await daemon.client.value("/v1/jobs/nightly"))["status"] == "paused"

    job = await daemon.until("/v1/jobs/nightly", lambda job: job["status"] == "active")

    assert job["next_fire_at"] is not None
    (entry, *_) = (await daemon.client.value("/v1/jobs/nightly/audit"))["items"]
    assert (entry["verb"], entry["by"]["command"]) == ("resume", "schedulerd")
    told = await daemon.client.get("/v1/events?tail=1&follow=false&event=pause_expired&job=nightly")
    assert "event: pause_expired" in told.text


async def test_an_end_in_the_past_is_refused(client: Client) -> None:
    """A pause that would be over before it began is none."""
    answer = await client.post("/v1/jobs/nightly/pause", {"until": soon(-1)})

    assert (answer.status, answer.json["code"]) == (422, "invalid")
    assert (await client.value("/v1/jobs/nightly"))["status"] == "active"


async def test_all_jobs_are_paused_and_resumed(daemon: Daemon) -> None:
    """Status, why and the refusal of a start say so; the job's own state is left alone."""
    client = daemon.client
    await daemon.define(LONG, file="long.toml")
    run = await daemon.run("long")

    paused = await client.post("/v1/pause", {"reason": "power cut"})

    assert paused.status == 200
    assert [one["id"] for one in paused.json["runs"]] == [run]
    assert (await client.value("/v1/status"))["paused"] == paused.json["paused"]
    assert paused.json["paused"]["note"] == "power cut"
    why = await client.value("/v1/jobs/nightly/why")
    assert (why["blocked"], why["code"]) == (True, "global_pause")
    assert "power cut" in why["message"]
    start = await client.post("/v1/jobs/nightly/run")
    assert (start.status, start.json["code"]) == (409, "conflict")
    assert (await client.value("/v1/jobs/nightly"))["status"] == "active"

    resumed = await client.post("/v1/resume")

    assert (resumed.status, resumed.json["paused"]) == (200, None)
    assert (await client.value("/v1/status"))["paused"] is None
    verbs = [entry["verb"] for entry in (await client.value("/v1/jobs/nightly/audit"))["items"]]
    assert verbs[:2] == ["resume-all", "pause-all"]


async def test_a_pause_of_all_cancels_where_it_is_told_to(daemon: Daemon) -> None:
    """The runs in flight get the wish of the mode at once."""
    await daemon.define(LONG, file="long.toml")
    run = await daemon.run("long")

    await daemon.client.post("/v1/pause", {"mode": "cancel"})

    assert (await daemon.until_run(run, "cancelled"))["reason"] == "cancelled"


async def test_a_pause_of_all_lifts_itself(daemon: Daemon) -> None:
    """Its end is told as `all_resumed`, by the daemon."""
    await daemon.client.post("/v1/pause", {"for": 0.5})

    await daemon.until("/v1/status", lambda status: status["paused"] is None)

    told = await daemon.client.get("/v1/events?tail=5&follow=false&event=all_paused&event=all_resumed")
    assert told.text.index("event: all_paused") < told.text.index("event: all_resumed")


async def test_what_was_done_to_all_says_nothing_of_a_job_that_is_none(client: Client) -> None:
    """The audit of an unknown job is not found, although there are entries about all jobs."""
    await client.post("/v1/pause")

    assert (await client.get("/v1/jobs/absent/audit")).status == 404
