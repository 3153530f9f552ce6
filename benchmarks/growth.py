"""Whether a store levels off: hours of 100 fires a second, with retention on, as fast as they can be played.

The real store, the planning of fires and the daemon's own retention, with a clock that is moved: each second
100 jobs fire, their runs end, and each minute retention has its look. What the disk and the process hold is
written down ten times. Prints a markdown table; exits 1 if something still grows after the history is as old
as it may become.

Run: `python benchmarks/growth.py` (a quarter of an hour, history of three minutes) or, with `--full`, a week
with a history of a day: it takes hours and 10 GB of disk.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from scheduler.clock import DAY, HOUR, MINUTE, SECOND, Alarm, Micros, SystemClock
from scheduler.config.jobfile import parse_definition
from scheduler.config.settings import Settings
from scheduler.engine.retention import RetentionWatch
from scheduler.executors.processes import this_owner
from scheduler.model.jobs import Origin
from scheduler.model.runs import Grant, RunId, new_owner_id, new_run_id
from scheduler.rules.planning import plan_fire
from scheduler.rules.verdicts import Ending, Verdict
from scheduler.store.sqlite import FILE_NAME, SqliteStore
from scheduler.store.values import ChangeKind, Claimant, DefinitionChange, own_peer
from scheduler.telemetry import get_logger

RATE = 100
LOOKS = 10
MOST = 1.15
"""By how much the last look may be above the fifth: by then the history is twice as old as it may be."""

PAGE_OF_MEMORY = 4_096


@dataclass(slots=True)
class Played:
    """A clock that somebody moves."""

    at: Micros

    def now(self) -> Micros:
        return self.at

    def monotonic(self) -> Micros:
        return self.at

    async def sleep(self, duration: Micros) -> None:
        await SystemClock().sleep(min(duration, 1))

    def call_later(self, duration: Micros, call: Callable[[], object]) -> Alarm:
        return SystemClock().call_later(duration, call)


@dataclass(frozen=True, slots=True)
class Look:
    """What is held at one moment: rows, and megabytes of file, write-ahead log and memory."""

    hours: float
    runs: int
    file: float
    log: float
    memory: float


def main() -> int:
    """Prints the table; exits 1 if something still grows."""
    full = "--full" in sys.argv[1:]
    looks = asyncio.run(played(7 * DAY if full else 15 * MINUTE, age=DAY if full else 3 * MINUTE))
    print(f"| hours of {RATE} fires/s | runs kept | file, MB | write-ahead log, MB | memory, MB |")
    print("|---|---|---|---|---|")
    for look in looks:
        print(f"| {look.hours:.2f} | {look.runs:,} | {look.file:.1f} | {look.log:.1f} | {look.memory:.1f} |")
    middle, last = looks[LOOKS // 2 - 1], looks[-1]
    grown = [
        name
        for name in ("runs", "file", "log", "memory")
        if getattr(last, name) > MOST * getattr(middle, name)
    ]
    if grown:
        print(f"\nStill growing: {', '.join(grown)}.")
    return int(bool(grown))


async def played(span: Micros, *, age: Micros) -> list[Look]:
    """What was held at ten moments of the span."""
    clock = Played(SystemClock().now() // MINUTE * MINUTE)
    begun_at = clock.at
    with TemporaryDirectory(prefix="growth-") as folder:
        path = Path(folder) / FILE_NAME
        store = await SqliteStore.open(path, clock)
        who = Claimant(owner=this_owner(new_owner_id()), lease=MINUTE, max_running=2 * RATE, groups={})
        await store.register(who.owner)
        await store.apply([_job(number) for number in range(RATE)])
        watch = RetentionWatch(
            store, clock, get_logger(), runs_per_job=None, age=age, remove_outputs=_nothing_to_remove
        )
        looks: list[Look] = []
        while len(looks) < LOOKS:
            clock.at += SECOND
            await _second(store, who)
            if clock.at % MINUTE == 0:
                await watch.look()
            if clock.at - begun_at >= (len(looks) + 1) * span // LOOKS:
                looks.append(_look(store, path, clock.at - begun_at))
        await store.close()
    return looks


async def _second(store: SqliteStore, who: Claimant) -> None:
    """All jobs have fired, and their runs have ended well."""
    granted: list[Grant] = []
    while len(granted) < RATE:
        due = await store.due(limit=50, late_after=MINUTE, late_limit=50)
        plans = [plan for job in due.jobs if (plan := plan_fire(job, due.now, partial(new_run_id, due.now)))]
        if not plans:
            break
        granted += [grant for fired in await store.fire(who, plans) for grant in fired.grants]
    await store.finish([_ended(grant) for grant in granted])


def _ended(grant: Grant) -> Verdict:
    return Verdict(
        run_id=grant.run.id, claim=grant.run.claim, expects=grant.run.state, ending=Ending.SUCCEEDED
    )


def _job(number: int) -> DefinitionChange:
    definition = parse_definition(f"job-{number}", {"every": "1s", "command": ["true"]}, Settings())
    return DefinitionChange(
        kind=ChangeKind.ADD, job_id=definition.id, definition=definition, origin=Origin.API, peer=own_peer()
    )


async def _nothing_to_remove(_: Sequence[RunId]) -> None:
    """Runs that printed nothing have no output."""


def _look(store: SqliteStore, path: Path, passed: Micros) -> Look:
    with closing(sqlite3.connect(path)) as db:
        runs = int(db.execute("SELECT count(*) FROM runs").fetchone()[0])
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return Look(
        hours=passed / HOUR,
        runs=runs,
        file=path.stat().st_size / 1e6,
        log=store.log_size() / 1e6,
        memory=pages * PAGE_OF_MEMORY / 1e6,
    )


if __name__ == "__main__":
    sys.exit(main())
