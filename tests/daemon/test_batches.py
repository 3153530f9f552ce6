"""Issue 4 in the running program: lists, pause modes, stops, retries, settlement, budgets."""

from __future__ import annotations

import json
import signal
import sqlite3
import time
from contextlib import closing
from typing import Any

import pytest

from tests.support.daemon import Daemon
from tests.support.manager import service_manager
from tests.support.paid import HANDLERS, paid_service
from tests.support.receiver import Receiver

pytestmark = pytest.mark.slow

_STEPS = """
[jobs.steps]
manual = true
shell = 'for i in 1 2 3 4 5 6; do echo $i >> {here}/$SCHEDULER_ITEM_KEY; sleep 0.1; done'
[jobs.steps.batch]
items = ["a", "b", "c", "d", "e", "f"]
concurrency = 2
item_timeout = "10s"
"""


def _items(daemon: Daemon, run: str) -> dict[str, dict[str, Any]]:
    return {item["key"]: item for item in daemon.get(f"/v1/runs/{run}/items")["items"]}


def _states(daemon: Daemon, run: str) -> dict[str, str]:
    return {key: item["state"] for key, item in _items(daemon, run).items()}


def _lines(daemon: Daemon, key: str) -> int:
    path = daemon.path(key)
    return len(path.read_text().split()) if path.exists() else 0


def _told(daemon: Daemon, job: str) -> dict[str, list[dict[str, Any]]]:
    """What /v1/events has told of the job so far, by event."""
    stream = daemon.ask("GET", f"/v1/events?job={job}&tail=1000&follow=false").body
    told: dict[str, list[dict[str, Any]]] = {}
    for line in stream.splitlines():
        if line.startswith("data: "):
            data = json.loads(line.removeprefix("data: "))
            told.setdefault(data["event"], []).append(data)
    return told


def test_each_item_gets_its_value_its_key_and_a_stable_idempotency_key() -> None:
    """A command learns of its item from its environment; its output is told apart by key."""
    jobs = """
[jobs.say]
manual = true
shell = 'echo "$SCHEDULER_ITEM $SCHEDULER_ITEM_KEY $SCHEDULER_IDEMPOTENCY_KEY"'
[jobs.say.batch]
items_command = ["/bin/sh", "-c", "echo '{\\"key\\": \\"k1\\", \\"n\\": 1}'; echo 7"]
"""
    with Daemon(jobs) as daemon:
        run = daemon.run("say")
        assert daemon.ended(run)["state"] == "succeeded"
        output = daemon.ask("GET", f"/v1/runs/{run}/output").body
    assert f'[k1] {{"key":"k1","n":1}} k1 {run}:k1\n' in output
    assert f"[7] 7 7 {run}:7\n" in output


@pytest.mark.parametrize(
    ("batch", "state", "reason"),
    [
        ("items = []", "succeeded", None),
        ('items_file = "/nonexistent"', "failed", "spawn_failed"),
        ('items_command = ["/bin/sh", "-c", "echo 1; exit 3"]', "failed", "exit_code"),
        ('items_command = ["/bin/sh", "-c", "echo 1; echo 2; echo 1"]', "failed", "spawn_failed"),
    ],
)
def test_a_list_that_cannot_be_produced_fails_before_any_item(
    batch: str, state: str, reason: str | None
) -> None:
    """And an empty one succeeds with 0 of 0."""
    jobs = f"[jobs.b]\nmanual = true\nshell = 'touch {{here}}/called'\n[jobs.b.batch]\n{batch}\n"
    with Daemon(jobs) as daemon:
        row = daemon.ended(daemon.run("b"))
        assert (row["state"], row["reason"]) == (state, reason)
        assert not daemon.path("called").exists()


