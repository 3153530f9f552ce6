"""Creating, replacing and removing jobs through the API."""

from __future__ import annotations

from typing import Any

import pytest

from tests.control.support.client import Answer, Client
from tests.control.support.serving import Daemon

HOURLY = {"every": "1h", "command": ["true"], "description": "hourly"}


async def create(client: Client, id: str = "hourly", **keys: Any) -> Answer:
    answer = await client.post("/v1/jobs", {"id": id, **HOURLY, **keys})
    assert answer.status == 201, answer
    return answer


class TestCreate:
    @pytest.mark.parametrize("body", [{"id": "hourly", **HOURLY}, {"id": "hourly", "definition": HOURLY}])
    async def test_a_job_is_there_and_fires(self, client: Client, body: dict[str, Any]) -> None:
        """The answer is the job with its ETag and its place; both ways of writing it mean the same."""
        answer = await client.post("/v1/jobs", body)

        assert answer.status == 201
        assert answer.headers["location"] == "/v1/jobs/hourly"
        assert answer.headers["etag"] == f'"{answer.json["definition_revision"]}"'
        assert (answer.json["origin"], answer.json["next_fire_at"] is None) == ("api", False)
        assert answer.json["definition"]["every"] == 3600
        assert await client.value("/v1/jobs/hourly") == answer.json

    async def test_what_is_shown_can_be_sent_again(self, client: Client) -> None:
        """The definition of a job as it is shown is a valid definition with the same meaning."""
        shown = (await create(client)).json["definition"]
        again = await client.post("/v1/jobs", {"id": "again", "definition": shown})

        assert again.json["definition"] == shown

    async def test_an_id_that_is_taken_is_refused(self, client: Client) -> None:
        """Neither a job of the API nor one of a file is replaced by a creation."""
        await create(client)

        for id in ("hourly", "nightly"):
            answer = await client.post("/v1/jobs", {"id": id, **HOURLY})
            assert (answer.status, answer.json["code"]) == (409, "conflict")

    @pytest.mark.parametrize(
        ("body", "keys"),
        [
            ({"id": "x", "cron": "nonsense", "comand": ["true"]}, {"cron", "comand"}),
            ({"id": "Bad Id", **HOURLY}, {None}),
            ({"id": 7, **HOURLY}, {"id"}),
            (HOURLY, {"id"}),
            ({"id": "x", "definition": HOURLY, "every": "1h"}, {"every"}),
            ({"id": "x", "definition": []}, {"definition"}),
            ({"id": "x", **HOURLY, "jitter": "-1s"}, {"jitter"}),
        ],
    )
    async def test_faults_are_listed_all_at_once(
        self, standing: Client, body: dict[str, Any], keys: set[str | None]
    ) -> None:
        """Every wrong key of a definition is a fault of its own, and no job comes of it."""
        answer = await standing.post("/v1/jobs", body)

        assert (answer.status, answer.json["code"]) == (422, "invalid")
        assert keys <= {fault["key"] for fault in answer.json["faults"]}
        assert [job["id"] for job in (await standing.value("/v1/jobs"))["items"]] == ["nightly"]


class TestReplace:
    async def test_the_etag_guards_against_lost_updates(self, client: Client) -> None:
        """A replacement that names the live definition is made; a second one that names the same is stale."""
        seen = (await create(client)).headers["etag"]

        first = await replace(client, {**HOURLY, "every": "2h"}, seen)
        second = await replace(client, {**HOURLY, "every": "3h"}, seen)

        assert first.status == 200
        assert first.headers["etag"] != seen
        assert (second.status, second.json["code"]) == (412, "stale")
        assert (await client.value("/v1/jobs/hourly"))["definition"]["every"] == 7200

    async def test_a_replacement_without_a_precondition_is_refused(self, client: Client) -> None:
        """Without If-Match the answer is 428 and says what to send."""
        await create(client)
        answer = await client.ask("PUT", "/v1/jobs/hourly", HOURLY)

        assert (answer.status, answer.json["code"]) == (428, "precondition_required")
        assert "If-Match" in answer.json["hint"]

    @pytest.mark.parametrize(
        ("tags", "status"), [("*", 200), ('"0", {etag}', 200), ("W/{etag}", 200), ('"nonsense"', 412)]
    )
    async def test_preconditions_are_read_as_http_has_them(
        self, client: Client, tags: str, status: int
    ) -> None:
        """A list matches if one of its tags does, a star matches anything."""
        etag = (await create(client)).headers["etag"]

        assert (await replace(client, HOURLY, tags.replace("{etag}", etag))).status == status

    async def test_a_pause_does_not_spoil_an_edit(self, client: Client) -> None:
        """A pause between look and replacement leaves the ETag valid, and stays (I4)."""
        seen = (await create(client)).headers["etag"]
        await client.post("/v1/jobs/hourly/pause", {"reason": "mine"})

        answer = await replace(client, {**HOURLY, "every": "2h"}, seen)

        assert answer.status == 200
        assert (answer.json["status"], answer.json["pause"]["note"]) == ("paused", "mine")

    async def test_a_job_that_is_not_there_is_not_made(self, client: Client) -> None:
        """A replacement replaces."""
        assert (await replace(client, HOURLY, "*")).status == 404

    async def test_another_id_in_the_body_is_refused(self, client: Client) -> None:
        """A job cannot be renamed by accident."""
        etag = (await create(client)).headers["etag"]

        answer = await replace(client, {"id": "other", **HOURLY}, etag)
        assert (answer.status, answer.json["faults"][0]["key"]) == (422, "id")


class TestFiles:
    async def test_a_job_of_a_file_is_left_to_its_file(self, daemon: Daemon) -> None:
        """PUT and DELETE of a file's job answer 409 and name the file, with and without a precondition."""
        client, file = daemon.client, str(daemon.jobs / "jobs.toml")
        answers = [
            await client.ask("PUT", "/v1/jobs/nightly", HOURLY),
            await client.ask("PUT", "/v1/jobs/nightly", HOURLY, headers={"If-Match": "*"}),
            await client.ask("DELETE", "/v1/jobs/nightly"),
        ]

        for answer in answers:
            assert (answer.status, answer.json["code"]) == (409, "conflict")
            assert file in answer.json["detail"]


class TestRemove:
    async def test_a_removed_job_is_gone_and_its_history_stays(self, daemon: Daemon) -> None:
        """The live run finishes and is on record; the audit is there; the job is not (I6)."""
        client = daemon.client
        await client.post("/v1/jobs", {"id": "brief", "manual": True, "shell": "sleep 0.3"})
        run = await daemon.run("brief")

        answer = await client.ask("DELETE", "/v1/jobs/brief")

        assert answer.status == 200
        assert [live["id"] for live in answer.json["runs"]] == [run]
        assert (await client.get("/v1/jobs/brief")).status == 404
        await daemon.until_run(run, "succeeded")
        verbs = [entry["verb"] for entry in (await client.value("/v1/jobs/brief/audit"))["items"]]
        assert verbs[0] == "remove"
        assert (await client.ask("DELETE", "/v1/jobs/brief")).status == 404


async def replace(client: Client, body: dict[str, Any], tags: str) -> Answer:
    return await client.ask("PUT", "/v1/jobs/hourly", body, headers={"If-Match": tags})
