from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.clock import DAY, HOUR, MINUTE, SECOND, Micros
from scheduler.errors import IllegalTransition
from scheduler.model.jobs import Job, JobStatus, Origin, Pause, PauseMode, PauseReason
from scheduler.model.runs import TRANSITIONS, OwnerId, Run, RunId, RunReason, RunState, RunTrigger, Wish
from scheduler.rules.reconcile import (
    SCHEDULED,
    Decision,
    Ending,
    LiveRows,
    Standing,
    Verdict,
    depends_on_others,
    is_exhausted,
    reconcile,
)
from tests.support.builders import JOB, make_definition, make_verdict
from tests.support.clock import START

NOW = START + 10 * MINUTE
PAUSE = Pause(reason=PauseReason.OPERATOR, mode=PauseMode.DRAIN, by="uid:1000", since=START)
WORKERS: list[Ending] = [one for one in Ending if one is not Ending.ITEMS]


def make_run(**changes: Any) -> Run:
    values: dict[str, Any] = {
        "id": RunId("run"),
        "seq": 1,
        "job": JOB,
        "state": RunState.RUNNING,
        "trigger": RunTrigger.SCHEDULE,
        "fire_time": START,
        "claim": 3,
        "owner": OwnerId("owner"),
        "lease_until": NOW,
        "definition_revision": 5,
        "added_revision": 1,
    }
    return Run(**{**values, **changes})


def make_job(status: JobStatus = JobStatus.ACTIVE, *, definition: Any = None, **changes: Any) -> Job:
    """A live row as the store's own checks allow it: a next slot only where it may fire."""
    definition = make_definition() if definition is None else definition
    values: dict[str, Any] = {
        "id": JOB,
        "definition": definition,
        "status": status,
        "enabled": True,
        "revision": 9,
        "definition_revision": 5,
        "added_revision": 1,
        "origin": Origin.FILE,
        "pause": PAUSE if status is JobStatus.PAUSED else None,
    }
    job = Job(**{**values, **changes})
    slot = (
        definition.schedule.next_fire(NOW) if job.may_fire and definition.schedule.kind != "delay" else None
    )
    return replace(
        job, next_fire_at=changes.get("next_fire_at", slot), due_at=changes.get("next_fire_at", slot)
    )


def decide(
    ending: Ending, *, run: Run | None = None, job: Job | None = None, others: int = 0, **said: Any
) -> Decision:
    run = run or make_run()
    live = LiveRows(run=run, job=job or make_job(), others=others)
    return reconcile(make_verdict(run, ending, **said), live, NOW)


# --- I3 ---
@pytest.mark.parametrize("ending", WORKERS)
@pytest.mark.parametrize("claim", [0, 2, 4])
def test_another_claim_number_is_fenced(ending: Ending, claim: int) -> None:
    """I3: a verdict under any claim number but the row's own writes nothing."""
    decision = decide(ending, claim=claim)

    assert decision == Decision(standing=Standing.FENCED)


@pytest.mark.parametrize("state", [state for state in RunState if state is not RunState.RUNNING])
def test_another_state_is_refused(state: RunState) -> None:
    """I3: a worker's verdict on a row in any other state writes nothing."""
    run = make_run(state=state)
    decision = decide(Ending.FAILED, run=run, expects=RunState.RUNNING)

    standing = Standing.ALREADY_WRITTEN if state is RunState.FAILED else Standing.FENCED
    assert decision == Decision(standing=standing)


@pytest.mark.parametrize(
    ("ending", "state"),
    [
        (Ending.SUCCEEDED, RunState.SUCCEEDED),
        (Ending.FAILED, RunState.FAILED),
        (Ending.RETRY_ASKED, RunState.FAILED),
        (Ending.CANCELLED, RunState.CANCELLED),
        (Ending.CRASHED, RunState.CRASHED),
        (Ending.SHUTDOWN, RunState.INTERRUPTED),
    ],
)
def test_my_own_verdict_is_known_again(ending: Ending, state: RunState) -> None:
    """I3: a row that bears my claim and my verdict was written before; under claim 0 nothing was mine."""
    for claim, standing in ((3, Standing.ALREADY_WRITTEN), (0, Standing.FENCED)):
        decision = decide(ending, run=make_run(state=state, claim=claim), expects=RunState.RUNNING)
        assert decision == Decision(standing=standing)


