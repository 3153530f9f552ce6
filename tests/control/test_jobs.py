"""Reading jobs, and the verbs that change how they live."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from typing import Any

import pytest

from scheduler.control.models import JobPage
from tests.control.support.client import Client
from tests.control.support.serving import Daemon

EACH_KIND = """
[jobs.a-cron]
cron = "30 2 * * *"
timezone = "Europe/Berlin"
shell = "true"
description = "grün, \\"quoted\\" and \\u2028"
labels = ["x", "y"]
on_failure = "https://user:secret@example.org/"
[jobs.b-every]
every = "1500ms"
command = ["true", "a b"]
[jobs.c-delay]
delay = "1h"
python = "json:dumps"
args = { obj = [1, 1.5, 1e16, -0.0, "ü", { z = [] }] }
[jobs.d-at]
at = 2099-01-01T09:00:00+01:00
timezone = "America/New_York"
command = ["true"]
[jobs.e-manual]
manual = true
command = ["true"]
"""

JOB_FIELDS = [
    "id",
    "description",
    "status",
    "revision",
    "definition_revision",
    "trigger",
    "action",
    "next_fire_at",
    "last_run",
    "live_runs",
    "pause",
    "enabled",
    "problem",
    "group",
    "labels",
    "origin",
    "origin_file",
    "definition",
]


class TestShow:
    async def test_a_job_has_the_fields_of_the_contract(self, client: Client) -> None:
        """A job shows its definition and its live state, nothing more and nothing less."""
        job = await client.value("/v1/jobs/nightly")

        assert list(job) == JOB_FIELDS
        assert job["trigger"] == {"kind": "cron", "cron": "30 2 29 2 *", "timezone": "Europe/Berlin"}
        assert job["action"] == {"kind": "shell", "shell": "echo done"}
        assert (job["status"], job["enabled"], job["origin"]) == ("active", True, "file")
        assert (job["pause"], job["problem"], job["last_run"], job["live_runs"]) == (None, None, None, [])
        assert job["definition"]["shell"] == "echo done"

    async def test_fire_times_bear_the_offset_of_the_jobs_zone(self, client: Client) -> None:
        """The next fire time is RFC 3339 in the zone of the job."""
        job = await client.value("/v1/jobs/nightly")

        moment = datetime.fromisoformat(job["next_fire_at"])
        assert moment.utcoffset() == timedelta(hours=1)
        assert (moment.month, moment.day, moment.hour, moment.minute) == (2, 29, 2, 30)

    async def test_the_etag_is_the_revision_of_the_definition(self, client: Client) -> None:
        """A pause moves the revision, but neither the definition's nor the ETag."""
        before = await client.get("/v1/jobs/nightly")
        await client.post("/v1/jobs/nightly/pause")
        after = await client.get("/v1/jobs/nightly")

        assert before.headers["etag"] == after.headers["etag"] == f'"{before.json["definition_revision"]}"'
        assert after.json["revision"] > before.json["revision"]

    @pytest.mark.parametrize("id", ["absent", "UPPER", "a%20b", "x" * 65, "%1b%5b31m", "..%2fetc"])
    async def test_a_job_that_is_not_there_is_told_as_such(self, standing: Client, id: str) -> None:
        """An unknown or impossible id is 404, told without control characters."""
        answer = await standing.get(f"/v1/jobs/{id}")

        assert (answer.status, answer.json["code"]) == (404, "not_found")
        assert answer.json["detail"].isprintable()


