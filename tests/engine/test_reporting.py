"""Signs of life on their way to the store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from structlog.testing import capture_logs

from scheduler.clock import MILLISECOND
from scheduler.engine.ports import ProgressReport
from scheduler.engine.reporting import Reporter
from scheduler.model.jobs import JobId
from scheduler.model.runs import Progress
from scheduler.store.values import Report
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


async def test_a_child_is_put_on_record_soon(tmp_path: Path) -> None:
    """I11: also one told while others are being written, or in the second after; no second has to pass."""
    clock = FakeClock()
    async with sqlite_store(tmp_path / "store.db", clock) as store:
        desk, reporter = Desk(store, clock), Reporter(store, clock, get_logger())
        runs = []
        for name in ("a", "b", "c"):
            await desk.add(make_definition(name))
            runs.append(await desk.fired(JobId(name)))
        report, written = store.report, asyncio.Semaphore(0)

        async def reported(reports: Sequence[Report]) -> None:
            if reports[0].pid == 11:
                reporter.child(runs[1], 12, 1)
            await report(reports)
            written.release()

        store.report = reported  # type: ignore[method-assign]
        writing = asyncio.create_task(reporter.run())
        reporter.child(runs[0], 11, 1)
        for _ in range(2):
            await clock.asleep()
            await clock.advance(50 * MILLISECOND)
            await written.acquire()
        reporter.child(runs[2], 13, 1)
        await clock.asleep()
        await clock.advance(50 * MILLISECOND)
        await written.acquire()

        assert [(await desk.run(run)).pid for run in runs] == [11, 12, 13]
        writing.cancel()
        with suppress(asyncio.CancelledError):
            await writing


async def test_a_child_that_is_being_recorded_is_waited_for(tmp_path: Path) -> None:
    """A run with `control = true` that asks at once is known, though another flush has taken it along."""
    clock = FakeClock()
    async with sqlite_store(tmp_path / "store.db", clock) as store:
        desk, reporter = Desk(store, clock), Reporter(store, clock, get_logger())
        await desk.add(make_definition())
        run = await desk.fired()
        report, may_write = store.report, asyncio.Event()

        async def reported(reports: Sequence[Report]) -> None:
            await may_write.wait()
            await report(reports)

        store.report = reported  # type: ignore[method-assign]
        reporter.child(run, 11, 1)
        writing, known = asyncio.create_task(reporter.flush()), asyncio.create_task(reporter.recorded())
        for _ in range(5):
            await asyncio.sleep(0)
        assert not known.done()
        may_write.set()
        await known

        assert (await desk.run(run)).pid == 11
        await writing
