"""Whether every fire time is accounted for: it made one run, or a skip row explains it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

SECOND = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of the history; instants in microseconds.

    Attributes:
        job: which job.
        first: its fire time, or the first one that it stands for.
        last: the last one that it stands for.
        count: how many it says it stands for.
        skipped: whether it explains why nothing ran.
    """

    job: str
    first: int
    last: int
    count: int = 1
    skipped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Fire times of all jobs: those that ran, those that a row explains, and what should not be."""

    ran: int
    explained: int
    lost: int
    doubled: int


def settle(rows: Iterable[Row], next_fires: dict[str, int], *, period: int = SECOND) -> Account:
    """The account of jobs that fire every `period`, from the earliest row of all to each job's next fire."""
    by_job: dict[str, list[Row]] = {job: [] for job in next_fires}
    for row in rows:
        by_job.setdefault(row.job, []).append(row)
    begin = min((row.first for rows in by_job.values() for row in rows), default=0)
    ran = explained = lost = doubled = 0
    for job, of_job in by_job.items():
        covered: dict[int, int] = {}
        for row in of_job:
            fires = range(row.first, row.last + 1, period)
            # A row that says another number than its span holds is wrong in either direction.
            doubled += max(0, row.count - len(fires))
            lost += max(0, len(fires) - row.count)
            for fire in fires:
                covered[fire] = covered.get(fire, 0) + 1
            ran += 0 if row.skipped else 1
            explained += row.count if row.skipped else 0
        end = next_fires.get(job, max(covered, default=begin) + period)
        lost += sum(1 for fire in range(begin, end, period) if fire not in covered)
        doubled += sum(times - 1 for times in covered.values())
    return Account(ran=ran, explained=explained, lost=lost, doubled=doubled)