@pytest.mark.parametrize("state", [state for state in RunState if state is not RunState.RUNNING])
def test_a_verdict_that_the_items_decided_is_known_again(state: RunState) -> None:
    """I3: what the items may lead to was written by me, if it bears my claim; no other state was."""
    led_to = {"succeeded", "partial", "failed", "cancelled", "held"}
    standing = Standing.ALREADY_WRITTEN if state.value in led_to else Standing.FENCED

    for claim, expected in ((1, standing), (0, Standing.FENCED)):
        decision = decide(Ending.ITEMS, run=make_run(state=state, claim=claim), expects=RunState.RUNNING)
        assert decision == Decision(standing=expected)


def test_a_step_that_the_table_does_not_have_is_a_bug() -> None:
    """A run that only waits cannot have succeeded: that is refused loudly, whatever its writer is."""
    with pytest.raises(IllegalTransition):
        decide(Ending.SUCCEEDED, run=make_run(state=RunState.WAITING))


@pytest.mark.parametrize("claim", [2, 4])
def test_the_same_word_under_another_claim_is_not_mine(claim: int) -> None:
    """I3: a row that ended as I say, but under another claim, was written by another."""
    run = make_run(state=RunState.SUCCEEDED)

    decision = decide(Ending.SUCCEEDED, run=run, claim=claim, expects=RunState.RUNNING)

    assert decision == Decision(standing=Standing.FENCED)


# --- the run ---
@pytest.mark.parametrize("wish", list(Wish))
def test_success_wins_over_any_wish(wish: Wish) -> None:
    """Whatever was wished, what succeeded has succeeded."""
    write = decide(Ending.SUCCEEDED, run=make_run(wish=wish)).run

    assert write is not None
    assert (write.state, write.reason, write.message) == (RunState.SUCCEEDED, None, None)


@pytest.mark.parametrize("ending", [one for one in WORKERS if one is not Ending.SUCCEEDED])
def test_the_wish_cancel_wins_over_every_other_end(ending: Ending) -> None:
    """Also where the policy had tries left."""
    definition = make_definition(retry={"attempts": 9}, on_crash="retry")

    write = decide(ending, run=make_run(wish=Wish.CANCEL), job=make_job(definition=definition)).run

    assert write is not None
    assert (write.state, write.reason, write.ready_at) == (RunState.CANCELLED, RunReason.CANCELLED, None)


@pytest.mark.parametrize("reason", [RunReason.REMOVED, RunReason.JOB_ENDED, RunReason.CANCELLED])
def test_a_cancel_keeps_the_reason_that_it_came_with(reason: RunReason) -> None:
    """Why a queued or waiting run was cancelled is said by whoever cancels it."""
    run = make_run(state=RunState.QUEUED, wish=Wish.CANCEL)

    write = decide(Ending.CANCELLED, run=run, reason=reason, message="why").run

    assert write is not None
    assert (write.state, write.reason, write.message) == (RunState.CANCELLED, reason, "why")


@pytest.mark.parametrize("reason", [None, RunReason.TIMEOUT])
def test_a_reason_is_found_for_a_failure_and_for_nothing_else(reason: RunReason | None) -> None:
    """A failed run keeps its own reason; one that only waits needs none."""
    waits = decide(Ending.RETRY_ASKED, reason=reason).run
    fails = decide(Ending.FAILED, reason=reason).run

    assert waits is not None
    assert (waits.state, waits.reason) == (RunState.WAITING, reason)
    assert fails is not None
    assert (fails.state, fails.reason) == (RunState.FAILED, reason or RunReason.JOB_ENDED)


@pytest.mark.parametrize(
    ("ending", "charged"),
    [(Ending.FAILED, 1), (Ending.RETRY_ASKED, 0), (Ending.SHUTDOWN, 0), (Ending.CRASHED, 0)],
)
def test_only_failures_are_charged_to_the_tries(ending: Ending, charged: int) -> None:
    """Interrupts, crashes and later tries that were asked for leave the attempt number alone."""
    definition = make_definition(retry={"attempts": 9}, on_crash="retry")
    state = RunState.RECOVERING if ending is Ending.CRASHED else RunState.RUNNING

    write = decide(ending, run=make_run(state=state, attempt=2), job=make_job(definition=definition)).run

    assert write is not None
    assert (write.state, write.attempt) == (RunState.WAITING, 2 + charged)
    assert write.ready_at is not None
    assert write.ready_at >= NOW


