"""Overlap and retries as the engine does them: decided on rows, told in rows, no slot lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler.clock import HOUR, MINUTE, SECOND
from scheduler.engine.ports import Ended, EndKind
from scheduler.model.jobs import JobStatus, PauseMode
from scheduler.model.runs import RunState
from scheduler.telemetry import Event
from tests.support.builders import JOB, make_definition
from tests.support.clock import START
from tests.support.desk import Told
from tests.support.engine import Bench, bench

pytestmark = pytest.mark.asyncio

_FAILED = Ended(kind=EndKind.EXITED, exit_code=1)


async def running(here: Bench, minutes: int = 1) -> None:
    here.engine.wake()
    await here.pass_time(minutes * MINUTE)


async def test_skip_tells_every_slot_that_met_a_live_run(tmp_path: Path) -> None:
    """I2, I13: one hung run, four slots beside it: one row, with count, the run in the way and its age."""
    async with bench(tmp_path) as here:
        await here.desk.add(make_definition(every=MINUTE))
        await running(here, 5)
        assert here.fire_times() == [START + MINUTE]
        assert await here.desk.skips() == [Told("overlap", START + 2 * MINUTE, START + 5 * MINUTE, 4)]
        (row,) = [run for run in await here.desk.runs() if run.state is RunState.SKIPPED]
        (live,) = here.executor.live()
        assert str(live.grant.run.id) in (row.message or "")
        assert "240 s" in (row.message or "")
        await here.end()
        await here.pass_time(MINUTE)
        assert here.fire_times() == [START + MINUTE, START + 6 * MINUTE]


async def test_allow_runs_beside_each_other_up_to_max_running(tmp_path: Path) -> None:
    """I2: three may live at once, the fourth slot is skipped, and an end makes room for the next."""
    async with bench(tmp_path) as here:
        await here.desk.add(make_definition(every=MINUTE, overlap="allow", max_running=3))
        await running(here, 4)
        assert len(here.executor.live()) == 3
        assert await here.desk.skips() == [Told("overlap", START + 4 * MINUTE, START + 4 * MINUTE, 1)]
        here.executor.finish(here.executor.live()[0])
        await here.pass_time(MINUTE)
        assert len(here.executor.live()) == 3


async def test_queue_holds_one_and_tells_the_rest(tmp_path: Path) -> None:
    """I13: a job slower than its period has one run waiting, the others are dropped with a row, for ever."""
    async with bench(tmp_path) as here:
        await here.desk.add(make_definition(every=MINUTE, overlap="queue"))
        await running(here, 4)
        assert [run.state for run in await here.desk.executed()] == [RunState.RUNNING, RunState.QUEUED]
        assert await here.desk.skips() == [Told("queue_full", START + 3 * MINUTE, START + 4 * MINUTE, 2)]
        await here.end()
        assert here.fire_times() == [START + MINUTE, START + 2 * MINUTE]


async def test_queued_run_stays_through_a_pause_and_ends_with_its_job(tmp_path: Path) -> None:
    """I4: it does not start while the job is paused, starts at resume, and a removed job cancels it."""
    async with bench(tmp_path) as here:
        await here.desk.add(make_definition(every=MINUTE, overlap="queue"))
        await running(here, 2)
        await here.operations.pause(JOB, PauseMode.DRAIN, "", here.desk.peer)
        await here.end()
        await here.pass_time(HOUR)
        assert len(here.executor.live()) == 0
        await here.desk.resume()
        here.engine.wake()
        await here.settle()
        assert here.fire_times() == [START + MINUTE, START + 2 * MINUTE]
        await here.pass_time(2 * MINUTE)
        await here.desk.remove()
        await here.end()
        states = [run.state for run in await here.desk.executed()]
        assert states == [RunState.SUCCEEDED, RunState.SUCCEEDED, RunState.CANCELLED]


async def test_cancel_running_replaces_the_live_run(tmp_path: Path) -> None:
    """I2: the older run is told to end at once, and only when it has ended does the newer one start."""
    async with bench(tmp_path) as here:
        await here.desk.add(make_definition(every=MINUTE, overlap="cancel_running"))
        await running(here, 2)
        states = [run.state for run in await here.desk.executed()]
        assert states == [RunState.CANCELLED, RunState.RUNNING]
        assert here.fire_times() == [START + MINUTE, START + 2 * MINUTE]


async def test_retry_waits_its_backoff_and_is_charged(tmp_path: Path) -> None:
    """Two further tries after constant waits, then the run has failed, and its slot is free (issue 3, 6)."""
    async with bench(tmp_path) as here:
        here.executor.script = lambda _: _FAILED
        retry = {"attempts": 2, "delay": 10, "backoff": "constant"}
        await here.desk.add(make_definition(every=HOUR, retry=retry))
        await running(here, 60)
        assert [grant.run.attempt for grant in here.starts()] == [1]
        (run,) = await here.desk.executed()
        assert run.state is RunState.WAITING
        await here.pass_time(10 * SECOND)
        await here.pass_time(10 * SECOND)
        assert [grant.run.attempt for grant in here.starts()] == [1, 2, 3]
        assert (await here.desk.run(run)).state is RunState.FAILED
        assert len(here.log.of(Event.RUN_RETRYING)) == 2


async def test_retry_that_a_handler_asks_for_is_not_charged(tmp_path: Path) -> None:
    """Issue 3, point 6: `Retry(after=)` comes again as often as it likes, as the first try."""
    async with bench(tmp_path) as here:
        ends = iter([Ended(kind=EndKind.RETRY_ASKED, retry_after=5 * SECOND)] * 3)
        here.executor.script = lambda _: next(ends, Ended(kind=EndKind.RETURNED))
        await here.desk.add(make_definition(every=HOUR))
        await running(here, 60)
        await here.pass_time(MINUTE)
        assert [(grant.run.claim, grant.run.attempt) for grant in here.starts()] == [
            (1, 1),
            (2, 1),
            (3, 1),
            (4, 1),
        ]
        (run,) = await here.desk.executed()
        assert run.state is RunState.SUCCEEDED


async def test_retry_now_and_cancel_of_a_waiting_run(tmp_path: Path) -> None:
    """Issue 3, point 6: a waiting run can be hurried, or ended at once; neither leaves its slot taken."""
    async with bench(tmp_path) as here:
        here.executor.script = lambda _: _FAILED
        retry = {"attempts": 5, "delay": 3000, "backoff": "constant"}
        await here.desk.add(make_definition(every=HOUR, retry=retry))
        await running(here, 60)
        (run,) = await here.desk.executed()
        await here.operations.retry_now(run.id, here.desk.peer)
        await here.settle()
        assert len(here.starts()) == 2
        await here.operations.cancel(run.id, here.desk.peer)
        assert (await here.desk.run(run)).state is RunState.CANCELLED
        assert len(here.log.of(Event.RUN_CANCELLED)) == 1
        await here.pass_time(HOUR)
        assert here.fire_times()[-1] == START + 2 * HOUR


async def test_waiting_run_holds_its_slot_and_is_held_by_a_pause(tmp_path: Path) -> None:
    """I2, I4: no slot starts beside a run in backoff, and the backoff does not end a pause."""
    async with bench(tmp_path) as here:
        here.executor.script = lambda _: _FAILED
        retry = {"attempts": 1, "delay": 90, "backoff": "constant"}
        await here.desk.add(make_definition(every=MINUTE, retry=retry))
        await running(here, 2)
        assert await here.desk.skips() == [Told("overlap", START + 2 * MINUTE, START + 2 * MINUTE, 1)]
        await here.operations.pause(JOB, PauseMode.DRAIN, "", here.desk.peer)
        await here.pass_time(HOUR)
        assert len(here.starts()) == 1
        await here.desk.resume()
        here.engine.wake()
        await here.settle()
        assert [grant.run.attempt for grant in here.starts()] == [1, 2]


async def test_failures_in_a_row_fail_the_job_and_a_resume_starts_it_anew(tmp_path: Path) -> None:
    """I5: after `max_failures` the job is failed and silent; a resume makes it active from now, at zero."""
    async with bench(tmp_path) as here:
        here.executor.script = lambda _: _FAILED
        await here.desk.add(make_definition(every=MINUTE, max_failures=2))
        await running(here, 10)
        assert len(here.starts()) == 2
        assert (await here.desk.job()).status is JobStatus.FAILED
        assert len(here.log.of(Event.JOB_FAILED)) == 1
        await here.desk.resume()
        here.engine.wake()
        await here.pass_time(MINUTE)
        job = await here.desk.job()
        assert (job.status, job.failures) == (JobStatus.ACTIVE, 1)


async def test_exit_code_that_means_done_completes_the_job(tmp_path: Path) -> None:
    """I5: `complete_exit_codes` is a success that ends the job for good."""
    async with bench(tmp_path) as here:
        here.executor.script = lambda _: Ended(kind=EndKind.EXITED, exit_code=9)
        await here.desk.add(make_definition(every=MINUTE, complete_exit_codes=[9]))
        await running(here, 5)
        (run,) = await here.desk.executed()
        assert run.state is RunState.SUCCEEDED
        assert (await here.desk.job()).status is JobStatus.COMPLETED
        assert len(here.log.of(Event.JOB_COMPLETED)) == 1
