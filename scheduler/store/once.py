"""A verb under a key: carried out once, and its answer recorded in the same transaction."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeVar

from scheduler.errors import AlreadyDone
from scheduler.model.items import Item
from scheduler.model.runs import Run
from scheduler.store.keyed import KEPT, Outcome, judged
from scheduler.store.pausevalues import AllOperated
from scheduler.store.rows import Row, attempt_of, run_of
from scheduler.store.transaction import Transaction
from scheduler.store.values import Cancelled, Finished, JobView, Operated, Peer, Started

T = TypeVar("T")


def once(tx: Transaction, peer: Peer, work: Callable[[], T]) -> T:
    """The result of `work`; under a key that was used before, nothing is done.

    A refused verb records nothing, so the same key may be tried again.

    # INVARIANT: I10, effect and answer commit together: one key, one effect, whatever dies in between.

    Raises:
        AlreadyDone: the same request was carried out; with its answer.
        Invalid: another request was carried out under this key.
    """
    key = peer.key
    if key is None:
        return work()
    row = tx.one("recorded_answer", uid=peer.uid, key=key.key, after=tx.now - KEPT)
    if row is not None:
        raise judged(already_done(key.key, row), key.request)
    done = work()
    answer = key.answer(_outcome(tx, done))
    tx.execute("forget_answers", before=tx.now - KEPT)
    tx.execute(
        "record_answer",
        uid=peer.uid,
        key=key.key,
        request=key.request,
        now=tx.now,
        status=answer.status,
        headers=json.dumps(dict(answer.headers)),
        body=answer.body,
    )
    return done


def already_done(key: str, row: Row) -> AlreadyDone:
    """The recorded answer, on its way out."""
    return AlreadyDone(key, row["request"], (row["status"], json.loads(row["headers"]), row["body"]))


def _outcome(tx: Transaction, done: object) -> Outcome:
    match done:
        case Operated():
            rows = tx.all("last_runs", jobs=json.dumps([done.job.id]))
            last = run_of(rows[0]) if rows else None
            return Outcome(
                job=JobView(job=done.job, last_run=last, live_runs=done.in_flight), runs=done.in_flight
            )
        case AllOperated():
            return Outcome(all=done)
        case (Item() as item, Run() as run):
            return Outcome(item=item, run=run)
        case Started(run=run) | Cancelled(run=run) | Finished(run=run):
            return _of_run(tx, run)
        case Run() as run:
            return _of_run(tx, run)
        case _:
            raise TypeError(f"no answer is known for {type(done).__name__}")


def _of_run(tx: Transaction, run: Run) -> Outcome:
    attempts = tuple(attempt_of(row) for row in tx.all("list_attempts", run=run.id))
    return Outcome(run=run, attempts=attempts)
