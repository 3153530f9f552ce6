"""huey with its SQLite storage, `fsync` on: one stored task per fire, since its periodic ones know minutes.

Settings in its favour: all tasks are scheduled before the load begins, 4 worker threads that look every
10 ms, no stored results. It has no event loop that could be held.
"""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime

from huey import SqliteHuey

from benchmarks.peers.meter import Meter, in_thread, load_from_arguments, offset_of

LOAD = load_from_arguments()
METER = Meter(LOAD)
METER.stored = []

TRIED = 200
ROUNDS = 1 if LOAD.kind == "burst" else LOAD.warm + LOAD.window + 1
HUEY = SqliteHuey(filename=f"{LOAD.folder}/huey.db", fsync=True, results=False, utc=True)


@HUEY.task()
def fire(number: int) -> None:
    """Does nothing but say that it was started; it has left the store before."""
    METER.note(number)
    if METER.stored is not None:
        METER.stored.append(time.time())


def main() -> None:
    """The load was put on, and its answer printed."""
    logging.disable(logging.CRITICAL)
    due = METER.begin(LOAD.jobs * ROUNDS * _seconds_to_add() * 1.5 + 1)
    for after in range(ROUNDS):
        for number in range(LOAD.jobs):
            moment = due + after + offset_of(number, LOAD)
            fire.schedule(args=(number,), eta=datetime.fromtimestamp(moment, UTC))
    METER.must_be_early()
    consumer = HUEY.create_consumer(
        workers=4, periodic=False, initial_delay=0.01, max_delay=0.01, scheduler_interval=1
    )
    consumer.start()
    in_thread(METER.wait).join()
    METER.answer()
    consumer.stop(graceful=False)


def _seconds_to_add() -> float:
    """For one task, measured with some that are never due."""
    began = time.perf_counter()
    for _ in range(TRIED):
        fire.schedule(args=(0,), eta=datetime(2100, 1, 1, tzinfo=UTC))
    return (time.perf_counter() - began) / TRIED


if __name__ == "__main__":
    main()
