"""The daemon's care for its store: what is not kept goes with its output, in steps, over several looks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from scheduler.clock import DAY
from scheduler.engine import retention
from scheduler.engine.retention import LARGE_LOG, RetentionWatch
from scheduler.errors import StoreUnavailable
from scheduler.model.runs import RunId
from scheduler.store import pruning
from scheduler.store.sqlite import FILE_NAME, SqliteStore
from scheduler.telemetry import Event
from tests.support.builders import make_definition
from tests.support.clock import FakeClock
from tests.support.desk import Desk
from tests.support.engine import ToldLog
from tests.support.stores import sqlite_store


class Care:
    """A watch on a real store; what it took off the disk is written down."""

    def __init__(self, store: SqliteStore, clock: FakeClock, **settings: int | None) -> None:
        self.desk = Desk(store, clock)
        self.removed: list[RunId] = []
        self.log = ToldLog()
        self.watch = RetentionWatch(
            store,
            clock,
            self.log,
            runs_per_job=settings.get("runs_per_job"),
            age=settings.get("age"),
            remove_outputs=self._remove,
        )

    async def _remove(self, runs: Sequence[RunId]) -> None:
        self.removed += runs

    async def ended(self, count: int) -> list[RunId]:
        """So many runs of the job, oldest first."""
        runs = []
        for _ in range(count):
            started = await self.desk.start()
            assert started.grant is not None
            runs.append((await self.desk.finish(started.grant.run)).run.id)
        return runs


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with sqlite_store(tmp_path / FILE_NAME, FakeClock()) as opened:
        yield opened


async def test_what_is_not_kept_goes_with_its_output(store: SqliteStore) -> None:
    """Runs beyond the daemon's number leave history and disk, oldest first; nothing is left to clear."""
    care = Care(store, FakeClock(), runs_per_job=2)
    await care.desk.add(make_definition(manual=True))
    runs = await care.ended(5)

    await care.watch.look()

    assert set(care.removed) == set(runs[:3])
    assert [run.id for run in await care.desk.runs()] == runs[3:]
    assert await store.pruned(limit=9) == []


async def test_what_is_old_goes(store: SqliteStore) -> None:
    """By age, too; without an age nothing does."""
    clock = FakeClock()
    care = Care(store, clock, age=DAY)
    await care.desk.add(make_definition(manual=True))
    runs = await care.ended(2)
    clock.move(2 * DAY)

    await Care(store, clock).watch.look()
    assert len(await care.desk.runs()) == 2
    await care.watch.look()

    assert care.removed == runs[:1]


async def test_output_that_a_crash_left_goes_at_the_next_look(store: SqliteStore) -> None:
    """A run that left the history before its output did is not forgotten."""
    care = Care(store, FakeClock(), runs_per_job=1)
    await care.desk.add(make_definition(manual=True))
    runs = await care.ended(2)
    await store.prune(runs[:1])

    await care.watch.look()

    assert care.removed == runs[:1]


async def test_a_long_backlog_is_worked_off_over_several_looks(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I15: one look takes a bounded amount, and the next one goes on."""
    monkeypatch.setattr(retention, "SLICE", 2)
    monkeypatch.setattr(retention, "_STEPS_A_LOOK", 2)
    care = Care(store, FakeClock(), runs_per_job=1)
    await care.desk.add(make_definition(manual=True))
    runs = await care.ended(8)

    sizes = []
    for _ in range(3):
        await care.watch.look()
        sizes.append(len(care.removed))

    assert sizes == [4, 7, 7]
    assert set(care.removed[:4]) == set(runs[:4])
    assert set(care.removed) == set(runs[:7])


async def test_what_ran_is_looked_at_whatever_other_jobs_there_are(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job behind all that the walk comes to in one look has no more history than it keeps."""
    monkeypatch.setattr(retention, "_STEPS_A_WALK", 0)
    care = Care(store, FakeClock(), runs_per_job=1)
    await care.desk.add(make_definition(manual=True))
    await care.watch.look()
    runs = await care.ended(3)

    await care.watch.look()

    assert set(care.removed) == set(runs[:2])


async def test_a_walk_that_finds_nothing_takes_its_time(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Very many jobs without work are looked at over many looks, a backlog among them at once."""
    monkeypatch.setattr(retention, "_STEPS_A_WALK", 1)
    monkeypatch.setattr(pruning, "_JOBS_A_LOOK", 1)
    care = Care(store, FakeClock(), runs_per_job=1)
    for name in ("a", "b", "job"):
        await care.desk.add(make_definition(name, manual=True))
    runs = await care.ended(2)

    looks = []
    for _ in range(3):
        await care.watch.look()
        looks.append(list(care.removed))

    assert looks == [[], [], runs[:1]]


async def test_a_store_in_trouble_is_left_for_the_next_look(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I14: the care of the store never ends the daemon."""
    care = Care(store, FakeClock(), runs_per_job=1)
    await care.desk.add(make_definition(manual=True))
    await care.ended(2)

    async def refuses(runs: object) -> int:
        raise StoreUnavailable("no")

    with monkeypatch.context() as patch:
        patch.setattr(store, "prune", refuses)
        await care.watch.look()
    assert care.removed == []
    await care.watch.look()
    assert len(care.removed) == 1


async def test_a_log_that_somebody_keeps_from_shrinking_is_told_once(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The warning names the size and the likely cause; it comes again only after the log was small."""
    care = Care(store, FakeClock())
    sizes = iter([0, LARGE_LOG, 2 * LARGE_LOG, 0, LARGE_LOG])
    monkeypatch.setattr(store, "log_size", lambda: next(sizes))

    for _ in range(5):
        await care.watch.look()

    told = care.log.of(Event.STORE_LOG_GREW)
    assert [fields["bytes"] for fields in told] == [LARGE_LOG, LARGE_LOG]
    assert "256 MiB" in str(told[0]["message"])
