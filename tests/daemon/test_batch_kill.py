"""Issue 4, points 2 and 6: kill -9 at any moment, and no done item is paid for twice.

`SCHEDULERD_KILLS=200` makes it long (`make soak`).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from tests.support.daemon import Daemon
from tests.support.paid import HANDLERS, PaidService, paid_service

KILLS = int(os.environ.get("SCHEDULERD_KILLS", "10"))
CONCURRENCY = 8

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120 + 6 * KILLS)]


def _job(port: int, items: list[str], **batch: object) -> str:
    keys = {"items": items, "concurrency": CONCURRENCY, "item_timeout": "20s", **batch}
    lines = [f"{key} = {_toml(value)}" for key, value in keys.items()]
    return "\n".join(
        [
            "[jobs.narrate]",
            "manual = true",
            'python = "handlers:call"',
            f"args = {{ port = {port}, before = 0.01, after = 0.01 }}",
            "max_crashes = 0" if batch.get("unknown") != "retry" else "max_crashes = 1000",
            "[jobs.narrate.batch]",
            *lines,
        ]
    )


def _toml(value: object) -> str:
    return str(value) if isinstance(value, list) else repr(value).replace("'", '"')


class Poller:
    """Polls the counts of a run while the daemon lives and dies, and keeps what does not add up."""

    def __init__(self, daemon: Daemon, run: str) -> None:
        self._daemon = daemon
        self._run = run
        self._over = threading.Event()
        self._done = 0
        self.polls = 0
        self.faults: list[dict[str, Any]] = []
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _poll(self) -> None:
        while not self._over.is_set():
            try:
                reply = self._daemon.ask("GET", f"/v1/runs/{self._run}/items?limit=1")
            except Exception:  # noqa: BLE001 - it is dead just now
                time.sleep(0.02)
                continue
            if reply.status == 200 and reply.body["counts"] is not None:
                self._judge(reply.body["counts"])
            time.sleep(0.02)

    def _judge(self, counts: dict[str, int]) -> None:
        self.polls += 1
        parts = sum(number for state, number in counts.items() if state != "total")
        sound = parts == counts["total"] and min(counts.values()) >= 0 and counts["done"] >= self._done
        if not sound:
            self.faults.append({**counts, "done_before": self._done})
        self._done = max(self._done, counts["done"])


def _items(daemon: Daemon, run: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor = ""
    while True:
        page = daemon.get(f"/v1/runs/{run}/items?limit=200{cursor}")
        found += page["items"]
        if page["next_cursor"] is None:
            return found
        cursor = f"&cursor={page['next_cursor']}"


def _goes_on_after(claim: int) -> Callable[[dict[str, Any]], bool]:
    return lambda row: row["claim"] > claim or row["finished_at"] is not None


def _killed_through(daemon: Daemon, service: PaidService, run: str, rng: Random) -> int:
    """How often it was killed before its run ended."""
    for kills in range(KILLS):
        time.sleep(rng.uniform(0.0, 0.25))
        before = {item["key"] for item in _items(daemon, run) if item["state"] == "unknown"}
        if daemon.run_of(run)["finished_at"] is not None:
            return kills
        daemon.kill9()
        daemon.start()
        daemon.run_when(run, _goes_on_after(kills + 1))
        after = {item["key"] for item in _items(daemon, run) if item["state"] == "unknown"}
        assert len(after - before) <= CONCURRENCY, "more items in doubt than were at work"
    return KILLS


def test_no_key_is_in_the_ledger_twice_however_often_the_daemon_is_killed() -> None:
    """I9: with unknown = "hold" each item is called once at most; a done item was called exactly once."""
    rng = Random(4)  # noqa: S311 - moments of death
    with paid_service() as service:
        items = [f"ch{number}" for number in range(max(200, 40 * KILLS))]
        with Daemon(_job(service.port, items), handlers=HANDLERS) as daemon:
            run = daemon.run("narrate")
            poller = Poller(daemon, run)
            kills = _killed_through(daemon, service, run, rng)
            row = _ended_in_time(daemon, run)
            poller.stop()
            rows = _items(daemon, run)
    assert kills >= min(KILLS, 3), "it ended before it was killed: the proof would prove nothing"
    calls = service.calls()
    assert [key for key, times in calls.items() if times > 1] == []
    assert all(calls[item["key"]] == 1 for item in rows if item["state"] == "done")
    assert {item["state"] for item in rows} <= {"done", "unknown"}
    unknown = [item["key"] for item in rows if item["state"] == "unknown"]
    assert row["progress"]["done"] + len(unknown) == len(items) == row["progress"]["total"]
    assert row["state"] == ("partial" if unknown else "succeeded")
    assert poller.faults == []
    assert poller.polls > 5


def _ended_in_time(daemon: Daemon, run: str) -> dict[str, Any]:
    """The run, ended; a busy machine may take its time, as long as items are done meanwhile."""
    row: dict[str, Any] = daemon.run_of(run)
    while row["finished_at"] is None:
        row = daemon.run_when(run, _goes_on_from(row["progress"]["done"] or 0))
    return row


def _goes_on_from(done: int) -> Callable[[dict[str, Any]], bool]:
    return lambda row: row["finished_at"] is not None or (row["progress"]["done"] or 0) > done


def test_items_in_doubt_are_repeated_under_the_same_key_where_the_job_says_so() -> None:
    """With unknown = "retry" everything ends done, and the service has seen one key per item."""
    rng = Random(5)  # noqa: S311 - moments of death
    with paid_service() as service:
        items = [f"ch{number}" for number in range(max(120, 25 * KILLS))]
        with Daemon(_job(service.port, items, unknown="retry"), handlers=HANDLERS) as daemon:
            run = daemon.run("narrate")
            for _ in range(max(3, KILLS // 3)):
                time.sleep(rng.uniform(0.05, 0.3))
                daemon.kill9()
                daemon.start()
            row = _ended_in_time(daemon, run)
    assert (row["state"], row["progress"]["done"]) == ("succeeded", len(items))
    assert service.keys() == {f"{run}:{item}" for item in items}


@pytest.mark.parametrize(
    ("moment", "args", "left"),
    [
        ("before the call", "before = 30.0, after = 0.0", ("unknown", 0)),
        ("during the call", "before = 0.0, after = 0.0", ("unknown", 1)),
        ("after the reply", "before = 0.0, after = 30.0", ("unknown", 1)),
    ],
)
def test_an_item_at_work_at_the_death_is_unknown(moment: str, args: str, left: tuple[str, int]) -> None:
    """I9: wherever the daemon dies between begin and outcome, the item is in doubt and not called again."""
    with paid_service(takes=30.0 if moment == "during the call" else 0.0) as service:
        jobs = _job(service.port, ["one"]).replace("before = 0.01, after = 0.01", args)
        with Daemon(jobs, handlers=HANDLERS) as daemon:
            run = daemon.run("narrate")
            daemon.until(lambda: _items(daemon, run) and _items(daemon, run)[0]["state"] == "running")
            daemon.until(lambda: sum(service.calls().values()) == left[1])
            daemon.kill9()
            daemon.start()
            row = daemon.ended(run)
            state = _items(daemon, run)[0]["state"]
    assert (state, sum(service.calls().values())) == left
    assert (row["state"], row["reason"]) == ("partial", "unknown_items")


def test_an_item_that_is_done_stays_done_through_a_death_right_after_its_commit() -> None:
    """I9: the outcome is on record before the next begin, so a death after the commit repeats nothing."""
    with paid_service(takes=0.0) as service:
        jobs = _job(service.port, ["one", "two"], concurrency=1)
        jobs = jobs.replace("before = 0.01", "before = 0.5")
        with Daemon(jobs, handlers=HANDLERS) as daemon:
            run = daemon.run("narrate")
            daemon.until(lambda: daemon.run_of(run)["progress"]["done"] == 1)
            daemon.kill9()
            daemon.start()
            daemon.ended(run)
            states = {item["key"]: item["state"] for item in _items(daemon, run)}
    assert states["one"] == "done"
    assert service.calls()["one"] == 1