@pytest.mark.parametrize("ending", [Ending.FAILED, Ending.RETRY_ASKED, Ending.SHUTDOWN])
def test_a_hold_holds_what_would_wait(ending: Ending) -> None:
    """A run that is to go on later, and whose operator wants it held, is held."""
    definition = make_definition(retry={"attempts": 9}, on_crash="retry")

    write = decide(ending, run=make_run(wish=Wish.HOLD), job=make_job(definition=definition)).run

    assert write is not None
    assert (write.state, write.ready_at) == (RunState.HELD, None)


def test_a_hold_does_not_stop_a_last_failure() -> None:
    """Where no try is left there is nothing to hold."""
    write = decide(Ending.FAILED, run=make_run(wish=Wish.HOLD)).run

    assert write is not None
    assert write.state is RunState.FAILED


def test_a_recovering_run_under_a_hold_waits_with_its_wish() -> None:
    """The table has no step from recovering to held: the run waits, and its wish keeps it from a claim."""
    definition = make_definition(on_crash="retry")
    run = make_run(state=RunState.RECOVERING, wish=Wish.HOLD)

    write = decide(Ending.CRASHED, run=run, job=make_job(definition=definition)).run

    assert write is not None
    assert write.state is RunState.WAITING


@pytest.mark.parametrize("status", [JobStatus.COMPLETED, JobStatus.FAILED])
@pytest.mark.parametrize("ending", [Ending.FAILED, Ending.RETRY_ASKED, Ending.SHUTDOWN])
def test_a_run_of_an_ended_job_gets_no_further_try(ending: Ending, status: JobStatus) -> None:
    """A job that ended has nothing waiting."""
    definition = make_definition(retry={"attempts": 9}, on_crash="retry", max_failures=1)

    decision = decide(ending, job=make_job(status, definition=definition))

    assert decision.run is not None
    assert decision.run.state in (RunState.FAILED, RunState.INTERRUPTED)
    assert decision.run.reason is not None
    assert "removed" not in (decision.run.message or "")
    assert decision.job is not None
    assert decision.job.status is None


@pytest.mark.parametrize(
    ("ending", "definition", "said", "told"),
    [
        (Ending.FAILED, {"retry": {"attempts": 1}}, {}, True),
        (Ending.FAILED, {}, {}, False),
        (Ending.FAILED, {"retry": {"attempts": 1}}, {"retryable": False}, False),
        (Ending.RETRY_ASKED, {}, {}, True),
    ],
)
def test_a_removed_jobs_run_says_that_it_is_not_tried_again(
    ending: Ending, definition: dict[str, Any], said: dict[str, Any], told: bool
) -> None:
    """Only where a try would have been left the message says so."""
    job = make_job(definition=make_definition(**definition), removed_at=NOW)

    decision = decide(ending, job=job, **said)

    assert decision.job is None
    assert decision.run is not None
    assert decision.run.state is RunState.FAILED
    assert decision.run.reason is not None
    assert ("removed" in (decision.run.message or "")) is told


def test_a_cancelled_run_of_a_removed_job_says_nothing_of_tries() -> None:
    """It was not to be tried again anyway."""
    job = make_job(definition=make_definition(retry={"attempts": 9}), removed_at=NOW)

    write = decide(Ending.FAILED, run=make_run(wish=Wish.CANCEL), job=job).run

    assert write is not None
    assert write.state is RunState.CANCELLED
    assert "removed" not in (write.message or "")


# --- the job ---
@pytest.mark.parametrize("ending", WORKERS)
@pytest.mark.parametrize("kind", [{"every": HOUR}, {"delay": HOUR}])
def test_a_pause_is_not_touched(ending: Ending, kind: dict[str, Any]) -> None:
    """I4: on a paused job no end of a run writes a status or a next slot, and the pause is told."""
    job = make_job(JobStatus.PAUSED, definition=make_definition(**kind))
    state = RunState.RECOVERING if ending is Ending.CRASHED else RunState.RUNNING

    decision = decide(ending, run=make_run(state=state), job=job)

    assert decision.met_pause
    assert decision.job is not None
    assert decision.job.status is None
    assert decision.job.next_fire_at is None
    assert decision.job.pause_reason is None


