"""The daemon itself over the API: status, reload, preview, probes, metrics, and its last words."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Any

import pytest

import scheduler
from scheduler.control import views
from scheduler.errors import StoreUnavailable
from scheduler.store.sqlite import FILE_NAME
from tests.control.support.client import Client
from tests.control.support.serving import Daemon


class TestStatus:
    async def test_status_tells_how_the_daemon_is(self, client: Client) -> None:
        """Version, instance, uptime, counts and health are there."""
        status = await client.value("/v1/status")

        assert list(status) == [
            "version",
            "instance",
            "pid",
            "started_at",
            "uptime",
            "draining",
            "paused",
            "counts",
            "health",
            "faults",
        ]
        assert status["version"] == scheduler.__version__
        assert status["counts"]["jobs"] == {"active": 1}
        assert (status["draining"], status["paused"], status["health"]["ok"]) == (False, None, True)

    async def test_probes_say_yes(self, client: Client) -> None:
        """A daemon that works is healthy and ready."""
        assert await client.value("/healthz") == {"status": "ok"}
        assert await client.value("/readyz") == {"status": "ok"}

    async def test_the_short_way_to_healthz_answers_as_a_route_does(self, client: Client) -> None:
        """Status, headers and body are those of a probe that goes through all routes."""
        short, routed = await client.get("/healthz"), await client.get("/readyz")

        assert (short.status, short.text) == (routed.status, routed.text)
        assert [*short.headers] == [*routed.headers]
        assert all(short.headers[name] == routed.headers[name] for name in short.headers if name != "date")

    async def test_metrics_are_openmetrics(self, client: Client) -> None:
        """The text bears its type and ends as the format wants it."""
        answer = await client.get("/metrics")

        assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
        assert answer.text.endswith("# EOF\n")


class TestReload:
    async def test_a_reload_tells_what_it_did(self, daemon: Daemon) -> None:
        """Added, changed and removed jobs are named, the others counted."""
        (daemon.jobs / "more.toml").write_text('[jobs.more]\nmanual = true\ncommand = ["true"]\n')
        added = (await daemon.client.post("/v1/reload")).json
        (daemon.jobs / "more.toml").write_text('[jobs.more]\nmanual = true\ncommand = ["false"]\n')
        changed = (await daemon.client.post("/v1/reload")).json

        assert (added["added"], added["unchanged"], added["faults"]) == (["more"], 1, [])
        assert (changed["changed"], changed["removed"]) == (["more"], [])

    async def test_faults_of_files_are_told_and_stay_on_the_status(self, daemon: Daemon) -> None:
        """A bad file keeps its jobs; its faults come with file, line, job and key (I14)."""
        (daemon.jobs / "jobs.toml").write_text('[jobs.nightly]\ncron = "30 2 * *"\ncomand = ["true"]\n')
        answer = await daemon.client.post("/v1/reload")

        assert answer.status == 200
        faults = {fault["key"]: fault for fault in answer.json["faults"]}
        assert {"cron", "comand"} <= set(faults)
        assert (faults["comand"]["job"], faults["comand"]["line"]) == ("nightly", 3)
        assert faults["comand"]["file"].endswith("jobs.toml")
        assert (await daemon.client.value("/v1/jobs/nightly"))["definition"]["shell"] == "echo done"
        assert (await daemon.client.value("/v1/status"))["faults"] == answer.json["faults"]


class TestPreview:
    async def test_preview_tells_what_a_trigger_means(self, standing: Client) -> None:
        """Fire times come in the zone that was asked for, over a clock change, without any job."""
        body = {
            "cron": "30 2 * * *",
            "timezone": "Europe/Berlin",
            "after": "2026-03-28T00:00:00Z",
            "n": 3,
        }
        answer = await standing.post("/v1/preview", body)

        assert answer.json == {
            "items": ["2026-03-28T02:30:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"]
        }
        assert [job["id"] for job in (await standing.value("/v1/jobs"))["items"]] == ["nightly"]

    @pytest.mark.parametrize(
        ("body", "count"),
        [
            ({"every": "15m", "after": "2026-01-01T00:00:00Z", "n": 4}, 4),
            ({"at": "2030-01-01T09:00:00+01:00", "n": 4}, 1),
            ({"delay": 600, "n": 4}, 1),
        ],
    )
    async def test_every_kind_can_be_previewed(
        self, standing: Client, body: dict[str, Any], count: int
    ) -> None:
        """Grids, single times and delays have a meaning, too."""
        assert len((await standing.post("/v1/preview", body)).json["items"]) == count

    @pytest.mark.parametrize(
        ("body", "keys"),
        [
            ({"cron": "99 * * * *"}, ["cron"]),
            ({"cron": "* * * * *", "timezone": "Mars/Olympus"}, ["timezone"]),
            ({"cron": "* * * * *", "n": 0, "unknown": 1}, ["n", "unknown"]),
            ({}, []),
        ],
    )
    async def test_what_means_nothing_is_refused(
        self, standing: Client, body: dict[str, Any], keys: list[str]
    ) -> None:
        """Faults are told as those of a job file, without a job."""
        answer = await standing.post("/v1/preview", body)

        assert (answer.status, answer.json["code"]) == (422, "invalid")
        faults = answer.json.get("faults", [])
        assert sorted(fault["key"] for fault in faults) == keys
        assert all(fault["job"] is None for fault in faults)


class TestDraining:
    async def test_a_draining_daemon_answers_reads_and_takes_no_work(self, daemon: Daemon) -> None:
        """Run, create, edit and reload get 503; reads, pause and cancel work; readyz says no (I12)."""
        client = daemon.client
        await daemon.define('[jobs.long]\nmanual = true\nshell = "sleep 30"\n', file="long.toml")
        run = await daemon.run("long")
        daemon.service.stop()
        await daemon.until("/v1/status", lambda status: status["draining"])

        refused = [
            await client.post("/v1/jobs/nightly/run"),
            await client.post("/v1/jobs", {"id": "x", "manual": True, "command": ["true"]}),
            await client.post("/v1/reload"),
            await client.get("/readyz"),
        ]
        paused = await client.post("/v1/jobs/nightly/pause")
        cancelled = await client.post(f"/v1/runs/{run}/cancel")

        assert [(answer.status, answer.json["code"]) for answer in refused] == [(503, "draining")] * 4
        assert (paused.status, cancelled.status) == (200, 200)
        assert await daemon.life == 0
        assert not client.path.exists()


class TestStore:
    @pytest.mark.parametrize("trouble", ["refuses", "hangs"])
    async def test_reads_do_not_depend_on_recovery(
        self, client: Client, monkeypatch: pytest.MonkeyPatch, trouble: str
    ) -> None:
        """A look at dead claims that fails, or takes long, does not keep a read from its answer."""

        async def look(_: object) -> None:
            if trouble == "refuses":
                raise StoreUnavailable("disk full")
            await asyncio.Event().wait()

        monkeypatch.setattr("scheduler.control.facade.Facade.look", look)
        async with asyncio.timeout(30):
            assert (await client.get("/v1/jobs/nightly")).status == 200

    async def test_lists_are_read_and_shown_one_at_a_time(
        self, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """I15: however many ask at once, one turn of the loop has a slice of one list."""
        under_way, most, slices = 0, 0, views.in_slices

        async def counted(rows: Any, view: Any, breathe: Any) -> Any:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            for _ in range(3):
                await breathe()
            shown = await slices(rows, view, breathe)
            under_way -= 1
            return shown

        monkeypatch.setattr("scheduler.control.routes_jobs.in_slices", counted)
        answers = await asyncio.gather(*(daemon.client.get("/v1/jobs") for _ in range(8)))

        assert [answer.status for answer in answers] == [200] * 8
        assert most == 1

    @pytest.mark.slow
    async def test_a_store_that_cannot_be_written_is_told_and_still_read(self, daemon: Daemon) -> None:
        """While another process holds the write lock verbs answer 503 and reads answer at once (I14)."""
        lock = sqlite3.connect(daemon.folder / "state" / FILE_NAME, isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        try:
            async with asyncio.timeout(4):
                assert (await daemon.client.get("/v1/jobs")).status == 200
            answer = await daemon.client.post("/v1/jobs/nightly/pause")
            health = await daemon.client.get("/healthz")
        finally:
            lock.close()

        assert (answer.status, answer.json["code"]) == (503, "store_unavailable")
        assert (health.status, health.json["code"]) == (503, "store_unavailable")
        assert (await daemon.client.post("/v1/jobs/nightly/pause")).status == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/groups"),
        ("GET", "/v1/jobs/"),
        ("GET", "/"),
    ],
)
async def test_what_comes_later_is_not_there(standing: Client, method: str, path: str) -> None:
    """A route of a later version, or of none, is a 404 like any other."""
    answer = await standing.ask(method, path)

    assert (answer.status, answer.json["code"]) == (404, "not_found")
