"""Rows of the store as values of the model, and the cache of decoded definitions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, TypeAlias

from scheduler.clock import Micros
from scheduler.errors import Invalid
from scheduler.model.definitions import decode, is_plain
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
from scheduler.model.listed import STAND_IN, ListedJob
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
from scheduler.store.values import AuditEntry, Peer

Row: TypeAlias = Mapping[str, Any]


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
                action=ShellAction(line=STAND_IN["shell"]),
            ),
            error.message,
        )


class Definitions:
    """The decoded definitions of one store, by job and revision, so that a fire decodes nothing again.

    Only what has committed may be learnt: a revision that was rolled back is given to another definition.
    """

    def __init__(self, size: int = 20_000) -> None:
        self._known: dict[tuple[str, int], tuple[JobDefinition, str | None]] = {}
        self._size = size

    def find(self, job_id: str, revision: int) -> tuple[JobDefinition, str | None] | None:
        """What `definition_of` said of this revision; None: it was never asked, or long ago."""
        return self._known.get((job_id, revision))

    def learn(self, job_id: str, revision: int, source: str) -> tuple[JobDefinition, str | None]:
        """What `definition_of` says of this committed revision. Only the thread of ticks' looks calls it."""
        if len(self._known) >= self._size:
            del self._known[next(iter(self._known))]
        found = self._known[job_id, revision] = definition_of(JobId(job_id), source)
        return found


def job_of(row: Row) -> Job:
    """The live job row."""
    return job_from(picked(JOB_COLUMNS, row), definition_of(JobId(row["id"]), row["definition"]))


def job_from(values: Sequence[Any], decoded: tuple[JobDefinition, str | None]) -> Job:
    """The live job row, of which `values` are `JOB_COLUMNS`; `decoded` is what `definition_of` says."""
    definition, error = decoded
    (id, status, enabled, revision, definition_revision, added_revision, origin, origin_file) = values[:8]
    (next_fire_at, due_at, last_fire_at, generation, fires_done, failures, crashes) = values[8:15]
    (problem_code, problem_message, removed_at, held_from, reason, mode, by, note, since, until) = values[15:]
    return Job(
        id=id,
        definition=definition,
        definition_error=error,
        status=_STATUS[status],
        enabled=bool(enabled),
        revision=revision,
        definition_revision=definition_revision,
        added_revision=added_revision,
        origin=_ORIGIN[origin],
        origin_file=origin_file,
        pause=None if reason is None else _pause(reason, mode, by, note, since, until),
        next_fire_at=next_fire_at,
        due_at=due_at,
        last_fire_at=last_fire_at,
        generation=generation,
        fires_done=fires_done,
        failures=failures,
        crashes=crashes,
        problem_code=problem_code if error is None else "broken",
        problem_message=problem_message if error is None else error,
        removed_at=removed_at,
        held_from=held_from,
    )


def listed_of(row: Row, last_run: Run | None, live_runs: tuple[Run, ...]) -> ListedJob:
    """The live job row for a list, its definition decoded only where it might turn out not to be sound."""
    values = picked(_LISTED_COLUMNS, row)
    (id, status, enabled, revision, definition_revision, origin, origin_file, next_fire_at) = values[:8]
    (problem_code, problem_message, definition, reason, mode, by, note, since, until) = values[8:]
    table = json.loads(definition)
    error = None if is_plain(table) else definition_of(id, definition)[1]
    return ListedJob(
        id=id,
        status=_STATUS[status],
        enabled=bool(enabled),
        revision=revision,
        definition_revision=definition_revision,
        origin=_ORIGIN[origin],
        origin_file=origin_file,
        next_fire_at=next_fire_at,
        problem_code=problem_code if error is None else "broken",
        problem_message=problem_message if error is None else error,
        pause=None if reason is None else _pause(reason, mode, by, note, since, until),
        definition=table,
        definition_error=error,
        last_run=last_run,
        live_runs=live_runs,
    )


_LISTED_COLUMNS: Final = (
    *("id", "status", "enabled", "revision", "definition_revision", "origin", "origin_file", "next_fire_at"),
    *("problem_code", "problem_message", "definition"),
    *("pause_reason", "pause_mode", "pause_by", "pause_note", "pause_since", "pause_until"),
)
"""Of a job's row, what a list shows."""


