"""How a run comes to life inside a transaction: counted, admitted, inserted; or told as skipped.

FIRE, a manual start and a claim all come through here, so there is one place for I2 (live runs are
counted from rows, in the transaction that adds one) and one for the room of the store and its groups.
"""

from __future__ import annotations

import json

from scheduler.clock import Micros
from scheduler.model.jobs import Job, JobId
from scheduler.model.runs import Grant, Run, RunId, RunState, RunTrigger, SkipReason, new_run_id
from scheduler.rules.planning import Occupancy, SkippedSpan, missed_span, unfired_spans
from scheduler.store.rows import pause_span_of, run_of
from scheduler.store.transaction import Transaction
from scheduler.store.values import Claimant


class Room:
    """How many more claims fit, globally and per group; counted once a transaction, then kept in step."""

    def __init__(self, tx: Transaction, who: Claimant) -> None:
        self._tx = tx
        self._who = who
        self._left = who.max_running - int(tx.value("claimed_total"))
        self._groups: dict[str, int] = {}

    @property
    def left(self) -> int:
        """Claims that still fit into the whole store."""
        return max(0, self._left)

    def full_groups(self) -> str:
        """JSON list of the groups that take no further claim."""
        return json.dumps([name for name in self._who.groups if self._in_group(name) <= 0])

    def fits(self, group: str | None) -> bool:
        """One more claim of a job of this group fits."""
        if self._left <= 0 or self._who.draining:
            return False
        return group is None or group not in self._who.groups or self._in_group(group) > 0

    def take(self, group: str | None) -> None:
        """One more claim is in force."""
        self._left -= 1
        if group is not None and group in self._who.groups:
            self._groups[group] = self._in_group(group) - 1

    def _in_group(self, name: str) -> int:
        if name not in self._groups:
            claimed = int(self._tx.value("claimed_in_group", group_name=name))
            self._groups[name] = self._who.groups[name] - claimed
        return self._groups[name]


def occupancy(tx: Transaction, job: JobId, *, room: bool) -> tuple[Occupancy, int]:
    """What stands in the way of a start of this job now, and its scheduled runs not yet counted."""
    row = tx.one("occupancy", job=job)
    assert row is not None  # noqa: S101 - an aggregate always has a row
    seen = Occupancy(live=row["live"], recovering=row["recovering"], queued=row["queued"], room=room)
    return seen, row["scheduled"]


def insert_run(  # noqa: PLR0913 - what differs between the ways a run comes to life
    tx: Transaction,
    who: Claimant,
    job: Job,
    run_id: RunId,
    trigger: RunTrigger,
    *,
    claimed: bool,
    fire_time: Micros | None = None,
    args: str | None = None,
    under_pause: bool = False,
) -> Run | None:
    """The new row, claimed or queued; None if this fire time already made a run (I1)."""
    row = tx.changed(
        "insert_run",
        id=run_id,
        job=job.id,
        trigger=trigger,
        state=RunState.RUNNING if claimed else RunState.QUEUED,
        fire_time=fire_time,
        generation=job.generation,
        args=args,
        under_pause=under_pause,
        solo=job.definition.solo,
        added_revision=job.added_revision,
        definition_revision=job.definition_revision if claimed else None,
        claim=1 if claimed else 0,
        owner=who.owner.id if claimed else None,
        lease_until=tx.now + who.lease if claimed else None,
        queued_at=tx.now,
        claimed_at=tx.now if claimed else None,
    )
    if row is None:
        return None
    run = run_of(row)
    if claimed:
        record_attempt(tx, run)
    return run


def record_attempt(tx: Transaction, run: Run) -> None:
    """The claim has its row in the history of attempts."""
    tx.execute(
        "insert_attempt", run=run.id, claim=run.claim, attempt=run.attempt, owner=run.owner, now=tx.now
    )


def grant_of(run: Run, job: Job) -> Grant:
    """The claim as its worker gets it: with the definition that is live at the claim."""
    return Grant(run=run, definition=job.definition)


def live_run(tx: Transaction, run_id: RunId) -> Run:
    """The run's row as it is now, which the caller knows to exist."""
    row = tx.one("live_run", id=run_id)
    assert row is not None  # noqa: S101 - runs are never deleted while a verb names them
    return run_of(row)


def tell_skipped(tx: Transaction, job: Job, span: SkippedSpan) -> None:
    """The fire times are explained by a row (I13): a new one, or the newest row of the job, extended."""
    newest = tx.one("newest_run", job=job.id)
    if newest is not None and newest["state"] == RunState.SKIPPED and newest["reason"] == span.reason:
        extended = tx.execute(
            "extend_skip",
            seq=newest["seq"],
            reason=span.reason,
            generation=job.generation,
            last=span.last,
            count=span.count,
            message=span.note or newest["message"],
            now=tx.now,
        )
        if extended == 1:
            return
    tx.execute(
        "insert_skip",
        id=new_run_id(tx.now),
        job=job.id,
        reason=span.reason,
        message=span.note or None,
        first=span.first,
        last=span.last,
        count=span.count,
        generation=job.generation,
        added_revision=job.added_revision,
        now=tx.now,
    )


def tell_unfired(
    tx: Transaction, job: Job, otherwise: SkipReason, note: str = "", *, until: Micros | None = None
) -> None:
    """Fire times of the job that passed and that no look has found are told (I13).

    Those that a pause (of the job, or of all) or disabling held back are told as such, by one row each; those
    that were just due as `otherwise`.

    Args:
        until: the last moment that counts; by default now.
    """
    first = job.next_fire_at if job.held_from is None else job.held_from
    end = tx.now if until is None else until
    if first is None or first > end:
        return
    schedule = job.definition.schedule
    last = max(first, schedule.last_fire(end) or first)
    if job.pause is not None:
        tell_skipped(tx, job, missed_span(schedule, first, last, SkipReason.PAUSED, job.pause.words))
    elif not job.enabled:
        tell_skipped(tx, job, missed_span(schedule, first, last, SkipReason.DISABLED))
    else:
        pauses = [pause_span_of(row, tx.now) for row in tx.all("global_spans_and_open", after=first)]
        for span in unfired_spans(schedule, first, last, pauses, otherwise, note):
            tell_skipped(tx, job, span)


def one_skipped(reason: SkipReason, fire_time: Micros, note: str) -> SkippedSpan:
    """The span of a single fire time."""
    return SkippedSpan(reason=reason, first=fire_time, last=fire_time, count=1, note=note)
