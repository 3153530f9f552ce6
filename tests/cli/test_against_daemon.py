"""Each verb against the real daemon, over its real socket."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.cli.support.client import Called, call
from tests.cli.support.losing import losing_answers

Schedctl = Callable[..., Called]

JOBS = """
[jobs.nightly]
cron = "30 2 * * *"
timezone = "Europe/Berlin"
command = ["true"]
labels = ["billing"]

[jobs.hourly]
cron = "0 * * * *"
command = ["true"]

[jobs.quick]
manual = true
shell = 'printf "out %s\\n" "$SCHEDULER_ARGS"; printf "\\033[31merr\\n" >&2'

[jobs.failing]
manual = true
shell = "exit 3"

[jobs.slow]
manual = true
command = ["sleep", "600"]

[jobs.patient]
manual = true
shell = "exit 3"
retry = { attempts = 1, delay = "1h" }
"""
API_JOB = 'every = "1h"\ncommand = ["true"]\ndescription = "by hand"\n'


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """A directory with a configuration and job files."""
    with TemporaryDirectory(prefix="schedctl-") as path:
        home = Path(path)
        (home / "jobs.d").mkdir()
        (home / "jobs.d" / "all.toml").write_text(JOBS)
        (home / "scheduler.toml").write_text('timezone = "UTC"\ndrain_timeout = "0s"\n')
        yield home


@pytest.fixture(scope="module")
def schedctl(home: Path) -> Iterator[Schedctl]:
    """Calls schedctl as a process against a daemon that serves `home`."""
    socket = home / "control.sock"
    environ = {**os.environ, "SCHEDULER_SOCKET": str(socket), "TZ": "UTC"}
    flags = ["--config", str(home), "--state", str(home / "state"), "--socket", str(socket)]
    with (home / "daemon.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", "from scheduler.daemon import main; main()", *flags],
            stdout=log,
            stderr=log,
            env={**os.environ, "TZ": "UTC"},
        )

    def schedctl(*arguments: str) -> Called:
        return call(*arguments, env=environ)

    try:
        wait_until(lambda: process.poll() is not None or schedctl("status").code == 0)
        assert process.poll() is None, (home / "daemon.log").read_text()
        yield schedctl
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0


def wait_until(seen: Callable[[], bool]) -> None:
    """Return once it is so; fails after twenty seconds."""
    ends_at = time.monotonic() + 20
    while not seen():
        assert time.monotonic() < ends_at
        time.sleep(0.05)


def state_of(schedctl: Schedctl, run: str) -> Any:
    return schedctl("show", run, "--json").json["state"]


def test_status_is_healthy(schedctl: Schedctl) -> None:
    """A daemon that just started says so, in words and as JSON."""
    assert "healthy" in schedctl("status").out
    assert schedctl("status", "--json").json["draining"] is False


def test_list_and_show_tell_the_jobs_of_the_files(schedctl: Schedctl, home: Path) -> None:
    """Every job, its schedule and where it comes from."""
    listed = schedctl("list", "--json").lines
    shown = schedctl("show", "nightly").out

    assert [job["id"] for job in listed] == ["failing", "hourly", "nightly", "patient", "quick", "slow"]
    assert [job["id"] for job in schedctl("list", "--label", "billing", "--json").lines] == ["nightly"]
    assert "nightly  active  in " in schedctl("list").out.replace("nightly   ", "nightly  ")
    assert "cron 30 2 * * * Europe/Berlin" in shown
    assert schedctl("show", "nightly", "--json").json["origin_file"] == str(home / "jobs.d" / "all.toml")


def test_run_wait_exits_with_the_outcome(schedctl: Schedctl) -> None:
    """Success is 0, failure is 1 with its reason."""
    good = schedctl("run", "quick", "--wait")
    bad = schedctl("run", "failing", "--wait")

    assert (good.code, bad.code) == (0, 1)
    assert "succeeded" in good.out
    assert "exit_code: exited with code 3" in bad.out


def test_a_start_whose_answer_was_lost_is_one_run(schedctl: Schedctl, home: Path) -> None:
    """The daemon has started it, its answer never comes: schedctl asks again, and gets that run."""
    front, before = home / "front.sock", schedctl("runs", "quick", "-q").out.splitlines()

    with losing_answers(front, home / "control.sock", times=1):
        called = schedctl("run", "quick", "--json", "--socket", str(front))

    now = schedctl("runs", "quick", "-q").out.splitlines()
    assert (called.code, now) == (0, [called.json["id"], *before])


def test_events_tell_what_happened_to_a_run_and_go_on_from_an_id(schedctl: Schedctl) -> None:
    """Filtered by job and name, in their order; `--since` gives what came after."""
    run = schedctl("run", "quick", "--wait", "--json").json["id"]

    told = schedctl("events", "--job", "quick", "-n", "10000", "--json").lines

    mine = [event for event in told if event.get("run_id") == run]
    assert [event["event"] for event in mine] == ["run_claimed", "run_started", "run_succeeded"]
    later = schedctl("events", "--job", "quick", "--since", mine[1]["id"], "--json").lines
    assert later[0] == mine[2]
    [last] = schedctl("events", "--event", "run_succeeded", "-n", "1").out.splitlines()
    assert "quick" in last


def test_output_is_what_the_run_wrote(schedctl: Schedctl) -> None:
    """Both streams or one, arguments passed on, control characters spelt out unless raw."""
    run = schedctl("run", "quick", "--args", '{"a": 1}', "--wait", "--json").json["id"]

    whole = schedctl("output", run).out

    assert sorted(whole.splitlines()) == ["\\e[31merr", 'out {"a": 1}']
    assert schedctl("output", run, "--stream", "stdout").out == 'out {"a": 1}\n'
    assert schedctl("output", run, "--stream", "stderr", "--raw").out == "\x1b[31merr\n"
    assert len(schedctl("output", run, "--tail", "1").out.splitlines()) == 1


def test_runs_are_listed_and_found_by_their_beginning(schedctl: Schedctl) -> None:
    """History by job and state; a run by as much of its id as is unique."""
    run = schedctl("run", "failing", "--wait", "--json").json["id"]

    failed = schedctl("runs", "failing", "--state", "failed", "--since", "1h", "--json").lines

    assert failed[0]["id"] == run
    assert {each["job"] for each in failed} == {"failing"}
    assert schedctl("show", run[:30], "--json").json["id"] == run
    assert schedctl("runs", "failing", "--limit", "1").out.count("failed") == 1


def test_a_live_run_can_be_seen_waited_for_and_cancelled(schedctl: Schedctl) -> None:
    """A second start is 4 and names the run, waiting ends at its timeout, cancel by job ends it."""
    run = schedctl("run", "slow", "--json").json["id"]
    second = schedctl("run", "slow")
    paused = schedctl("pause", "slow", "--reason", "disk is full")
    why = schedctl("why", "slow", "--json").json
    cancelled = schedctl("cancel", "slow")
    wait_until(lambda: state_of(schedctl, run) == "cancelled")
    resumed = schedctl("resume", "slow")

    assert second.code == 4
    assert run in second.err
    assert paused.code == 0
    assert f"in flight: run {run} running" in paused.out
    assert why["blocked"] is True
    assert cancelled.code == resumed.code == 0
    assert schedctl("cancel", "slow").code == 4


def test_waiting_ends_at_its_timeout_and_the_run_goes_on(schedctl: Schedctl) -> None:
    """Exit 7; the run is still there to be cancelled by its id."""
    waited = schedctl("run", "slow", "--wait", "--timeout", "0.5s")
    [live] = schedctl("runs", "slow", "--state", "running", "--json").lines

    assert waited.code == 7
    assert live["id"] in waited.err
    assert schedctl("cancel", live["id"]).code == 0
    wait_until(lambda: state_of(schedctl, live["id"]) == "cancelled")


def test_pause_is_told_everywhere_until_it_is_lifted(schedctl: Schedctl) -> None:
    """List, show and why say it; resume computes the schedule anew; the audit keeps both."""
    schedctl("pause", "night*", "--reason", "moving house")
    listed, shown = schedctl("list", "nightly").out, schedctl("show", "nightly").out
    why = schedctl("why", "nightly").out
    resumed = schedctl("resume", "nightly", "--missed", "skip")
    audit = schedctl("audit", "nightly", "--json").lines

    assert "paused" in listed
    assert "moving house" in shown
    assert why.startswith("nightly: paused")
    assert "nightly active next fire" in resumed.out
    assert [entry["verb"] for entry in audit[:2]] == ["resume", "pause"]
    assert audit[0]["by"]["uid"] == os.getuid()
    assert "moving house" in schedctl("audit", "nightly").out


def test_a_waiting_retry_can_be_hurried_and_an_ended_run_repeated(schedctl: Schedctl) -> None:
    """retry-now ends the wait, retry begins the same run again."""
    run = schedctl("run", "patient", "--json").json["id"]
    wait_until(lambda: state_of(schedctl, run) == "waiting")

    hurried = schedctl("retry-now", "patient")
    wait_until(lambda: state_of(schedctl, run) == "failed")
    again = schedctl("retry", run)
    wait_until(lambda: state_of(schedctl, run) == "waiting")
    schedctl("cancel", run)

    assert hurried.code == again.code == 0
    assert schedctl("retry", "patient").code == 4


def test_next_is_the_same_with_and_without_the_daemon(schedctl: Schedctl, tmp_path: Path) -> None:
    """The job, the preview of its expression, and the one worked out here agree."""
    schedule = ["--cron", "30 2 * * *", "--timezone", "Europe/Berlin", "-n", "400", "--json"]

    of_job = schedctl("next", "nightly", "-n", "400", "--json").json
    preview = schedctl("next", *schedule).json
    alone = schedctl("next", *schedule, "--socket", str(tmp_path / "none.sock"))

    assert of_job == preview == alone.json
    assert len(of_job["items"]) == 400
    assert schedctl("next", "--cron", "61 * * * *").code == 2


def test_skip_next_moves_the_next_fire(schedctl: Schedctl) -> None:
    """The fire that was to come is not the next one any more."""
    first, second = schedctl("next", "hourly", "-n", "2", "--json").json["items"]

    skipped = schedctl("skip-next", "hourly", "--json").json

    assert skipped["job"]["next_fire_at"] == second
    assert first != second


def test_a_job_of_the_api_is_added_edited_and_removed(schedctl: Schedctl, tmp_path: Path) -> None:
    """With the copy it was made from an edit cannot undo another; a job of a file is the file's."""
    table = tmp_path / "job.toml"
    table.write_text(API_JOB)
    added = schedctl("add", "by-hand", "--file", str(table), "--json").json
    seen = str(added["definition_revision"])
    table.write_text(API_JOB.replace("1h", "2h"))

    edited = schedctl("edit", "by-hand", "--file", str(table), "--if-match", seen)
    stale = schedctl("edit", "by-hand", "--file", str(table), "--if-match", seen)
    fresh = schedctl("edit", "by-hand", "--file", str(table))
    twice = schedctl("add", "by-hand", "--file", str(table))
    of_file = schedctl("edit", "nightly", "--file", str(table))
    removed = schedctl("remove", "by-hand", "nightly")

    assert added["trigger"] == {"kind": "every", "every": 3600}
    assert [edited.code, stale.code, fresh.code] == [0, 4, 0]
    assert [twice.code, of_file.code, removed.code] == [4, 4, 4]
    assert "all.toml" in of_file.err
    assert removed.out == "by-hand removed\n"
    assert schedctl("show", "by-hand").code == 3