@pytest.mark.parametrize(
    ("definition", "said", "status"),
    [
        ({}, {"completed": True}, JobStatus.COMPLETED),
        ({"max_runs": 1}, {}, JobStatus.COMPLETED),
        ({"at": START}, {}, JobStatus.COMPLETED),
    ],
)
def test_completion_wins_over_a_pause(
    definition: dict[str, Any], said: dict[str, Any], status: JobStatus
) -> None:
    """I5: each way in which a success ends its job ends a paused one too."""
    job = make_job(JobStatus.PAUSED, definition=make_definition(**definition))

    decision = decide(Ending.SUCCEEDED, job=job, **said)

    assert decision.job is not None
    assert decision.job.status is status
    assert decision.ends_job
    assert not decision.met_pause


def test_failure_of_the_job_wins_over_a_pause() -> None:
    """I5: the last failure that max_failures allows fails a paused job."""
    job = make_job(JobStatus.PAUSED, definition=make_definition(max_failures=3), failures=2)

    decision = decide(Ending.FAILED, job=job)

    assert decision.job is not None
    assert decision.job.status is JobStatus.FAILED


def test_completed_with_a_changed_definition_is_ignored() -> None:
    """A run's own `Completed` counts only for the definition that it ran."""
    decision = decide(Ending.SUCCEEDED, job=make_job(definition_revision=6), completed=True)

    assert decision.completion_ignored
    assert decision.job is not None
    assert decision.job.status is None


@pytest.mark.parametrize(("revision", "completed"), [(5, True), (6, False), (5, False)])
def test_nothing_else_is_told_as_ignored(revision: int, completed: bool) -> None:
    """Only a `Completed` of another definition is."""
    decision = decide(Ending.SUCCEEDED, job=make_job(definition_revision=revision), completed=completed)

    assert not decision.completion_ignored


def test_an_end_of_the_job_wins_over_a_crash_pause() -> None:
    """A crash that is also the last run that max_runs allows completes the job instead of pausing it."""
    job = make_job(definition=make_definition(max_runs=1, max_crashes=1))

    write = decide(Ending.CRASHED, run=make_run(state=RunState.RECOVERING), job=job).job

    assert write is not None
    assert (write.status, write.pause_reason) == (JobStatus.COMPLETED, None)


@pytest.mark.parametrize(
    ("ending", "keys", "said"),
    [
        (Ending.CRASHED, {"max_crashes": 1}, {}),
        (Ending.SUCCEEDED, {}, {"completed": True}),
        (Ending.FAILED, {"max_failures": 1}, {}),
    ],
)
@pytest.mark.parametrize("kind", [{"delay": HOUR}, {"every": HOUR}])
def test_a_job_that_stops_has_no_next_slot(
    ending: Ending, keys: dict[str, Any], said: dict[str, Any], kind: dict[str, Any]
) -> None:
    """A job that its run's end pauses or ends is given no next fire by that end, and loses the one it has."""
    job = make_job(definition=make_definition(**kind, **keys))
    state = RunState.RECOVERING if ending is Ending.CRASHED else RunState.RUNNING

    write = decide(ending, run=make_run(state=state), job=job, **said).job

    assert write is not None
    assert write.status is not None
    assert (write.sets_next, write.next_fire_at, write.due_at) == (True, None, None)


@pytest.mark.parametrize("ending", [Ending.FAILED, Ending.SUCCEEDED, Ending.CANCELLED])
def test_only_a_crash_pauses_for_crashes(ending: Ending) -> None:
    """A limit that was lowered below what is counted pauses at the next crash, not at another end."""
    job = make_job(definition=make_definition(max_crashes=2), crashes=3)

    write = decide(ending, job=job).job

    assert write is not None
    assert (write.status, write.pause_reason) == (None, None)


@pytest.mark.parametrize("status", [JobStatus.COMPLETED, JobStatus.FAILED])
def test_an_ended_job_is_not_paused_by_a_crash(status: JobStatus) -> None:
    """There is nothing left to pause."""
    job = make_job(status, definition=make_definition(max_crashes=1))

    write = decide(Ending.CRASHED, run=make_run(state=RunState.RECOVERING), job=job).job

    assert write is not None
    assert (write.status, write.pause_reason, write.sets_next) == (None, None, False)


