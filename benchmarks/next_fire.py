"""Microseconds per next fire: our matcher beside cronsim and APScheduler's CronTrigger.

Prints a markdown table. Each number is the best of five runs that iterate from fire to fire, as a daemon
does; cronsim iterates its own object, which is its fastest way. Run: `python benchmarks/next_fire.py`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from apscheduler.triggers.cron import CronTrigger
from cronsim import CronSim

from scheduler.clock import to_micros
from scheduler.model.triggers import Cron, Every

EXPRESSIONS = (
    "*/5 * * * *",
    "30 4 * * *",
    "0 9 * * 1-5",
    "0 0 1,15 * 1",
    "0 0 1 1 *",
    "0 0 29 2 *",
    "0 0 29 2 1#5",
    "*/10 * * * * *",
)
ZONES = ("UTC", "Europe/Berlin")
START = datetime(2026, 1, 1, tzinfo=UTC)
BUDGET_MICROS = 60.0
COMMON = frozenset(EXPRESSIONS[:4])


def main() -> int:
    """Prints the table; exits 1 if a common kind is over its budget."""
    print("| expression | zone | ours | cronsim | APScheduler | cronsim / ours | APScheduler / ours |")
    print("|---|---|---|---|---|---|---|")
    over = 0
    for expression in EXPRESSIONS:
        for zone in ZONES:
            over += _row(expression, zone)
    _print_planning()
    return 1 if over else 0


def _row(expression: str, zone: str) -> int:
    fires = 20 if "29 2" in expression else 70 if "1 1" in expression else 500
    ours = _measure(lambda: _iterate_ours(expression, zone, fires), fires)
    cronsim = _measure(lambda: _iterate_cronsim(expression, zone, fires), fires)
    apscheduler = None
    if "#" not in expression and len(expression.split()) == 5:
        apscheduler = _measure(lambda: _iterate_apscheduler(expression, zone, fires), fires)
    cells = [f"`{expression}`", zone, f"{ours:.1f}", f"{cronsim:.1f}", _cell(apscheduler)]
    cells += [f"{cronsim / ours:.1f}x", "-" if apscheduler is None else f"{apscheduler / ours:.1f}x"]
    print(f"| {' | '.join(cells)} |")
    return int(expression in COMMON and ours > BUDGET_MICROS)


def _cell(micros: float | None) -> str:
    return "-" if micros is None else f"{micros:.1f}"


def _print_planning() -> None:
    """What a daemon asks after ten years of downtime."""
    start, now = to_micros(datetime(2016, 1, 1, tzinfo=UTC)), to_micros(START)
    print("\n| after ten years down | last fire, next fire and count, µs |")
    print("|---|---|")
    for name, trigger in (
        ("`* * * * * *` Berlin", Cron("* * * * * *", "Europe/Berlin")),
        ("`30 2 * * *` Berlin", Cron("30 2 * * *", "Europe/Berlin")),
        ("every 1 s", Every(1_000_000)),
    ):

        def plan(trigger: Cron | Every = trigger) -> None:
            trigger.last_fire(now)
            trigger.next_fire(now)
            trigger.count_fires(start, now)

        print(f"| {name} | {_measure(plan, 1):.0f} |")


def _iterate_ours(expression: str, zone: str, fires: int) -> None:
    cron = Cron(expression, zone)
    fire: int | None = to_micros(START)
    for _ in range(fires):
        fire = None if fire is None else cron.next_fire(fire)


def _iterate_cronsim(expression: str, zone: str, fires: int) -> None:
    iterator = CronSim(expression, START.astimezone(ZoneInfo(zone)))
    for _ in range(fires):
        next(iterator)


def _iterate_apscheduler(expression: str, zone: str, fires: int) -> None:
    # Weekday numbers begin with Monday there; the work is the same, only the days differ.
    trigger = CronTrigger.from_crontab(expression, timezone=ZoneInfo(zone))
    fire = START.astimezone(ZoneInfo(zone))
    for _ in range(fires):
        fire = trigger.get_next_fire_time(fire, fire)


def _measure(work: Callable[[], None], units: int) -> float:
    work()
    best = float("inf")
    for _ in range(5):
        begin = time.perf_counter_ns()
        work()
        best = min(best, (time.perf_counter_ns() - begin) / 1_000 / units)
    return best


if __name__ == "__main__":
    sys.exit(main())
