"""What the write-back tells: one event per transition, and none for what was so before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from scheduler.clock import MINUTE, SECOND
from scheduler.engine.writeback import WriteBack
from scheduler.metrics import Metrics
from scheduler.model.jobs import Job, JobStatus, Origin, Pause, PauseMode, PauseReason
from scheduler.model.runs import Run, RunId, RunState, RunTrigger
from scheduler.rules.reconcile import Decision, Ending, JobWrite, Standing
from scheduler.store.values import Finished
from scheduler.telemetry import Event
from tests.support.builders import JOB, make_definition, make_verdict
from tests.support.clock import START
from tests.support.desk import Desk
from tests.support.engine import ToldLog, bench


async def _crash(desk: Desk, writeback: WriteBack) -> None:
    """A manual run whose daemon died, recorded through FINISH."""
    started = await desk.start()
    assert started.grant is not None
    run: Run = await desk.take(started.grant.run)
    await writeback.finish(make_verdict(run, Ending.CRASHED, expects=RunState.RECOVERING))


async def test_pause_by_crashes_is_told_once(tmp_path: Path) -> None:
    """A job that crashes again while crashes have paused it already is not told as paused anew."""
    async with bench(tmp_path) as here:
        log = ToldLog()
        writeback = WriteBack(here.store, log, Metrics())
        writeback.slots = here.engine
        await here.desk.add(make_definition(manual=True, max_crashes=1))

        await _crash(here.desk, writeback)
        await _crash(here.desk, writeback)

        assert [told["reason"] for told in log.of(Event.JOB_PAUSED)] == ["crashes"]


class Counted:
    """Metrics that remember what they were told."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *values: self.told.append((name, *values))


class _Slots:
    """Counts what it is told."""

    def __init__(self, desk: Bare) -> None:
        self._desk = desk

    def ending(self) -> bool:
        return False

    def wake(self) -> None:
        self._desk.woken += 1

    def freed(self, *, claimed_along: bool) -> None:
        assert not claimed_along
        self._desk.freed += 1


class Bare:
    """A write-back without a store: what it tells of a decision, and how loudly."""

    def __init__(self) -> None:
        self.metrics, self.woken, self.freed = Counted(), 0, 0
        self.lines: list[tuple[str, Event, dict[str, object]]] = []
        self.writeback = WriteBack(cast(Any, None), cast(Any, self), cast(Any, self.metrics))
        self.writeback.slots = _Slots(self)

    def info(self, event: Event, **fields: object) -> None:
        self.lines.append(("info", event, fields))

    def warning(self, event: Event, **fields: object) -> None:
        self.lines.append(("warning", event, fields))

    def error(self, event: Event, **fields: object) -> None:
        self.lines.append(("error", event, fields))

    def tell(self, decision: Decision, run: Run, job: Job | None = None, ended: tuple[Run, ...] = ()) -> None:
        verdict = make_verdict(run)
        self.writeback.tell(Finished(decision=decision, run=run, job=job, ended=ended), verdict)

    def events(self) -> list[tuple[str, Event]]:
        return [(level, event) for level, event, _ in self.lines]


def run_in(state: RunState, **changes: Any) -> Run:
    values: dict[str, Any] = {
        "id": RunId("run"),
        "seq": 1,
        "job": JOB,
        "trigger": RunTrigger.SCHEDULE,
        "claim": 3,
        "claimed_at": START,
        "finished_at": START + 2 * SECOND,
        "ready_at": START + MINUTE,
    }
    return Run(state=state, **{**values, **changes})


def job_in(status: JobStatus, pause: Pause | None = None) -> Job:
    return Job(
        id=JOB,
        definition=make_definition(),
        status=status,
        enabled=True,
        revision=1,
        definition_revision=1,
        added_revision=1,
        origin=Origin.FILE,
        pause=pause,
    )


def job_write(status: JobStatus | None, **changes: Any) -> JobWrite:
    values: dict[str, Any] = {
        "failures": 1,
        "crashes": 0,
        "fires_done": 0,
        "sets_next": False,
        "next_fire_at": None,
        "due_at": None,
    }
    return JobWrite(status=status, **{**values, **changes})


@pytest.mark.parametrize(
    ("state", "level", "event"),
    [
        (RunState.SUCCEEDED, "info", Event.RUN_SUCCEEDED),
        (RunState.PARTIAL, "warning", Event.RUN_PARTIAL),
        (RunState.FAILED, "warning", Event.RUN_FAILED),
        (RunState.CANCELLED, "info", Event.RUN_CANCELLED),
        (RunState.CRASHED, "warning", Event.RUN_CRASHED),
        (RunState.INTERRUPTED, "warning", Event.RUN_INTERRUPTED),
        (RunState.WAITING, "warning", Event.RUN_RETRYING),
        (RunState.HELD, "info", Event.RUN_HELD),
    ],
)
def test_each_end_has_its_event_and_its_level(state: RunState, level: str, event: Event) -> None:
    """What wants no look is `info`; only an end counts as a run of the job, only a wait has its moment."""
    desk, ended = Bare(), state not in (RunState.WAITING, RunState.HELD)
    run = run_in(state, finished_at=START + 2 * SECOND if ended else None)

    desk.tell(Decision(standing=Standing.WRITTEN), run)

    assert desk.events() == [(level, event)]
    fields = desk.lines[0][2]
    assert fields.get("ready_at") == (START + MINUTE if state is RunState.WAITING else None)
    assert fields.get("seconds") == (2.0 if ended else None)
    assert None not in fields.values(), "what there is nothing to say of is left out"
    job_ran, run_ended = ("job_ran", JOB, state, None, run.finished_at), ("run_ended", state, 2 * SECOND)
    assert desk.metrics.told == ([job_ran, run_ended] if ended else [])
    assert (desk.woken, desk.freed) == ((0, 1) if ended else (1, 0))


