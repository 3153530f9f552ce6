"""Fire times that make no run are told by rows (I13), inside the transaction of who passes them over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from scheduler.clock import Micros
from scheduler.errors import IllegalTransition
from scheduler.model.jobs import Job
from scheduler.model.runs import RunState, SkipReason, new_run_id
from scheduler.rules.planning import SkippedSpan, missed_span, unfired_spans
from scheduler.store.rows import pause_span_of
from scheduler.store.transaction import Transaction, packed


class Skip(NamedTuple):
    """Fire times of a job that make no run; `generation` is the clock's, as the job's row has it now."""

    job: Job
    generation: int
    span: SkippedSpan


def tell_skipped(tx: Transaction, job: Job, span: SkippedSpan) -> None:
    """The fire times are explained by a row (I13)."""
    tell_skips(tx, [Skip(job, job.generation, span)])


def tell_skips(tx: Transaction, skips: Sequence[Skip]) -> None:
    """The fire times of these different jobs are explained (I13): by a new row, or the newest, extended."""
    if not skips:
        return
    newest = {row[0]: row for row in tx.gathered("newest_runs", jobs=packed([skip.job.id for skip in skips]))}
    told: list[tuple[object, ...]] = []
    extended: list[tuple[object, ...]] = []
    for job, generation, span in skips:
        row = newest.get(job.id)
        if row is not None and row[2:5] == [RunState.SKIPPED, span.reason, generation]:
            _, seq, _, _, _, message = row
            extended.append((seq, span.reason, generation, span.last, span.count, span.note or message))
        else:
            told.append(
                (
                    *(new_run_id(tx.now), job.id, span.reason, span.note or None),
                    *(span.first, span.last, span.count, generation, job.added_revision),
                )
            )
    if extended and tx.execute("extend_skip", skips=packed(extended), now=tx.now) != len(extended):
        raise IllegalTransition("a skip changed inside the transaction that read it")
    if told:
        tx.execute("insert_skip", skips=packed(told), now=tx.now)


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