@pytest.mark.parametrize("ending", [Ending.CANCELLED, Ending.SHUTDOWN])
def test_only_a_failure_fails_the_job(ending: Ending) -> None:
    """A limit that was lowered below what is counted fails at the next failure, not at another end."""
    write = decide(ending, job=make_job(definition=make_definition(max_failures=1), failures=2)).job

    assert write is not None
    assert write.status is None


@pytest.mark.parametrize(
    ("done", "status"), [(0, None), (1, None), (2, JobStatus.COMPLETED), (3, JobStatus.COMPLETED)]
)
def test_max_runs_completes_at_its_number(done: int, status: JobStatus | None) -> None:
    """The end that makes the number full, or finds it full, completes the job."""
    write = decide(
        Ending.SUCCEEDED, job=make_job(definition=make_definition(max_runs=3), fires_done=done)
    ).job

    assert write is not None
    assert write.status is status


def test_a_manual_run_does_not_complete_an_exhausted_job() -> None:
    """Only the end of a run of the trigger is the end of the trigger."""
    run = make_run(trigger=RunTrigger.MANUAL)

    write = decide(Ending.SUCCEEDED, run=run, job=make_job(definition=make_definition(at=START))).job

    assert write is not None
    assert write.status is None


@pytest.mark.parametrize(
    ("ending", "run", "keys", "others", "moves"),
    [
        (Ending.SUCCEEDED, {}, {}, 0, True),
        (Ending.SUCCEEDED, {}, {}, 1, False),
        (Ending.SUCCEEDED, {"trigger": RunTrigger.MANUAL}, {}, 0, False),
        (Ending.RETRY_ASKED, {}, {}, 0, False),
        (Ending.SHUTDOWN, {"wish": Wish.HOLD}, {"on_crash": "retry"}, 0, False),
    ],
)
def test_what_moves_a_delay_job(
    ending: Ending, run: dict[str, Any], keys: dict[str, Any], others: int, moves: bool
) -> None:
    """The end of its last run on the way, and neither a try, a hold nor a manual run."""
    job = make_job(definition=make_definition(delay=HOUR, **keys))

    write = decide(ending, run=make_run(**run), job=job, others=others).job

    assert write is not None
    assert (write.sets_next, write.next_fire_at) == ((True, NOW + HOUR) if moves else (False, None))


@pytest.mark.parametrize("wish", [Wish.RUN, Wish.HOLD])
def test_an_exhausted_job_is_not_over_while_its_run_waits(wish: Wish) -> None:
    """Its last run is to go on, at its time or after a resume."""
    job = make_job(definition=make_definition(at=START, max_runs=1), fires_done=1)

    decision = decide(Ending.RETRY_ASKED, run=make_run(wish=wish, job_counted=True), job=job)

    assert decision.job is not None
    assert (decision.job.status, decision.ends_job) == (None, False)


@pytest.mark.parametrize(
    ("kind", "slot", "depends"),
    [
        ({"every": HOUR}, NOW + HOUR, False),
        ({"every": HOUR}, None, True),
        ({"delay": HOUR}, NOW + HOUR, True),
        ({"delay": HOUR}, None, True),
    ],
)
def test_when_an_end_has_to_know_of_other_runs(
    kind: dict[str, Any], slot: Micros | None, depends: bool
) -> None:
    """Where it may be the last of its job, or sets the job's next slot; not where a slot is still to come."""
    job = make_job(definition=make_definition(**kind), next_fire_at=slot)

    assert depends_on_others(job) is depends


def test_the_limit_of_crashes_leaves_a_pause_its_status() -> None:
    """I4: on a paused job it adds its reason and its evidence, and writes no status."""
    job = make_job(JobStatus.PAUSED, definition=make_definition(max_crashes=1))

    write = decide(Ending.CRASHED, run=make_run(state=RunState.RECOVERING), job=job).job

    assert write is not None
    assert (write.status, write.pause_reason) == (None, PauseReason.CRASHES)
    assert "the daemon died" in write.pause_note


