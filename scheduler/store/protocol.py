"""The store's verbs: lists in, one result per row out, each verb one transaction.

No caller sees SQL or a transaction, `now` is the store's own clock, and a caller returns only after the
commit (I10). One conformance suite (`tests/store`) states the contract; every store passes it unchanged.

Column authors (I16): *operator*: definition, `enabled`, `status` to paused/active, the pause columns,
`wish`. *Attempt*: outcome, result, progress, child identity. *Engine*: `last_fire_at claim owner
lease_until generation job_counted fires_done`. *Shared*, always conditional on what was seen: `status
next_fire_at due_at`, the failure counters, a run's `state reason message ready_at`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from scheduler.clock import Micros
from scheduler.errors import SchedulerError
from scheduler.model.jobs import (
    Job,
    JobDefinition,
    JobId,
    Origin,
    Overlap,
    PauseMode,
)
from scheduler.model.runs import (
    Attempt,
    Grant,
    Owner,
    OwnerId,
    Progress,
    Run,
    RunId,
    RunState,
    Wish,
)
from scheduler.rules.planning import FirePlan, SkippedSpan
from scheduler.rules.reconcile import Decision, Verdict
from scheduler.rules.recovery import ClaimSeen


@dataclass(slots=True, kw_only=True)
class Claimant:
    """Who claims, on what terms. One per daemon; `draining` is the only field that changes.

    Attributes:
        lease: how long a claim is believed without a sign of life.
        max_running: claims that may be live in the whole store at once.
        groups: the same per group.
        draining: read inside each claiming transaction: once it is set no claim commits (I12).
    """

    owner: Owner
    lease: Micros
    max_running: int
    groups: Mapping[str, int] = field(default_factory=dict)
    draining: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Who asked: ids from the kernel (SO_PEERCRED), the command line from /proc; recorded in the audit."""

    uid: int
    gid: int
    pid: int
    command: str = ""

    def __str__(self) -> str:
        return f"uid:{self.uid}"


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRequest:
    """An operator's explicit wish for a run now.

    Attributes:
        run_id: chosen by the caller, so that memory knows the claim before it commits.
        overlap: what to do about a live or queued run; None = answer `AlreadyRunning`.
        args: JSON text handed to the run instead of the job's, or None.
    """

    job_id: JobId
    run_id: RunId
    peer: Peer
    overlap: Overlap | None = None
    args: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A manual run: claimed (`grant`) or queued, and the live runs it asks to end."""

    run: Run
    grant: Grant | None
    cancel: tuple[RunId, ...] = ()
    cancelled: tuple[Run, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRef:
    """A claim as memory knows it."""

    run_id: RunId
    claim: int


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseRequest:
    """Pause one job."""

    job_id: JobId
    mode: PauseMode
    peer: Peer
    note: str = ""


class Missed(StrEnum):
    """What `resume` does about the fire times that a pause held back."""

    SKIP = "skip"
    LATEST = "latest"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeRequest:
    """Resume one job."""

    job_id: JobId
    peer: Peer
    missed: Missed = Missed.SKIP


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveLook:
    """A look at claims: `running` rows, and `recovering` rows that need a recoverer."""

    now: Micros
    running: tuple[ClaimSeen, ...]
    recovering: tuple[Run, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DueLook:
    """What is due: jobs whose `due_at` has come, and the earliest moment at which something else may act."""

    now: Micros
    jobs: tuple[Job, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One mutation: who, when, what."""

    seq: int
    at: Micros
    verb: str
    job: str | None
    run: str | None
    peer: Peer
    detail: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Jobs by status and runs by unfinished state."""

    jobs: Mapping[str, int]
    runs: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job with what a list shows of its runs."""

    job: Job
    last_run: Run | None
    live_runs: tuple[Run, ...]


class Reads(Protocol):
    """What may be asked without changing anything; served beside the writer."""

    async def jobs(
        self, *, after: JobId | None, limit: int, status: str | None = None, group: str | None = None,
        label: str | None = None, search: str | None = None,
    ) -> list[JobView]:
        """Up to `limit` jobs with id > `after`, by id; removed ones are left out."""
        ...

    async def job(self, job_id: JobId) -> JobView:
        """One job. Raises NotFound."""
        ...

    async def runs(
        self, *, before: int | None, limit: int, job: JobId | None = None, state: str | None = None,
        since: Micros | None = None,
    ) -> list[Run]:
        """Up to `limit` runs with seq < `before`, newest first."""
        ...

    async def run(self, run_id: RunId) -> Run:
        """One run. Raises NotFound."""
        ...

    async def attempts(self, run_id: RunId) -> list[Attempt]:
        """Its attempts, oldest first."""
        ...

    async def live_runs(self, job_id: JobId) -> list[Run]:
        """Live and queued runs of the job, oldest first."""
        ...

    async def run_at(self, job_id: JobId, fire_time: Micros) -> Run | None:
        """The row that explains a fire time: the run, or the skip whose span holds it."""
        ...

    async def audit(self, job_id: JobId, *, before: int | None, limit: int) -> list[AuditEntry]:
        """The job's mutations, newest first."""
        ...

    async def counts(self) -> Counts:
        """How many jobs and unfinished runs there are."""
        ...

    async def is_all_paused(self) -> bool:
        """All jobs are paused."""
        ...

    async def claimed_in_group(self, group: str) -> int:
        """Claims in force of jobs of this group."""
        ...

    async def broken_jobs(self) -> list[Job]:
        """Jobs whose handler could not be imported."""
        ...

    async def file_jobs(self) -> list[Job]:
        """Every job that came from a file and is not removed."""
        ...

    async def api_ids(self) -> set[JobId]:
        """Ids of jobs made through the API."""
        ...


