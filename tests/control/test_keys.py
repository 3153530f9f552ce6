"""`Idempotency-Key`: a request that is sent again is answered as before and done once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.control.support.client import Answer, Client
from tests.control.support.serving import Daemon

WORK = """
    [jobs.work]
    manual = true
    overlap = "allow"
    max_running = 5
    shell = "exit 3"
"""
KEY = {"Idempotency-Key": "5d1c"}


def shown(answer: Answer) -> tuple[int, Any, str | None, str | None]:
    """What a client takes from an answer."""
    return answer.status, answer.json, answer.headers.get("location"), answer.headers.get("etag")


async def test_one_key_is_one_run(daemon: Daemon) -> None:
    """The second answer is the first one, also when the run has ended meanwhile."""
    client = daemon.client
    await daemon.define(WORK, file="work.toml")
    first = await client.post("/v1/jobs/work/run", {"overlap": "allow"}, headers=KEY)
    await daemon.until_run(first.json["id"], "failed")

    again = await client.post("/v1/jobs/work/run", {"overlap": "allow"}, headers=KEY)

    assert shown(again) == shown(first)
    assert (first.status, again.headers["idempotency-replayed"]) == (202, "true")
    assert "idempotency-replayed" not in first.headers
    assert len((await client.value("/v1/runs?job=work"))["items"]) == 1


async def test_many_at_once_are_one_run(daemon: Daemon) -> None:
    """Those that come before the first is done wait for its commit and answer alike."""
    await daemon.define(WORK, file="work.toml")

    answers = await asyncio.gather(
        *(daemon.client.post("/v1/jobs/work/run", {"overlap": "allow"}, headers=KEY) for _ in range(8))
    )

    assert {answer.status for answer in answers} == {202}
    assert len({answer.json["id"] for answer in answers}) == 1


@pytest.mark.parametrize(
    ("target", "body"),
    [("/v1/jobs/nightly/pause", {"reason": "other"}), ("/v1/jobs/nightly/resume", {"reason": "first"})],
)
async def test_another_request_under_a_used_key_is_refused(
    client: Client, target: str, body: dict[str, str]
) -> None:
    """Method, path and body belong to the key."""
    await client.post("/v1/jobs/nightly/pause", {"reason": "first"}, headers=KEY)

    answer = await client.post(target, body, headers=KEY)

    assert (answer.status, answer.json["code"]) == (422, "invalid")
    assert [fault["key"] for fault in answer.json["faults"]] == ["Idempotency-Key"]
    assert (await client.value("/v1/jobs/nightly"))["pause"]["note"] == "first"


@pytest.mark.parametrize("key", ["", "with a blank", "ü", "x" * 201])
async def test_a_key_that_is_none_is_refused(standing: Client, key: str) -> None:
    """A key is 1 to 200 printable ASCII characters without a blank."""
    answer = await standing.post("/v1/jobs/nightly/pause", headers={"Idempotency-Key": key})

    assert (answer.status, answer.json["code"]) == (422, "invalid")
    assert (await standing.value("/v1/jobs/nightly"))["status"] == "active"


async def test_every_verb_takes_a_key(daemon: Daemon) -> None:
    """Sent twice under a key, a verb answers twice the same; the audit has it once."""
    client = daemon.client
    await daemon.define(WORK, file="work.toml")
    run = await daemon.run("work")
    await daemon.until_run(run, "failed")
    made = {"id": "made", "manual": True, "shell": ":"}
    verbs: list[tuple[str, str, Any, dict[str, str]]] = [
        ("POST", "/v1/jobs/nightly/skip-next", {"n": 2}, {}),
        ("POST", "/v1/jobs/nightly/pause", {"reason": "x"}, {}),
        ("POST", "/v1/jobs/nightly/resume", {"missed": "latest"}, {}),
        ("POST", "/v1/pause", {}, {}),
        ("POST", f"/v1/runs/{run}/retry", {}, {}),
        ("POST", f"/v1/runs/{run}/cancel", {}, {}),
        ("POST", "/v1/resume", {}, {}),
        ("POST", "/v1/jobs", made, {}),
        ("PUT", "/v1/jobs/made", {**made, "description": "better"}, {"If-Match": "*"}),
        ("DELETE", "/v1/jobs/made", None, {}),
    ]
    for number, (method, target, body, headers) in enumerate(verbs):
        key = {"Idempotency-Key": f"k{number}", **headers}
        first = await client.ask(method, target, body, headers=key)
        again = await client.ask(method, target, body, headers=key)

        assert first.status < 300, (method, target, first)
        assert shown(again) == shown(first), (method, target)
        assert again.headers["idempotency-replayed"] == "true"
    told = (await client.value("/v1/jobs/made/audit"))["items"]
    assert [entry["verb"] for entry in told if entry["job"]] == ["remove", "edit", "add"]


async def test_a_reload_takes_a_key(daemon: Daemon) -> None:
    """It is carried out each time, which makes nothing twice: what the files say is in force, once."""
    (daemon.jobs / "work.toml").write_text(WORK)

    answers = [await daemon.client.post("/v1/reload", headers=KEY) for _ in range(2)]

    assert [(answer.status, answer.json["faults"]) for answer in answers] == [(200, []), (200, [])]
    assert [answer.json["added"] for answer in answers] == [["work"], []]


async def test_a_replacement_that_is_repeated_is_not_stale(client: Client) -> None:
    """The ETag that it has moved on itself does not stand in its way."""
    made = await client.post("/v1/jobs", {"id": "made", "manual": True, "shell": ":"})
    headers = {"If-Match": made.headers["etag"], **KEY}
    body = {"manual": True, "shell": "true"}
    first = await client.ask("PUT", "/v1/jobs/made", body, headers=headers)

    again = await client.ask("PUT", "/v1/jobs/made", body, headers=headers)

    assert (first.status, again.status) == (200, 200)
    assert shown(again) == shown(first)


async def test_a_refused_request_may_be_sent_again(daemon: Daemon) -> None:
    """Nothing was done under the key, so it is still free."""
    client = daemon.client
    refused = await client.post("/v1/jobs/later/run", headers=KEY)
    await daemon.define(WORK.replace("work", "later"), file="later.toml")

    answer = await client.post("/v1/jobs/later/run", headers=KEY)

    assert (refused.status, answer.status) == (404, 202)