@pytest.mark.parametrize("limit", [0, 1, 2, 3])
@pytest.mark.parametrize("crashes", [0, 1, 2, 3])
def test_max_crashes_pauses_at_its_number(limit: int, crashes: int) -> None:
    """The crash that reaches the number pauses, also one beyond it, and none below; 0 means never."""
    job = make_job(definition=make_definition(max_crashes=limit), crashes=crashes)

    write = decide(Ending.CRASHED, run=make_run(state=RunState.RECOVERING), job=job).job

    assert write is not None
    pauses = 0 < limit <= crashes + 1
    assert write.crashes == crashes + 1
    assert (write.status is JobStatus.PAUSED) is pauses
    assert (write.pause_reason is PauseReason.CRASHES) is pauses
    assert write.sets_next is pauses


@pytest.mark.parametrize(
    ("ending", "counters"),
    [
        (Ending.SUCCEEDED, (0, 0)),
        (Ending.FAILED, (3, 1)),
        (Ending.CANCELLED, (2, 1)),
        (Ending.CRASHED, (2, 2)),
        (Ending.SHUTDOWN, (2, 0)),
    ],
)
def test_what_each_end_does_to_the_counters(ending: Ending, counters: tuple[int, int]) -> None:
    """Consecutive failures and crashes after each kind of end."""
    job = make_job(failures=2, crashes=1)
    state = RunState.RECOVERING if ending is Ending.CRASHED else RunState.RUNNING

    write = decide(ending, run=make_run(state=state), job=job).job

    assert write is not None
    assert (write.failures, write.crashes) == counters


@pytest.mark.parametrize(
    ("trigger", "counted", "done"),
    [
        (RunTrigger.SCHEDULE, False, 5),
        (RunTrigger.CATCH_UP, False, 5),
        (RunTrigger.SCHEDULE, True, 4),
        (RunTrigger.MANUAL, False, 4),
        (RunTrigger.BACKFILL, False, 4),
    ],
)
def test_a_scheduled_run_is_counted_once(trigger: RunTrigger, counted: bool, done: int) -> None:
    """`fires_done` counts runs of the trigger, each once however often it was run again."""
    run = make_run(trigger=trigger, job_counted=counted)

    decision = decide(Ending.SUCCEEDED, run=run, job=make_job(fires_done=4))

    assert decision.job is not None
    assert decision.job.fires_done == done
    assert decision.run is not None
    assert decision.run.counted is (trigger in SCHEDULED)


# --- exhaustion ---
@pytest.mark.parametrize(
    ("keys", "changes", "exhausted"),
    [
        ({"at": START}, {}, True),
        ({"at": NOW + DAY}, {"next_fire_at": NOW + DAY}, False),
        ({"at": NOW + DAY}, {"next_fire_at": None}, True),  # passed over by an operator
        ({"at": NOW + DAY}, {"status": JobStatus.PAUSED}, False),
        ({"at": START}, {"status": JobStatus.PAUSED}, True),
        ({"end_at": NOW}, {"next_fire_at": None}, True),
        ({"delay": HOUR}, {}, False),
        ({"delay": HOUR, "end_at": NOW}, {}, True),
        ({"manual": True}, {}, False),
        ({"every": HOUR, "max_runs": 3}, {"next_fire_at": None}, False),
        ({"every": HOUR, "max_runs": 3, "end_at": NOW}, {"next_fire_at": None}, True),
        ({"at": NOW + DAY}, {"enabled": False}, False),
    ],
)
def test_when_a_trigger_has_no_further_fire_time(
    keys: dict[str, Any], changes: dict[str, Any], exhausted: bool
) -> None:
    """Exhaustion is judged from the live row and the live definition."""
    changes = dict(changes)
    status = changes.pop("status", JobStatus.ACTIVE)

    assert is_exhausted(make_job(status, definition=make_definition(**keys), **changes), NOW) is exhausted


@pytest.mark.parametrize(("others", "status"), [(0, JobStatus.COMPLETED), (1, None)])
def test_the_last_scheduled_run_completes_an_exhausted_job(others: int, status: JobStatus | None) -> None:
    """While another run of the trigger is on its way the job is not over."""
    job = make_job(definition=make_definition(at=START))

    write = decide(Ending.SUCCEEDED, job=job, others=others).job

    assert write is not None
    assert write.status is status