def test_mode_item_holds_the_run_and_resume_goes_on_after_a_restart() -> None:
    """Running items end, no further one begins, the run is held; a restart in between changes nothing."""
    with Daemon(_STEPS) as daemon:
        run = daemon.run("steps")
        daemon.until(lambda: _lines(daemon, "a") > 1)
        began = time.monotonic()
        daemon.post("/v1/jobs/steps/pause", {"mode": "item"})
        assert time.monotonic() - began < 1.0
        daemon.run_when(run, lambda row: row["state"] == "held")
        held = _states(daemon, run)
        assert held["a"] == held["b"] == "done"
        assert set(list(held.values())[2:]) == {"pending"}
        daemon.kill9()
        daemon.start()
        assert daemon.run_of(run)["state"] == "held"
        daemon.post("/v1/jobs/steps/resume")
        row = daemon.ended(run)
        assert (row["state"], row["progress"]["done"]) == ("succeeded", 6)
        assert [_lines(daemon, key) for key in "abcdef"] == [6] * 6


def test_mode_freeze_stops_commands_where_they_stand() -> None:
    """SIGSTOP; the time that passes counts for no timeout; SIGCONT at resume."""
    jobs = _STEPS.replace('item_timeout = "10s"', 'item_timeout = "1500ms"')
    with Daemon(jobs) as daemon:
        run = daemon.run("steps")
        daemon.until(lambda: _lines(daemon, "a") > 1)
        daemon.post("/v1/jobs/steps/pause", {"mode": "freeze"})
        frozen = _lines(daemon, "a"), _lines(daemon, "b")
        time.sleep(2.0)
        later = _lines(daemon, "a"), _lines(daemon, "b")
        assert all(now - then <= 1 for now, then in zip(later, frozen, strict=True))
        assert daemon.run_of(run)["state"] == "running"
        daemon.post("/v1/jobs/steps/resume")
        assert daemon.ended(run)["state"] == "succeeded"


def test_a_frozen_batch_can_be_cancelled() -> None:
    """A cancel sends SIGCONT; items at work are unknown, the rest is not started."""
    with Daemon(_STEPS) as daemon:
        run = daemon.run("steps")
        daemon.until(lambda: _lines(daemon, "a") > 1)
        daemon.post("/v1/jobs/steps/pause", {"mode": "freeze"})
        daemon.post(f"/v1/runs/{run}/cancel")
        assert daemon.ended(run)["state"] == "cancelled"
        states = list(_states(daemon, run).values())
        assert states.count("unknown") == 2
        assert states.count("pending") == 4
        assert daemon.descendants() == []


def test_python_handlers_cannot_be_frozen() -> None:
    """422, and nothing is paused."""
    jobs = '[jobs.p]\nmanual = true\npython = "handlers:call"\n[jobs.p.batch]\nitems = [1]\n'
    with Daemon(jobs, handlers=HANDLERS) as daemon:
        reply = daemon.ask("POST", "/v1/jobs/p/pause", {"mode": "freeze"})
        assert reply.status == 422
        assert daemon.job("p")["status"] == "active"


def test_a_stop_begins_no_item_and_waits_for_those_that_run() -> None:
    """I12: longer than drain_timeout; the rest runs at the next start by itself, with no attempt charged."""
    jobs = _STEPS.replace("sleep 0.1", "sleep 0.3").replace('"10s"', '"100s"')
    with (
        service_manager() as manager,
        Daemon(jobs, drain_timeout="200ms", env={"NOTIFY_SOCKET": manager.address}) as daemon,
    ):
        run = daemon.run("steps")
        daemon.until(lambda: _lines(daemon, "a") > 1)
        assert daemon.stop() == 0
        told = manager.told()
        after = told[told.index("STOPPING=1") :] if "STOPPING=1" in told else told
        granted = [int(text.partition("=")[2]) for text in after if text.startswith("EXTEND_TIMEOUT_USEC=")]
        assert max(granted, default=0) >= 100_000_000, "the manager was not told to wait for item_timeout"
        assert (_lines(daemon, "a"), _lines(daemon, "b"), _lines(daemon, "c")) == (6, 6, 0)
        daemon.start()
        row = daemon.ended(run)
        assert (row["state"], row["attempt"], row["progress"]["unknown"]) == ("succeeded", 1, 0)


