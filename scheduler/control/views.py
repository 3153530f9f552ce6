"""Rows of the store as answers of the API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from typing import Any, Final, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from scheduler.clock import SECOND, Micros, from_micros, seconds, to_micros
from scheduler.control import models as api
from scheduler.control import ports
from scheduler.errors import Fault, NotFound, StoreUnavailable
from scheduler.model import items, jobs, runs
from scheduler.model.alerts import masked
from scheduler.model.definitions import ACTION_KEYS, TRIGGER_KEYS
from scheduler.model.listed import ListedJob, listed
from scheduler.store import protocol, values

S = TypeVar("S")
T = TypeVar("T")

_SLICE: Final = 50


def told(at: Micros, zone: tzinfo) -> str:
    """The instant as RFC 3339 text in the zone, or in UTC where the offset has seconds (local mean times)."""
    second, rest = divmod(at, SECOND)
    clock, offset = _told_second(second, zone)
    return f"{clock}.{rest:06}{offset}" if rest else clock + offset


@lru_cache(maxsize=4_096)
def _told_second(second: int, zone: tzinfo) -> tuple[str, str]:
    """The second as text, and its offset: many of a page's instants lie within the same few seconds."""
    text = from_micros(second * SECOND, zone).isoformat()
    if text[-6] not in "+-":
        text = from_micros(second * SECOND, UTC).isoformat()
    return text[:-6], text[-6:]


async def in_slices(
    rows: Sequence[S], view: Callable[[S], T], breathe: Callable[[], Awaitable[None]]
) -> list[T]:
    """Every row viewed; the loop is let go between slices, so that a long list delays nobody."""
    viewed: list[T] = []
    for start in range(0, len(rows), _SLICE):
        if start:
            await breathe()
        viewed += [view(row) for row in rows[start : start + _SLICE]]
    return viewed


