"""Issue 5, point 8, in the running daemon: real requests to a real server, and a real hook command."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.daemon import Daemon
from tests.support.receiver import Receiver

HOOK = "#!/bin/sh\n{{ cat; echo; env | grep ^SCHEDULER_; echo --; }} >> '{place}'\n"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


def jobs(receiver: Receiver, *more: str) -> str:
    """A job that fails while the file `bad` is there, and tells everything to the receiver."""
    return "\n".join(
        [
            "[jobs.a]",
            "manual = true",
            "shell = \"test ! -e '{here}/bad'\"",
            f'on_failure = "{receiver.url("/failure")}"',
            f'on_recovery = "{receiver.url("/recovery")}"',
            f'on_pause = "{receiver.url("/pause")}"',
            *more,
        ]
    )


def settled(daemon: Daemon, receiver: Receiver, path: str) -> None:
    """A later transition of the same job has arrived, so whatever came before it has as well."""
    before = len(receiver.asked(path))
    daemon.post("/v1/jobs/a/pause", {})
    daemon.until(lambda: len(receiver.asked(path)) > before)


def test_a_failure_is_told_once_and_a_recovery_only_after_it(receiver: Receiver) -> None:
    """Success, failure, success, success: one failure and one recovery are told, each with its run."""
    with Daemon(jobs(receiver)) as daemon:
        daemon.ended(daemon.run("a"))
        daemon.path("bad").touch()
        failed = daemon.run("a")
        daemon.ended(failed)
        daemon.path("bad").unlink()
        recovered = daemon.run("a")
        daemon.ended(recovered)
        daemon.ended(daemon.run("a"))
        settled(daemon, receiver, "/pause")

    [failure] = receiver.asked("/failure")
    [recovery] = receiver.asked("/recovery")
    assert failure.method == "POST"
    assert failure.headers["content-type"] == "application/json"
    assert failure.json | {"at": None} == {
        "alert": "failure",
        "job": "a",
        "state": "failed",
        "run_id": failed,
        "reason": "exit_code",
        "message": failure.json["message"],
        "attempt": 1,
        "fire_time": None,
        "at": None,
    }
    assert "code 1" in failure.json["message"]
    assert (recovery.json["alert"], recovery.json["run_id"]) == ("recovery", recovered)


def test_a_recovery_is_told_though_the_daemon_died_between(receiver: Receiver) -> None:
    """The failure is known from the store, not from memory."""
    with Daemon(jobs(receiver)) as daemon:
        daemon.path("bad").touch()
        daemon.ended(daemon.run("a"))
        daemon.until(lambda: receiver.asked("/failure"))
        daemon.path("bad").unlink()
        daemon.kill9()
        daemon.start()

        daemon.ended(daemon.run("a"))

        daemon.until(lambda: receiver.asked("/recovery"))


def test_a_run_that_an_operator_repeats_is_a_recovery(receiver: Receiver) -> None:
    """The same run failed for good before; its success is told as one, by what its attempts say."""
    with Daemon(jobs(receiver)) as daemon:
        daemon.path("bad").touch()
        run = daemon.run("a")
        daemon.ended(run)
        daemon.path("bad").unlink()

        daemon.post(f"/v1/runs/{run}/retry")

        recovery = daemon.until(lambda: receiver.asked("/recovery"))[0]
        assert recovery.json["run_id"] == run


def test_tries_that_are_repeated_are_no_failures(receiver: Receiver) -> None:
    """Of three tries that fail only the last one's end is told, and no cancelled run is."""
    with Daemon(jobs(receiver, 'retry = { attempts = 2, delay = "10ms" }')) as daemon:
        daemon.path("bad").touch()
        run = daemon.run("a")
        daemon.ended(run)
        daemon.until(lambda: receiver.asked("/failure"))
        settled(daemon, receiver, "/pause")

    [failure] = receiver.asked("/failure")
    assert failure.json["attempt"] == 3


def test_a_receiver_that_refuses_at_first_is_asked_again(receiver: Receiver) -> None:
    """After a 500 the same alert comes again, and then no more."""
    receiver.answers = [500]
    with Daemon(jobs(receiver)) as daemon:
        daemon.path("bad").touch()
        daemon.ended(daemon.run("a"))

        daemon.until(lambda: len(receiver.asked("/failure")) == 2)

        settled(daemon, receiver, "/pause")
        assert not daemon.events("alert_undelivered")
    first, second = receiver.asked("/failure")
    assert first.json == second.json


