"""Notices on their way: tries and their pauses, order, bounds, and the end."""

from __future__ import annotations

import asyncio

from scheduler.clock import SECOND
from scheduler.engine.alerts import Alert, AlertKind, PingCall
from scheduler.engine.deliveries import CAPACITY, WAITS, Deliveries, Undelivered
from scheduler.model.alerts import HookCommand
from scheduler.model.jobs import JobId
from scheduler.telemetry import Event
from tests.support.clock import FakeClock
from tests.support.engine import ToldLog


class ScriptedCourier:
    """Delivers as told: each notice to an URL in `refusals` fails so often, `gates` make it wait."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str | None]] = []
        self.refusals: dict[str, list[Undelivered]] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.broken = False

    async def ping(self, notice: PingCall) -> None:
        self.asked.append((notice.url, notice.run_id))
        if self.broken:
            raise RuntimeError("a bug")
        if notice.url in self.gates:
            await self.gates[notice.url].wait()
        if self.refusals.get(notice.url):
            raise self.refusals[notice.url].pop(0)

    async def alert(self, notice: Alert) -> None:
        self.asked.append((f"hook:{notice.kind}", None))


class Bench:
    def __init__(self) -> None:
        self.clock, self.log, self.courier = FakeClock(), ToldLog(), ScriptedCourier()
        self.deliveries = Deliveries(self.courier, self.clock, self.log)

    def lost(self) -> list[object]:
        return [line["message"] for line in self.log.of(Event.ALERT_UNDELIVERED)]


def ping(url: str, run_id: str = "r", job: str = "a") -> PingCall:
    return PingCall(job=JobId(job), url=url, run_id=run_id)


async def test_a_refused_notice_is_tried_again_and_then_given_up() -> None:
    """Four tries with growing pauses; then one line in the log, and the next notice has its turn."""
    bench = Bench()
    bench.courier.refusals = {"x": [Undelivered(f"no {number}") for number in range(9)]}
    bench.deliveries.put(ping("x"))
    bench.deliveries.put(ping("y"))
    await bench.clock.advance(0)
    assert bench.courier.asked == [("x", "r")]

    for tries, wait in enumerate(WAITS, 1):
        await bench.clock.advance(wait - 1)
        assert len(bench.courier.asked) == tries
        assert not bench.lost()
        await bench.clock.advance(1)

    assert bench.courier.asked == [("x", "r")] * 4 + [("y", "r")]
    assert bench.lost() == ["no 3"]


async def test_a_final_refusal_is_not_tried_again() -> None:
    """What would be the same next time is given up at once."""
    bench = Bench()
    bench.courier.refusals = {"x": [Undelivered("gone", final=True)]}
    bench.deliveries.put(ping("x"))

    await bench.clock.advance(100 * SECOND)

    assert bench.courier.asked == [("x", "r")]
    assert bench.lost() == ["gone"]


async def test_notices_of_a_job_keep_their_order_and_do_not_hold_others_up() -> None:
    """While one hangs, its job's next ping waits; its hooks and other jobs do not."""
    bench = Bench()
    gate = bench.courier.gates["slow"] = asyncio.Event()
    bench.deliveries.put(ping("slow", "1"))
    bench.deliveries.put(ping("next", "1"))
    bench.deliveries.put(ping("other", "2", job="b"))
    bench.deliveries.put(
        Alert(job=JobId("a"), kind=AlertKind.FAILURE, hook=HookCommand(argv=("x",)), facts={})
    )

    await bench.clock.advance(0)
    assert {url for url, _ in bench.courier.asked} == {"slow", "other", "hook:failure"}
    gate.set()
    await bench.clock.advance(0)

    assert bench.courier.asked[-1] == ("next", "1")


async def test_the_queue_is_bounded_and_what_does_not_fit_is_told() -> None:
    """A receiver that hangs costs a bounded number of notices in memory; more are told as lost."""
    bench = Bench()
    bench.courier.gates["slow"] = asyncio.Event()
    for number in range(CAPACITY + 3):
        bench.deliveries.put(ping("slow", str(number)))

    assert len(bench.lost()) == 3
    bench.courier.gates["slow"].set()
    await bench.deliveries.close(SECOND)
    assert len(bench.courier.asked) == CAPACITY


async def test_a_bug_in_a_delivery_is_told_and_stays_alone() -> None:
    """An error that nobody foresaw loses its own notice, not those that follow."""
    bench = Bench()
    bench.courier.broken = True
    bench.deliveries.put(ping("x"))
    await bench.clock.advance(0)
    bench.courier.broken = False
    bench.deliveries.put(ping("y"))
    await bench.clock.advance(0)

    assert [url for url, _ in bench.courier.asked] == ["x", "y"]
    assert bench.lost() == ["RuntimeError in the delivery"]


async def test_a_stop_delivers_what_it_can_within_its_bound_and_tells_the_rest() -> None:
    """What hangs is cut at the bound; each notice that did not go out has its line."""
    bench = Bench()
    bench.courier.gates["slow"] = asyncio.Event()
    bench.deliveries.put(ping("slow", "1"))
    bench.deliveries.put(ping("behind", "1"))
    bench.deliveries.put(ping("quick", "2", job="b"))

    await bench.deliveries.close(SECOND // 20)

    assert ("quick", "2") in bench.courier.asked
    assert bench.lost() == ["the daemon stopped first"] * 2
