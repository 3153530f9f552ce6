"""What goes into the store's verbs and comes out of them: requests, results, looks; all plain values."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from scheduler.clock import Micros
from scheduler.model.items import BegunItem, FrozenItem, ItemCounts, ItemState
from scheduler.model.jobs import Job, JobDefinition, JobId, Origin, Overlap, PauseMode
from scheduler.model.record import record
from scheduler.model.runs import Grant, Owner, Progress, Run, RunId, Wish
from scheduler.rules.planning import PauseSpan, SkippedSpan
from scheduler.rules.reconcile import Decision
from scheduler.rules.recovery import ClaimSeen

if TYPE_CHECKING:  # a key knows the values of this module
    from scheduler.store.keyed import RequestKey


@dataclass(slots=True, kw_only=True)
class Claimant:
    """Who claims, on what terms. One per daemon; only `serial` and `draining` change.

    Attributes:
        lease: how long a claim is believed without a sign of life.
        max_running: claims that may be live in the whole store at once.
        groups: the same per group.
        serial: daemons died repeatedly, so recovered runs restart one at a time: the one that kills them is
            found, and those beside it are not punished.
        draining: read inside each claiming transaction: once it is set no claim commits (I12).
    """

    owner: Owner
    lease: Micros
    max_running: int
    groups: Mapping[str, int] = field(default_factory=dict)
    serial: bool = False
    draining: bool = False


@record
class Peer:
    """Who asked: ids from the kernel (SO_PEERCRED), the command line from /proc; recorded in the audit.

    `key`: of the request that a verb carries out; with one it is carried out once (`store.once`).
    """

    uid: int
    gid: int
    pid: int
    command: str = ""
    key: RequestKey | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"uid:{self.uid}"


def own_peer() -> Peer:
    """The daemon as the author of what it does by itself."""
    return Peer(uid=os.getuid(), gid=os.getgid(), pid=os.getpid(), command="schedulerd")


@record
class Fired:
    """What FIRE did for one plan.

    Attributes:
        fired: False: the row was not as planned (paused, edited, fired by another); nothing was done.
        grants: runs claimed at once.
        queued: runs that wait for a slot.
        skips: skip rows written or extended, with the span added now.
        cancel: live runs that got the wish `cancel` (`overlap = "cancel_running"`).
        completed: the trigger has no further fire time and nothing of it is left: the job ended.
    """

    fired: bool
    grants: tuple[Grant, ...] = ()
    queued: tuple[Run, ...] = ()
    skips: tuple[SkippedSpan, ...] = ()
    cancel: tuple[RunId, ...] = ()
    cancelled: tuple[Run, ...] = ()
    completed: bool = False


@record
class StartRequest:
    """An operator's explicit wish for a run now.

    Attributes:
        run_id: chosen by the caller, so that memory knows the claim before it commits.
        overlap: what to do about a live or queued run; None = answer `AlreadyRunning`.
        args: JSON text handed to the run instead of the job's, or None.
        new: start a fresh batch run although an earlier one was cut or has unknown items.
    """

    job_id: JobId
    run_id: RunId
    peer: Peer
    overlap: Overlap | None = None
    args: str | None = None
    new: bool = False


@record
class Started:
    """A manual run: claimed (`grant`) or queued, and the live runs it asks to end."""

    run: Run
    grant: Grant | None
    cancel: tuple[RunId, ...] = ()
    cancelled: tuple[Run, ...] = ()


@record
class ClaimRef:
    """A claim as memory knows it."""

    run_id: RunId
    claim: int


@record
class Report:
    """What an attempt tells of itself while it runs; None leaves a column as it is.

    Attributes:
        progress_at: the last sign of life of the work.
        cost: cumulative.
    """

    run_id: RunId
    claim: int
    progress_at: Micros | None = None
    progress: Progress | None = None
    cost: float | None = None
    pid: int | None = None
    pid_ticks: int | None = None


@record
class Finished:
    """What a write-back did.

    Attributes:
        run: the row as it is now.
        job: the live job row, or None if it never was.
        ended: queued and waiting runs cancelled because the job ended.
    """

    decision: Decision
    run: Run
    job: Job | None
    ended: tuple[Run, ...] = ()


@record
class PauseRequest:
    """Pause one job.

    Attributes:
        until: when it lifts itself, or None.
    """

    job_id: JobId
    mode: PauseMode
    peer: Peer
    note: str = ""
    until: Micros | None = None


class Missed(StrEnum):
    """What `resume` does about the fire times that a pause held back."""

    SKIP = "skip"
    LATEST = "latest"
    ALL = "all"


@record
class ResumeRequest:
    """Resume one job."""

    job_id: JobId
    peer: Peer
    missed: Missed = Missed.SKIP


@record
class Operated:
    """What an operator verb left behind.

    Attributes:
        changed: False where the row already was as asked (the verb is idempotent).
        in_flight: live and queued runs of the job.
        wishes: runs in memory whose wish changed now.
        cancelled: runs that ended in this transaction (queued, waiting, held).
    """

    job: Job
    changed: bool
    in_flight: tuple[Run, ...] = ()
    wishes: tuple[tuple[RunId, Wish], ...] = ()
    cancelled: tuple[Run, ...] = ()
    spans: tuple[SkippedSpan, ...] = ()
    completed: bool = False


@record
class Cancelled:
    """A cancel: the run as it is now, and whether its worker must be told."""

    run: Run
    tell_worker: bool
    finished: Finished | None = None


class ChangeKind(StrEnum):
    """What a definition change does."""

    ADD = "add"
    CHANGE = "change"
    REMOVE = "remove"
    MOVE = "move"


@record
class DefinitionChange:
    """One job added, changed, removed, or only moved to another file.

    Attributes:
        expects: the `definition_revision` that the author saw (If-Match), or None.
    """

    kind: ChangeKind
    job_id: JobId
    origin: Origin
    peer: Peer
    definition: JobDefinition | None = None
    origin_file: str | None = None
    expects: int | None = None


@record
class LiveLook:
    """A look at claims: `running` rows, `recovering` rows without a recoverer, runs with wedged items."""

    now: Micros
    running: tuple[ClaimSeen, ...]
    recovering: tuple[Run, ...]
    wedged: tuple[RunId, ...] = ()


@record
class DueLook:
    """What is due: jobs whose `due_at` has come, and what a plan for them has to know.

    Attributes:
        paused: pauses of all jobs that are over and may have held a slot of these jobs, oldest first.
        pause_over: some timed pause has come to its end.
        claimable: some run waits and may perhaps be claimed.
        next_wake: the earliest moment after `now` at which something could act by itself, or None.
    """

    now: Micros
    jobs: tuple[Job, ...]
    paused: tuple[PauseSpan, ...] = ()
    pause_over: bool = False
    claimable: bool = False
    next_wake: Micros | None = None


@record
class AuditEntry:
    """One mutation: who, when, what."""

    seq: int
    at: Micros
    verb: str
    job: str | None
    run: str | None
    peer: Peer
    detail: Mapping[str, object]


@record
class Counts:
    """Jobs by status and runs by unfinished state."""

    jobs: Mapping[str, int]
    runs: Mapping[str, int]


@record
class JobView:
    """A job with what a list shows of its runs."""

    job: Job
    last_run: Run | None
    live_runs: tuple[Run, ...]


@record
class ItemSlice:
    """A slice of the list of a batch run's items, written under the claim that makes the list."""

    run_id: RunId
    claim: int
    items: tuple[FrozenItem, ...]