def test_an_invalid_definition_names_every_fault(schedctl: Schedctl, tmp_path: Path) -> None:
    """Exit 2, one line a fault, each with its key."""
    table = tmp_path / "job.toml"
    table.write_text('cron = "61 * * * *"\ncommnd = ["true"]\n')

    called = schedctl("add", "bad", "--file", str(table))

    assert called.code == 2
    assert "cron" in called.err
    assert "commnd" in called.err


def test_a_request_that_is_too_large_is_usage(schedctl: Schedctl, tmp_path: Path) -> None:
    """The daemon's answer is read although it did not take the whole body."""
    table = tmp_path / "job.toml"
    table.write_text(f'manual = true\ncommand = ["true"]\nstdin = "{"x" * 3_000_000}"\n')

    called = schedctl("add", "large", "--file", str(table))

    assert called.code == 2
    assert "larger than" in called.err


def test_reload_tells_changes_and_faults(schedctl: Schedctl, home: Path) -> None:
    """A new file is taken, a bad one is reported and keeps its old jobs."""
    extra = home / "jobs.d" / "extra.toml"
    extra.write_text('[jobs.extra]\nmanual = true\ncommand = ["true"]\n')
    added = schedctl("reload")
    extra.write_text("[jobs.extra]\nmanual = 5\n")
    faulty = schedctl("reload")
    kept = schedctl("show", "extra").code
    checked = schedctl("check", "--config", str(home))
    extra.unlink()
    removed = schedctl("reload")

    assert added.code == 0
    assert "added extra" in added.out
    assert faulty.code == checked.code == 1
    assert "extra.toml" in faulty.err
    assert "extra.toml" in checked.out
    assert kept == 0
    assert "removed extra" in removed.out


@pytest.mark.parametrize(
    "arguments",
    [
        ["show", "nightli"],
        ["pause", "nightli"],
        ["run", "nightli"],
        ["why", "nightli"],
        ["next", "nightli"],
        ["audit", "nightli"],
        ["runs", "nightli"],
        ["cancel", "nightli"],
        ["list", "nightli"],
    ],
)
def test_an_unknown_job_is_three_with_the_nearest(schedctl: Schedctl, arguments: list[str]) -> None:
    """Every verb that takes a job helps with a misspelt one."""
    called = schedctl(*arguments)

    assert called.code == 3
    assert called.err.endswith("did you mean nightly?\n")
    assert len(called.err.splitlines()) == 1
