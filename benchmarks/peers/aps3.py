"""APScheduler 3: the asyncio scheduler with its memory store, or with SQLAlchemy's on SQLite.

Variants: `memory`; `sqlite` as shipped; `sqlite-wal` with WAL and `synchronous=FULL`. The next fire time of a
job is stored before the job starts, and nothing else is, so a start counts as a stored outcome.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta

from apscheduler.executors.asyncio import AsyncIOExecutor
from apscheduler.jobstores.base import BaseJobStore
from apscheduler.jobstores.memory import MemoryJobStore
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger
from sqlalchemy import create_engine, event

from benchmarks.peers.meter import Load, Meter, load_from_arguments, offset_of

ADDING = {"memory": 0.0005, "sqlite": 0.004, "sqlite-wal": 0.0015}
"""Seconds to add a job, at most."""

LOAD = load_from_arguments()
METER = Meter(LOAD)


async def fire(number: int) -> None:
    """Does nothing but say that it was started."""
    METER.note(number)


async def main() -> None:
    """The load was put on, and its answer printed."""
    logging.disable(logging.CRITICAL)
    scheduler = AsyncIOScheduler(
        jobstores={"default": _store(LOAD)}, executors={"default": AsyncIOExecutor()}, timezone=UTC
    )
    scheduler.start(paused=True)
    # A burst is due once, so all its jobs have to be there before; a grid goes on.
    due = METER.begin(LOAD.jobs * ADDING[LOAD.variant] + 0.5 if LOAD.kind == "burst" else -2)
    for number in range(LOAD.jobs):
        scheduler.add_job(
            fire,
            _trigger(LOAD, due, number),
            args=(number,),
            misfire_grace_time=None,
            coalesce=True,
        )
    if LOAD.kind != "burst":
        METER.begin()
    scheduler.resume()
    await METER.run()
    METER.answer()
    scheduler.shutdown(wait=False)


def _store(load: Load) -> BaseJobStore:
    if load.variant == "memory":
        return MemoryJobStore()
    engine = create_engine(f"sqlite:///{load.folder}/jobs.db")
    if load.variant == "sqlite-wal":

        @event.listens_for(engine, "connect")
        def _(connection: object, _: object) -> None:
            connection.execute("PRAGMA journal_mode = WAL")  # type: ignore[attr-defined]
            connection.execute("PRAGMA synchronous = FULL")  # type: ignore[attr-defined]

    return SQLAlchemyJobStore(engine=engine)


def _trigger(load: Load, due: float, number: int) -> BaseTrigger:
    first = datetime.fromtimestamp(due, UTC) + timedelta(seconds=offset_of(number, load))
    if load.kind == "burst":
        return DateTrigger(first)
    if load.trigger == "cron":
        return CronTrigger(second="*", start_date=first, timezone=UTC)
    return IntervalTrigger(seconds=1, start_date=first, timezone=UTC)


if __name__ == "__main__":
    asyncio.run(main())
