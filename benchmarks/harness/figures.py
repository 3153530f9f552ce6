"""Statistics of a few numbers, and the search for a capacity: pure, so that a test can judge them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


def share_below(values: Iterable[float], share: float) -> float:
    """The smallest value that at least that share of the values does not exceed; NaN of none."""
    ordered = sorted(values)
    if not ordered:
        return math.nan
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def middle(values: Iterable[float]) -> float:
    """The median; of an even number the mean of the two in the middle; NaN of none."""
    ordered = sorted(values)
    if not ordered:
        return math.nan
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def ratio(ours: float | None, other: float | None) -> float:
    """How many times the other; NaN where there is nothing to compare with."""
    return ours / other if ours is not None and other else math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One load of the search for a capacity: jobs due each second, outcomes stored per second."""

    jobs: int
    rate: float


SATURATED = 0.9
"""What stores less than this share of what is due has passed its capacity."""

PROMISING = 0.6
"""Where the search goes on, as a share of the capacity that one core would have."""


def next_step(ladder: Sequence[int], taken: Sequence[Step], expected: float = 0.0) -> int | None:
    """How many jobs to try next: up the ladder, until the demand is no longer met.

    Steps far below `expected`, a capacity guessed from the CPU per fire, are left out.
    """
    if not taken:
        return ladder[0]
    last = taken[-1]
    if last.rate < SATURATED * last.jobs:
        return None
    higher = [jobs for jobs in ladder if jobs > last.jobs]
    promising = [jobs for jobs in higher if jobs >= PROMISING * expected]
    return next(iter(promising or higher[-1:]), None)


def peak(taken: Iterable[Step]) -> Step | None:
    """The step at which most was stored."""
    return max(taken, key=lambda step: step.rate, default=None)


def around(ladder: Sequence[int], best: Step) -> tuple[int, ...]:
    """What a repetition tries: the best step and, where its demand was met, the next higher one."""
    higher = [jobs for jobs in ladder if jobs > best.jobs]
    if best.rate >= SATURATED * best.jobs and higher:
        return best.jobs, higher[0]
    return (best.jobs,)
