from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tests.cli.conftest import Schedctl
from tests.cli.support.builders import OTHER_RUN, RUN, job, run
from tests.cli.support.client import call_on_terminal, command
from tests.cli.support.stub import Answer, Asked, StubDaemon, problem


def starts(daemon: StubDaemon, id: str = RUN, job: str = "nightly") -> None:
    """The job starts when it is told to."""
    queued = run(id, job, state="queued", trigger="manual", started_at=None, finished_at=None)
    daemon.on("POST", f"/v1/jobs/{job}/run", Answer(status=202, body=queued))


def goes(daemon: StubDaemon, states: Iterable[dict[str, Any]], id: str = RUN) -> None:
    """Each look at the run finds the next of these; the last one stays."""
    left = list(states)

    def look(asked: Asked) -> Answer:
        return Answer(body=left.pop(0) if len(left) > 1 else left[0])

    daemon.on("GET", f"/v1/runs/{id}", look)


def going(**changes: Any) -> dict[str, Any]:
    return run(state="running", finished_at=None, **changes)


def test_run_starts_and_leaves(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """Without `--wait` the run's id and state are told at once."""
    starts(daemon)

    called = schedctl("run", "nightly")

    assert called.code == 0
    assert called.out == f"nightly run {RUN} queued\n"
    assert daemon.mutations() == [("POST", "/v1/jobs/nightly/run", {})]


def test_run_passes_on_its_options(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """Arguments are sent as JSON, the rest by name."""
    starts(daemon)

    schedctl("run", "nightly", "--args", '{"region": "eu"}', "--overlap", "queue", "--new")

    assert daemon.mutations()[0][2] == {"args": {"region": "eu"}, "overlap": "queue", "new": True}


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ({"state": "succeeded"}, 0),
        ({"state": "failed", "reason": "exit_code", "exit_code": 3}, 1),
        ({"state": "partial", "reason": "unknown_items"}, 1),
        ({"state": "cancelled"}, 1),
        ({"state": "crashed"}, 1),
        ({"state": "interrupted"}, 1),
        ({"state": "skipped"}, 1),
    ],
)
def test_run_wait_exits_with_the_outcome(
    schedctl: Schedctl, daemon: StubDaemon, end: dict[str, Any], code: int
) -> None:
    """Only success is 0; the last line tells state and reason."""
    starts(daemon)
    goes(daemon, [going(), going(), run(**end)])

    called = schedctl("run", "nightly", "--wait")

    assert called.code == code
    assert end["state"] in called.out
    assert end.get("reason", "") in called.out