def test_what_is_refused_for_good_is_told_in_the_log_without_secrets(receiver: Receiver) -> None:
    """A 404 is not asked again; the line names the receiver, but neither password nor query."""
    receiver.answers = [404]
    url = f"http://me:hunter22@127.0.0.1:{receiver.port}/failure?key=s3cr3t"
    with Daemon(f'[jobs.a]\nmanual = true\ncommand = ["false"]\non_failure = "{url}"') as daemon:
        daemon.ended(daemon.run("a"))

        line = daemon.told("alert_undelivered", job="a")

        shown = daemon.ask("GET", "/v1/jobs/a").body
        told = "\n".join([*daemon.lines(), json.dumps(shown)])
        assert line["receiver"] == f"http://***@127.0.0.1:{receiver.port}/failure?***"
        assert "404" in line["message"]
        assert "hunter22" not in told
        assert "s3cr3t" not in told
        assert shown["definition"]["on_failure"] == line["receiver"]
    [asked] = receiver.asked("/failure")
    assert asked.query == {"key": ["s3cr3t"]}
    assert asked.headers["authorization"].startswith("Basic ")


def test_a_slow_receiver_delays_no_run_and_no_other_job(receiver: Receiver) -> None:
    """While a ping hangs, runs of its own job start, end and are recorded, and the other job goes on."""
    receiver.gate = threading.Event()
    text = jobs(receiver, f'ping = {{ start = "{receiver.url("/start")}" }}')
    with Daemon(text + '\n[jobs.b]\nmanual = true\ncommand = ["true"]') as daemon:
        daemon.until(lambda: daemon.ended(daemon.run("a")) and receiver.asked("/start"))
        began = time.monotonic()

        for _ in range(5):
            assert daemon.ended(daemon.run("a"))["state"] == "succeeded"
            assert daemon.ended(daemon.run("b"))["state"] == "succeeded"

        assert time.monotonic() - began < 5
        assert len(receiver.asked("/start")) == 1
        receiver.gate.set()
        daemon.until(lambda: len(receiver.asked("/start")) >= 6)


def test_pings_name_the_run_in_order(receiver: Receiver) -> None:
    """Start and success, start and failure: each with the id of its run, the query of the author kept."""
    ping = ", ".join(f'{key} = "{receiver.url(f"/{key}?uuid=7")}"' for key in ("start", "success", "failure"))
    with Daemon(
        f"[jobs.a]\nmanual = true\nshell = \"test ! -e '{{here}}/bad'\"\nping = {{ {ping} }}"
    ) as daemon:
        good = daemon.run("a")
        daemon.ended(good)
        daemon.path("bad").touch()
        bad = daemon.run("a")
        daemon.ended(bad)

        daemon.until(lambda: receiver.asked("/failure"))

    seen = [
        (asked.method, asked.path, asked.query["rid"], asked.query["uuid"]) for asked in receiver.requests
    ]
    assert seen == [
        ("GET", "/start", [good], ["7"]),
        ("GET", "/success", [good], ["7"]),
        ("GET", "/start", [bad], ["7"]),
        ("GET", "/failure", [bad], ["7"]),
    ]


def hook_job(extra: str) -> str:
    return f'[jobs.a]\n{extra}\non_failure = ["{{here}}/hook", "ops"]\non_overdue = ["{{here}}/hook"]\n'


def write_hook(daemon: Daemon, text: str = HOOK) -> None:
    daemon.path("hook").write_text(text.format(place=daemon.path("told")))
    daemon.path("hook").chmod(0o755)


def hooked(daemon: Daemon) -> list[tuple[dict[str, Any], dict[str, str]]]:
    """What the hook command was given: the object on stdin, and its variables."""
    text = daemon.path("told").read_text() if daemon.path("told").exists() else ""
    calls = []
    for call in text.split("--\n")[:-1]:
        body, _, variables = call.partition("\n")
        calls.append((json.loads(body), dict(line.split("=", 1) for line in variables.splitlines())))
    return calls


def test_a_hook_command_gets_the_facts() -> None:
    """As JSON on stdin and as variables; it bears no mark of a run."""
    with Daemon(
        '[jobs.a]\nmanual = true\ncommand = ["false"]\non_failure = ["{here}/hook", "ops"]'
    ) as daemon:
        write_hook(daemon)
        run = daemon.run("a")

        [(body, variables)] = daemon.until(lambda: hooked(daemon))

        assert body["alert"] == "failure"
        assert body["run_id"] == run
        assert variables["SCHEDULER_ALERT"] == "failure"
        assert variables["SCHEDULER_JOB"] == "a"
        assert variables["SCHEDULER_RUN_ID"] == run
        assert variables["SCHEDULER_NEW_STATE"] == "failed"
        assert "SCHEDULER_STATE" not in variables  # to schedctl that is a directory
        assert variables["SCHEDULER_REASON"] == "exit_code"
        assert variables["SCHEDULER_SOCKET"] == str(daemon.socket)
        assert "SCHEDULER_STORE_ID" not in variables


