"""pgqueuer on PostgreSQL: one stored job per fire with its moment, since its own schedules add a second.

Settings in its favour: all jobs are in the queue before the load begins, 10 connections, batches of 1,000, a
look every 10 ms, no limit of jobs at a time, uvloop. Its CPU is its own; the server's comes on top.
"""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import timedelta

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from benchmarks.peers.meter import Meter, load_from_arguments, offset_of

LOAD = load_from_arguments()
METER = Meter(LOAD)
METER.stored = []

POLL = timedelta(milliseconds=10)
BATCH = 1_000
ROUNDS = 1 if LOAD.kind == "burst" else LOAD.warm + LOAD.window + 1
COUNT_STORED = "SELECT count(*) FROM pgqueuer_log WHERE status = 'successful'"


async def main() -> None:
    """The load was put on, and its answer printed."""
    logging.disable(logging.CRITICAL)
    async with asyncpg.create_pool(LOAD.server, min_size=10, max_size=10) as pool:
        queries = Queries(AsyncpgPoolDriver(pool))
        await queries.install()
        due = METER.begin(LOAD.jobs * ROUNDS / 8_000 + 1)
        await _enqueue(queries, due)
        METER.must_be_early()
        await _serve(pool)


async def _enqueue(queries: Queries, due: float) -> None:
    for after in range(ROUNDS):
        numbers = list(range(LOAD.jobs))
        moments = [due + after + offset_of(number, LOAD) for number in numbers]
        await queries.enqueue(
            ["fire"] * len(numbers),
            [str(number).encode() for number in numbers],
            [0] * len(numbers),
            [timedelta(seconds=moment - time.time()) for moment in moments],
        )


async def _serve(pool: asyncpg.Pool) -> None:
    queuer = PgQueuer(AsyncpgPoolDriver(pool))
    queuer.qm.min_dequeue_poll_interval = POLL

    @queuer.entrypoint("fire")
    async def fire(job: Job) -> None:
        METER.note(int(job.payload or b"0"))

    serving = asyncio.create_task(
        queuer.qm.run(dequeue_timeout=POLL, batch_size=BATCH, log_aggregation_interval=timedelta(0))
    )
    counting = asyncio.create_task(_count_stored(pool))
    await METER.run()
    METER.answer()
    counting.cancel()
    queuer.qm.shutdown.set()
    await asyncio.wait({serving}, timeout=5)


async def _count_stored(pool: asyncpg.Pool) -> None:
    """Outcomes come in batches, so their moments are told as those at which they were seen."""
    while METER.stored is not None:
        count = await pool.fetchval(COUNT_STORED)
        METER.stored += [time.time()] * (count - len(METER.stored))
        await asyncio.sleep(0.1)


if __name__ == "__main__":
    uvloop.run(main())
