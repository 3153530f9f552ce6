"""What the write-back tells: one event per transition, and none for what was so before."""

from __future__ import annotations

from pathlib import Path

from scheduler.engine.writeback import WriteBack
from scheduler.metrics import Metrics
from scheduler.model.runs import Run, RunState
from scheduler.rules.reconcile import Ending
from scheduler.telemetry import Event
from tests.support.builders import make_definition, make_verdict
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
        writeback = WriteBack(here.store, log, Metrics(), wake=lambda: None)
        await here.desk.add(make_definition(manual=True, max_crashes=1))

        await _crash(here.desk, writeback)
        await _crash(here.desk, writeback)

        assert [told["reason"] for told in log.of(Event.JOB_PAUSED)] == ["crashes"]