# --- hypothesis: over all verdicts and live rows ---
jobs = st.builds(
    make_job,
    st.sampled_from(JobStatus),
    definition=st.builds(
        make_definition,
        retry=st.fixed_dictionaries({"attempts": st.integers(0, 2)}),
        on_crash=st.sampled_from(["record", "retry", "resume"]),
        max_failures=st.integers(0, 2),
        max_crashes=st.integers(0, 2),
        max_runs=st.sampled_from([None, 1, 2]),
        delay=st.sampled_from([None, HOUR]),
        at=st.none(),
    ),
    enabled=st.booleans(),
    removed_at=st.sampled_from([None, NOW]),
    added_revision=st.sampled_from([1, 2]),
    definition_revision=st.sampled_from([5, 6]),
    failures=st.integers(0, 2),
    crashes=st.integers(0, 2),
    fires_done=st.integers(0, 2),
)
runs = st.builds(
    make_run,
    state=st.sampled_from(RunState),
    claim=st.integers(0, 3),
    wish=st.sampled_from(Wish),
    trigger=st.sampled_from(RunTrigger),
    attempt=st.integers(1, 3),
    job_counted=st.booleans(),
)
verdicts = st.builds(
    Verdict,
    run_id=st.just("run"),
    claim=st.integers(0, 3),
    expects=st.sampled_from(RunState),
    ending=st.sampled_from(WORKERS),
    reason=st.sampled_from([None, RunReason.EXIT_CODE]),
    exit_code=st.sampled_from([None, 1]),
    retryable=st.booleans(),
    retry_after=st.sampled_from([None, SECOND]),
    completed=st.booleans(),
    counts_crash=st.booleans(),
)
WRITERS: dict[RunState, set[Ending]] = {
    RunState.RUNNING: set[Ending](WORKERS) - {Ending.CRASHED},
    RunState.RECOVERING: {Ending.CRASHED, Ending.SUCCEEDED, Ending.FAILED, Ending.CANCELLED},
    RunState.QUEUED: {Ending.CANCELLED},
    RunState.WAITING: {Ending.CANCELLED},
    RunState.HELD: {Ending.CANCELLED},
}
"""Who writes what: worker, recovery, and the cancel of a run without a worker."""


@given(verdict=verdicts, run=runs, job=st.none() | jobs, others=st.integers(0, 1))
def test_no_verdict_leads_out_of_the_table(verdict: Verdict, run: Run, job: Job | None, others: int) -> None:
    """Every step that is written is in the table; only what no writer says can raise."""
    try:
        decision = reconcile(verdict, LiveRows(run=run, job=job, others=others), NOW)
    except IllegalTransition:
        assert verdict.ending not in WRITERS.get(run.state, set())
        return

    if verdict.claim != run.claim or verdict.expects is not run.state:
        assert decision.standing is not Standing.WRITTEN
        assert decision == Decision(standing=decision.standing)
        return
    assert decision.run is not None
    assert decision.run.state in TRANSITIONS[run.state]


@given(verdict=verdicts, run=runs, job=jobs, others=st.integers(0, 1))
def test_no_verdict_overrules_the_operator(verdict: Verdict, run: Run, job: Job, others: int) -> None:
    """I4, I5, I6: over all inputs, a write-back never activates, never lifts a pause, never revives."""
    verdict = replace(verdict, claim=run.claim, expects=run.state)
    try:
        decision = reconcile(verdict, LiveRows(run=run, job=job, others=others), NOW)
    except IllegalTransition:
        return

    gone = job.removed_at is not None or job.added_revision != run.added_revision
    assert (decision.job is None) is gone
    if decision.job is None:
        assert not decision.ends_job
        return
    write = decision.job
    assert write.status in (None, JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.PAUSED)
    if job.status in (JobStatus.COMPLETED, JobStatus.FAILED):
        assert write.status is None
    if write.status is JobStatus.PAUSED:
        assert job.status is JobStatus.ACTIVE
        assert write.pause_reason is PauseReason.CRASHES
    assert decision.ends_job is (write.status in (JobStatus.COMPLETED, JobStatus.FAILED))
    assert decision.met_pause is (job.status is JobStatus.PAUSED and not decision.ends_job)
    if write.next_fire_at is not None:
        assert write.sets_next
        assert job.may_fire
        assert not decision.ends_job
        assert job.definition.schedule.kind == "delay"
        assert run.trigger in SCHEDULED
        assert decision.run is not None
        assert decision.run.state not in (RunState.WAITING, RunState.HELD)
