"""The words for a run: states, reasons, the transition table, and the row.

A state is a fact; what an operator asks for is a `Wish`, a column of its own. `TRANSITIONS` is the whole
table: a step that is not in it is a bug and raises `IllegalTransition`.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NewType

from scheduler.clock import MILLISECOND, Micros
from scheduler.errors import IllegalTransition
from scheduler.model.items import BegunItem
from scheduler.model.jobs import JobDefinition, JobId
from scheduler.model.record import record, row

RunId = NewType("RunId", str)
OwnerId = NewType("OwnerId", str)


class RunState(StrEnum):
    """Where a run stands."""

    QUEUED = "queued"
    RUNNING = "running"
    RECOVERING = "recovering"
    WAITING = "waiting"
    HELD = "held"
    SUCCEEDED = "succeeded"
    PARTIAL = "partial"
    FAILED = "failed"
    CANCELLED = "cancelled"
    CRASHED = "crashed"
    INTERRUPTED = "interrupted"
    SKIPPED = "skipped"


LIVE: Final = frozenset({RunState.RUNNING, RunState.RECOVERING, RunState.WAITING, RunState.HELD})
"""States that take one of the job's slots."""

TERMINAL: Final = frozenset(
    {
        RunState.SUCCEEDED,
        RunState.PARTIAL,
        RunState.FAILED,
        RunState.CANCELLED,
        RunState.CRASHED,
        RunState.INTERRUPTED,
        RunState.SKIPPED,
    }
)
"""States that never change by themselves."""

_S = RunState
_SETTLED: Final = frozenset({_S.QUEUED, _S.SUCCEEDED, _S.PARTIAL, _S.FAILED})

TRANSITIONS: Final[Mapping[RunState | None, frozenset[RunState]]] = {
    None: frozenset({_S.RUNNING, _S.QUEUED, _S.SKIPPED}),
    _S.QUEUED: frozenset({_S.RUNNING, _S.CANCELLED, _S.SKIPPED}),
    _S.RUNNING: frozenset(
        {
            _S.SUCCEEDED,
            _S.PARTIAL,
            _S.FAILED,
            _S.CANCELLED,
            _S.CRASHED,
            _S.INTERRUPTED,
            _S.WAITING,
            _S.HELD,
            _S.RECOVERING,
        }
    ),
    _S.RECOVERING: frozenset({_S.WAITING, _S.CRASHED, _S.CANCELLED, _S.RUNNING, _S.SUCCEEDED, _S.FAILED}),
    _S.WAITING: frozenset({_S.RUNNING, _S.CANCELLED}),
    _S.HELD: frozenset({_S.WAITING, _S.CANCELLED}),
    _S.SUCCEEDED: frozenset(),
    _S.PARTIAL: _SETTLED,
    _S.FAILED: _SETTLED,
    _S.CANCELLED: _SETTLED,
    _S.CRASHED: _SETTLED,
    _S.INTERRUPTED: _SETTLED,
    _S.SKIPPED: frozenset(),
}
"""State -> states that may follow; None is a run that does not exist yet."""


def require_transition(before: RunState | None, after: RunState) -> None:
    """The step is in the table.

    Raises:
        IllegalTransition: it is not: a bug of ours, nothing may be written.
    """
    if after not in TRANSITIONS[before]:
        raise IllegalTransition(f"a run cannot go from {before or '(new)'} to {after}")


class Wish(StrEnum):
    """What the operator wants of one run; `cancel` is never taken back."""

    RUN = "run"
    HOLD = "hold"
    FREEZE = "freeze"
    CANCEL = "cancel"


class RunTrigger(StrEnum):
    """Why a run exists."""

    SCHEDULE = "schedule"
    MANUAL = "manual"
    CATCH_UP = "catch_up"
    RETRY = "retry"
    BACKFILL = "backfill"


class RunReason(StrEnum):
    """Why a run did not succeed: a closed list."""

    EXIT_CODE = "exit_code"
    SIGNAL = "signal"
    EXCEPTION = "exception"
    TIMEOUT = "timeout"
    STALLED = "stalled"
    CANCELLED = "cancelled"
    REMOVED = "removed"
    JOB_ENDED = "job_ended"
    OWNER_DIED = "owner_died"
    SHUTDOWN = "shutdown"
    SPAWN_FAILED = "spawn_failed"
    ITEMS_FAILED = "items_failed"
    UNKNOWN_ITEMS = "unknown_items"
    BUDGET = "budget"
    BROKEN = "broken"


