"""What pauses want of the runs in flight: their wishes, set and lifted inside the verb's transaction.

Two pauses may hold a run at once, that of its job and that of all jobs; the stronger one is in force, and
the end of one leaves the other.
"""

from __future__ import annotations

from typing import Final

from scheduler.model.jobs import Job, PauseMode, PythonAction
from scheduler.model.runs import Run, RunId, RunReason, RunState, Wish
from scheduler.store.finishing import cancel_unstarted
from scheduler.store.rows import run_of
from scheduler.store.transaction import Transaction

_WISH_OF: Final = {
    PauseMode.DRAIN: Wish.RUN,  # a drain after a hold or freeze lets go again
    PauseMode.ITEM: Wish.HOLD,
    PauseMode.FREEZE: Wish.FREEZE,
    PauseMode.CANCEL: Wish.CANCEL,
}
_STRENGTH: Final = (PauseMode.DRAIN, PauseMode.ITEM, PauseMode.FREEZE, PauseMode.CANCEL)


def wish_in_flight(
    tx: Transaction, job: Job, mode: PauseMode
) -> tuple[tuple[tuple[RunId, Wish], ...], tuple[Run, ...]]:
    """Runs in flight get the wish of the mode; those without a worker are cancelled at once."""
    wish = _WISH_OF[mode]
    wishes: list[tuple[RunId, Wish]] = []
    cancelled: list[Run] = []
    for run in map(run_of, tx.all("unfinished_runs", job=job.id)):
        if run.state in (RunState.RUNNING, RunState.RECOVERING):
            if tx.execute("wish_run", id=run.id, wish=wish):
                wishes.append((run.id, wish))
        elif wish is Wish.CANCEL and run.state is not RunState.QUEUED:
            why = "the job was paused with mode cancel"
            cancelled.append(cancel_unstarted(tx, run, RunReason.CANCELLED, why).run)
    return tuple(wishes), tuple(cancelled)


def let_go(tx: Transaction, job: Job) -> tuple[tuple[RunId, Wish], ...]:
    """The job's own pause holds its runs no longer; a pause of all jobs may still do.

    Held ones wait for a claim, others go on.
    """
    wishes = {RunId(row["id"]): Wish.RUN for row in tx.all("lift_wishes", job=job.id)}
    tx.execute("release_held", job=job.id, now=tx.now)
    wishes.update(dict(wish_in_flight(tx, job, stronger(job, PauseMode.DRAIN, mode_of_all(tx)))[0]))
    return tuple(wishes.items())


def mode_of_all(tx: Transaction) -> PauseMode:
    """What the pause of all jobs says to runs in flight; `drain` where there is none.

    A `cancel` was said to those of its moment, and none has started since.
    """
    row = tx.one("global_pause")
    mode = PauseMode.DRAIN if row is None else PauseMode(row["mode"])
    return PauseMode.DRAIN if mode is PauseMode.CANCEL else mode


def stronger(job: Job, own: PauseMode, of_all: PauseMode) -> PauseMode:
    """The mode in force where both are said; over many jobs `freeze` freezes commands and drains the rest."""
    if of_all is PauseMode.FREEZE and isinstance(job.definition.action, PythonAction):
        of_all = PauseMode.DRAIN
    return max(own, of_all, key=_STRENGTH.index)
