"""kill -9 in the middle of work, and a start: what is lost, what ran twice, how soon it goes on."""

from __future__ import annotations

import json
import math
import signal
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.harness.daemon import Daemon, running, site
from benchmarks.harness.ours import Schedulerd
from benchmarks.harness.processes import Unmeasured, end, sleep_until, workspace
from benchmarks.harness.section import Section, attempt
from benchmarks.harness.table import Verdict, at_most, number, table

SHORT, LONG, OVER = 1_000, 20, 5.0
"""Jobs of 30 ms, jobs that last until the kill, and seconds over which the former are due."""

KILLED_AFTER = 2.5
PATIENCE = 60.0
JOB = """
[jobs.{id}]
at = {at}
python = "bench_handlers:{handler}"
on_crash = "retry"
args = {{ ledger = "{ledger}" }}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """What the handlers' ledger and the store say after a kill and a new start; seconds from its command.

    Attributes:
        lost: short jobs that never came to their end.
        doubled: those that came to it twice.
        excused: of these, those that were running at the kill, which `on_crash = "retry"` starts again.
        running: runs that the store held as running at the kill.
        first: until an interrupted job ran again.
        last: until all of them did.
    """

    lost: int
    doubled: int
    excused: int
    running: int
    first: float
    last: float


def measure(ours: Schedulerd, repetitions: int) -> list[Restart] | str:
    """Each kill's result, or why there is none."""
    found: list[Restart] = []
    for _ in range(repetitions):
        one = attempt("kill -9 and restart", lambda: _measured(ours))
        if isinstance(one, str):
            return one
        found.append(one)
    return found


def section(found: Sequence[Restart] | str) -> Section:
    """The table, and the targets."""
    title = "kill -9 and restart under load"
    target = "7. an interrupted job runs again ≤ 1.5 s after the restart command"
    if isinstance(found, str):
        verdict = Verdict(target=target, measured=found, met=None)
        return Section(title=title, text=f"Not measured: {found}", verdicts=(verdict,))
    head = ["kill", "running at the kill", "never finished", "finished twice", "of these running at the kill",
            "first interrupted job again after, s", "the last"]  # fmt: skip
    rows = [
        [str(turn), number(one.running), number(one.lost), number(one.doubled), number(one.excused),
         number(one.first, 2), number(one.last, 2)]
        for turn, one in enumerate(found, start=1)
    ]  # fmt: skip
    lost, wrong = sum(one.lost for one in found), sum(one.doubled - one.excused for one in found)
    first = max(one.first for one in found)
    verdicts = (
        at_most("7. kill -9: none lost", lost, 0, f"{lost} of {SHORT * len(found):,}"),
        at_most("7. doubled only what was running at the kill", wrong, 0, f"{wrong} others"),
        at_most(target, first, 1.5, f"{number(first, 2)} s"),
    )
    return Section(title=title, text=table(head, rows), verdicts=verdicts)


def _measured(ours: Schedulerd) -> Restart:
    with workspace(ours.root) as folder, site(folder / "d") as place:
        ledger = folder / "ledger"
        due = math.ceil(time.time() + 2 + ours.pace.expected(SHORT + LONG))
        place.write_jobs("load", "".join(_jobs(due, ledger)))
        with running(place) as daemon:
            if time.time() > due - 0.5:
                raise Unmeasured("the daemon was not ready before the due instant")
            sleep_until(due + KILLED_AFTER)
            end(daemon.process, signal.SIGKILL)
            was_running = {job for (job,) in daemon.query("SELECT job FROM runs WHERE state = 'running'")}
        commanded = time.time()
        with running(place) as daemon:
            again = _wait(daemon, ledger, due)
        ends = Counter(job for what, job, _ in _lines(ledger) if what == "end")
        twice = {job for job, times in ends.items() if times > 1}
        return Restart(
            lost=sum(1 for number in range(SHORT) if not ends[f"s{number}"]),
            doubled=len(twice),
            excused=len(twice & was_running),
            running=len(was_running),
            first=min(again) - commanded,
            last=max(again) - commanded,
        )


def _jobs(due: float, ledger: Path) -> list[str]:
    start = datetime.fromtimestamp(due, UTC)
    moments = [start + timedelta(seconds=OVER * number / SHORT) for number in range(SHORT)]
    short = [
        JOB.format(id=f"s{number}", at=at.isoformat(), handler="short", ledger=ledger)
        for number, at in enumerate(moments)
    ]
    long = [
        JOB.format(id=f"l{number}", at=start.isoformat(), handler="long", ledger=ledger)
        for number in range(LONG)
    ]
    return short + long


def _wait(daemon: Daemon, ledger: Path, due: float) -> list[float]:
    """When each interrupted job began again, once all work is over or the patience is."""
    sleep_until(due + OVER)
    until = time.monotonic() + PATIENCE
    again: list[float] = []
    while time.monotonic() < until:
        again = _second_starts(ledger)
        ((unfinished,),) = daemon.query(
            "SELECT count(*) FROM runs WHERE state IN ('queued', 'running', 'recovering', 'waiting', 'held')"
        )
        ((unfired,),) = daemon.query("SELECT count(*) FROM jobs WHERE next_fire_at IS NOT NULL")
        if len(again) == LONG and not unfinished and not unfired:
            return again
        time.sleep(0.1)
    if not again:
        raise Unmeasured(f"no interrupted job ran again within {PATIENCE:.0f} s")
    return again


def _second_starts(ledger: Path) -> list[float]:
    starts: dict[str, list[float]] = {}
    for what, job, at in _lines(ledger):
        if what == "start" and job.startswith("l"):
            starts.setdefault(job, []).append(at)
    return [moments[1] for moments in starts.values() if len(moments) > 1]


def _lines(ledger: Path) -> list[tuple[str, str, float]]:
    """Its lines; one that the kill cut is no line."""
    found: list[tuple[str, str, float]] = []
    for line in ledger.read_text().splitlines():
        with suppress(json.JSONDecodeError):
            what, job, at = json.loads(line)
            found.append((what, job, at))
    return found
