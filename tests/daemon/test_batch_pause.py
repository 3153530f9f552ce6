"""Issue 4, points 5 and 8: mode `item` stops all spending at the next item, and holds through a death."""

from __future__ import annotations

import time

import pytest

from tests.support.daemon import Daemon
from tests.support.paid import HANDLERS, PaidService, paid_service

pytestmark = pytest.mark.slow

ITEMS = [f"ch{number}" for number in range(12)]


def _work(service: PaidService, on_crash: str = "resume") -> str:
    """A batch that takes about a second."""
    return f"""
[jobs.work]
manual = true
on_crash = "{on_crash}"
python = "handlers:call"
args = {{ port = {service.port}, before = 0.1 }}
[jobs.work.batch]
items = {ITEMS}
concurrency = 2
"""


def _others(service: PaidService) -> str:
    """An item that waits for its retry, a run that waits for its own, and a schedule that catches up."""
    call = f'python = "handlers:call"\nargs = {{ port = {service.port} }}'
    retry = 'retry = { attempts = 50, delay = "1s", backoff = "constant" }'
    return f"""
[jobs.item-retry]
manual = true
{call}
[jobs.item-retry.batch]
items = ["again"]
{retry}
[jobs.run-retry]
manual = true
{call}
{retry}
[jobs.often]
every = "1s"
catch_up = "all"
{call}
[jobs.often.batch]
items = ["often"]
"""


def _states(daemon: Daemon, run: str) -> list[str]:
    return [item["state"] for item in daemon.get(f"/v1/runs/{run}/items")["items"]]


def _is_silent(service: PaidService, seconds: float) -> bool:
    """No call was made for so long."""
    before = len(service.ledger)
    time.sleep(seconds)
    return len(service.ledger) == before


def _none_at_work(daemon: Daemon) -> bool:
    return not daemon.get("/v1/runs?state=running")["items"]


def test_the_pause_of_everything_stops_all_spending_until_it_is_lifted() -> None:
    """Batches, retries of items and runs, and catch-up spend nothing, also after kill -9 and a downtime."""
    with (
        paid_service(refused={"again": 1_000, None: 1_000}) as service,
        Daemon(_work(service) + _others(service), handlers=HANDLERS) as daemon,
    ):
        daemon.run("item-retry")
        daemon.run("run-retry")
        daemon.until(lambda: service.calls()["again"] and service.calls()["often"])
        run = daemon.run("work")
        daemon.until(lambda: daemon.run_of(run)["progress"]["done"])

        daemon.post("/v1/pause", {"mode": "item", "reason": "stop the bill"})
        daemon.until(lambda: _none_at_work(daemon))
        assert daemon.run_of(run)["state"] == "held"
        assert set(_states(daemon, run)) == {"done", "pending"}
        assert _is_silent(service, 2.5)

        daemon.kill9()
        time.sleep(1.5)
        daemon.start()
        assert daemon.run_of(run)["state"] == "held"
        assert _is_silent(service, 2.5)
        refused = daemon.ask("POST", "/v1/jobs/often/run", {})
        assert refused.status == 409

        daemon.post("/v1/resume")
        assert daemon.ended(run)["state"] == "succeeded"
        daemon.until(lambda: service.calls()["again"] > 1)
    calls = service.calls()
    assert [calls[item] for item in ITEMS] == [1] * len(ITEMS)


@pytest.mark.parametrize("on_crash", ["record", "resume"])
def test_a_held_run_is_not_touched_by_a_death(on_crash: str) -> None:
    """It has no worker that could die: it stays held, under either policy, and resume goes on."""
    with paid_service() as service, Daemon(_work(service, on_crash), handlers=HANDLERS) as daemon:
        run = daemon.run("work")
        daemon.until(lambda: daemon.run_of(run)["progress"]["done"])
        daemon.post("/v1/jobs/work/pause", {"mode": "item"})
        daemon.run_when(run, lambda row: row["state"] == "held")

        daemon.kill9()
        daemon.start()

        assert daemon.run_of(run)["state"] == "held"
        assert daemon.job("work")["status"] == "paused"
        daemon.post("/v1/jobs/work/resume")
        assert daemon.ended(run)["state"] == "succeeded"
    assert set(service.calls().values()) == {1}


@pytest.mark.parametrize(
    ("on_crash", "after"), [("record", ("crashed", "owner_died")), ("resume", ("waiting", "owner_died"))]
)
def test_a_death_between_the_pause_and_the_hold_follows_the_policy(
    on_crash: str, after: tuple[str, str | None]
) -> None:
    """What was at work is unknown and nothing is begun; `resume` lets the run wait, `record` ends it."""
    with paid_service(takes=30.0) as service, Daemon(_work(service, on_crash), handlers=HANDLERS) as daemon:
        run = daemon.run("work")
        daemon.until(lambda: sum(service.calls().values()) == 2)
        daemon.post("/v1/jobs/work/pause", {"mode": "item"})

        daemon.kill9()
        service.takes = 0.0
        daemon.start()

        row = daemon.run_when(run, lambda row: row["state"] not in ("running", "recovering"))
        assert (row["state"], row["reason"], row["wish"]) == (*after, "hold")
        assert sorted(_states(daemon, run)) == ["pending"] * 10 + ["unknown"] * 2
        assert _is_silent(service, 1.0)
        daemon.post("/v1/jobs/work/resume")
        if on_crash == "record":
            daemon.post(f"/v1/runs/{run}/retry")
        row = daemon.ended(run)
        assert (row["state"], row["reason"]) == ("partial", "unknown_items")
        assert (row["progress"]["done"], row["progress"]["unknown"]) == (10, 2)
    assert set(service.calls().values()) == {1}