class TestList:
    @pytest.fixture
    async def several(self, daemon: Daemon) -> Daemon:
        jobs = "".join(
            f'[jobs.job-{number}]\nmanual = true\ncommand = ["true"]\n'
            + ('labels = ["even"]\n' if number % 2 == 0 else "")
            for number in range(7)
        )
        await daemon.define(jobs, file="several.toml")
        return daemon

    async def test_filters_choose(self, several: Daemon) -> None:
        """Status, label and words choose among the jobs."""
        await several.client.post("/v1/jobs/job-3/pause")

        assert await ids(several.client, "status=paused") == ["job-3"]
        assert await ids(several.client, "label=even") == ["job-0", "job-2", "job-4", "job-6"]
        assert await ids(several.client, "q=Export") == ["nightly"]
        assert await ids(several.client, "group=none") == []

    async def test_a_page_is_what_the_document_says_to_the_byte(self, daemon: Daemon) -> None:
        """Each job in it is as it is shown by itself, and the documented model would write it the same."""
        await daemon.define(EACH_KIND, file="each.toml")
        await daemon.client.post("/v1/jobs/b-every/pause", {"note": "grün"})
        await daemon.until_run(await daemon.run("e-manual"), "succeeded")

        answer = await daemon.client.get("/v1/jobs?limit=100")

        assert JobPage.model_validate_json(answer.body).model_dump_json().encode() == answer.body
        shown = [await daemon.client.value(f"/v1/jobs/{job['id']}") for job in answer.json["items"]]
        assert answer.json["items"] == shown
        assert [job["trigger"]["kind"] for job in shown[:5]] == ["cron", "every", "delay", "at", "manual"]
        assert shown[4]["last_run"] is not None
        assert "secret" not in answer.text

    async def test_pages_are_stable_while_jobs_come_and_go(self, several: Daemon) -> None:
        """A job that is there all the time comes exactly once, whatever comes and goes between two pages."""
        client = several.client
        first = await client.value("/v1/jobs?limit=3")
        await client.post("/v1/jobs", {"id": "a-new-one", "manual": True, "command": ["true"]})
        await several.define(
            "".join(f'[jobs.job-{n}]\nmanual = true\ncommand = ["true"]\n' for n in range(3, 7)),
            file="several.toml",
        )
        rest = await client.value(f"/v1/jobs?limit=100&cursor={first['next_cursor']}")

        assert [job["id"] for job in first["items"]] == ["job-0", "job-1", "job-2"]
        assert [job["id"] for job in rest["items"]] == ["job-3", "job-4", "job-5", "job-6", "nightly"]
        assert rest["next_cursor"] is None

    async def test_a_last_page_that_is_full_says_that_it_is_the_last(self, several: Daemon) -> None:
        """There is no cursor to an empty page."""
        page = await several.client.value("/v1/jobs?limit=8")

        assert len(page["items"]) == 8
        assert page["next_cursor"] is None

    @pytest.mark.parametrize(
        ("query", "keys"),
        [
            ("statsu=paused", ["statsu"]),
            ("status=sleeping&limit=0", ["limit", "status"]),
            ("limit=many&nope=1&also=2", ["also", "limit", "nope"]),
            ("limit=1001", ["limit"]),
            ("cursor=cnVuczox", ["cursor"]),
            ("cursor=!", ["cursor"]),
        ],
    )
    async def test_bad_parameters_are_refused_all_at_once(
        self, standing: Client, query: str, keys: list[str]
    ) -> None:
        """Every unknown or impossible parameter is listed, with what to write instead."""
        answer = await standing.get(f"/v1/jobs?{query}")

        assert (answer.status, answer.json["code"]) == (422, "invalid")
        assert sorted(fault["key"] for fault in answer.json["faults"]) == keys

    async def test_an_unknown_parameter_gets_the_nearest_name(self, client: Client) -> None:
        """A typing mistake is answered with the parameter that was meant."""
        answer = await client.get("/v1/jobs?labl=x")

        assert answer.json["faults"][0]["message"] == 'unknown key "labl": did you mean label?'