JOB_COLUMNS: Final = (
    *(
        "id",
        "status",
        "enabled",
        "revision",
        "definition_revision",
        "added_revision",
        "origin",
        "origin_file",
    ),
    *("next_fire_at", "due_at", "last_fire_at", "generation", "fires_done", "failures", "crashes"),
    *("problem_code", "problem_message", "removed_at", "held_from"),
    *("pause_reason", "pause_mode", "pause_by", "pause_note", "pause_since", "pause_until"),
)
"""Of a job's row, all that `Job` holds but its definition; queries that answer in JSON keep this order."""

JOB_REVISION: Final = JOB_COLUMNS.index("definition_revision")
"""Where the revision of the definition stands among them."""

_STATUS: Final = {status.value: status for status in JobStatus}
_ORIGIN: Final = {origin.value: origin for origin in Origin}


def _pause(reason: str, mode: str, by: str, note: str | None, since: Micros, until: Micros | None) -> Pause:
    return Pause(
        reason=PauseReason(reason), mode=PauseMode(mode), by=by, note=note or "", since=since, until=until
    )


def picked(columns: tuple[str, ...], row: Row) -> Sequence[Any]:
    """The values of these columns: found by their place, since a look by name goes through all of them."""
    values: Sequence[Any] = _picker(columns, tuple(row.keys()))(row)
    return values


@lru_cache(maxsize=64)
def _picker(columns: tuple[str, ...], keys: tuple[str, ...]) -> itemgetter[Any]:
    return itemgetter(*map(keys.index, columns))


def pause_of(row: Row) -> Pause:
    """The pause of all jobs."""
    said = (row["mode"], row["by"], row["note"], row["since"], row["until"])
    return _pause(PauseReason.OPERATOR, *said)


def pause_span_of(row: Row, now: Micros) -> PauseSpan:
    """What a pause of all jobs has held so far."""
    until = now if row["lifted_at"] is None else row["lifted_at"]
    return PauseSpan(since=row["since"], until=until, words=pause_of(row).words)


def run_of(row: Row) -> Run:
    """The run's row."""
    return run_from(picked(RUN_COLUMNS, row))


def run_from(values: Sequence[Any]) -> Run:
    """The run's row, of which `values` are `RUN_COLUMNS`."""
    (id, seq, job, trigger, state, reason, message, ready_at, fire_time, fire_time_last, count) = values[:11]
    (generation, args, under_pause, wish, attempt, claim, owner, lease_until, serial) = values[11:20]
    (queued_at, claimed_at, started_at, finished_at, progress_at, job_counted) = values[20:26]
    (added_revision, definition_revision, pid, pid_ticks, exit_code, signal, result, cost) = values[26:34]
    (done, total, failed, unknown, progress_message, items_total, spent) = values[34:]
    untold = done is total is failed is unknown is progress_message is None
    return Run(
        id=id,
        seq=seq,
        job=job,
        trigger=_TRIGGER[trigger],
        state=_STATE[state],
        reason=reason,
        message=message,
        ready_at=ready_at,
        fire_time=fire_time,
        fire_time_last=fire_time_last,
        count=count,
        generation=generation,
        args=args,
        under_pause=bool(under_pause),
        wish=_WISH[wish],
        attempt=attempt,
        claim=claim,
        owner=owner,
        lease_until=lease_until,
        serial=bool(serial),
        queued_at=queued_at,
        claimed_at=claimed_at,
        started_at=started_at,
        finished_at=finished_at,
        progress_at=progress_at,
        job_counted=bool(job_counted),
        added_revision=added_revision,
        definition_revision=definition_revision,
        pid=pid,
        pid_ticks=pid_ticks,
        exit_code=exit_code,
        signal=signal,
        result=result,
        cost=cost,
        progress=_UNTOLD
        if untold
        else Progress(done=done, total=total, failed=failed, unknown=unknown, message=progress_message),
        items_total=items_total,
        spent=spent,
    )


RUN_COLUMNS: Final = (
    *("id", "seq", "job", "trigger", "state", "reason", "message", "ready_at"),
    *("fire_time", "fire_time_last", "count", "generation", "args", "under_pause", "wish"),
    *("attempt", "claim", "owner", "lease_until", "serial"),
    *("queued_at", "claimed_at", "started_at", "finished_at", "progress_at", "job_counted"),
    *("added_revision", "definition_revision", "pid", "pid_ticks", "exit_code", "signal", "result", "cost"),
    *("done", "total", "failed", "unknown", "progress_message", "items_total", "spent"),
)
"""All that `Run` holds; queries that answer in JSON keep this order."""

_TRIGGER: Final = {trigger.value: trigger for trigger in RunTrigger}
_STATE: Final = {state.value: state for state in RunState}
_WISH: Final = {wish.value: wish for wish in Wish}
_UNTOLD: Final = Progress()


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
