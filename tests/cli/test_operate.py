from __future__ import annotations

import re
from typing import Any

import pytest

from tests.cli.conftest import Schedctl
from tests.cli.support.builders import RUN, job, run
from tests.cli.support.stub import Answer, StubDaemon, problem


def answers(daemon: StubDaemon, verb: str, *ids: str, **changes: Any) -> None:
    """The verb is accepted for these jobs."""
    for id in ids:
        daemon.on("POST", f"/v1/jobs/{id}/{verb}", {"job": job(id, **changes), "runs": []})


def test_pause_says_what_it_did_and_what_is_in_flight(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """The answer comes after the commit; the run that goes on is named with its wish."""
    live = run(state="running", finished_at=None, wish="cancel")
    daemon.on(
        "POST", "/v1/jobs/nightly/pause", {"job": job(status="paused", next_fire_at=None), "runs": [live]}
    )

    called = schedctl("pause", "nightly", "--mode", "cancel", "--reason", "disk is full")

    assert called.code == 0
    assert called.out.splitlines()[0] == "nightly paused"
    assert f"in flight: run {RUN} running" in called.out
    assert "wish cancel" in called.out
    assert daemon.mutations() == [
        ("POST", "/v1/jobs/nightly/pause", {"mode": "cancel", "reason": "disk is full"})
    ]


def test_a_pause_with_an_end_says_until_when(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """A slip in the unit of `--for` is seen at once."""
    pause = {"until": "2037-01-01T00:00:00+00:00", "mode": "drain", "reason": "operator", "by": "uid:0"}
    answers(daemon, "pause", "a", status="paused", next_fire_at=None, pause=pause)

    called = schedctl("pause", "a", "--for", "1")

    assert re.fullmatch(r"a paused until 2037-01-01 00:00\+00:00 \(in \d+ d\)\n", called.out)


def test_pause_drains_unless_told_otherwise(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """The default mode is sent in so many words."""
    answers(daemon, "pause", "a", status="paused")

    schedctl("pause", "a")

    assert daemon.mutations() == [("POST", "/v1/jobs/a/pause", {"mode": "drain"})]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (["export-*"], ["export-a", "export-b"]),
        (["export-?", "backup"], ["backup", "export-a", "export-b"]),
        (["*"], ["backup", "export-a", "export-b"]),
        (["--group", "g", "--all"], ["export-b"]),
        (["--group", "g"], ["export-b"]),
        (["--group", "g", "export-*"], ["export-b"]),
        (["backup", "backup", "export-b"], ["backup", "export-b"]),
    ],
)
def test_jobs_are_chosen_by_id_glob_or_group(
    schedctl: Schedctl, daemon: StubDaemon, choice: list[str], expected: list[str]
) -> None:
    """Each chosen job is paused once, over all pages of the list."""
    jobs = [job("backup"), job("export-a"), job("export-b", group="g")]
    daemon.jobs(*jobs)
    daemon.page("/v1/jobs", jobs, size=1)
    answers(daemon, "pause", "backup", "export-a", "export-b")

    called = schedctl("pause", *choice)

    assert called.code == 0
    assert [path.split("/")[3] for _, path, _ in daemon.mutations()] == expected


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_all_is_said_once(schedctl: Schedctl, daemon: StubDaemon, verb: str) -> None:
    """`--all` is one request about everything, and looks at no job."""
    daemon.on("POST", f"/v1/{verb}", {"paused": None, "runs": []})

    called = schedctl(verb, "--all")

    assert called.code == 0
    assert [(method, path) for method, path, _ in daemon.mutations()] == [("POST", f"/v1/{verb}")]


@pytest.mark.parametrize("choice", [["nope-*"], ["export-a", "nope-*"], ["--group", "none"]])
def test_a_choice_that_matches_nothing_changes_nothing(
    schedctl: Schedctl, daemon: StubDaemon, choice: list[str]
) -> None:
    """A misspelt glob or group is exit 3, before the first job is touched."""
    daemon.jobs(job("export-a"))

    called = schedctl("pause", *choice)

    assert called.code == 3
    assert daemon.mutations() == []


def test_several_jobs_end_with_the_worst_exit_code(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """A refusal is told and the next job is tried."""
    daemon.jobs(job("a"), job("b"), job("c"))
    answers(daemon, "resume", "a", "c")
    daemon.on("POST", "/v1/jobs/b/resume", problem(409, "conflict", "b is completed"))

    called = schedctl("resume", "a", "nightly", "b", "c")

    assert called.code == 4
    assert [line.split()[0] for line in called.out.splitlines()] == ["a", "c"]
    assert called.err.splitlines()[0].startswith("schedctl: there is no ")
    assert called.err.splitlines()[1] == "schedctl: b is completed"


def test_json_has_one_line_for_each_job(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """The answer of the API for what was done, `id` and `error` for what was not."""
    answers(daemon, "resume", "a")
    daemon.on("POST", "/v1/jobs/b/resume", problem(409, "conflict", "b is completed", hint="edit it"))

    called = schedctl("resume", "a", "b", "--json")

    assert called.code == 4
    assert called.lines == [
        {"job": job("a"), "runs": []},
        {"id": "b", "error": {"code": "conflict", "message": "b is completed", "hint": "edit it"}},
    ]


def test_a_daemon_that_goes_away_ends_the_rest(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """The jobs after it are not waited for one by one."""
    daemon.on("POST", "/v1/jobs/a/resume", Answer(body=[]))  # not an object: no answer of ours

    called = schedctl("resume", "a", "b", "c")

    assert called.code == 6
    assert len(daemon.mutations()) == 1


def test_resume_passes_on_what_to_do_about_missed_times(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """Without the option the daemon's default holds."""
    answers(daemon, "resume", "a")

    schedctl("resume", "a")
    schedctl("resume", "a", "--missed", "latest")

    assert [body for _, _, body in daemon.mutations()] == [{}, {"missed": "latest"}]


def test_skip_next_names_how_many(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """One by default; the new next fire is shown."""
    answers(daemon, "skip-next", "a")

    schedctl("skip-next", "a")
    called = schedctl("skip-next", "a", "-n", "3")

    assert [body for _, _, body in daemon.mutations()] == [{"n": 1}, {"n": 3}]
    assert "next fire 2037-01-01" in called.out
