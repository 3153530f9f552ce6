"""Signs of life on their way to the store."""

from __future__ import annotations

from pathlib import Path

from structlog.testing import capture_logs

from scheduler.engine.ports import ProgressReport
from scheduler.engine.reporting import Reporter
from scheduler.model.runs import Progress
from scheduler.telemetry import get_logger
from tests.support.builders import make_definition
from tests.support.clock import FakeClock
from tests.support.desk import Desk
from tests.support.stores import sqlite_store


async def test_progress_is_told_with_its_job_and_run(tmp_path: Path) -> None:
    """Whoever follows the events of one job hears of the progress of its runs."""
    clock = FakeClock()
    async with sqlite_store(tmp_path / "store.db", clock) as store:
        desk, reporter = Desk(store, clock), Reporter(store, clock, get_logger())
        await desk.add(make_definition())
        run = await desk.fired()

        reporter.alive(run, ProgressReport(progress=Progress(done=3, total=10)))
        with capture_logs() as told:
            await reporter.flush()

        assert [(line["event"], line["job"], line["run_id"], line["done"]) for line in told] == [
            ("run_progressed", run.job, run.id, 3)
        ]
