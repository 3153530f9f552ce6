"""The items of a batch run over the control API: pages, counts, settlement, retries, fresh runs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.control.support.client import Answer, Client
from tests.control.support.serving import Daemon

ITEM_FIELDS = ["key", "index", "state", "attempts", "error", "result", "cost", "started_at", "finished_at"]

JOBS = """
    [jobs.ten]
    manual = true
    shell = 'case "$SCHEDULER_ITEM_KEY" in k3|k7) test -e {folder}/healed ;; esac'
    [jobs.ten.batch]
    items = ["k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7", "k8", "k/9"]
    concurrency = 4
    [jobs.doubt]
    manual = true
    shell = '[ "$SCHEDULER_ITEM_KEY" != chapter-2 ] || kill -9 $$'
    [jobs.doubt.batch]
    items = ["chapter-1", "chapter-2", "chapter-3"]
    [jobs.slow]
    manual = true
    shell = "sleep 30"
    [jobs.slow.batch]
    items = ["one", "two"]
    concurrency = 1
    [jobs.plain]
    manual = true
    shell = "exit 3"
"""


@pytest.fixture
async def jobs(daemon: Daemon) -> Daemon:
    await daemon.define(JOBS.replace("{folder}", str(daemon.folder)), file="items.toml")
    return daemon


async def ended(daemon: Daemon, job: str, **body: Any) -> str:
    """The id of a run of the job that has ended."""
    run = await daemon.run(job, **body)
    await daemon.until(f"/v1/runs/{run}", lambda shown: shown["finished_at"] is not None)
    return run


async def keys(client: Client, run: str, state: str) -> list[str]:
    return [item["key"] for item in (await client.value(f"/v1/runs/{run}/items?state={state}"))["items"]]


async def settle(client: Client, run: str, key: str, state: str) -> Answer:
    return await client.post(f"/v1/runs/{run}/items/{key}", {"state": state})


class TestList:
    async def test_items_come_in_the_order_of_the_list_with_their_counts(self, jobs: Daemon) -> None:
        """Every item has the fields of the contract; the counts add up to the total."""
        run = await ended(jobs, "ten")

        page = await jobs.client.value(f"/v1/runs/{run}/items")

        assert [item["index"] for item in page["items"]] == list(range(10))
        assert list(page["items"][0]) == ITEM_FIELDS
        assert (page["items"][3]["state"], page["items"][3]["error"]) == ("failed", "exited with code 1")
        counts = page["counts"]
        assert (counts["total"], counts["done"], counts["failed"]) == (10, 8, 2)
        assert sum(number for state, number in counts.items() if state != "total") == 10

    @pytest.mark.parametrize("state", [None, "done"])
    async def test_pages_hold_every_item_once(self, jobs: Daemon, state: str | None) -> None:
        """A cursor goes on where the page before ended, with and without a filter."""
        run = await ended(jobs, "ten")
        chosen = "" if state is None else f"&state={state}"
        found, cursor = [], ""
        while True:
            page = await jobs.client.value(f"/v1/runs/{run}/items?limit=3{chosen}{cursor}")
            assert len(page["items"]) <= 3
            found += [item["index"] for item in page["items"]]
            if page["next_cursor"] is None:
                break
            cursor = f"&cursor={page['next_cursor']}"

        assert found == [index for index in range(10) if state is None or index not in (3, 7)]

    @pytest.mark.parametrize("query", ["state=lost", "state=", "limit=0", "cursor=nonsense", "colour=red"])
    async def test_a_query_that_means_nothing_is_refused(self, jobs: Daemon, query: str) -> None:
        """422, and the fault names the parameter: a misspelt filter never lists everything."""
        run = await ended(jobs, "ten")

        answer = await jobs.client.get(f"/v1/runs/{run}/items?{query}")

        assert (answer.status, answer.json["code"]) == (422, "invalid")
        assert query.partition("=")[0] in answer.text

    async def test_a_run_without_items_has_an_empty_list(self, jobs: Daemon) -> None:
        """It is no batch: no items and no counts, and that is no error."""
        page = await jobs.client.value(f"/v1/runs/{await ended(jobs, 'plain')}/items")

        assert (page["items"], page["next_cursor"], page["counts"]) == ([], None, None)

    async def test_the_items_of_no_run_are_not_found(self, client: Client) -> None:
        """404, for reading and for settling."""
        path = "/v1/runs/06ccc8ac-37dc-4343-a3dd-397efbb7158f/items"

        assert (await client.get(path)).status == 404
        assert (await client.post(f"{path}/k", {"state": "done"})).status == 404


class TestSettle:
    async def test_an_unknown_item_is_what_the_operator_says(self, jobs: Daemon) -> None:
        """With it the run is judged anew: partial becomes succeeded; both are in the answer and the audit."""
        run = await ended(jobs, "doubt")
        shown = await jobs.client.value(f"/v1/runs/{run}")
        assert (shown["state"], shown["reason"]) == ("partial", "unknown_items")

        answer = await settle(jobs.client, run, "chapter-2", "done")

        assert (answer.status, answer.json["item"]["state"]) == (200, "done")
        assert answer.json["run"]["state"] == "succeeded"
        audit = await jobs.client.value("/v1/jobs/doubt/audit")
        assert audit["items"][0]["verb"] == "settle-item"

    async def test_to_say_the_same_twice_is_no_error(self, jobs: Daemon) -> None:
        """A client whose answer was lost may ask again."""
        run = await ended(jobs, "doubt")

        first, again = [await settle(jobs.client, run, "chapter-2", "failed") for _ in range(2)]

        assert (first.status, again.status) == (200, 200)
        assert again.json["item"]["state"] == "failed"
        assert again.json["run"]["progress"]["failed"] == 1

    async def test_a_misspelt_key_is_not_found_and_the_nearest_is_named(self, jobs: Daemon) -> None:
        """404 with a hint, and nothing is settled."""
        run = await ended(jobs, "doubt")

        answer = await settle(jobs.client, run, "chpater-2", "done")

        assert (answer.status, answer.json["code"]) == (404, "not_found")
        assert "did you mean chapter-" in answer.json["hint"]
        assert await keys(jobs.client, run, "unknown") == ["chapter-2"]

    async def test_a_done_item_stays_done(self, jobs: Daemon) -> None:
        """I9: 409, whatever is asked for; a done item is never run again."""
        run = await ended(jobs, "doubt")

        for state in ("pending", "failed"):
            answer = await settle(jobs.client, run, "chapter-1", state)
            assert (answer.status, answer.json["code"]) == (409, "conflict")
            assert "never run again" in answer.json["detail"]

    async def test_an_item_at_work_is_its_workers(self, jobs: Daemon) -> None:
        """409: nobody settles a call that is under way."""
        run = await jobs.run("slow")
        await jobs.until(f"/v1/runs/{run}/items?state=running", lambda page: page["items"])

        answer = await settle(jobs.client, run, "one", "done")

        assert (answer.status, answer.json["code"]) == (409, "conflict")
        await jobs.client.post(f"/v1/runs/{run}/cancel")

    @pytest.mark.parametrize("state", ["unknown", "running", "skipped", "", None, 1])
    async def test_only_an_operators_words_are_taken(self, jobs: Daemon, state: object) -> None:
        """422 for a state that no operator can know."""
        run = await ended(jobs, "doubt")

        answer = await jobs.client.post(f"/v1/runs/{run}/items/chapter-2", {"state": state})

        assert (answer.status, answer.json["code"]) == (422, "invalid")

    async def test_a_key_with_a_slash_is_a_key(self, jobs: Daemon) -> None:
        """Keys are free text; the path takes them whole."""
        run = await ended(jobs, "ten")

        answer = await settle(jobs.client, run, "k/9", "pending")

        assert answer.status == 409
        assert "k/9" in answer.json["detail"]

    async def test_a_run_without_items_has_none_to_settle(self, jobs: Daemon) -> None:
        """409 that says so."""
        answer = await settle(jobs.client, await ended(jobs, "plain"), "k", "done")

        assert answer.status == 409
        assert "no batch" in answer.json["detail"]


class TestRetry:
    async def test_only_the_failed_items_run_again(self, jobs: Daemon) -> None:
        """The same run, the same keys; each item tells how often it was begun."""
        run = await ended(jobs, "ten")
        (jobs.folder / "healed").touch()

        answer = await jobs.client.post(f"/v1/runs/{run}/retry", {"items": "failed"})
        shown = await jobs.until_run(run, "succeeded")

        assert (answer.status, answer.json["id"]) == (200, run)
        assert shown["progress"]["done"] == 10
        items = (await jobs.client.value(f"/v1/runs/{run}/items"))["items"]
        assert [item["attempts"] for item in items] == [1, 1, 1, 2, 1, 1, 1, 2, 1, 1]

    async def test_named_items_run_again_and_no_other(self, jobs: Daemon) -> None:
        """A choice is kept: the failed item that was not named stays failed."""
        run = await ended(jobs, "ten")
        (jobs.folder / "healed").touch()

        await jobs.client.post(f"/v1/runs/{run}/retry", {"items": ["k7"]})
        await jobs.until_run(run, "partial")

        assert await keys(jobs.client, run, "failed") == ["k3"]

    @pytest.mark.parametrize(
        ("items", "status", "said"),
        [
            (["k0"], 409, "k0 is done"),
            (["k77"], 404, "did you mean k7?"),
            ([], 422, "items"),
            ("unknown", 422, "items"),
        ],
    )
    async def test_a_choice_that_cannot_be_run_is_refused(
        self, jobs: Daemon, items: object, status: int, said: str
    ) -> None:
        """And the run stays as it was."""
        run = await ended(jobs, "ten")

        answer = await jobs.client.post(f"/v1/runs/{run}/retry", {"items": items})

        assert answer.status == status, answer
        assert said in answer.text
        assert (await jobs.client.value(f"/v1/runs/{run}"))["state"] == "partial"

    async def test_a_run_with_nothing_left_says_so(self, jobs: Daemon) -> None:
        """409: every item is done."""
        (jobs.folder / "healed").touch()
        run = await ended(jobs, "ten")

        answer = await jobs.client.post(f"/v1/runs/{run}/retry", {"items": "failed"})

        assert answer.status == 409
        assert "nothing to retry: 10 of 10 done" in answer.json["detail"]

    async def test_unknown_items_are_settled_first(self, jobs: Daemon) -> None:
        """I9: no retry runs an item that may have been paid for."""
        run = await ended(jobs, "doubt")

        answer = await jobs.client.post(f"/v1/runs/{run}/retry")

        assert answer.status == 409
        assert "settle the unknown items first" in answer.json["hint"]


class TestFreshRun:
    async def test_a_fresh_run_beside_one_in_doubt_is_refused_unless_it_is_wanted(self, jobs: Daemon) -> None:
        """409 with the id of the other and the hint `retry`; `new` begins anew, under new keys."""
        run = await ended(jobs, "doubt")

        refused = await jobs.client.post("/v1/jobs/doubt/run", {})
        fresh = await ended(jobs, "doubt", new=True)

        assert (refused.status, refused.json["run_id"]) == (409, run)
        assert "retry" in refused.json["hint"]
        assert fresh != run
