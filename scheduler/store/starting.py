"""How a run comes to life inside a transaction: counted, admitted, inserted; or told as skipped.

FIRE, a manual start and a claim all come through here, so there is one place for I2 (live runs are
counted from rows, in the transaction that adds one) and one for the room of the store and its groups.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from scheduler.clock import Micros
from scheduler.model.jobs import Job
from scheduler.model.record import record
from scheduler.model.runs import (
    Grant,
    Run,
    RunId,
    RunReason,
    RunState,
    RunTrigger,
    Wish,
)
from scheduler.store.finishing import cancel_unstarted
from scheduler.store.rows import run_of
from scheduler.store.transaction import Transaction, packed
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


@record
class NewRun:
    """A run that is to be inserted, claimed or queued.

    Attributes:
        claimant: who has claimed it at once; None: it is queued.
        generation: of the clock, as the job's row has it now.
        under_pause: its job's own pause does not hold it.
    """

    id: RunId
    job: Job
    trigger: RunTrigger
    generation: int
    claimant: Claimant | None = None
    fire_time: Micros | None = None
    args: str | None = None
    under_pause: bool = False


def insert_runs(tx: Transaction, news: Sequence[NewRun]) -> list[Run | None]:
    """The new rows; None where the fire time had already made a run (I1)."""
    if not news:
        return []
    rows = [_row_of(new, tx.now) for new in news]
    if tx.execute("insert_run", runs=packed(rows), now=tx.now) == 0:
        return [None] * len(news)  # a row of such an id may be there all the same: somebody else's
    places = dict(tx.gathered("inserted_runs", ids=packed([new.id for new in news])))
    runs = [_as_inserted(new, tx.now, places.get(new.id)) for new in news]
    record_attempts(tx, [run for run in runs if run is not None and run.claim > 0])
    return runs


def _row_of(new: NewRun, now: Micros) -> tuple[object, ...]:
    job, who = new.job, new.claimant
    return (
        *(new.id, job.id, new.trigger, RunState.QUEUED if who is None else RunState.RUNNING),
        *(new.fire_time, new.generation, new.args, new.under_pause, job.definition.solo, job.added_revision),
        *(
            (None, 0, None, None, None)
            if who is None
            else (job.definition_revision, 1, who.owner.id, now + who.lease, now)
        ),
        *(job.definition.priority, job.definition.group),
    )


def _as_inserted(new: NewRun, now: Micros, seq: int | None) -> Run | None:
    if seq is None:
        return None
    job, who = new.job, new.claimant
    claimed_at = None if who is None else now
    return Run(
        id=new.id,
        seq=seq,
        job=job.id,
        state=RunState.QUEUED if who is None else RunState.RUNNING,
        trigger=new.trigger,
        fire_time=new.fire_time,
        generation=new.generation,
        args=new.args,
        under_pause=new.under_pause,
        claim=0 if who is None else 1,
        owner=None if who is None else who.owner.id,
        lease_until=None if who is None else now + who.lease,
        queued_at=now,
        claimed_at=claimed_at,
        started_at=claimed_at,
        progress_at=claimed_at,
        added_revision=job.added_revision,
        definition_revision=None if who is None else job.definition_revision,
    )


def record_attempts(tx: Transaction, runs: Sequence[Run]) -> None:
    """The claims have their rows in the history of attempts."""
    if runs:
        rows = [(run.id, run.claim, run.attempt, run.owner) for run in runs]
        tx.execute("insert_attempt", attempts=packed(rows), now=tx.now)


def grant_of(run: Run, job: Job) -> Grant:
    """The claim as its worker gets it: with the definition that is live at the claim."""
    return Grant(run=run, definition=job.definition)


def make_way(tx: Transaction, job: Job, spare: RunId | None = None) -> tuple[list[RunId], list[Run]]:
    """`cancel_running`: queued runs are replaced, live ones get the wish `cancel`; those with a worker."""
    cancel: list[RunId] = []
    cancelled: list[Run] = []
    for row in tx.all("unfinished_runs", job=job.id):
        run = run_of(row)
        if run.id == spare:
            continue
        if run.state in (RunState.RUNNING, RunState.RECOVERING):
            if tx.execute("wish_run", id=run.id, wish=Wish.CANCEL):
                cancel.append(run.id)
        else:
            why = 'replaced by the next run (overlap = "cancel_running")'
            cancelled.append(cancel_unstarted(tx, run, RunReason.CANCELLED, why).run)
    return cancel, cancelled