class TestPause:
    async def test_a_pause_tells_who_why_and_what_is_in_flight(self, daemon: Daemon) -> None:
        """The answer is the job as it is after the commit, with its live runs."""
        await daemon.define('[jobs.long]\nmanual = true\nshell = "sleep 30"\n', file="long.toml")
        run = await daemon.run("long")

        answer = await daemon.client.post("/v1/jobs/long/pause", {"reason": "maintenance"})

        assert answer.status == 200
        job = answer.json["job"]
        assert job["status"] == "paused"
        assert {key: job["pause"][key] for key in ("reason", "note", "by", "mode", "until")} == {
            "reason": "operator",
            "note": "maintenance",
            "by": f"uid:{os.geteuid()}",
            "mode": "drain",
            "until": None,
        }
        assert [(live["id"], live["wish"]) for live in answer.json["runs"]] == [(run, "run")]

    async def test_mode_cancel_ends_the_run(self, daemon: Daemon) -> None:
        """The run in flight is cancelled by the pause."""
        await daemon.define('[jobs.long]\nmanual = true\nshell = "sleep 30"\n', file="long.toml")
        run = await daemon.run("long")

        await daemon.client.post("/v1/jobs/long/pause", {"mode": "cancel"})

        assert (await daemon.until_run(run, "cancelled"))["reason"] == "cancelled"

    @pytest.mark.parametrize(
        ("body", "keys"),
        [
            ({"for": "soon"}, ["for"]),
            ({"for": 0}, ["for"]),
            ({"for": True}, ["for"]),
            ({"until": "2030-01-01T00:00:00"}, ["until"]),
            ({"until": "9999-01-01T00:00:00Z"}, ["until"]),
            ({"until": "2030-01-01T00:00:00Z", "for": 60}, ["for"]),
        ],
    )
    async def test_an_end_that_is_none_is_refused(
        self, standing: Client, body: dict[str, Any], keys: list[str]
    ) -> None:
        """A pause whose end cannot be understood, or is named twice, is none: nothing is paused."""
        answer = await standing.post("/v1/jobs/nightly/pause", body)

        assert (answer.status, answer.json["code"]) == (422, "invalid")
        assert [fault["key"] for fault in answer.json["faults"]] == keys
        assert (await standing.value("/v1/jobs/nightly"))["status"] == "active"

    @pytest.mark.parametrize(
        ("body", "keys"),
        [
            ({"mode": "sleep"}, ["mode"]),
            ({"mod": "drain", "resaon": "x"}, ["mod", "resaon"]),
            ({"reason": 7, "mode": None}, ["mode", "reason"]),
            ([], [None]),
            ("drain", [None]),
        ],
    )
    async def test_bad_fields_are_refused_all_at_once(
        self, standing: Client, body: Any, keys: list[str | None]
    ) -> None:
        """Every unknown or impossible field is listed, and nothing is paused."""
        answer = await standing.post("/v1/jobs/nightly/pause", body)

        assert (answer.status, answer.json["code"]) == (422, "invalid")
        assert sorted(fault["key"] for fault in answer.json["faults"] if fault["key"]) == [
            k for k in keys if k
        ]
        assert (await standing.value("/v1/jobs/nightly"))["status"] == "active"

    async def test_resume_computes_from_now(self, client: Client) -> None:
        """A resumed job is active and has a next fire time again."""
        await client.post("/v1/jobs/nightly/pause")
        answer = await client.post("/v1/jobs/nightly/resume", {"missed": "latest"})

        assert answer.json["job"]["status"] == "active"
        assert answer.json["job"]["next_fire_at"] is not None
        assert (await client.post("/v1/jobs/nightly/resume")).json["job"]["status"] == "active"


class TestRun:
    async def test_a_manual_run_does_not_move_the_schedule(self, client: Client) -> None:
        """The answer is 202 with the run; the next fire time is the same before and after (B46)."""
        before = await client.value("/v1/jobs/nightly")
        answer = await client.post("/v1/jobs/nightly/run")
        after = await client.value("/v1/jobs/nightly")

        assert answer.status == 202
        assert answer.headers["location"] == f"/v1/runs/{answer.json['id']}"
        assert (answer.json["trigger"], answer.json["fire_time"]) == ("manual", None)
        assert before["next_fire_at"] == after["next_fire_at"]

    async def test_a_second_start_is_refused_and_names_the_run(self, daemon: Daemon) -> None:
        """While a run is live a start answers 409 with its id (B46, I2)."""
        await daemon.define('[jobs.long]\nmanual = true\nshell = "sleep 30"\n', file="long.toml")
        run = await daemon.run("long")

        answer = await daemon.client.post("/v1/jobs/long/run")

        assert (answer.status, answer.json["code"]) == (409, "already_running")
        assert answer.json["run_id"] == run

    async def test_arguments_reach_the_run(self, daemon: Daemon) -> None:
        """The run gets the arguments of the request, exactly, instead of the job's."""
        await daemon.define('[jobs.echo]\nmanual = true\nshell = "echo $SCHEDULER_ARGS"\n', file="echo.toml")
        run = await daemon.run("echo", args={"n": 2**70, "text": "ä"})
        await daemon.until_run(run, "succeeded")

        output = (await daemon.client.get(f"/v1/runs/{run}/output")).text
        assert str(2**70) in output

    async def test_listing_changes_nothing(self, client: Client) -> None:
        """Twenty looks leave every row as it was (B46)."""
        before = await client.value("/v1/jobs/nightly")
        for _ in range(20):
            await client.value("/v1/jobs")

        assert await client.value("/v1/jobs/nightly") == before


