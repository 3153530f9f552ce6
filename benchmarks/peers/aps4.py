"""APScheduler 4 (a pre-release) with SQLAlchemy's store on SQLite, by aiosqlite; outcomes are stored.

Settings in its favour: WAL (with `synchronous=FULL`), and up to 1,000 jobs at a time.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from datetime import UTC, datetime, timedelta

from apscheduler import AsyncScheduler, Event, JobReleased
from apscheduler.abc import Trigger
from apscheduler.datastores.sqlalchemy import SQLAlchemyDataStore
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger
from sqlalchemy import event
from sqlalchemy.ext.asyncio import create_async_engine

from benchmarks.peers.meter import Load, Meter, load_from_arguments, offset_of

LOAD = load_from_arguments()
METER = Meter(LOAD)
METER.stored = []


async def fire(number: int) -> None:
    """Does nothing but say that it was started."""
    METER.note(number)


def released(_: Event) -> None:
    """An outcome is in the store."""
    if METER.stored is not None:
        METER.stored.append(time.time())


async def main() -> None:
    """The load was put on, and its answer printed."""
    logging.disable(logging.CRITICAL)
    engine = create_async_engine(f"sqlite+aiosqlite:///{LOAD.folder}/jobs.db")

    @event.listens_for(engine.sync_engine, "connect")
    def _(connection: object, _: object) -> None:
        connection.execute("PRAGMA journal_mode = WAL")  # type: ignore[attr-defined]
        connection.execute("PRAGMA synchronous = FULL")  # type: ignore[attr-defined]

    async with AsyncScheduler(SQLAlchemyDataStore(engine), max_concurrent_jobs=1000) as scheduler:
        scheduler.subscribe(released, {JobReleased})
        await scheduler.configure_task("fire", func=fire, max_running_jobs=None)
        due = METER.begin(LOAD.jobs * 0.02 + 0.5)
        for number in range(LOAD.jobs):
            await scheduler.add_schedule("fire", _trigger(LOAD, due, number), args=(number,), id=f"j{number}")
        await scheduler.start_in_background()
        await METER.run()
        METER.answer()
        # An orderly stop would wait for whatever is behind, which is no part of what is measured.
        os._exit(0)


def _trigger(load: Load, due: float, number: int) -> Trigger:
    first = datetime.fromtimestamp(due, UTC) + timedelta(seconds=offset_of(number, load))
    if load.kind == "burst":
        return DateTrigger(first)
    if load.trigger == "cron":
        return CronTrigger(second="*", start_time=first, timezone=UTC)
    return IntervalTrigger(seconds=1, start_time=first)


if __name__ == "__main__":
    asyncio.run(main())
