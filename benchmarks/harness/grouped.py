"""The machine's own limit: our statements of a fire on our schema, 1,000 fires to a transaction, no more."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

from benchmarks.harness.processes import workspace
from scheduler.store.schema import prepare

BATCH = 1_000
JOBS = 4_000
SECONDS = 2.0

DEFINITION = '{"every":1000000,"python":"bench_handlers:nothing","timezone":"UTC"}'
ADD = """
INSERT INTO jobs (id, definition_revision, added_revision, revision, origin, enabled, status,
                  next_fire_at, due_at)
VALUES (?, 1, 1, 1, 'file', 1, 'active', 0, 0)
"""
DEFINE = "INSERT INTO definitions (id, definition) VALUES (?, ?)"
FIRE = """
UPDATE jobs SET next_fire_at = :next, due_at = :next, last_fire_at = :fire
WHERE id = :job AND status = 'active' AND enabled = 1 AND removed_at IS NULL
  AND next_fire_at = :fire AND revision = 1
"""
CLAIM = """
INSERT INTO runs (id, job, trigger, state, fire_time, solo, added_revision, definition_revision, claim, owner,
                  lease_until, queued_at, claimed_at, started_at, progress_at)
VALUES (:run, :job, 'schedule', 'running', :fire, 1, 1, 1, 1, 'me', :next, :fire, :fire, :fire, :fire)
"""
FINISH = """
UPDATE runs SET state = 'succeeded', job_counted = 1, finished_at = :next
WHERE id = :run AND claim = 1 AND state = 'running'
"""
COUNT = "UPDATE jobs SET failures = 0, fires_done = fires_done + 1 WHERE id = :job AND revision = 1"


def limit(root: Path) -> float:
    """Fires per second."""
    with workspace(root) as folder, closing(_store(folder / "limit.db")) as connection:
        done, began = 0, time.perf_counter()
        while time.perf_counter() - began < SECONDS:
            _transaction(connection, done)
            done += BATCH
        return done / (time.perf_counter() - began)


def _store(path: Path) -> sqlite3.Connection:
    prepare(path)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("BEGIN")
    connection.executemany(ADD, [(f"j{number}",) for number in range(JOBS)])
    connection.executemany(DEFINE, [(f"j{number}", DEFINITION) for number in range(JOBS)])
    connection.execute("COMMIT")
    return connection


def _transaction(connection: sqlite3.Connection, done: int) -> None:
    fires = [
        {
            "job": f"j{number % JOBS}",
            "run": f"{number:08x}-0000-7000-8000-{number:012x}",
            "fire": number // JOBS * 1_000_000,
            "next": (number // JOBS + 1) * 1_000_000,
        }
        for number in range(done, done + BATCH)
    ]
    connection.execute("BEGIN IMMEDIATE")
    for statement in (FIRE, CLAIM, FINISH, COUNT):
        connection.executemany(statement, fires)
    connection.execute("COMMIT")
