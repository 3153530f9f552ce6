"""History, and the verbs that one run takes."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tests.control.support.client import Client
from tests.control.support.serving import Daemon

RUN_FIELDS = [
    "id",
    "job",
    "state",
    "reason",
    "message",
    "trigger",
    "fire_time",
    "attempt",
    "claim",
    "queued_at",
    "started_at",
    "finished_at",
    "exit_code",
    "signal",
    "result",
    "progress",
    "cost",
    "pid",
    "wish",
    "ready_at",
    "fire_time_last",
    "count",
    "attempts",
]

JOBS = """
    [jobs.ok]
    manual = true
    shell = "exit 0"
    [jobs.bad]
    manual = true
    shell = "exit 3"
    [jobs.again]
    manual = true
    shell = "exit 4"
    retry = { attempts = 1, delay = "1h" }
    [jobs.long]
    manual = true
    shell = "sleep 30"
"""


@pytest.fixture
async def jobs(daemon: Daemon) -> Daemon:
    await daemon.define(JOBS, file="runs.toml")
    return daemon


class TestShow:
    async def test_a_run_has_the_fields_of_the_contract(self, jobs: Daemon) -> None:
        """A run shows its row and its attempts, nothing more and nothing less."""
        run = await jobs.until_run(await jobs.run("bad"), "failed")

        assert list(run) == RUN_FIELDS
        assert (run["job"], run["trigger"], run["attempt"], run["claim"]) == ("bad", "manual", 1, 1)
        assert (run["exit_code"], run["reason"], run["signal"]) == (3, "exit_code", None)
        assert list(run["progress"]) == ["done", "total", "failed", "unknown", "message"]
        (attempt,) = run["attempts"]
        assert (attempt["state"], attempt["exit_code"], attempt["claim"]) == ("failed", 3, 1)

    async def test_a_run_is_the_same_in_the_list(self, jobs: Daemon) -> None:
        """History shows runs as they are shown alone."""
        run = await jobs.until_run(await jobs.run("ok"), "succeeded")

        assert (await jobs.client.value("/v1/runs?job=ok"))["items"] == [run]

    @pytest.mark.parametrize("id", ["06ccc8ac-37dc-4343-a3dd-397efbb7158f", "nope", "%00", "1"])
    async def test_a_run_that_is_not_there_is_told_as_such(self, standing: Client, id: str) -> None:
        """An unknown or impossible id is 404."""
        answer = await standing.get(f"/v1/runs/{id}")

        assert (answer.status, answer.json["code"]) == (404, "not_found")


class TestList:
    async def test_filters_choose(self, jobs: Daemon) -> None:
        """Job, state and time choose among the runs."""
        ok = await jobs.until_run(await jobs.run("ok"), "succeeded")
        bad = await jobs.until_run(await jobs.run("bad"), "failed")

        async def found(query: str) -> list[str]:
            return [run["id"] for run in (await jobs.client.value(f"/v1/runs?{query}"))["items"]]

        assert await found("") == [bad["id"], ok["id"]]
        assert await found("job=ok") == [ok["id"]]
        assert await found("state=failed") == [bad["id"]]
        assert await found("since=2000-01-01T00:00:00%2B01:00") == [bad["id"], ok["id"]]
        assert await found("since=9000-01-01T00:00:00Z") == []

    async def test_pages_are_stable_while_runs_come(self, jobs: Daemon) -> None:
        """A run that is added between two pages moves none of the others."""
        made = [(await jobs.until_run(await jobs.run("ok"), "succeeded"))["id"] for _ in range(4)]
        first = await jobs.client.value("/v1/runs?limit=2")
        await jobs.until_run(await jobs.run("ok"), "succeeded")
        second = await jobs.client.value(f"/v1/runs?limit=2&cursor={first['next_cursor']}")

        shown = [run["id"] for run in first["items"] + second["items"]]
        assert shown == made[::-1]
        assert second["next_cursor"] is None


class TestVerbs:
    async def test_cancel_ends_a_run(self, jobs: Daemon) -> None:
        """The wish is there at once, the end follows; a second cancel of what has ended is a conflict."""
        run = await jobs.run("long")

        answer = await jobs.client.post(f"/v1/runs/{run}/cancel")

        assert (answer.status, answer.json["wish"]) == (200, "cancel")
        assert (await jobs.until_run(run, "cancelled"))["reason"] == "cancelled"
        assert (await jobs.client.post(f"/v1/runs/{run}/cancel")).json["code"] == "conflict"

    async def test_retry_queues_a_failed_run_again(self, jobs: Daemon) -> None:
        """The run gets another attempt; one that succeeded does not."""
        bad = await jobs.until_run(await jobs.run("bad"), "failed")
        ok = await jobs.until_run(await jobs.run("ok"), "succeeded")

        assert (await jobs.client.post(f"/v1/runs/{bad['id']}/retry")).status == 200
        assert (await jobs.client.post(f"/v1/runs/{ok['id']}/retry")).status == 409
        again = await jobs.until_run(bad["id"], "failed")
        assert again["attempt"] == 1

    async def test_retry_now_shortens_the_wait(self, jobs: Daemon) -> None:
        """A run that waits for an hour is tried at once."""
        waiting = await jobs.until_run(await jobs.run("again"), "waiting")

        assert waiting["ready_at"] is not None
        assert (await jobs.client.post(f"/v1/runs/{waiting['id']}/retry-now")).status == 200
        assert (await jobs.until_run(waiting["id"], "failed"))["attempt"] == 2

    async def test_a_run_without_items_has_none_to_retry(self, jobs: Daemon) -> None:
        """A choice of items is refused where there are none, not ignored."""
        bad = await jobs.until_run(await jobs.run("bad"), "failed")

        for items in ("failed", ["one"]):
            answer = await jobs.client.post(f"/v1/runs/{bad['id']}/retry", {"items": items})
            assert (answer.status, answer.json["code"]) == (409, "conflict")

    @pytest.mark.parametrize("verb", ["cancel", "retry", "retry-now"])
    async def test_a_verb_on_no_run_is_told_as_such(self, standing: Client, verb: str) -> None:
        """An unknown run is 404 for every verb."""
        assert (await standing.post(f"/v1/runs/{uuid4()}/{verb}")).status == 404
