"""The answers of the control API, in the shapes that /openapi.json describes.

Times are RFC 3339 with their offset: those of a job's schedule in the job's zone, all others in the daemon's.
Durations are seconds. What is not known, or does not apply, is null; no member is ever left out.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from scheduler.control.wire import Json
from scheduler.model.items import ItemState
from scheduler.model.jobs import JobStatus, Origin, PauseMode, PauseReason
from scheduler.model.runs import RunState, RunTrigger, Wish

Time: TypeAlias = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]
"""RFC 3339 text with an offset."""

Seconds: TypeAlias = int | float


class Answer(BaseModel):
    """What all answers have in common."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class CronTrigger(Answer):
    """Fires when the expression says so, in the time zone."""

    kind: Literal["cron"] = "cron"
    cron: str
    timezone: str


class EveryTrigger(Answer):
    """Fires on a fixed grid."""

    kind: Literal["every"] = "every"
    every: Seconds


class DelayTrigger(Answer):
    """Fires so long after the end of the scheduled run before."""

    kind: Literal["delay"] = "delay"
    delay: Seconds


class AtTrigger(Answer):
    """Fires once."""

    kind: Literal["at"] = "at"
    at: Time


class ManualTrigger(Answer):
    """Never fires by itself."""

    kind: Literal["manual"] = "manual"


Trigger: TypeAlias = Annotated[
    CronTrigger | EveryTrigger | DelayTrigger | AtTrigger | ManualTrigger, Field(discriminator="kind")
]


class CommandAction(Answer):
    """Executes the words without a shell."""

    kind: Literal["command"] = "command"
    command: list[str]


class ShellAction(Answer):
    """Executes the line with /bin/sh -c."""

    kind: Literal["shell"] = "shell"
    shell: str


class PythonAction(Answer):
    """Calls the handler (`package.module:name`)."""

    kind: Literal["python"] = "python"
    python: str


Action: TypeAlias = Annotated[CommandAction | ShellAction | PythonAction, Field(discriminator="kind")]


class Pause(Answer):
    """A pause: which kind, by whom, since when; `note` is what the operator wrote, or the evidence."""

    reason: PauseReason
    note: str
    by: str
    since: Time
    until: Time | None
    mode: PauseMode


class JobProblem(Answer):
    """Why a job cannot run at all."""

    code: str
    message: str


class Progress(Answer):
    """How far the work is, as it last told."""

    done: int | None
    total: int | None
    failed: int | None
    unknown: int | None
    message: str | None


class Attempt(Answer):
    """One claim's execution."""

    attempt: int
    claim: int
    state: RunState | None
    reason: str | None
    message: str | None
    started_at: Time
    finished_at: Time | None
    exit_code: int | None
    signal: int | None
    pid: int | None


class RunSummary(Answer):
    """A run without its attempts."""

    id: str
    job: str
    state: RunState
    reason: str | None
    message: str | None
    trigger: RunTrigger
    fire_time: Time | None
    attempt: int
    claim: int
    queued_at: Time | None
    started_at: Time | None
    finished_at: Time | None
    exit_code: int | None
    signal: int | None
    result: Json
    progress: Progress
    cost: float | None
    pid: int | None
    wish: Wish
    ready_at: Time | None
    fire_time_last: Time | None
    count: int


class Run(RunSummary):
    """A run with its attempts, oldest first."""

    attempts: list[Attempt]


class Job(Answer):
    """A job: its definition (the keys of the job file) and its live state.

    `definition_revision` is the number in the ETag; `live_runs` are the runs that are live or queued.
    """

    id: str
    description: str
    status: JobStatus
    revision: int
    definition_revision: int
    trigger: Trigger
    action: Action
    next_fire_at: Time | None
    last_run: RunSummary | None
    live_runs: list[RunSummary]
    pause: Pause | None
    enabled: bool
    problem: JobProblem | None
    group: str | None
    labels: list[str]
    origin: Origin
    origin_file: str | None
    definition: dict[str, Json]


class JobAndRuns(Answer):
    """What a verb answers: the job as it is now, and its runs in flight."""

    job: Job
    runs: list[RunSummary]


class AllJobs(Answer):
    """What a verb on all jobs answers: their pause as it is now, and the runs in flight."""

    paused: Pause | None
    runs: list[RunSummary]


class Caller(Answer):
    """Who asked, as the kernel says."""

    uid: int
    gid: int
    pid: int
    command: str


class AuditEntry(Answer):
    """One mutation."""

    at: Time
    verb: str
    job: str | None
    run: str | None
    by: Caller
    detail: dict[str, Json]


class Item(Answer):
    """An item of a batch run: `cost` is what its calls have cost so far, estimates included."""

    key: str
    index: int
    state: ItemState
    attempts: int
    error: str | None
    result: Json
    cost: float | None
    started_at: Time | None
    finished_at: Time | None


class ItemCounts(Answer):
    """The items of a run by state, at one moment; they add up to `total`."""

    total: int
    pending: int
    running: int
    done: int
    failed: int
    unknown: int
    skipped: int


class ItemPage(Answer):
    """A page of items; `counts` is null while there is no whole list."""

    items: list[Item]
    next_cursor: str | None
    counts: ItemCounts | None


class ItemAndRun(Answer):
    """What a settlement answers: the item and its run as they are now."""

    item: Item
    run: RunSummary


class JobPage(Answer):
    """A page of jobs, by id."""

    items: list[Job]
    next_cursor: str | None


class RunPage(Answer):
    """A page of runs, newest first."""

    items: list[Run]
    next_cursor: str | None


class AuditPage(Answer):
    """A page of mutations, newest first."""

    items: list[AuditEntry]
    next_cursor: str | None


class FireTimes(Answer):
    """Fire times, soonest first."""

    items: list[Time]


class Why(Answer):
    """The one reason why a job is not running, or what became of a fire time."""

    job: str
    blocked: bool
    code: str
    message: str
    since: Time | None
    next_possible_at: Time | None
    run_id: str | None


class Fault(Answer):
    """One thing that is wrong with an input."""

    message: str
    file: str | None
    line: int | None
    job: str | None
    key: str | None


class Reload(Answer):
    """What a reload did: ids, the number of jobs it did not touch, and the faults of the files.

    `kept` are those among the untouched whose files have faults.
    """

    added: list[str]
    changed: list[str]
    removed: list[str]
    unchanged: int
    kept: list[str]
    faults: list[Fault]


class Counts(Answer):
    """Jobs by status, unfinished runs by state."""

    jobs: dict[str, int]
    runs: dict[str, int]


class Health(Answer):
    """Store and loop: ages and lag in seconds; null before the first tick or renewal."""

    ok: bool
    store_ok: bool
    last_tick_age: Seconds | None
    last_renewal_age: Seconds | None
    loop_lag: Seconds


class Status(Answer):
    """The daemon. `counts` is null while the store cannot be read; `paused` is the pause of all jobs."""

    version: str
    instance: str
    pid: int
    started_at: Time
    uptime: Seconds
    draining: bool
    paused: Pause | None
    counts: Counts | None
    health: Health
    faults: list[Fault]


class Healthy(Answer):
    """The answer of a probe that says yes; a no is a problem with status 503."""

    status: Literal["ok"] = "ok"


class Problem(BaseModel):
    """RFC 9457 problem details; `code` is the word to go by."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    hint: str | None = None
    run_id: str | None = None
    faults: list[Fault] | None = None