class SkipReason(StrEnum):
    """Why a fire time did not run: a closed list."""

    OVERLAP = "overlap"
    QUEUE_FULL = "queue_full"
    MISFIRE = "misfire"
    EXPIRED = "expired"
    PAUSED = "paused"
    GLOBAL_PAUSE = "global_pause"
    DISABLED = "disabled"
    EDITED = "edited"
    EXCLUDED = "excluded"
    BROKEN = "broken"


@record
class Owner:
    """A daemon process: a fresh random id per start, and what identifies the process on its host.

    Attributes:
        id: random per process start.
        machine_id: /etc/machine-id, or "" where there is none.
        boot_id: /proc/sys/kernel/random/boot_id.
        pid: process id on that host.
        start_ticks: field 22 of /proc/PID/stat, raw clock ticks since boot (proc(5)); a pid is only the
            same process while these agree.
    """

    id: OwnerId
    machine_id: str
    boot_id: str
    pid: int
    start_ticks: int


@record
class Progress:
    """How far the work is, as it last told; None = never told."""

    done: int | None = None
    total: int | None = None
    failed: int | None = None
    unknown: int | None = None
    message: str | None = None


@row
class Run:
    """A run's row. Instants are UTC microseconds.

    Attributes:
        seq: order of insertion in the store; the cursor of pages.
        fire_time: the slot, or None for a manual run.
        fire_time_last: last slot of a skip row that stands for several.
        count: fire times that a skip row stands for (1 for any other run).
        attempt: 1 + the tries charged to `retry`.
        claim: the fencing token; grows by one per claim; 0 = never claimed.
        ready_at: when a waiting run may be claimed.
        pid: the child's process id while one is known, with `pid_ticks`, its start ticks.
        under_pause: it was started by hand, so the job's own pause does not hold its retries.
        serial: its claim was granted while recovered runs restart one at a time.
        result: JSON text of what a handler returned, or None.
        items_total: items of a batch run once its list is whole and frozen, else None.
        spent: what its items have cost, estimates included, in millionths of the unit.
    """

    id: RunId
    seq: int
    job: JobId
    state: RunState
    trigger: RunTrigger
    reason: str | None = None
    message: str | None = None
    fire_time: Micros | None = None
    fire_time_last: Micros | None = None
    count: int = 1
    generation: int = 0
    args: str | None = None
    wish: Wish = Wish.RUN
    attempt: int = 1
    claim: int = 0
    owner: OwnerId | None = None
    queued_at: Micros | None = None
    claimed_at: Micros | None = None
    started_at: Micros | None = None
    finished_at: Micros | None = None
    ready_at: Micros | None = None
    lease_until: Micros | None = None
    progress_at: Micros | None = None
    progress: Progress = Progress()
    cost: float | None = None
    definition_revision: int | None = None
    added_revision: int = 0
    pid: int | None = None
    pid_ticks: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    result: str | None = None
    under_pause: bool = False
    job_counted: bool = False
    serial: bool = False
    items_total: int | None = None
    spent: int = 0


@record
class Attempt:
    """One claim's execution, as history keeps it."""

    run: RunId
    claim: int
    attempt: int
    owner: OwnerId
    started_at: Micros
    finished_at: Micros | None = None
    state: RunState | None = None
    reason: str | None = None
    message: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    pid: int | None = None


@record
class Grant:
    """A claim that has durably committed: the run may be started, with the definition live at the claim.

    Attributes:
        item: the one item of a batch that is to be called, begun durably too; None for a whole run.
        unit_claim: the claim under which its unit was started, which is to be followed; None: a fresh start.
    """

    run: Run
    definition: JobDefinition
    item: BegunItem | None = None
    unit_claim: int | None = None


def new_run_id(now: Micros) -> RunId:
    """A fresh UUIDv7, so that ids sort by time (RFC 9562, 5.7: 48 bits of Unix milliseconds, then random)."""
    stamp = (now // MILLISECOND) & ((1 << 48) - 1)
    chance = int.from_bytes(os.urandom(10)) >> 6
    value = (stamp << 80) | (0x7 << 76) | (chance >> 62 << 64) | (0b10 << 62) | (chance & ((1 << 62) - 1))
    text = f"{value:032x}"
    return RunId(f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}")


def new_owner_id() -> OwnerId:
    """A fresh random id for one process start."""
    return OwnerId(secrets.token_hex(8))
