"""The words for a job: its definition and its live row.

A definition is what an author wrote (job file or API), validated and frozen; a `Job` is the live row,
which operators and the engine change while the definition stays. Nothing here reads a clock or a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import NewType, TypeAlias

from scheduler.clock import DAY, HOUR, MINUTE, SECOND, Micros
from scheduler.model.alerts import Alerts
from scheduler.model.record import record, row
from scheduler.model.triggers import Schedule

JobId = NewType("JobId", str)

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"


class JobStatus(StrEnum):
    """The live status of a job (shared column: operator pauses, the engine ends)."""

    ACTIVE = "active"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"


class PauseReason(StrEnum):
    """Who paused a job: a closed list."""

    OPERATOR = "operator"
    CRASHES = "crashes"
    BUDGET = "budget"


class PauseMode(StrEnum):
    """What a pause does to the runs in flight."""

    DRAIN = "drain"
    ITEM = "item"
    FREEZE = "freeze"
    CANCEL = "cancel"


class Overlap(StrEnum):
    """What happens to a fire while a run of the job is live or queued."""

    SKIP = "skip"
    QUEUE = "queue"
    ALLOW = "allow"
    CANCEL_RUNNING = "cancel_running"


class CatchUp(StrEnum):
    """Which of several due fire times run."""

    LATEST = "latest"
    SKIP = "skip"
    ALL = "all"


class OnCrash(StrEnum):
    """What becomes of a run whose daemon died."""

    RECORD = "record"
    RETRY = "retry"
    RESUME = "resume"


class Backoff(StrEnum):
    """How the delay between tries grows."""

    EXPONENTIAL = "exponential"
    CONSTANT = "constant"


class Origin(StrEnum):
    """Where a definition came from."""

    FILE = "file"
    API = "api"


class UnknownItems(StrEnum):
    """What becomes of an item that began and has no outcome."""

    HOLD = "hold"
    RETRY = "retry"
    FAIL = "fail"


@record
class CommandAction:
    """Execute `argv` without a shell."""

    argv: tuple[str, ...]
    kind: str = field(default="command", init=False)


@record
class ShellAction:
    """Execute `line` with /bin/sh -c."""

    line: str
    kind: str = field(default="shell", init=False)


@record
class PythonAction:
    """Call `handler` (`package.module:name`); `process` forces a child process for it."""

    handler: str
    process: bool = False
    kind: str = field(default="python", init=False)


Action: TypeAlias = CommandAction | ShellAction | PythonAction


@record
class RetryPolicy:
    """Further tries after a failed one.

    Attributes:
        attempts: tries after the first; 0 = none.
        delay: wait before the first further try.
        backoff: how the wait grows.
        max_delay: its ceiling.
        exit_codes: exit codes that are worth another try; empty = any failure.
    """

    attempts: int = 0
    delay: Micros = 10 * SECOND
    backoff: Backoff = Backoff.EXPONENTIAL
    max_delay: Micros = HOUR
    exit_codes: tuple[int, ...] = ()


@record
class BatchPolicy:
    """A job that runs its action once per item; exactly one of the three sources is set."""

    items: tuple[JsonValue, ...] | None = None
    items_file: str | None = None
    items_command: tuple[str, ...] | None = None
    concurrency: int = 1
    item_timeout: Micros = 10 * MINUTE
    retry: RetryPolicy = RetryPolicy()
    unknown: UnknownItems = UnknownItems.HOLD
    max_failed: int = 0
    max_failed_percent: float = 0.0
    max_consecutive_failed: int = 0


@record
class Budget:
    """What a batch may spend; amounts are millionths of the unit.

    Attributes:
        per_run: for all items of a run, over all its attempts; None = no cap.
        per_day: for all runs of the job in a day of its zone; None = no cap.
        unit: the name of the unit, for people.
        cost_estimate: reserved at an item's begin, replaced by its real cost at its end.
    """

    per_run: int | None = None
    per_day: int | None = None
    unit: str = ""
    cost_estimate: int = 0


@record
class JobDefinition:
    """What an author wrote, validated: trigger, action and policies.

    Durations are microseconds. `source` is the canonical JSON form (the keys of the job file, durations in
    seconds, times RFC 3339, defaults left out): it is what the store keeps and the API shows, and two
    definitions are the same exactly when their `source` is.
    """

    id: JobId
    schedule: Schedule
    action: Action
    source: str
    description: str = ""
    timezone: str = "UTC"
    args: Mapping[str, JsonValue] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    env_file: str | None = None
    cwd: str | None = None
    user: str | None = None
    stdin: str | None = None
    timeout: Micros | None = None
    stall_timeout: Micros | None = None
    kill_grace: Micros = 10 * SECOND
    success_exit_codes: tuple[int, ...] = (0,)
    complete_exit_codes: tuple[int, ...] = ()
    overlap: Overlap = Overlap.SKIP
    max_running: int = 1
    queue_limit: int = 1
    labels: tuple[str, ...] = ()
    group: str | None = None
    priority: int = 0
    catch_up: CatchUp = CatchUp.LATEST
    catch_up_window: Micros = DAY
    catch_up_limit: int = 10
    late_after: Micros = MINUTE
    max_runs: int | None = None
    on_crash: OnCrash = OnCrash.RECORD
    max_crashes: int = 3
    max_failures: int = 0
    enabled: bool = True
    control: bool = False
    isolate: str = "none"
    keep_runs: int | None = None
    retry: RetryPolicy = RetryPolicy()
    batch: BatchPolicy | None = None
    budget: Budget | None = None
    alerts: Alerts = field(default_factory=Alerts)

    @property
    def stall_after(self) -> Micros | None:
        """How long the work may give no sign of life; a batch has a default."""
        if self.stall_timeout is None and self.batch is not None:
            return max(30 * MINUTE, 3 * self.batch.item_timeout)
        return self.stall_timeout

    @property
    def solo(self) -> bool:
        """At most one run of this job may be live."""
        return self.overlap is not Overlap.ALLOW


@record
class Pause:
    """A pause as the operator set it.

    Attributes:
        reason: who paused.
        mode: what it did to the runs in flight.
        by: the peer (`uid:1000`), or `schedulerd`.
        note: the operator's words, or the evidence of crashes.
        since: when it committed.
        until: when it lifts itself, or None.
    """

    reason: PauseReason
    mode: PauseMode
    by: str
    note: str = ""
    since: Micros
    until: Micros | None = None

    @property
    def words(self) -> str:
        """Who and why: `paused by uid:1000 (reason operator): moving house`."""
        note = f": {self.note}" if self.note else ""
        return f"paused by {self.by} (reason {self.reason}){note}"


@row
class Job:
    """A job's live row. The column authors are named in `store/sql/sqlite/schema`.

    Attributes:
        revision: moves with every operator verb; from one store-wide counter.
        definition_revision: the ETag; moves with create, edit, remove and re-add.
        added_revision: the revision at which this incarnation was added: tells a job that was removed
            and added again from the one before.
        origin_file: the job file, or None for API jobs.
        generation: clock generation of its fire times; part of the unique key of a fire.
        fires_done: scheduled runs that have ended (for `max_runs`).
        failures: consecutive failed runs.
        crashes: consecutive crashes.
        problem: why it cannot run (`code`, `message`), or None.
        removed_at: when it was taken away (a tombstone keeps pause, revision and history), or None.
        definition_error: why the stored definition cannot be read on this machine, or None; `definition` is
            then an empty stand-in.
        held_from: the first slot that a pause or `enabled = false` holds back, or None.
    """

    id: JobId
    definition: JobDefinition
    status: JobStatus
    enabled: bool
    revision: int
    definition_revision: int
    added_revision: int
    origin: Origin
    origin_file: str | None = None
    pause: Pause | None = None
    next_fire_at: Micros | None = None
    due_at: Micros | None = None
    last_fire_at: Micros | None = None
    generation: int = 0
    fires_done: int = 0
    failures: int = 0
    crashes: int = 0
    problem_code: str | None = None
    problem_message: str | None = None
    removed_at: Micros | None = None
    held_from: Micros | None = None
    definition_error: str | None = None

    @property
    def may_fire(self) -> bool:
        """The job itself lets its trigger fire (a global pause may still forbid it)."""
        return self.status is JobStatus.ACTIVE and self.enabled and self.removed_at is None


@record
class Retention:
    """How much history stays where a job does not say it itself.

    Attributes:
        runs_per_job: executed runs of a job; None = all.
        before: what ended earlier goes by age; None = nothing does.
    """

    runs_per_job: int | None
    before: Micros | None
