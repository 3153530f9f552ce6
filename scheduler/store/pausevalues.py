"""What goes into the verbs about pauses and comes out of them: plain values."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.clock import Micros
from scheduler.model.jobs import JobId, Pause, PauseMode
from scheduler.model.runs import Run, RunId, Wish
from scheduler.store.values import Operated, Peer


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseAllRequest:
    """Pause all jobs.

    Attributes:
        until: when it lifts itself, or None.
    """

    mode: PauseMode
    peer: Peer
    note: str = ""
    until: Micros | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeAllRequest:
    """End the pause of all jobs; what paused single jobs stays."""

    peer: Peer


@dataclass(frozen=True, slots=True, kw_only=True)
class AllOperated:
    """What a verb on all jobs left behind.

    Attributes:
        pause: of all jobs, as it is now; None where there is none.
        changed: False where it already was as asked.
        in_flight: claims in force.
        wishes: runs whose wish changed now.
        cancelled: runs that ended in this transaction.
        lifted_at: as of when a pause ended now, or None.
    """

    pause: Pause | None
    changed: bool
    in_flight: tuple[Run, ...] = ()
    wishes: tuple[tuple[RunId, Wish], ...] = ()
    cancelled: tuple[Run, ...] = ()
    lifted_at: Micros | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseExpired:
    """A timed pause that lifted itself: what followed, and as of when."""

    job_id: JobId
    until: Micros
    done: Operated


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired:
    """The timed pauses that were over; `more`: there are others, for the next look."""

    jobs: tuple[PauseExpired, ...] = ()
    all: AllOperated | None = None
    more: bool = False
