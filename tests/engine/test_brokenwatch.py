"""A job whose handler cannot be imported is looked at again, and is whole again by itself (I14)."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler.clock import MINUTE
from scheduler.engine.brokenwatch import BrokenWatch
from scheduler.executors.dispatch import Executors
from scheduler.model.runs import RunState
from scheduler.telemetry import Event
from tests.support.builders import JOB, make_definition
from tests.support.clock import START
from tests.support.engine import bench
from tests.support.executors import surroundings, until

pytestmark = pytest.mark.asyncio


async def test_broken_job_keeps_row_pause_and_history_and_heals_when_its_module_is_back(
    tmp_path: Path,
) -> None:
    """I14: it is told, its slots are skipped as `broken`; with the module put back the next slot runs."""
    code = tmp_path / "code"
    code.mkdir()
    executors = Executors(surroundings(tmp_path / "out", python_path=(str(code),)))
    try:
        async with bench(tmp_path) as here:
            watch = BrokenWatch(here.store, executors.check, here.log)
            here.executor.start = executors.start  # type: ignore[method-assign]
            await here.desk.add(make_definition(every=MINUTE, python="comes_back:handler"))
            here.engine.wake()
            await here.pass_time(MINUTE)
            await until(lambda: here.log.of(Event.JOB_BROKEN))
            await here.pass_time(MINUTE)
            await watch.look()
            job = await here.desk.job()
            assert (job.problem_code, job.status) == ("broken", "active")
            assert [skip.reason for skip in await here.desk.skips()] == ["broken"]
            (code / "comes_back.py").write_text("async def handler(run):\n    return 1\n")
            await watch.look()
            assert (await here.desk.job()).problem_code is None
            await here.pass_time(MINUTE)
            await until(lambda: here.log.of(Event.RUN_SUCCEEDED))
            states = [(run.state, run.fire_time) for run in await here.desk.executed(JOB)]
            assert states == [
                (RunState.FAILED, START + MINUTE),
                (RunState.SUCCEEDED, START + 3 * MINUTE),
            ]
    finally:
        executors.close()
