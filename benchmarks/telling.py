"""What it costs to tell an event, beside a bare loop of orjson and writes.

The bare loop has a ready dictionary, and knows no time, no bounds, no masks and no queue. Lines go into a
pipe that `cat` empties. CPU is the least of several rounds that take turns; that of all threads includes the
writer's. Prints a markdown table.

Run: `python benchmarks/telling.py`
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TextIO

import orjson

from scheduler.clock import SECOND, SystemClock
from scheduler.engine.eventring import EventRing, Tee
from scheduler.metrics import Metrics
from scheduler.model.runs import RunTrigger
from scheduler.telemetry import Event, Telemetry, configure, get_logger

EVENTS = 2_000
ROUNDS = 15
MOST_OF_BARE = 20.0
"""A line and its entry in the ring may cost so many times the bare loop: an alarm at twice what they do."""

Fields = dict[str, object]
Way = Callable[[list[Fields]], None]


def main() -> int:
    """Prints the table; exits 1 if telling costs far more than writing."""
    reader, writer = os.pipe()
    with subprocess.Popen(["cat"], stdin=reader, stdout=subprocess.DEVNULL):  # noqa: S607
        os.close(reader)
        with os.fdopen(writer, "w") as pipe:
            figures = asyncio.run(_measure(pipe))
    bare = figures["bare: orjson and a write"]
    print("| one event | CPU of the caller, µs | of all threads, µs | events/s by CPU | all / bare |")
    print("|---|---|---|---|---|")
    for name, (caller, everyone) in figures.items():
        cells = [name, f"{caller:.2f}", f"{everyone:.2f}", f"{1e6 / everyone:,.0f}"]
        print(f"| {' | '.join(cells)} | {everyone / bare[1]:.2f} |")
    return 1 if figures["a line and the ring"][1] > MOST_OF_BARE * bare[1] else 0


async def _measure(pipe: TextIO) -> dict[str, tuple[float, float]]:
    """The least microseconds per event of each way: of the calling thread, and of all."""
    ring = EventRing("bench", SystemClock())
    metrics = Metrics()
    telemetry = configure("json", "info", pipe)
    lines = get_logger().bind()
    both = Tee(get_logger(), ring)
    ways: dict[str, Way] = {
        "bare: orjson and a write": _bare(pipe.fileno()),
        "a line": _each(lines.info),
        "a line and the ring": _each(both.info),
        "below the level": _each(lines.debug),
        "below the level, and the ring": _each(both.debug),
        "metrics of one fire and its end": _counting(metrics),
    }
    best = dict.fromkeys(ways, (float("inf"), float("inf")))
    for number in range(ROUNDS):
        events = [_fields(number * EVENTS + index) for index in range(EVENTS)]
        for name, way in ways.items():
            caller, everyone = _round(way, events, telemetry)
            best[name] = min(best[name][0], caller), min(best[name][1], everyone)
    if telemetry.lines_lost:
        raise SystemExit(f"{telemetry.lines_lost} lines were lost")
    telemetry.close()
    return best


def _round(way: Way, events: list[Fields], telemetry: Telemetry) -> tuple[float, float]:
    began, all_began = time.thread_time_ns(), time.process_time_ns()
    way(events)
    caller = time.thread_time_ns() - began
    telemetry.flush(30)
    everyone = time.process_time_ns() - all_began
    return caller / len(events) / 1e3, everyone / len(events) / 1e3


def _fields(number: int) -> Fields:
    """What a claimed run says of itself."""
    return {
        "job": f"nightly-{number % 50}",
        "run_id": f"0191d2f3-5a00-7000-8000-{number:012}",
        "attempt": 1,
        "claim": number,
        "fire_time": 1_700_000_000 * SECOND + number // 1_000 * SECOND,
        "trigger": RunTrigger.SCHEDULE,
    }


def _each(tell: Callable[..., None]) -> Way:
    def way(events: list[Fields]) -> None:
        for fields in events:
            tell(Event.RUN_CLAIMED, **fields)

    return way


def _bare(fd: int) -> Way:
    def way(events: list[Fields]) -> None:
        for fields in events:
            os.write(fd, orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE))

    return way


def _counting(metrics: Metrics) -> Way:
    def way(events: list[Fields]) -> None:
        for number, fields in enumerate(events):
            metrics.fired("schedule", number)
            metrics.job_ran(str(fields["job"]), "succeeded", None, number)
            metrics.run_ended("succeeded", number)

    return way


if __name__ == "__main__":
    sys.exit(main())