def test_run_wait_follows_retries(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """A run that waits for its retry, or is recovered, has not ended."""
    starts(daemon)
    states = ("queued", "running", "waiting", "recovering", "running")
    goes(daemon, [*(run(state=state, finished_at=None) for state in states), run()])

    assert schedctl("run", "nightly", "--wait").code == 0


def test_run_wait_says_why_and_until_when_it_waits_for_a_retry(
    schedctl: Schedctl, daemon: StubDaemon
) -> None:
    """Once for each try, on stderr; a failure at last points to the output. JSON and --quiet are spared."""
    starts(daemon)
    tried = {"attempt": 1, "claim": 1, "state": "failed", "reason": "exit_code", "exit_code": 3}
    waits = run(
        state="waiting",
        attempt=2,
        finished_at=None,
        ready_at="2037-01-01T00:00:00+00:00",
        attempts=[tried],
        exit_code=None,
    )
    again = {**waits, "attempt": 3, "attempts": [tried, {**tried, "attempt": 2}]}
    looks = [waits, waits, going(), again, run(state="failed", attempt=2)]

    goes(daemon, looks)
    told = schedctl("run", "nightly", "--wait").err.splitlines()
    goes(daemon, looks)
    silent = schedctl("run", "nightly", "--wait", "--json").err
    goes(daemon, looks)
    quiet = schedctl("run", "nightly", "--wait", "--quiet").err

    assert [line.partition("; ")[0] for line in told] == [
        "schedctl: nightly: attempt 1 did not succeed (exit_code, exit 3)",
        "schedctl: nightly: attempt 2 did not succeed (exit_code, exit 3)",
        f"schedctl: `schedctl output {RUN}` shows what it wrote",
    ]
    assert "the next is due 2037-01-01" in told[0]
    assert (silent, quiet) == ("", "")


def test_run_wait_json_is_the_ended_run(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """One object: the run as it ended."""
    starts(daemon)
    goes(daemon, [going(), run()])

    assert schedctl("run", "nightly", "--wait", "--json").json == run()


def test_run_wait_of_several_jobs_starts_all_before_waiting(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """They run beside each other; the exit code is the worst."""
    daemon.jobs(job("a"), job("b"))
    starts(daemon, RUN, "a")
    starts(daemon, OTHER_RUN, "b")
    goes(daemon, [run(RUN, "a", state="failed")], RUN)
    goes(daemon, [run(OTHER_RUN, "b")], OTHER_RUN)

    called = schedctl("run", "--all", "--wait")

    order = [asked.path for asked in daemon.asked if asked.path != "/v1/jobs"]
    assert called.code == 1
    assert order == ["/v1/jobs/a/run", "/v1/jobs/b/run", f"/v1/runs/{RUN}", f"/v1/runs/{OTHER_RUN}"]


def test_a_job_that_runs_already_names_its_run(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """Exit 4; text and JSON name the live run."""
    refusal = problem(409, "already_running", "nightly is already running", run_id=RUN)
    daemon.on("POST", "/v1/jobs/nightly/run", refusal)

    told = schedctl("run", "nightly", "--wait")
    shown = schedctl("run", "nightly", "--json")

    assert told.code == shown.code == 4
    assert f"schedctl cancel {RUN}" in told.err
    assert shown.json["error"]["run_id"] == RUN


def test_waiting_ends_at_the_timeout(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """A given `--timeout` bounds the waiting too: exit 7, and the run goes on."""
    starts(daemon)
    goes(daemon, [going()])

    called = schedctl("run", "nightly", "--wait", "--timeout", "0.3s")

    assert called.code == 7
    assert f"run {RUN} is still running" in called.err
    assert "it goes on" in called.err


def test_waiting_bears_a_daemon_that_restarts(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """A look that fails is repeated; only a daemon that stays away ends the waiting."""
    starts(daemon)
    broken = Answer(body=[])
    answers = [broken, Answer(body=going()), broken, broken, Answer(body=run())]
    daemon.on("GET", f"/v1/runs/{RUN}", lambda _: answers.pop(0))

    assert schedctl("run", "nightly", "--wait").code == 0


def test_waiting_gives_up_on_a_daemon_that_stays_away(
    schedctl: Schedctl, daemon: StubDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the time of one call without an answer it is exit 6."""
    starts(daemon)
    daemon.on("GET", f"/v1/runs/{RUN}", Answer(body=[]))
    monkeypatch.setattr("scheduler.cli.session.DEFAULT_TIMEOUT", 200_000)

    assert schedctl("run", "nightly", "--wait").code == 6


def test_ctrl_c_stops_the_waiting_and_not_the_run(daemon: StubDaemon, environ: dict[str, str]) -> None:
    """The run is named as going on, nothing is cancelled, and the exit code is that of an interrupt."""
    starts(daemon)
    goes(daemon, [going()])
    process = subprocess.Popen(
        command("run", "nightly", "--wait"),
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: any(asked.path == f"/v1/runs/{RUN}" for asked in daemon.asked))

    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)

    assert process.returncode == 130
    assert out == ""
    assert f"it goes on: nightly (run {RUN})" in err
    assert len(daemon.mutations()) == 1


def test_progress_is_shown_on_a_terminal(daemon: StubDaemon, environ: dict[str, str]) -> None:
    """The line of progress is rewritten in place and gone at the end."""
    starts(daemon)
    goes(daemon, [going(progress={"done": 3, "total": 10, "message": "page\x1b[2J 3"}), run()])

    called = call_on_terminal("run", "nightly", "--wait", env=environ, width=100)

    assert called.code == 0
    assert "3/10: page\\e[2J 3" in called.out
    assert "succeeded" in called.plain.splitlines()[-1]


def wait_until(seen: Callable[[], bool]) -> None:
    """Return once it is so; fails after ten seconds."""
    ends_at = time.monotonic() + 10
    while not seen():
        assert time.monotonic() < ends_at
        time.sleep(0.01)
