from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.conftest import Schedctl
from tests.cli.support.builders import RUN, job
from tests.cli.support.client import call
from tests.cli.support.stub import StubDaemon, problem

WINTER = ["2026-10-24T02:30:00+02:00", "2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"]


def test_next_of_a_job_shows_zone_and_local_time(daemon: StubDaemon, environ: dict[str, str]) -> None:
    """The job's own zone with weekday, this machine's zone, and how far it is."""
    daemon.on("GET", "/v1/jobs/nightly/next", {"items": ["2037-01-01T02:30:00+01:00"]})

    called = call("next", "nightly", "-n", "1", env=environ)

    head, line = called.out.splitlines()
    assert re.split(r"  +", head) == ["FIRE TIME", "LOCAL", "WHEN"]
    assert line.startswith("Thu 2037-01-01 02:30:00+01:00  2037-01-01 01:30:00+00:00  in ")
    assert daemon.asked[0].query == {"n": "1"}


def test_next_leaves_out_the_local_column_where_it_says_the_same(
    daemon: StubDaemon, environ: dict[str, str]
) -> None:
    """One column of times is enough for one zone."""
    daemon.on("GET", "/v1/jobs/nightly/next", {"items": ["2037-01-01T02:30:00+00:00"]})

    assert "LOCAL" not in call("next", "nightly", env=environ).out


def test_next_of_a_job_without_times_says_so(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """A manual job has none; that is no error."""
    daemon.on("GET", "/v1/jobs/nightly/next", {"items": []})

    assert schedctl("next", "nightly").out == "no fire time is coming; `schedctl why nightly` tells why\n"
    assert schedctl("next", "nightly", "--json").json == {"items": []}


def test_next_of_an_unknown_job_names_the_nearest(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """Exit 3."""
    daemon.jobs(job("nightly"))

    called = schedctl("next", "nightli")

    assert called.code == 3
    assert "did you mean nightly?" in called.err


def test_next_of_an_expression_is_asked_of_the_daemon(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """The daemon knows the default zone; what it says is shown."""
    daemon.on("POST", "/v1/preview", {"items": WINTER})

    called = schedctl(
        "next", "--cron", "30 2 * * *", "--timezone", "Europe/Berlin",
        "--after", "2026-10-24T00:00+02:00", "-n", "3", "--json",
    )  # fmt: skip

    assert called.json == {"items": WINTER}
    assert daemon.mutations() == [
        (
            "POST",
            "/v1/preview",
            {"cron": "30 2 * * *", "timezone": "Europe/Berlin", "after": "2026-10-23T22:00:00+00:00", "n": 3},
        )
    ]


def test_a_bad_expression_is_invalid(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """Exit 2 with the daemon's words."""
    daemon.on("POST", "/v1/preview", problem(422, "invalid", "minute 61 is out of range"))

    assert schedctl("next", "--cron", "61 * * * *").code == 2


@pytest.mark.parametrize(
    ("arguments", "times"),
    [
        (["--cron", "30 2 * * *", "--timezone", "Europe/Berlin", "-n", "3"], WINTER),
        (["--every", "12h", "-n", "2"], ["2026-10-24T00:00:00+00:00", "2026-10-24T12:00:00+00:00"]),
        (["--delay", "10m", "-n", "5"], ["2026-10-23T22:10:00+00:00"]),
        (["--at", "2027-01-01 09:00", "--timezone", "Europe/Berlin"], ["2027-01-01T09:00:00+01:00"]),
        (["--at", "2020-01-01T00:00Z"], []),
    ],
)
def test_next_of_an_expression_works_without_a_daemon(
    folder: Path, environ: dict[str, str], arguments: list[str], times: list[str]
) -> None:
    """The same triggers answer here; a line on stderr says so."""
    alone = {**environ, "SCHEDULER_SOCKET": str(folder / "none.sock")}

    called = call("next", *arguments, "--after", "2026-10-24T00:00+02:00", "--json", env=alone)

    assert called.code == 0
    assert called.json == {"items": times}
    assert "no daemon answers: worked out here" in called.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--cron", "61 * * * *"],
        ["--every", "soon"],
        ["--at", "soon"],
        ["--cron", "* * * * *", "--timezone", "Mars"],
    ],
)
def test_a_bad_expression_is_usage_without_a_daemon_too(
    folder: Path, environ: dict[str, str], arguments: list[str]
) -> None:
    """Exit 2, as the daemon would have it."""
    called = call("next", *arguments, env={**environ, "SCHEDULER_SOCKET": str(folder / "none.sock")})

    assert called.code == 2
    assert called.out == ""


def test_why_gives_the_one_reason_and_the_next_moment(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """Code, message, since when, which run, and when it can run."""
    answer = {
        "job": "nightly",
        "blocked": True,
        "code": "overlap",
        "message": "run R is still live",
        "since": "2026-10-01T00:00:00+00:00",
        "next_possible_at": "2037-01-01T01:30:00+00:00",
        "run_id": RUN,
    }
    daemon.on("GET", "/v1/jobs/nightly/why", answer)

    told = schedctl("why", "nightly").out

    assert told.startswith("nightly: overlap\n")
    for text in ("run R is still live", "2026-10-01", RUN, "2037-01-01"):
        assert text in told
    assert schedctl("why", "nightly", "--json").json == answer


def test_why_of_an_unknown_job_names_the_nearest(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """Exit 3."""
    daemon.jobs(job("nightly"))

    assert "did you mean nightly?" in schedctl("why", "nightli").err


def test_why_at_asks_about_that_fire_time(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """The daemon gets the instant, whatever zone it was written in."""
    daemon.on(
        "GET", "/v1/jobs/nightly/why", {"job": "nightly", "blocked": False, "code": "ran", "run_id": RUN}
    )

    called = schedctl("why", "nightly", "--at", "2026-10-01T02:30+02:00")

    assert called.out.startswith("nightly: ran\n")
    assert RUN in called.out
    assert daemon.asked[-1].query == {"at": "2026-10-01T00:30:00+00:00"}
