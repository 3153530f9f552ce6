"""A store as this version leaves it, written as SQL: what later versions have to be able to upgrade.

    python -m tests.support.sample      writes tests/store/samples/schema-N.sql, N being the newest schema

Run it before a release, and after each change of a schema that no release has yet. A sample of a released
schema is never written anew: it is the proof that stores out there can be upgraded.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Final

from scheduler.clock import HOUR, MINUTE
from scheduler.rules.reconcile import Ending
from scheduler.store.schema import migrations
from scheduler.store.sqlite import FILE_NAME, SqliteStore
from tests.support.builders import make_definition
from tests.support.clock import FakeClock
from tests.support.desk import Desk

FOLDER: Final = Path(__file__).parents[1] / "store" / "samples"


async def fill(path: Path, clock: FakeClock) -> None:
    """The store at `path` has something in every table that an operator would miss."""
    store = await SqliteStore.open(path, clock)
    desk = Desk(store, clock)
    await store.register(desk.who.owner)
    await store.see_wall()
    await desk.add(make_definition("minutely", every=MINUTE, keep_runs=10))
    await desk.add(make_definition("paused", cron="30 2 * * *"))
    await desk.add(make_definition("removed", manual=True))
    await desk.add(make_definition("narrate", manual=True, batch={"items": ["intro", "one"]}))
    await desk.finish(await desk.fired(make_definition("minutely").id))
    await desk.finish(await desk.fired(make_definition("minutely").id), Ending.FAILED)
    clock.move(HOUR)
    await desk.fire(make_definition("minutely").id)
    await desk.pause(make_definition("paused").id, note="until the audit is over")
    await desk.start(make_definition("narrate").id)
    await desk.remove(make_definition("removed").id)
    await store.close()


def dumped(path: Path) -> str:
    """The whole database as SQL, with the two marks that a dump leaves out."""
    with closing(sqlite3.connect(path)) as db:
        marks = [
            f"PRAGMA {name} = {db.execute(f'PRAGMA {name}').fetchone()[0]};"
            for name in ("auto_vacuum", "application_id", "user_version")
        ]
        return "\n".join([*marks, *db.iterdump(), ""])


def loaded(sample: Path, path: Path) -> None:
    """The database of the sample stands at `path`."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.executescript(sample.read_text(encoding="utf-8"))


def main() -> None:
    """The sample of the newest schema is written."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / FILE_NAME
        asyncio.run(fill(path, FakeClock()))
        target = FOLDER / f"schema-{len(migrations())}.sql"
        target.write_text(dumped(path), encoding="utf-8")
    sys.stdout.write(f"written: {target}\n")


if __name__ == "__main__":
    main()
