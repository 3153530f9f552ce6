"""How many fires a second are stored: jobs that are due each second, more and more of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from benchmarks.harness.contender import Contender, Found, Load
from benchmarks.harness.figures import Step, around, middle, next_step, peak, ratio
from benchmarks.harness.section import Section, attempt
from benchmarks.harness.table import UNKNOWN, Verdict, at_least, number, table, times


@dataclass(slots=True, kw_only=True)
class Entry:
    """A contender of this section, and what it has shown so far.

    Attributes:
        key: by which a target names it.
        contender: what is measured.
        ladder: jobs due each second, from few to many.
        repetitions: how often its peak is measured.
        trigger: of its jobs.
    """

    key: str
    contender: Contender
    ladder: Sequence[int]
    repetitions: int = 1
    trigger: Literal["every", "cron"] = "every"
    rounds: list[list[Found]] = field(default_factory=list)
    peaks: list[Step] = field(default_factory=list)
    failure: str = ""

    @property
    def rate(self) -> float:
        """The median of its peaks, in outcomes stored per second."""
        return middle(step.rate for step in self.peaks)

    @property
    def best(self) -> Step | None:
        """The highest of its peaks."""
        return peak(self.peaks)


TARGETS: Sequence[tuple[str, float]] = (
    ("aps3-memory", 0.75),
    ("aps3-sqlite", 10),
    ("aps3-wal", 7),
    ("pgqueuer", 1.3),
    ("aps4", 60),
)
"""What our peak has to be, as multiples of a peer's."""


def measure(entries: Sequence[Entry], *, window: int) -> None:
    """Each entry has its peaks; the contenders took turns."""
    for repetition in range(max(entry.repetitions for entry in entries)):
        for entry in entries:
            if repetition < entry.repetitions and not entry.failure:
                _round(entry, window)


def _round(entry: Entry, window: int) -> None:
    """One peak more: the first time by climbing, then around the best so far."""
    found: list[Found] = []
    taken: list[Step] = []
    best = entry.best
    while True:
        if best is None:
            jobs = next_step(entry.ladder, taken, 1 / found[-1].cpu_per_fire if found else 0.0)
        else:
            jobs = next(iter(around(entry.ladder, best)[len(taken) :]), None)
        if jobs is None:
            break
        load = Load(kind="sustained", jobs=jobs, folder="", trigger=entry.trigger, window=window)
        what = f"sustained, {entry.contender.name}, {entry.trigger}: {jobs:,} a second"
        one = attempt(what, partial(entry.contender.put, load))
        if isinstance(one, str):
            entry.failure = "" if taken else one
            break
        found.append(one)
        taken.append(one.step(jobs))
    if (highest := peak(taken)) is not None:
        entry.peaks.append(highest)
        entry.rounds.append(found)


def section(entries: Sequence[Entry], *, grouped: float | None) -> Section:
    """The table of peaks, and the targets that are ratios of them."""
    rates = {entry.key: entry.rate for entry in entries}
    ours = rates.get("ours")
    rows = [_row(entry, ours) for entry in entries]
    head = ["", "outcomes stored/s", "jobs due each s", "µs of CPU per fire", "durable", "schedulerd / it"]
    text = table(head, rows)
    if grouped is not None:
        text += (
            "\n\nThe same machine's limit for our four statements of a fire, 1,000 fires to a transaction in"
            f" plain `sqlite3`: {number(grouped)} fires/s."
        )
    text += _told(entries)
    return Section(title="Sustained fires", text=text, verdicts=tuple(_verdicts(rates, grouped)))


def _told(entries: Sequence[Entry]) -> str:
    accounts = [
        found.account for entry in entries for turn in entry.rounds for found in turn if found.account
    ]
    ran, explained = sum(one.ran for one in accounts), sum(one.explained for one in accounts)
    lost, doubled = sum(one.lost for one in accounts), sum(one.doubled for one in accounts)
    return (
        f"\n\nOver all these loads schedulerd's history holds {number(ran)} runs; {number(explained)} fire"
        f" times have a row that explains why they did not run, {number(lost)} have none, {number(doubled)}"
        " have two."
    )


def _row(entry: Entry, ours: float | None) -> list[str]:
    contender = entry.contender
    name = f"{contender.name}, cron" if entry.trigger == "cron" else contender.name
    if not entry.peaks:
        return [name, f"not measured: {entry.failure}", "", "", contender.durable, ""]
    at = {step.jobs for step in entry.peaks}
    cpu = middle(
        found.cpu_per_fire * 1e6
        for turn in entry.rounds
        for found in turn
        if found.rate == max(one.rate for one in turn)
    )
    compared = None if entry.key == "ours" else ratio(ours, entry.rate)
    several = "" if len(entry.peaks) == 1 else f" ({', '.join(number(step.rate) for step in entry.peaks)})"
    jobs = "–".join(f"{jobs:,}" for jobs in sorted({min(at), max(at)}))
    return [name, number(entry.rate) + several, jobs, number(cpu), contender.durable, times(compared)]


def _verdicts(rates: Mapping[str, float], grouped: float | None) -> Iterable[Verdict]:
    ours = rates.get("ours")
    for key, bound in TARGETS:
        compared = ratio(ours, rates.get(key))
        yield at_least(f"1. sustained fires/s ≥ {bound:g} × {NAMES[key]}", compared, bound, times(compared))
    share = ratio(ours, grouped)
    told = UNKNOWN if math.isnan(share) else f"{share:.0%}"
    yield at_least("1. ≥ 20 % of the grouped limit of our statements", share, 0.2, told)
    cron = ratio(rates.get("cron"), ours)
    yield at_least("1. with cron triggers the same ± 10 %", cron, 0.9, times(cron))


NAMES = {
    "aps3-memory": "APScheduler 3 in memory",
    "aps3-sqlite": "APScheduler 3 + SQLite as shipped",
    "aps3-wal": "APScheduler 3 + SQLite in WAL",
    "pgqueuer": "pgqueuer",
    "aps4": "APScheduler 4 + SQLite",
}
"""Peers, as targets name them."""