@record
class BeginItems:
    """A worker wants to begin up to `limit` items of its run."""

    run_id: RunId
    claim: int
    limit: int


class NoBegin(StrEnum):
    """Why no item, or fewer than wanted, was begun."""

    WAITING = "waiting"
    """Those that are left wait for their next try, or are under way."""
    EMPTY = "empty"
    HELD = "held"
    FROZEN = "frozen"
    CANCELLED = "cancelled"
    FAILED_ENOUGH = "failed_enough"
    BUDGET = "budget"
    DRAINING = "draining"
    FENCED = "fenced"


@record
class Begun:
    """The begins of one request.

    Attributes:
        items: durably `running` under this claim; their calls may start.
        stop: why they are fewer than wanted, or None.
        next_ready_at: when the next item that waits for another try may have it.
        paused: the job, where its budget has paused it now.
        counts: how the items stood before these begins; None where that was not looked at.
    """

    items: tuple[BegunItem, ...] = ()
    stop: NoBegin | None = None
    message: str | None = None
    next_ready_at: Micros | None = None
    paused: Job | None = None
    counts: ItemCounts | None = None


@record
class ItemOutcome:
    """What came of one begin.

    Attributes:
        nonce: of the begin; an outcome under any other is not kept.
        wait: how long a pending one waits for its next try.
        charged: it counts as one of the item's tries.
        cost: of this call in millionths; None = it told none, so the estimate stands.
    """

    run_id: RunId
    index: int
    nonce: str
    state: ItemState
    result: str | None = None
    error: str | None = None
    wait: Micros = 0
    charged: bool = False
    cost: int | None = None


@record
class SettleItem:
    """An operator's word on an item: `done`, `pending` (to be run again) or `failed`."""

    run_id: RunId
    key: str
    state: ItemState
    peer: Peer