def test_a_second_signal_does_not_wait_for_items() -> None:
    """They are ended, and in doubt."""
    with Daemon(_STEPS.replace("sleep 0.1", "sleep 3"), drain_timeout="200ms") as daemon:
        run = daemon.run("steps")
        daemon.until(lambda: _lines(daemon, "a") > 0)
        daemon.signal(signal.SIGTERM)
        time.sleep(0.4)
        assert daemon.stop(patience=8) == 0
        daemon.start()
        daemon.post(f"/v1/runs/{run}/cancel")
        assert list(_states(daemon, run).values()).count("unknown") >= 2


def test_an_item_that_takes_too_long_is_unknown_and_never_silently_repeated() -> None:
    """The others go on; the run is partial, the job is free, and a fresh run asks for a decision."""
    jobs = """
[jobs.b]
manual = true
shell = 'echo x >> {here}/$SCHEDULER_ITEM_KEY; [ "$SCHEDULER_ITEM_KEY" = slow ] && sleep 60; true'
kill_grace = "200ms"
[jobs.b.batch]
items = ["slow", "quick"]
item_timeout = "400ms"
retry = { attempts = 3, delay = "0s" }
"""
    with Daemon(jobs) as daemon:
        run = daemon.run("b")
        row = daemon.ended(run)
        assert (row["state"], row["reason"]) == ("partial", "unknown_items")
        assert _states(daemon, run) == {"slow": "unknown", "quick": "done"}
        assert _lines(daemon, "slow") == 1
        refused = daemon.ask("POST", "/v1/jobs/b/run", {})
        assert (refused.status, refused.body["run_id"]) == (409, run)
        assert "retry" in refused.body["hint"]
        answer = daemon.post(f"/v1/runs/{run}/items/slow", {"state": "done"})
        assert (answer["item"]["state"], answer["run"]["state"]) == ("done", "succeeded")
        daemon.ended(daemon.run("b"))


def test_retry_runs_exactly_the_failed_items_under_their_keys() -> None:
    """The good ones stay counted and are not called again; each item shows how often it was begun."""
    with paid_service(refused={"b": 1, "d": 1}) as service:
        jobs = f"""
[jobs.b]
manual = true
python = "handlers:call"
args = {{ port = {service.port} }}
[jobs.b.batch]
items = ["a", "b", "c", "d", "e"]
concurrency = 2
"""
        with Daemon(jobs, handlers=HANDLERS) as daemon:
            run = daemon.run("b")
            row = daemon.ended(run)
            assert (row["state"], row["progress"]["failed"]) == ("partial", 2)
            assert daemon.post(f"/v1/runs/{run}/retry", {"items": "failed"})["state"] == "queued"
            assert daemon.ask("POST", f"/v1/runs/{run}/retry", {"items": "failed"}).status == 409
            assert daemon.ended(run)["state"] == "succeeded"
            assert {key: item["attempts"] for key, item in _items(daemon, run).items()} == {
                "a": 1,
                "b": 2,
                "c": 1,
                "d": 2,
                "e": 1,
            }
            done = daemon.ask("POST", f"/v1/runs/{run}/retry", {})
            assert done.status == 409
            assert "nothing to retry" in done.body["detail"]
            assert daemon.run_of(run)["cost"] == pytest.approx(0.05)
            told = _told(daemon, "b")
            begun, done_items, failed = (told[name] for name in ("item_started", "item_done", "item_failed"))
            assert [len(begun), len(done_items), len(failed)] == [7, 5, 2]
            assert all(event["run_id"] == run for event in (*begun, *done_items, *failed))
            assert {(event["item"], event["cost"]) for event in done_items} == {
                (key, 0.01) for key in "abcde"
            }
            assert "refused" in failed[0]["message"]
            assert {"done", "failed", "unknown", "total", "rate", "seconds_left", "cost"} <= told[
                "run_progressed"
            ][0].keys()
            assert told["run_progressed"][0]["total"] == 5
        assert service.calls() == {"a": 1, "b": 2, "c": 1, "d": 2, "e": 1}
        assert service.keys() == {f"{run}:{key}" for key in "abcde"}