class Views:
    """How rows are shown.

    Args:
        zone: the daemon's time zone; a job's fire times are shown in its own.

    Attributes:
        one_list: held by who reads and shows a list, one at a time: each lets the loop go after a slice, but
            a slice of each of a hundred lists would be one turn of it (I15).
    """

    def __init__(self, zone: tzinfo) -> None:
        self.zone = zone
        self.one_list: Final = asyncio.Lock()

    def time(self, at: Micros) -> str:
        """The instant in the daemon's zone."""
        return told(at, self.zone)

    def time_or_none(self, at: Micros | None) -> str | None:
        """The same for an instant that may be missing."""
        return None if at is None else told(at, self.zone)

    def zone_of(self, timezone: str) -> tzinfo:
        """A job's zone; the daemon's where this machine does not know it any more."""
        try:
            return ZoneInfo(timezone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            return self.zone

    def job(self, view: values.JobView) -> api.Job:
        """A job with its last run and its runs in flight."""
        return api.Job.model_validate(self.listed(listed(view.job, view.last_run, view.live_runs)))

    def listed(self, job: ListedJob) -> dict[str, Any]:
        """The members of `api.Job` in their order, as JSON has them; a page is made of these, unchecked."""
        shown = job.shown
        zone = self.zone_of(shown.get("timezone", "UTC"))
        return {
            "id": job.id,
            "description": shown.get("description", ""),
            "status": str(job.status),
            "revision": job.revision,
            "definition_revision": job.definition_revision,
            "trigger": _trigger(shown, zone),
            "action": _action(shown),
            "next_fire_at": None if job.next_fire_at is None else told(job.next_fire_at, zone),
            "last_run": None if job.last_run is None else self._run(job.last_run),
            "live_runs": [self._run(run) for run in job.live_runs],
            "pause": None if job.pause is None else self._pause(job.pause),
            "enabled": job.enabled,
            "problem": _problem(job),
            "group": shown.get("group"),
            "labels": shown.get("labels", []),
            "origin": str(job.origin),
            "origin_file": job.origin_file,
            "definition": masked(job.definition),
        }

    def pause(self, pause: jobs.Pause) -> api.Pause:
        """A pause."""
        return api.Pause(**self._pause(pause))

    def _pause(self, pause: jobs.Pause) -> dict[str, Any]:
        return {
            "reason": str(pause.reason),
            "note": pause.note,
            "by": pause.by,
            "since": self.time(pause.since),
            "until": self.time_or_none(pause.until),
            "mode": str(pause.mode),
        }

    def summary(self, run: runs.Run) -> api.RunSummary:
        """A run without its attempts."""
        return api.RunSummary(**self._run(run))

    def run(self, run: runs.Run, attempts: Sequence[runs.Attempt]) -> api.Run:
        """A run with its attempts."""
        return api.Run(**self._run(run), attempts=[self._attempt(attempt) for attempt in attempts])

    def _run(self, run: runs.Run) -> dict[str, Any]:
        progress = run.progress
        return {
            "id": run.id,
            "job": run.job,
            "state": str(run.state),
            "reason": run.reason,
            "message": run.message,
            "trigger": str(run.trigger),
            "fire_time": self.time_or_none(run.fire_time),
            "attempt": run.attempt,
            "claim": run.claim,
            "queued_at": self.time_or_none(run.queued_at),
            "started_at": self.time_or_none(run.started_at),
            "finished_at": self.time_or_none(run.finished_at),
            "exit_code": run.exit_code,
            "signal": run.signal,
            "result": None if run.result is None else json.loads(run.result),
            "progress": {
                "done": progress.done,
                "total": progress.total,
                "failed": progress.failed,
                "unknown": progress.unknown,
                "message": progress.message,
            },
            "cost": run.cost,
            "pid": run.pid,
            "wish": str(run.wish),
            "ready_at": self.time_or_none(run.ready_at),
            "fire_time_last": self.time_or_none(run.fire_time_last),
            "count": run.count,
        }

    def _attempt(self, attempt: runs.Attempt) -> api.Attempt:
        return api.Attempt(
            attempt=attempt.attempt,
            claim=attempt.claim,
            state=attempt.state,
            reason=attempt.reason,
            message=attempt.message,
            started_at=self.time(attempt.started_at),
            finished_at=self.time_or_none(attempt.finished_at),
            exit_code=attempt.exit_code,
            signal=attempt.signal,
            pid=attempt.pid,
        )

    def item(self, item: items.Item) -> api.Item:
        """An item of a batch run."""
        return api.Item(
            key=item.key,
            index=item.index,
            state=item.state,
            attempts=item.attempts,
            error=item.error,
            result=None if item.result is None else json.loads(item.result),
            cost=item.cost / items.MONEY if item.cost else None,
            started_at=self.time_or_none(item.started_at),
            finished_at=self.time_or_none(item.finished_at),
        )

    def item_counts(self, counts: items.ItemCounts) -> api.ItemCounts:
        """The items of a run by state."""
        return api.ItemCounts(
            total=counts.total,
            pending=counts.pending,
            running=counts.running,
            done=counts.done,
            failed=counts.failed,
            unknown=counts.unknown,
            skipped=counts.skipped,
        )

    def audit(self, entry: values.AuditEntry) -> api.AuditEntry:
        """One mutation."""
        peer = entry.peer
        return api.AuditEntry(
            at=self.time(entry.at),
            verb=entry.verb,
            job=entry.job,
            run=entry.run,
            by=api.Caller(uid=peer.uid, gid=peer.gid, pid=peer.pid, command=peer.command),
            detail=dict(entry.detail),
        )

    def why(self, why: ports.Why) -> api.Why:
        """The reason why a job is not running."""
        return api.Why(
            job=why.job,
            blocked=why.blocked,
            code=why.code,
            message=why.message,
            since=self.time_or_none(why.since),
            next_possible_at=self.time_or_none(why.next_possible_at),
            run_id=why.run_id,
        )

    def status(
        self,
        facts: ports.StatusFacts,
        counts: values.Counts | None,
        paused: jobs.Pause | None,
        now: Micros,
        *,
        ok: bool,
    ) -> api.Status:
        """The daemon as it is now; `counts` is None while the store cannot be read."""
        return api.Status(
            version=facts.version,
            instance=facts.instance,
            pid=facts.pid,
            started_at=self.time(facts.started_at),
            uptime=seconds(max(0, now - facts.started_at)),
            draining=facts.draining,
            paused=None if paused is None else self.pause(paused),
            counts=None if counts is None else api.Counts(jobs=dict(counts.jobs), runs=dict(counts.runs)),
            health=api.Health(
                ok=ok,
                store_ok=facts.store_ok,
                last_tick_age=_seconds(facts.last_tick_age),
                last_renewal_age=_seconds(facts.last_renewal_age),
                loop_lag=seconds(facts.loop_lag),
            ),
            faults=[fault_view(fault) for fault in facts.faults],
        )


async def job_and_runs(views: Views, reads: protocol.Reads, done: values.Operated) -> api.JobAndRuns:
    """What a verb left behind: the row of its own commit, with the last run as it is now."""
    try:
        last_run = (await reads.job(done.job.id)).last_run
    except (NotFound, StoreUnavailable):  # removed; or the verb is done and only this look fails
        last_run = None
    view = values.JobView(job=done.job, last_run=last_run, live_runs=done.in_flight)
    return api.JobAndRuns(job=views.job(view), runs=[views.summary(run) for run in done.in_flight])


def fault_view(fault: Fault) -> api.Fault:
    """One fault of an input."""
    return api.Fault(message=fault.message, file=fault.file, line=fault.line, job=fault.job, key=fault.key)


def reload_view(report: ports.ReloadReport) -> api.Reload:
    """What a reload did."""
    return api.Reload(
        added=report.added,
        changed=report.changed,
        removed=report.removed,
        unchanged=report.unchanged,
        kept=report.kept,
        faults=[fault_view(fault) for fault in report.faults],
    )


def _seconds(age: Micros | None) -> float | None:
    return None if age is None else seconds(age)


def _problem(job: ListedJob) -> dict[str, str] | None:
    if job.problem_code is None:
        return None
    return {"code": job.problem_code, "message": job.problem_message or ""}


def _trigger(shown: Mapping[str, Any], zone: tzinfo) -> dict[str, Any]:
    kind = next(key for key in TRIGGER_KEYS if key in shown)
    match kind:
        case "cron":
            return {"kind": kind, "cron": shown["cron"], "timezone": shown.get("timezone", "UTC")}
        case "at":
            at = to_micros(datetime.fromisoformat(shown["at"]))
            return {"kind": kind, "at": told(at, zone)}
        case "manual":
            return {"kind": kind}
        case _:
            return {"kind": kind, kind: shown[kind]}


def _action(shown: Mapping[str, Any]) -> dict[str, Any]:
    kind = next(key for key in ACTION_KEYS if key in shown)
    return {"kind": kind, kind: shown[kind]}
