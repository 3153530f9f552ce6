"""Which transition is told to whom: the whole table of decisions (issue 5, point 8; B55)."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.clock import MINUTE, SECOND
from scheduler.engine.alerts import AlertKind, facts_of, failed_before, hook_for, kind_of, ping_of
from scheduler.engine.overdue import expected_slot, has_begun
from scheduler.model.alerts import Alerts, HookCommand, Ping
from scheduler.model.jobs import Job, JobId, JobStatus, Origin
from scheduler.model.runs import Attempt, OwnerId, Run, RunId, RunState, RunTrigger, SkipReason
from scheduler.telemetry import Event
from tests.support.builders import JOB, make_definition
from tests.support.clock import START

ALL = Alerts(
    ping=Ping(start="http://h/start", success="http://h/success", failure="http://h/failure"),
    on_failure=HookCommand(argv=("on_failure",)),
    on_recovery=HookCommand(argv=("on_recovery",)),
    on_overdue=HookCommand(argv=("on_overdue",)),
    on_pause=HookCommand(argv=("on_pause",)),
    on_budget=HookCommand(argv=("on_budget",)),
)

TABLE = {
    Event.RUN_STARTED: ("start", None),
    Event.RUN_SUCCEEDED: ("success", None),
    Event.RUN_FAILED: ("failure", "on_failure"),
    Event.RUN_PARTIAL: ("failure", "on_failure"),
    Event.RUN_CRASHED: ("failure", "on_failure"),
    Event.JOB_PAUSED: (None, "on_pause"),
    Event.JOB_OVERDUE: (None, "on_overdue"),
    Event.BUDGET_REACHED: (None, "on_budget"),
}


@pytest.mark.parametrize("event", list(Event))
def test_each_event_is_told_to_whom_the_table_says(event: Event) -> None:
    """Skips, repeated tries, cancels and planned stops are told to nobody, nor is anything else."""
    ping, hook = TABLE.get(event, (None, None))

    call = ping_of(event, JOB, {"run_id": "r"}, ALL)
    kind = kind_of(event, {"reason": "operator"}, ALL, was_failing=False)

    assert (None if call is None else call.url.rpartition("/")[2]) == ping
    assert (None if kind is None else hook_for(kind, ALL)) == (HookCommand(argv=(hook,)) if hook else None)


def test_a_success_is_a_recovery_only_after_a_failure() -> None:
    """The same event is worth an alert or none by what came before."""
    assert kind_of(Event.RUN_SUCCEEDED, {}, ALL, was_failing=True) is AlertKind.RECOVERY
    assert kind_of(Event.RUN_SUCCEEDED, {}, ALL, was_failing=False) is None


def test_a_pause_by_the_budget_is_told_once() -> None:
    """With on_budget it was told as the budget's; without, it is a pause like others."""
    only_pause = Alerts(on_pause=HookCommand(argv=("x",)))

    assert kind_of(Event.JOB_PAUSED, {"reason": "budget"}, ALL, was_failing=False) is None
    assert kind_of(Event.JOB_PAUSED, {"reason": "budget"}, only_pause, was_failing=False) is AlertKind.PAUSE
    assert kind_of(Event.JOB_PAUSED, {"reason": "crashes"}, ALL, was_failing=False) is AlertKind.PAUSE


def test_the_facts_have_every_key_and_no_other() -> None:
    """A receiver can rely on the shape; fields that are not for it are left out."""
    told = {"run_id": "r", "exit_code": 3, "by": "uid:0", "message": "m"}

    facts = facts_of(AlertKind.FAILURE, Event.RUN_FAILED, JOB, "2027-01-01T00:00:00+00:00", told)

    assert facts == {
        "alert": "failure",
        "job": "job",
        "state": "failed",
        "run_id": "r",
        "reason": None,
        "message": "m",
        "attempt": None,
        "fire_time": None,
        "at": "2027-01-01T00:00:00+00:00",
    }


def run(state: RunState, *, claim: int = 1, **values: object) -> Run:
    known = {"id": RunId("r"), "job": JOB, "trigger": RunTrigger.SCHEDULE, "queued_at": START, "seq": 1}
    return Run(**{**known, "state": state, "claim": claim, **values})  # type: ignore[arg-type] # a builder


def attempt(state: RunState, claim: int) -> Attempt:
    return Attempt(run=RunId("r"), claim=claim, attempt=1, owner=OwnerId("o"), started_at=START, state=state)