def test_the_budget_stops_the_batch_before_the_item_that_would_pass_it() -> None:
    """The job is paused with reason budget, told in why; a raised budget lets the same run go on."""
    with paid_service() as service, Receiver() as receiver:
        jobs = f"""
[jobs.b]
manual = true
python = "handlers:call"
args = {{ port = {service.port} }}
on_budget = "{receiver.url("/budget")}"
on_pause = "{receiver.url("/pause")}"
[jobs.b.batch]
items = ["a", "b", "c", "d", "e"]
[jobs.b.budget]
per_run = 0.025
unit = "EUR"
cost_estimate = 0.01
"""
        with Daemon(jobs, handlers=HANDLERS) as daemon:
            run = daemon.run("b")
            daemon.run_when(run, lambda row: row["state"] == "held")
            assert sum(service.calls().values()) == 2
            assert daemon.job("b")["pause"]["reason"] == "budget"
            assert "budget" in daemon.get("/v1/jobs/b/why")["message"]
            assert daemon.events("budget_reached", job="b")
            (alert,) = daemon.until(lambda: receiver.asked("/budget"))
            assert (alert.json["alert"], alert.json["job"], alert.json["run_id"]) == ("budget", "b", run)
            assert "per_run = 0.025 EUR" in alert.json["message"]
            daemon.write(jobs.replace("0.025", "1.0"))
            daemon.signal(signal.SIGHUP)
            daemon.told("job_changed", job="b")
            daemon.post("/v1/jobs/b/resume")
            assert daemon.ended(run)["state"] == "succeeded"
            assert sum(service.calls().values()) == 5
        assert receiver.asked("/pause") == [], "one transition, two alerts"


def test_items_wedged_after_their_run_ended_are_recovered_apart() -> None:
    """A run that ended, and an item that still says `running`: the next look tells it unknown."""
    with Daemon(_STEPS.replace("sleep 0.1", "true")) as daemon:
        run = daemon.run("steps")
        daemon.ended(run)
        daemon.stop()
        with closing(sqlite3.connect(daemon.database)) as db, db:
            db.execute("UPDATE items SET state = 'running' WHERE key = 'c'")
            db.execute("UPDATE runs SET done = done - 1")
        daemon.start()
        daemon.until(lambda: _states(daemon, run)["c"] == "unknown")
        row = daemon.run_of(run)
        assert row["progress"]["done"] + row["progress"]["unknown"] == 6


def test_a_long_file_of_items_is_streamed() -> None:
    """Issue 4, point 1: a list of many items comes from a file; each is run once."""
    with Daemon(
        """
[jobs.many]
manual = true
python = "handlers:nothing"
[jobs.many.batch]
items_file = "{here}/items.jsonl"
concurrency = 100
""",
        handlers="async def nothing(run):\n    return run.item['n']\n",
    ) as daemon:
        with daemon.path("items.jsonl").open("w") as file:
            file.writelines(f'{{"key": "k{number}", "n": {number}}}\n' for number in range(3_000))
        run = daemon.run("many")
        daemon.until(lambda: daemon.run_of(run)["finished_at"] is not None, seconds=50)
        row = daemon.run_of(run)
        assert (row["state"], row["progress"]["done"]) == ("succeeded", 3_000)
        last = daemon.get(f"/v1/runs/{run}/items?state=done&limit=1")["items"][0]
        assert (last["key"], last["result"]) == ("k0", 0)
