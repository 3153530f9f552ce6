"""A verdict meets a run with items, or a job that has gone: state, reason, and the words on the row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler.clock import MINUTE
from scheduler.model.items import ItemCounts
from scheduler.model.jobs import Job, JobStatus, Origin
from scheduler.model.runs import OwnerId, Run, RunId, RunReason, RunState, RunTrigger, Wish
from scheduler.rules.reconcile import Ending, LiveRows, RunWrite, reconcile
from tests.support.builders import JOB, make_definition, make_verdict
from tests.support.clock import START

NOW = START + 10 * MINUTE
ALL_DONE = ItemCounts(total=3, done=3)
SOME_FAILED = ItemCounts(total=3, done=2, failed=1)
SOME_LEFT = ItemCounts(total=3, done=2, chosen=1)

RUN = Run(
    id=RunId("run"),
    seq=1,
    job=JOB,
    state=RunState.RUNNING,
    trigger=RunTrigger.SCHEDULE,
    claim=3,
    owner=OwnerId("owner"),
    lease_until=NOW,
    attempt=2,
    definition_revision=5,
    added_revision=1,
)


def make_job(status: JobStatus = JobStatus.ACTIVE, *, removed: bool = False, **keys: Any) -> Job:
    return Job(
        id=JOB,
        definition=make_definition(**keys),
        status=status,
        enabled=True,
        revision=9,
        definition_revision=5,
        added_revision=1,
        origin=Origin.FILE,
        removed_at=NOW if removed else None,
        next_fire_at=None,
        due_at=None,
    )


def written(
    ending: Ending, job: Job | None, items: ItemCounts | None = None, run: Run = RUN, **said: Any
) -> RunWrite:
    live = LiveRows(run=run, job=job, others=0, items=items)
    write = reconcile(make_verdict(run, ending, **said), live, NOW).run
    assert write is not None
    return write


@pytest.mark.parametrize("ending", [Ending.ITEMS, Ending.SHUTDOWN, Ending.CANCELLED])
@pytest.mark.parametrize("wish", list(Wish))
def test_a_batch_of_which_all_is_done_has_succeeded(ending: Ending, wish: Wish) -> None:
    """However its worker was ended: nothing was left to do."""
    write = written(ending, make_job(), ALL_DONE, replace(RUN, wish=wish))

    assert (write.state, write.reason, write.message) == (RunState.SUCCEEDED, None, None)
    assert (write.attempt, write.ready_at, write.counted) == (2, None, True)


def test_a_batch_of_which_something_failed_is_partial() -> None:
    """Its items give reason and words; no try is charged, no further claim is set."""
    write = written(Ending.ITEMS, make_job(), SOME_FAILED)

    assert (write.state, write.reason) == (RunState.PARTIAL, RunReason.ITEMS_FAILED)
    assert "2 of 3 done" in (write.message or "")
    assert (write.attempt, write.ready_at) == (2, None)


@pytest.mark.parametrize(
    ("ending", "wish"),
    [(Ending.CANCELLED, Wish.RUN), (Ending.ITEMS, Wish.CANCEL), (Ending.SHUTDOWN, Wish.CANCEL)],
)
def test_a_cancel_wins_over_a_batch_that_did_not_succeed(ending: Ending, wish: Wish) -> None:
    """It is cancelled by the operator's word, with the sum of its items."""
    write = written(ending, make_job(), SOME_FAILED, replace(RUN, wish=wish))

    assert (write.state, write.reason) == (RunState.CANCELLED, RunReason.CANCELLED)
    assert "2 of 3 done" in (write.message or "")


def test_a_batch_with_items_left_waits_for_its_next_claim() -> None:
    """Nothing has ended: it may be claimed at once, and no try is charged."""
    write = written(Ending.ITEMS, make_job(), SOME_LEFT)

    assert (write.state, write.ready_at, write.attempt, write.counted) == (RunState.WAITING, NOW, 2, False)


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (None, RunReason.REMOVED),
        (make_job(removed=True), RunReason.REMOVED),
        (replace(make_job(), added_revision=2), RunReason.REMOVED),
        (make_job(JobStatus.COMPLETED), RunReason.JOB_ENDED),
        (make_job(JobStatus.FAILED), RunReason.JOB_ENDED),
    ],
)
def test_a_batch_that_loses_its_job_says_how(job: Job | None, reason: RunReason) -> None:
    """Items that are left are never called: it is cancelled, or failed where another try was asked for."""
    cancelled = written(Ending.ITEMS, job, SOME_LEFT)
    failed = written(Ending.FAILED, job, retryable=False, reason=None)

    assert (cancelled.state, cancelled.reason) == (RunState.CANCELLED, reason)
    assert (failed.state, failed.reason) == (RunState.FAILED, reason)


