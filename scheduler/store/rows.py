"""Rows of the store as values of the model, and the cache of decoded definitions."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from scheduler.clock import Micros
from scheduler.errors import Invalid
from scheduler.model.definitions import decode
from scheduler.model.items import Item, ItemState
from scheduler.model.jobs import (
    Job,
    JobDefinition,
    JobId,
    JobStatus,
    Origin,
    Pause,
    PauseMode,
    PauseReason,
    ShellAction,
)
from scheduler.model.runs import (
    Attempt,
    OwnerId,
    Progress,
    Run,
    RunId,
    RunState,
    RunTrigger,
    Wish,
)
from scheduler.model.triggers import Manual, Schedule
from scheduler.rules.planning import PauseSpan
from scheduler.rules.recovery import ClaimSeen
from scheduler.store.transaction import Row
from scheduler.store.values import AuditEntry, Peer


@lru_cache(maxsize=20_000)
def definition_of(job_id: JobId, source: str) -> tuple[JobDefinition, str | None]:
    """The decoded definition, decoded once, however often its job fires; and what is wrong with it.

    A definition that was sound when it was written may not be readable today: its time zone may be gone from
    this machine. Its job is broken then, and the others go on.
    """
    try:
        return decode(job_id, source), None
    except Invalid as error:
        return (
            JobDefinition(
                id=job_id,
                source=source,
                schedule=Schedule(Manual()),
                action=ShellAction(line="exit 78"),  # never run: EX_CONFIG of sysexits.h, if it ever were
            ),
            error.message,
        )


def job_of(row: Row) -> Job:
    """The live job row."""
    job_id = JobId(row["id"])
    definition, error = definition_of(job_id, row["definition"])
    return Job(
        id=job_id,
        definition=definition,
        definition_error=error,
        status=JobStatus(row["status"]),
        enabled=bool(row["enabled"]),
        revision=row["revision"],
        definition_revision=row["definition_revision"],
        added_revision=row["added_revision"],
        origin=Origin(row["origin"]),
        origin_file=row["origin_file"],
        pause=_pause_of(row),
        next_fire_at=row["next_fire_at"],
        due_at=row["due_at"],
        last_fire_at=row["last_fire_at"],
        generation=row["generation"],
        fires_done=row["fires_done"],
        failures=row["failures"],
        crashes=row["crashes"],
        problem_code=row["problem_code"] if error is None else "broken",
        problem_message=row["problem_message"] if error is None else error,
        removed_at=row["removed_at"],
        held_from=row["held_from"],
    )


def _pause_of(row: Row) -> Pause | None:
    if row["pause_reason"] is None:
        return None
    return Pause(
        reason=PauseReason(row["pause_reason"]),
        mode=PauseMode(row["pause_mode"]),
        by=row["pause_by"],
        note=row["pause_note"] or "",
        since=row["pause_since"],
        until=row["pause_until"],
    )


def pause_of(row: Row) -> Pause:
    """The pause of all jobs."""
    return Pause(
        reason=PauseReason.OPERATOR,
        mode=PauseMode(row["mode"]),
        by=row["by"],
        note=row["note"],
        since=row["since"],
        until=row["until"],
    )


def pause_span_of(row: Row, now: Micros) -> PauseSpan:
    """What a pause of all jobs has held so far."""
    until = now if row["lifted_at"] is None else row["lifted_at"]
    return PauseSpan(since=row["since"], until=until, words=pause_of(row).words)


def run_of(row: Row) -> Run:
    """The run's row."""
    return Run(
        id=RunId(row["id"]),
        seq=row["seq"],
        job=JobId(row["job"]),
        state=RunState(row["state"]),
        trigger=RunTrigger(row["trigger"]),
        wish=Wish(row["wish"]),
        owner=None if row["owner"] is None else OwnerId(row["owner"]),
        progress=Progress(
            done=row["done"],
            total=row["total"],
            failed=row["failed"],
            unknown=row["unknown"],
            message=row["progress_message"],
        ),
        under_pause=bool(row["under_pause"]),
        job_counted=bool(row["job_counted"]),
        serial=bool(row["serial"]),
        **{name: row[name] for name in _PLAIN},
    )


_PLAIN = (
    "reason",
    "message",
    "fire_time",
    "fire_time_last",
    "count",
    "generation",
    "args",
    "attempt",
    "claim",
    "queued_at",
    "claimed_at",
    "started_at",
    "finished_at",
    "ready_at",
    "lease_until",
    "progress_at",
    "cost",
    "definition_revision",
    "added_revision",
    "items_total",
    "spent",
    "pid",
    "pid_ticks",
    "exit_code",
    "signal",
    "result",
)


def attempt_of(row: Row) -> Attempt:
    """One claim's execution."""
    return Attempt(
        run=RunId(row["run"]),
        claim=row["claim"],
        attempt=row["attempt"],
        owner=OwnerId(row["owner"]),
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        state=None if row["state"] is None else RunState(row["state"]),
        reason=row["reason"],
        message=row["message"],
        exit_code=row["exit_code"],
        signal=row["signal"],
        pid=row["pid"],
    )


def item_of(row: Row) -> Item:
    """An item's row."""
    return Item(
        index=row["seq"],
        key=row["key"],
        state=ItemState(row["state"]),
        attempts=row["attempts"],
        ready_at=row["ready_at"],
        error=row["error"],
        result=row["result"],
        cost=row["spent"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
    )


def claim_of(row: Row) -> ClaimSeen:
    """A claim, as much of it as a release names."""
    return ClaimSeen(
        run_id=RunId(row["id"]),
        claim=row["claim"],
        owner=OwnerId(row["owner"]),
        lease_until=row["lease_until"],
    )


def audit_of(row: Row, detail: dict[str, Any]) -> AuditEntry:
    """One mutation."""
    return AuditEntry(
        seq=row["seq"],
        at=row["at"],
        verb=row["verb"],
        job=row["job"],
        run=row["run"],
        peer=Peer(uid=row["uid"], gid=row["gid"], pid=row["pid"], command=row["command"]),
        detail=detail,
    )