class TestTimes:
    async def test_next_lists_what_will_fire(self, client: Client) -> None:
        """The first of the coming times is the job's next fire time, and each is later than the last."""
        job = await client.value("/v1/jobs/nightly")
        times = (await client.value("/v1/jobs/nightly/next?n=3"))["items"]

        assert times[0] == job["next_fire_at"]
        assert len(times) == 3
        assert sorted(map(datetime.fromisoformat, times)) == [datetime.fromisoformat(at) for at in times]

    async def test_a_paused_job_has_no_coming_times(self, client: Client) -> None:
        """What does not fire is not listed."""
        await client.post("/v1/jobs/nightly/pause")

        assert (await client.value("/v1/jobs/nightly/next")) == {"items": []}

    async def test_a_delay_has_one_coming_time(self, daemon: Daemon) -> None:
        """The time after the next one depends on the end of a run, so it is not told."""
        await daemon.define('[jobs.poll]\ndelay = "1h"\ncommand = ["true"]\n', file="poll.toml")

        assert len((await daemon.client.value("/v1/jobs/poll/next?n=5"))["items"]) == 1

    async def test_skip_next_passes_over(self, client: Client) -> None:
        """The next fire time is the third one, and the row of the skip tells so."""
        times = (await client.value("/v1/jobs/nightly/next?n=3"))["items"]
        answer = await client.post("/v1/jobs/nightly/skip-next", {"n": 2})

        assert answer.json["job"]["next_fire_at"] == times[2]
        skip = (await client.value("/v1/runs?job=nightly&state=skipped"))["items"][0]
        assert (skip["count"], skip["reason"]) == (2, "paused")

    async def test_why_tells_the_one_reason(self, client: Client) -> None:
        """A paused job says who paused it."""
        await client.post("/v1/jobs/nightly/pause", {"reason": "maintenance"})
        why = await client.value("/v1/jobs/nightly/why")

        assert (why["job"], why["blocked"], why["code"]) == ("nightly", True, "paused")
        assert "maintenance" in why["message"]

    async def test_why_at_takes_a_time_as_people_type_it(self, client: Client) -> None:
        """The + of an offset survives a query string in which nobody escaped it; no time is a fault."""
        asked = await client.get("/v1/jobs/nightly/why?at=2020-01-01T02:30:00+01:00")
        naive = await client.get("/v1/jobs/nightly/why?at=2020-01-01T02:30:00")

        assert asked.status == 200
        assert (naive.status, naive.json["faults"][0]["key"]) == (422, "at")


async def test_the_audit_names_the_peer(client: Client) -> None:
    """Each mutation is on record with uid, gid, pid and command of its author, as the kernel knows them."""
    await client.post("/v1/jobs/nightly/pause", {"reason": "why not"})
    page = await client.value("/v1/jobs/nightly/audit?limit=1")

    entry = page["items"][0]
    assert (entry["verb"], entry["job"]) == ("pause", "nightly")
    assert {key: entry["by"][key] for key in ("uid", "gid", "pid")} == {
        "uid": os.geteuid(),
        "gid": os.getegid(),
        "pid": os.getpid(),
    }
    assert "python" in entry["by"]["command"]
    rest = await client.value(f"/v1/jobs/nightly/audit?cursor={page['next_cursor']}")
    assert [older["verb"] for older in rest["items"]] == ["add"]


async def ids(client: Client, query: str) -> list[str]:
    return [job["id"] for job in (await client.value(f"/v1/jobs?{query}"))["items"]]
