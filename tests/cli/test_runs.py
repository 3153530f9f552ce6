from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from scheduler.clock import SECOND, to_micros
from tests.cli.conftest import Schedctl
from tests.cli.support.builders import OTHER_RUN, RUN, job, run
from tests.cli.support.client import call_on_terminal
from tests.cli.support.stub import StubDaemon, problem


def test_runs_lists_history_with_reasons(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """One line a run: state, fire time, how long it took, and why it did not succeed."""
    daemon.runs(
        run(state="failed", reason="exit_code", exit_code=3),
        run(OTHER_RUN, state="skipped", reason="overlap", count=12, started_at=None, finished_at=None),
    )

    titles, failed, skipped = schedctl("runs").out.splitlines()

    assert titles.split() == ["RUN", "JOB", "STATE", "FIRE", "TIME", "TOOK", "WHAT"]
    assert failed.startswith(f"{RUN}  nightly  failed")
    assert failed.endswith("1 min  exit_code, exit 3")
    assert skipped.endswith("-      overlap, 12 fire times")


def test_runs_of_a_job_ask_for_that_job(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """Job, state and limit are parameters of the question; the job is no column of the answer."""
    daemon.runs(run(state="failed"))

    called = schedctl("runs", "nightly", "--state", "failed", "--limit", "5")

    assert daemon.asked[-1].query == {"job": "nightly", "state": "failed", "limit": "5"}
    assert "JOB" not in called.out


@pytest.mark.parametrize("since", ["2h", "2026-10-01T02:30+02:00", "2026-10-01 00:30"])
def test_since_is_a_time_or_a_time_ago(
    schedctl: Schedctl, daemon: StubDaemon, monkeypatch: pytest.MonkeyPatch, since: str
) -> None:
    """The daemon gets RFC 3339, whatever was written."""
    schedctl("runs", "--since", since)

    asked = datetime.fromisoformat(daemon.asked[-1].query["since"])
    if since == "2h":
        ago = datetime.now(asked.tzinfo) - asked
        assert timedelta(hours=2) <= ago < timedelta(hours=2, seconds=30)
    else:
        assert to_micros(asked) % SECOND == 0
        meant = datetime.fromisoformat(since)
        assert asked == (meant if meant.tzinfo else meant.astimezone())


def test_runs_of_an_unknown_job_are_not_an_empty_history(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """A misspelt id is exit 3 with the nearest; a job that never ran is exit 0."""
    daemon.jobs(job("nightly"))

    assert schedctl("runs", "nightli").code == 3
    assert schedctl("runs", "nightly").out == "no runs\n"


def test_runs_json_is_one_line_each(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """The lines are the objects of the control API."""
    daemon.runs(run(), run(OTHER_RUN))

    assert schedctl("runs", "--json").lines == [run(), run(OTHER_RUN)]


@pytest.mark.parametrize("width", [60, 200])
def test_runs_fit_the_terminal(daemon: StubDaemon, environ: dict[str, str], width: int) -> None:
    """A run's id is never broken, so that it can be copied; where a table is too wide, rows are stacked."""
    daemon.runs(run(state="failed", reason="exit_code", exit_code=3, message="no such file: /srv/export"))

    called = call_on_terminal("runs", env=environ, width=width)

    assert max(len(line) for line in called.plain.splitlines()) <= width
    assert RUN in called.plain
    assert "✗ failed" in called.plain
    assert "no such file" in called.plain


def accepts(daemon: StubDaemon, verb: str, *runs: dict[str, Any]) -> None:
    """The verb is accepted for these runs."""
    for each in runs:
        daemon.on("POST", f"/v1/runs/{each['id']}/{verb}", each)


def test_cancel_ends_one_run(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """The run is told with its wish: it may take its grace to end."""
    live = run(state="running", wish="cancel", finished_at=None)
    daemon.runs(live)
    accepts(daemon, "cancel", live)

    called = schedctl("cancel", RUN)

    assert called.code == 0
    assert called.out == f"nightly run {RUN} running wish cancel\n"


@pytest.mark.parametrize("name", ["nightly", "night*"])
def test_cancel_of_a_job_ends_what_is_live_or_queued(
    schedctl: Schedctl, daemon: StubDaemon, name: str
) -> None:
    """Ended runs are left alone."""
    live, queued = run(RUN, state="running"), run(OTHER_RUN, state="queued")
    ended = run("0193f2c6-0000-7abc-8000-0123456789ab")
    daemon.jobs(job("nightly"))
    daemon.runs(live, queued, ended)
    accepts(daemon, "cancel", live, queued)

    called = schedctl("cancel", name)

    assert called.code == 0
    assert {path for _, path, _ in daemon.mutations()} == {
        f"/v1/runs/{RUN}/cancel",
        f"/v1/runs/{OTHER_RUN}/cancel",
    }


def test_cancel_of_a_job_at_rest_is_a_conflict(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """Exit 4: nothing was there to cancel."""
    daemon.jobs(job("nightly"))
    daemon.runs(run())

    called = schedctl("cancel", "nightly")

    assert called.code == 4
    assert "nightly has no run that is live or queued" in called.err


def test_cancel_takes_the_beginning_of_a_run(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """Where no job has that name."""
    live = run(state="running")
    daemon.runs(live)
    accepts(daemon, "cancel", live)

    assert schedctl("cancel", "0193f2c4-7a").code == 0


def test_retry_runs_an_ended_run_again(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """The run keeps its id and is queued."""
    daemon.runs(run(state="failed"))
    accepts(daemon, "retry", run(state="queued"))

    called = schedctl("retry", RUN, "--json")

    assert called.json["state"] == "queued"


def test_retry_does_not_take_a_job(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """Which of its runs would be meant is not guessed."""
    daemon.jobs(job("nightly"))

    called = schedctl("retry", "nightly")

    assert called.code == 4
    assert "retry takes a run, and nightly is a job" in called.err


def test_retry_now_of_a_job_hurries_its_waiting_run(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """Only runs that wait are meant."""
    waiting = run(state="waiting")
    daemon.jobs(job("nightly"))
    daemon.runs(waiting, run(OTHER_RUN))
    accepts(daemon, "retry-now", waiting)

    assert schedctl("retry-now", "nightly").code == 0
    assert daemon.mutations() == [("POST", f"/v1/runs/{RUN}/retry-now", {})]


def test_a_refused_verb_does_not_stop_the_others(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """Each run is tried; the exit code is the worst."""
    daemon.runs(run(), run(OTHER_RUN, state="failed"))
    daemon.on("POST", f"/v1/runs/{RUN}/retry", problem(409, "conflict", "it succeeded"))
    accepts(daemon, "retry", run(OTHER_RUN, state="queued"))

    called = schedctl("retry", RUN, OTHER_RUN)

    assert called.code == 4
    assert called.err == "schedctl: it succeeded\n"
    assert OTHER_RUN in called.out