@pytest.mark.parametrize(("on_crash", "state"), [("record", RunState.CRASHED), ("retry", RunState.WAITING)])
def test_a_crash_is_not_judged_by_items(on_crash: str, state: RunState) -> None:
    """From `recovering` a batch goes on under another claim, which finds out what is left."""
    run = replace(RUN, state=RunState.RECOVERING)

    write = written(Ending.CRASHED, make_job(on_crash=on_crash), ALL_DONE, run)

    assert (write.state, write.reason) == (state, RunReason.OWNER_DIED)
    assert write.message == "the daemon died; 3 of 3 done"


def test_a_worker_that_failed_is_not_judged_by_items() -> None:
    """Its own failure stands, with the sum beside it."""
    write = written(Ending.FAILED, make_job(), ALL_DONE)

    assert (write.state, write.message) == (RunState.FAILED, "exit code 1; 3 of 3 done")


@pytest.mark.parametrize(
    ("ending", "said", "tells"),
    [
        (Ending.RETRY_ASKED, {}, True),
        (Ending.FAILED, {}, True),
        (Ending.FAILED, {"retryable": False}, False),
        (Ending.FAILED, {"exit_code": 77}, False),
    ],
)
def test_a_removal_says_what_it_cost(ending: Ending, said: dict[str, Any], *, tells: bool) -> None:
    """A run that would have been tried again, had its job not been removed, tells so."""
    retry = {"attempts": 5, "exit_codes": [1]}

    write = written(ending, make_job(removed=True, retry=retry), **said)
    there = written(ending, make_job(JobStatus.COMPLETED, retry=retry), **said)
    unknown = written(ending, None, **said)

    assert write.state is RunState.FAILED
    assert ((write.message or "").endswith("; not tried again: the job was removed")) is tells
    assert "not tried again" not in (there.message or "")
    assert ("not tried again" in (unknown.message or "")) is (ending is Ending.RETRY_ASKED)


@pytest.mark.parametrize("trigger", list(RunTrigger))
@pytest.mark.parametrize("before", [True, False])
def test_a_run_counts_once_and_only_if_its_trigger_made_it(trigger: RunTrigger, *, before: bool) -> None:
    """What was counted stays counted; else an end counts that came from the schedule."""
    run = replace(RUN, trigger=trigger, job_counted=before)
    scheduled = trigger in (RunTrigger.SCHEDULE, RunTrigger.CATCH_UP)

    assert written(Ending.SUCCEEDED, make_job(), None, run).counted is (before or scheduled)
    assert written(Ending.RETRY_ASKED, make_job(), None, run).counted is before


@pytest.mark.parametrize("ending", [Ending.SUCCEEDED, Ending.CANCELLED, Ending.CRASHED])
def test_only_a_failure_is_charged_as_a_try(ending: Ending) -> None:
    """An end of another kind leaves the number of the attempt alone."""
    assert written(ending, make_job()).attempt == 2


def test_a_batch_that_failed_without_its_job_was_not_to_be_tried_again() -> None:
    """Its items ended it; the removal took no try away."""
    job = make_job(removed=True, retry={"attempts": 5})

    write = written(Ending.ITEMS, job, ItemCounts(total=3, failed=3))

    assert write.state is RunState.FAILED
    assert "not tried again" not in (write.message or "")


def test_a_batch_that_waits_can_only_be_cancelled() -> None:
    """It has no worker that could have found nothing left to do."""
    waiting = replace(RUN, state=RunState.WAITING)

    assert written(Ending.CANCELLED, make_job(), ALL_DONE, waiting).state is RunState.CANCELLED