def test_a_hook_command_that_cannot_be_started_is_told() -> None:
    """After its tries there is a line that says what was missing; the run is as it was."""
    with Daemon(
        '[jobs.a]\nmanual = true\ncommand = ["false"]\non_failure = ["/nowhere/hook", "pw"]'
    ) as daemon:
        run = daemon.run("a")
        daemon.ended(run)
        daemon.stop()

        line = daemon.told("alert_undelivered", job="a", run_id=run)

        assert line["receiver"] == "/nowhere/hook"
        assert "pw" not in json.dumps(line)


def test_an_overdue_job_is_told_once_though_its_skips_are_not() -> None:
    """Its run hangs, fire after fire is skipped by overlap: one alert, as long as no new run begins."""
    extra = (
        'every = "1s"\nlate_after = "1s"\n'
        "shell = \"touch '{here}/on'; while [ ! -e '{here}/gate' ]; do sleep 0.02; done\"\n"
    )
    with Daemon(hook_job(extra)) as daemon:
        write_hook(daemon)
        daemon.until(lambda: daemon.path("on").exists())
        [(body, _)] = daemon.until(lambda: hooked(daemon))
        assert (body["alert"], body["state"], body["run_id"]) == ("overdue", "overdue", None)
        assert body["fire_time"] is not None

        skipped = sum(run["count"] for run in daemon.runs("a") if run["state"] == "skipped")
        daemon.until(
            lambda: sum(run["count"] for run in daemon.runs("a") if run["state"] == "skipped") > skipped + 2
        )

        assert len(hooked(daemon)) == 1
        assert "scheduler_overdue_jobs 1.0" in daemon.get("/metrics")
        daemon.open_gate("gate")
        daemon.until(lambda: "scheduler_overdue_jobs 0.0" in daemon.get("/metrics"))


def test_a_paused_job_is_not_overdue() -> None:
    """An operator's pause is no missing work, however long it is."""
    text = (
        '[jobs.a]\nevery = "1s"\nlate_after = "1s"\ncommand = ["true"]\non_overdue = ["{here}/hook"]\n'
        '[jobs.b]\nevery = "1s"\nlate_after = "1s"\nshell = "sleep 30"\non_overdue = ["{here}/hook"]\n'
    )
    with Daemon(text) as daemon:
        write_hook(daemon)
        daemon.post("/v1/jobs/a/pause", {})

        daemon.until(lambda: hooked(daemon))

        assert [body["job"] for body, _ in hooked(daemon)] == ["b"]
        daemon.post("/v1/jobs/b/pause", {"mode": "cancel"})


def test_a_stop_waits_for_what_is_on_its_way(receiver: Receiver) -> None:
    """The failure of a run that the stop itself lets end is still told."""
    text = (
        "[jobs.a]\nmanual = true\n"
        'shell = "touch {here}/on; while [ ! -e {here}/gate ]; do sleep 0.02; done; false"\n'
        f'on_failure = "{receiver.url("/failure")}"'
    )
    with Daemon(text, drain_timeout="10s") as daemon:
        daemon.run("a")
        daemon.until(lambda: daemon.path("on").exists())
        threading.Timer(0.3, lambda: daemon.open_gate("gate")).start()

        assert daemon.stop() == 0

        assert len(receiver.asked("/failure")) == 1


def test_a_changed_job_file_changes_who_is_told(receiver: Receiver) -> None:
    """After a reload the new receiver is asked, and the old one no more."""
    text = '[jobs.a]\nmanual = true\ncommand = ["false"]\n'
    with Daemon(text + f'on_failure = "{receiver.url("/old")}"') as daemon:
        daemon.ended(daemon.run("a"))
        daemon.until(lambda: receiver.asked("/old"))
        daemon.write(text + f'on_failure = "{receiver.url("/new")}"')
        daemon.post("/v1/reload")

        daemon.ended(daemon.run("a"))

        daemon.until(lambda: receiver.asked("/new"))
        assert len(receiver.asked("/old")) == 1