@pytest.mark.parametrize("standing", [Standing.FENCED, Standing.ALREADY_WRITTEN])
def test_only_a_lost_claim_is_told_of_what_was_not_written(standing: Standing) -> None:
    """An answer that was lost and asked for again is nothing to tell, and wakes nobody."""
    desk = Bare()

    desk.tell(Decision(standing=standing), run_in(RunState.CRASHED))

    fenced = standing is Standing.FENCED
    assert desk.events() == ([("warning", Event.RUN_FENCED)] if fenced else [])
    assert desk.metrics.told == ([("write_fenced",)] if fenced else [])
    assert (desk.woken, desk.freed) == (0, 0)


@pytest.mark.parametrize(
    ("write", "told"),
    [
        (job_write(None), []),
        (job_write(JobStatus.COMPLETED), [("info", Event.JOB_COMPLETED)]),
        (job_write(JobStatus.FAILED), [("error", Event.JOB_FAILED)]),
        (job_write(JobStatus.PAUSED), [("error", Event.JOB_PAUSED)]),
        (job_write(None, problem="no such handler"), [("error", Event.JOB_BROKEN)]),
    ],
)
def test_what_becomes_of_the_job_is_told_after_the_run(
    write: JobWrite, told: list[tuple[str, Event]]
) -> None:
    """One event per change of the job, and none for a job of which no row is left."""
    decision = Decision(standing=Standing.WRITTEN, job=write)
    for job, expected in ((job_in(JobStatus.ACTIVE), told), (None, [])):
        desk = Bare()
        desk.tell(decision, run_in(RunState.SUCCEEDED), job)
        assert desk.events() == [("info", Event.RUN_SUCCEEDED), *expected]


@pytest.mark.parametrize("met", [True, False])
def test_a_pause_that_was_met_is_told_where_it_still_holds(met: bool) -> None:
    """It names who paused and since when, and is counted; without a pause there is nothing to tell."""
    pause = Pause(reason=PauseReason.OPERATOR, mode=PauseMode.DRAIN, by="uid:1000", since=START)
    for job in (job_in(JobStatus.PAUSED, pause), job_in(JobStatus.ACTIVE), None):
        desk = Bare()
        desk.tell(Decision(standing=Standing.WRITTEN, met_pause=met), run_in(RunState.SUCCEEDED), job)
        told = [fields["by"] for _, event, fields in desk.lines if event is Event.PAUSE_PRESERVED]
        assert told == (["uid:1000"] if met and job and job.pause else [])
        assert desk.metrics.told.count(("pause_preserved",)) == len(told)


@pytest.mark.parametrize("sets_next", [True, False])
def test_an_end_that_sets_the_next_slot_wakes(sets_next: bool) -> None:
    """Where it only gives its slot back, that is said instead."""
    desk = Bare()

    desk.tell(
        Decision(
            standing=Standing.WRITTEN,
            job=job_write(None, sets_next=True, next_fire_at=START if sets_next else None),
        ),
        run_in(RunState.SUCCEEDED),
    )

    assert (desk.woken, desk.freed) == ((1, 0) if sets_next else (0, 1))


def test_runs_that_ended_with_the_job_and_an_ignored_word_are_told() -> None:
    """Each cancelled run has its event; a `completed` that no longer counts is said."""
    desk = Bare()
    ended = (run_in(RunState.CANCELLED, claimed_at=None), run_in(RunState.CANCELLED, claimed_at=None))

    desk.tell(
        Decision(standing=Standing.WRITTEN, completion_ignored=True), run_in(RunState.FAILED), None, ended
    )

    assert [event for _, event in desk.events()] == [
        Event.RUN_FAILED,
        Event.RUN_CANCELLED,
        Event.RUN_CANCELLED,
        Event.JOB_CHANGED,
    ]
    assert [told[0] for told in desk.metrics.told] == ["job_ran", "run_ended", "job_ran", "job_ran"]


def test_a_long_run_is_told_to_the_millisecond() -> None:
    """Three days, and a bit that is rounded."""
    desk = Bare()

    desk.writeback.tell_ended(run_in(RunState.SUCCEEDED, finished_at=START + 259_200 * SECOND + 1_234_560))

    assert desk.lines[0][2]["seconds"] == 259_201.235


def test_a_clock_that_stepped_back_makes_no_negative_duration() -> None:
    """The run took nothing then; a run that another verb ended is told alike."""
    desk = Bare()

    desk.writeback.tell_ended(run_in(RunState.CANCELLED, finished_at=START - SECOND))

    assert desk.lines[0][2]["seconds"] == 0.0
    assert desk.metrics.told[1] == ("run_ended", RunState.CANCELLED, 0)
