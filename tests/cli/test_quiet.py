"""`-q`: less on stdout, the same exit codes, errors as ever."""

from __future__ import annotations

from tests.cli.conftest import Schedctl
from tests.cli.support.builders import OTHER_RUN, RUN, job, run
from tests.cli.support.stub import StubDaemon


def test_lists_are_ids_alone(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """One a line, for scripts; nothing at all where there are none."""
    assert schedctl("list", "-q").out == ""
    assert schedctl("runs", "-q").out == ""
    daemon.jobs(job("a"), job("b"))
    daemon.runs(run(RUN), run(OTHER_RUN))

    assert schedctl("list", "-q").out == "a\nb\n"
    assert schedctl("runs", "--quiet").out == f"{RUN}\n{OTHER_RUN}\n"


def test_verbs_that_change_something_are_silent(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """The exit code tells; an error is told as ever."""
    daemon.jobs(job("a"))
    daemon.on("POST", "/v1/jobs/a/pause", {"job": job("a"), "runs": []})

    done = schedctl("pause", "a", "-q")
    refused = schedctl("pause", "b", "-q")

    assert (done.code, done.out, done.err) == (0, "", "")
    assert (refused.code, refused.out) == (3, "")
    assert refused.err.startswith("schedctl: there is no ")


def test_json_stays(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """Who asks for JSON gets it."""
    daemon.jobs(job("a"))
    daemon.on("POST", "/v1/jobs/a/pause", {"job": job("a"), "runs": []})

    assert schedctl("pause", "a", "-q", "--json").json["job"]["id"] == "a"


def test_items_are_their_keys_alone(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """One a line, for `schedctl item` and `retry --items`; nothing at all where there are none."""
    daemon.runs(run(RUN))
    daemon.page(f"/v1/runs/{RUN}/items", [])
    assert schedctl("items", RUN, "-q").out == ""
    daemon.page(f"/v1/runs/{RUN}/items", [{"key": "a", "state": "done"}, {"key": "b c", "state": "failed"}])

    assert schedctl("items", RUN, "-q").out == "a\nb c\n"
