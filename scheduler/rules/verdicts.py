"""What a writer says of a run, what it meets, and what comes of it: the values of a write-back."""

from __future__ import annotations

from enum import StrEnum

from scheduler.clock import Micros
from scheduler.model.items import ItemCounts
from scheduler.model.jobs import Job, JobStatus, PauseReason
from scheduler.model.record import record
from scheduler.model.runs import Run, RunReason, RunState


class Ending(StrEnum):
    """How a run's attempt, or the run itself, came to its end."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    RETRY_ASKED = "retry_asked"
    CANCELLED = "cancelled"
    CRASHED = "crashed"
    SHUTDOWN = "shutdown"
    ITEMS = "items"
    """No further item is begun and none is under way; what that means is judged from the items' rows."""


@record
class Verdict:
    """What a writer says of a run, and all that it assumed of the row.

    Attributes:
        expects: the state the writer believes the row to be in: `running` for a worker, `recovering`
            for a recovery, `queued`, `waiting` or `held` for a cancel.
        claim: the fencing token it worked under.
        retryable: the policy may give another try (not for a broken handler).
        retry_after: the wait a handler asked for.
        completed: the run says that its job is done for good.
        spread: in [0, 1), drawn by the writer; spreads the backoff.
        counts_crash: the crash is charged to the job (it was the only live run at the death).
    """

    run_id: str
    claim: int
    expects: RunState
    ending: Ending
    reason: RunReason | None = None
    message: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    result: str | None = None
    cost: float | None = None
    retryable: bool = True
    retry_after: Micros | None = None
    completed: bool = False
    spread: float = 0.5
    counts_crash: bool = True
    broken: str | None = None


@record
class LiveRows:
    """The rows as they are inside the transaction.

    Attributes:
        job: None when the store never had it.
        others: other runs of this job, live or queued, that came from its trigger.
        items: how its items stand, once their list is whole; None: it has none.
    """

    run: Run
    job: Job | None
    others: int
    items: ItemCounts | None = None


@record
class RunWrite:
    """The run's columns after the write-back."""

    state: RunState
    reason: str | None
    message: str | None
    attempt: int
    ready_at: Micros | None
    counted: bool


@record
class JobWrite:
    """The job's columns after the write-back; `status` None leaves the operator's word untouched.

    Attributes:
        sets_next: whether `next_fire_at` is written at all.
        pause_note: the evidence, where crashes pause the job.
    """

    status: JobStatus | None
    failures: int
    crashes: int
    fires_done: int
    sets_next: bool
    next_fire_at: Micros | None
    due_at: Micros | None
    pause_reason: PauseReason | None = None
    pause_note: str = ""
    problem: str | None = None


class Standing(StrEnum):
    """What became of a write-back."""

    WRITTEN = "written"
    FENCED = "fenced"
    ALREADY_WRITTEN = "already_written"


@record
class Decision:
    """Everything a write-back writes, and what is to be told of it.

    Attributes:
        job: None when the job's row is not touched (removed, re-added, nothing of it changed).
        ends_job: the job's queued and waiting runs are cancelled (`job_ended`).
        met_pause: the job was paused when the write-back came, and stays so (`pause_preserved`).
        completion_ignored: the run said "completed", but the definition was changed meanwhile.
    """

    standing: Standing
    run: RunWrite | None = None
    job: JobWrite | None = None
    ends_job: bool = False
    met_pause: bool = False
    completion_ignored: bool = False
