"""What a scheduler has to do to be measured: put a load on itself, and say what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from benchmarks.harness.account import Account
from benchmarks.harness.figures import Step
from benchmarks.peers.meter import Load

__all__ = ["Contender", "Found", "Load"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What came of a load; seconds.

    Attributes:
        started: starts in all.
        outcomes: stored within the window.
        seconds: the window.
        cpu: that the window cost, all processes of the scheduler together.
        stall: the longest that a task which sleeps 2 ms had to wait beyond that; None where there is no loop.
        last_start: of a burst, after the due instant.
        all_stored: the same of the last outcome; None where nothing is stored, or not all in time.
        late: how late the starts in the window were.
        lag: the bound that the daemon's own metric gives for the same, from a look four times a second.
        account: of the daemon, from its history.
    """

    started: int
    outcomes: int
    seconds: float
    cpu: float
    stall: float | None = None
    last_start: float | None = None
    all_stored: float | None = None
    late: Sequence[float] = field(default_factory=tuple)
    lag: float | None = None
    account: Account | None = None

    @property
    def rate(self) -> float:
        """Outcomes stored per second."""
        return self.outcomes / self.seconds

    @property
    def cpu_per_fire(self) -> float:
        """Seconds of CPU for each stored outcome."""
        return self.cpu / max(1, self.outcomes)

    def step(self, jobs: int) -> Step:
        """This, as a step of the search for a capacity; no more than is due is stored for long."""
        return Step(jobs=jobs, rate=min(self.rate, jobs))


class Contender(Protocol):
    """A scheduler with a certain store and certain settings."""

    @property
    def name(self) -> str:
        """As it stands in a table."""
        ...

    @property
    def durable(self) -> str:
        """What of a fire is on disk."""
        ...

    def put(self, load: Load) -> Found:
        """Such a load was put on a fresh instance, measured, and everything ended; raises Unmeasured."""
        ...