@pytest.mark.parametrize(
    ("attempts", "earlier", "expected"),
    [
        ([], [], False),
        ([], [RunState.SUCCEEDED, RunState.FAILED], False),
        ([], [RunState.FAILED, RunState.SUCCEEDED], True),
        ([], [RunState.CRASHED], True),
        ([], [RunState.PARTIAL], True),
        ([], [RunState.SKIPPED, RunState.CANCELLED, RunState.INTERRUPTED, RunState.FAILED], True),
        ([], [RunState.SKIPPED, RunState.RUNNING, RunState.SUCCEEDED, RunState.FAILED], False),
        ([RunState.WAITING], [RunState.SUCCEEDED], False),
        ([RunState.FAILED], [RunState.SUCCEEDED], True),
    ],
)
def test_whether_the_job_was_failing_is_what_its_last_own_end_says(
    attempts: list[RunState], earlier: list[RunState], *, expected: bool
) -> None:
    """Skips, cancels and planned stops are neither success nor failure; tries of one run are no ends."""
    now = run(RunState.SUCCEEDED, claim=5)
    history = [attempt(state, number) for number, state in enumerate(attempts, 1)]

    found = failed_before(now, history, [run(state) for state in earlier])

    assert found is expected


def job(*, next_fire_at: int | None = None, due_at: int | None = None, **keys: Any) -> Job:
    return Job(
        id=JobId("job"),
        definition=make_definition(every=MINUTE, on_overdue=["x"], **keys),
        status=JobStatus.ACTIVE,
        enabled=True,
        revision=1,
        definition_revision=1,
        added_revision=1,
        origin=Origin.FILE,
        next_fire_at=next_fire_at,
        due_at=next_fire_at if due_at is None else due_at,
    )


def test_a_fire_time_is_expected_after_its_grace() -> None:
    """`late_after` (a minute) or `overdue_after` must have passed since the fire time."""
    since = START - 10 * MINUTE

    assert expected_slot(job(), START + MINUTE - 1, since) == START - MINUTE
    assert expected_slot(job(), START + MINUTE, since) == START
    assert expected_slot(job(overdue_after=5), START + 5 * SECOND, since) == START
    assert expected_slot(job(overdue_after=150), START + MINUTE, since) == START - 2 * MINUTE


def test_fire_times_from_before_the_watch_do_not_count_but_the_one_still_due_does() -> None:
    """Nothing is held against a job that was just added or resumed; a row that waits for its time is."""
    assert expected_slot(job(), START + MINUTE, START + 1) is None
    assert expected_slot(job(next_fire_at=START), START + MINUTE, START + 1) == START
    assert expected_slot(job(next_fire_at=START, due_at=START + 1), START + MINUTE, START + 1) is None


def test_jitter_is_no_delay() -> None:
    """A start that the job itself puts off is not missing before its moment."""
    jittered = job(jitter=50)
    due_at = jittered.definition.schedule.due_at
    slot = next(slot for slot in range(START, START + 100 * MINUTE, MINUTE) if due_at(slot) > slot)

    assert expected_slot(jittered, due_at(slot) + MINUTE - 1, slot) is None
    assert expected_slot(jittered, due_at(slot) + MINUTE, slot) == slot


@pytest.mark.parametrize("reason", list(SkipReason))
def test_a_skip_is_missing_work_unless_an_operator_took_it_away(reason: SkipReason) -> None:
    """Overlap, a full queue, a misfire, a broken job: the work does not happen. A pause is on purpose."""
    skipped = run(RunState.SKIPPED, reason=reason, fire_time=START)
    on_purpose = {"paused", "global_pause", "disabled", "edited", "excluded"}

    assert has_begun(START, skipped, [skipped]) is (reason.value in on_purpose)


def test_a_run_that_waits_has_not_begun_and_one_that_was_claimed_has() -> None:
    """A queued row is no start; a claim is, also of a later run or one by hand."""
    queued = run(RunState.QUEUED, fire_time=START)
    live = run(RunState.RUNNING, fire_time=START, claimed_at=START + MINUTE)
    older = run(RunState.RUNNING, claimed_at=START - 1)

    assert not has_begun(START, queued, [queued, older])
    assert has_begun(START, live, [])
    assert has_begun(START, queued, [queued, live])
    assert not has_begun(START, None, [])