class Store(Reads, Protocol):
    """The verbs. Every one may raise StoreUnavailable, and then nothing was changed."""

    @property
    def store_id(self) -> str:
        """Random id of this store, made with it."""
        ...

    # --- the engine's verbs ---
    async def register(self, owner: Owner) -> None:
        """The owner's identity is on record; another boot than the last one resets crash counters."""
        ...

    async def sign_off(self, owner: OwnerId) -> None:
        """The owner stopped in order."""
        ...

    async def due(self, *, limit: int, late_after: Micros, late_limit: int) -> DueLook:
        """Jobs that are due, earliest first: up to `limit` on time, and up to `late_limit` that are more
        than `late_after` late (so that a long downtime does not push regular jobs out)."""
        ...

    async def fire(self, who: Claimant, plans: Sequence[FirePlan]) -> list[Fired]:
        """FIRE: each plan whose assumptions still hold moved its job on and made its runs."""
        ...

    async def start(self, who: Claimant, requests: Sequence[StartRequest]) -> list[Started | SchedulerError]:
        """Manual starts, ranked within the batch (I2); a refused one is its error, in its place."""
        ...

    async def claim(self, who: Claimant, *, limit: int) -> tuple[list[Grant], list[Run]]:
        """Queued and waiting runs that may start now are claimed; second: queued ones that expired."""
        ...

    async def renew(self, who: Claimant, claims: Sequence[ClaimRef]) -> dict[RunId, Wish]:
        """The leases of these claims are extended; a run that is missing in the answer was not ours."""
        ...

    async def report(self, reports: Sequence[Report]) -> None:
        """Signs of life and child identities are on record, where the claim is still the writer's."""
        ...

    async def finish(self, verdicts: Sequence[Verdict]) -> list[Finished]:
        """FINISH: each verdict reconciled with the live rows and written, in one transaction."""
        ...

    async def look(self) -> LiveLook:
        """Claims as they stand."""
        ...

    async def recover(self, claims: Sequence[ClaimSeen]) -> list[Run]:
        """running -> recovering for every claim that is still exactly as seen; those runs."""
        ...

    async def next_wake(self, after: Micros) -> Micros | None:
        """The earliest moment after `after` at which something could act by itself."""
        ...

    async def set_problem(self, job_id: JobId, code: str | None, message: str | None) -> None:
        """Why the job cannot run is on its row (None: it can)."""
        ...

    async def see_wall(self) -> Micros | None:
        """The wall time is remembered; the one that was remembered before."""
        ...

    async def rearm(self, stepped: Micros) -> None:
        """Triggers follow a wall clock that stepped back by `stepped`: none is silent, none fires twice."""
        ...

    # --- the operator's verbs ---
    async def pause(self, requests: Sequence[PauseRequest]) -> list[Operated | SchedulerError]:
        """The jobs are paused; the runs in flight got the wish of the mode, in the same transaction."""
        ...

    async def resume(self, requests: Sequence[ResumeRequest]) -> list[Operated | SchedulerError]:
        """The jobs are active from now; held-back fire times are told as skipped or run, as asked."""
        ...

    async def cancel(self, run_id: RunId, peer: Peer) -> Cancelled:
        """The wish is `cancel`; a run without a worker is ended through FINISH at once."""
        ...

    async def release(self, run_id: RunId, peer: Peer) -> Finished:
        """A live run that cannot be ended is cancelled all the same; its worker is fenced from now."""
        ...

    async def retry_now(self, run_id: RunId, peer: Peer) -> Run:
        """A waiting run may be claimed now."""
        ...

    async def retry(self, run_id: RunId, peer: Peer) -> Run:
        """A terminal run that did not succeed is queued again, attempt 1."""
        ...

    async def skip_next(self, job_id: JobId, count: int, peer: Peer) -> Operated:
        """The next `count` fire times are passed over and told as skipped."""
        ...

    async def apply(self, changes: Sequence[DefinitionChange]) -> list[Operated | SchedulerError]:
        """All changes in one transaction (a reload), each with its own result."""
        ...

    async def close(self) -> None:
        """What was waiting is committed; the files are closed."""
        ...


