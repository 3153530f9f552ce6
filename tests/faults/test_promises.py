"""The judge is judged: each promise that rows can break is seen to be broken."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from scheduler.clock import MINUTE
from scheduler.model.jobs import JobId
from scheduler.store.sqlite import FILE_NAME
from tests.support.builders import make_claimant, make_definition
from tests.support.clock import FakeClock
from tests.support.desk import Desk
from tests.support.promises import Executed, broken_promises, fires
from tests.support.stores import sqlite_store


async def _lived(path: Path) -> list[Executed]:
    clock = FakeClock()
    async with sqlite_store(path, clock) as store:
        desk = Desk(store, clock, make_claimant())
        await desk.add(make_definition("tick", every=MINUTE))
        for _ in range(3):
            await desk.finish(await desk.fired(JobId("tick")))
        clock.move(5 * MINUTE)
        (fired,) = await desk.tick()
        runs = await desk.executed(JobId("tick"))
        assert fired.skips
        return [Executed(run.id, run.claim) for run in runs]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Executed]]:
    """A store in which all is well, and its ledger."""
    path = tmp_path_factory.mktemp("sound") / FILE_NAME
    return path, asyncio.run(_lived(path))


def test_a_sound_store_breaks_no_promise(sound: tuple[Path, list[Executed]]) -> None:
    """Three fires, a gap of five and a live run: eight due, four ran, four are explained."""
    path, ledger = sound

    assert broken_promises(path, ledger) == []
    assert fires(path) == {"due": 8, "ran": 4, "explained": 4}


DAMAGES = {
    "DELETE FROM runs WHERE seq = FIRST + 1": "I13",
    "UPDATE runs SET count = count + 1 WHERE state = 'skipped'": "I13",
    "UPDATE runs SET state = 'running', finished_at = NULL, solo = 0 WHERE state = 'succeeded'": "I2",
    "UPDATE runs SET claim = 2 WHERE seq = FIRST": "I3",
    "UPDATE attempts SET finished_at = NULL": "I3",
    "DELETE FROM attempts WHERE run = (SELECT id FROM runs WHERE seq = FIRST)": "I10",
    "UPDATE runs SET finished_at = NULL WHERE seq = FIRST": "I10",
    "UPDATE runs SET state = 'failed', reason = NULL WHERE seq = FIRST": "run ",
    """INSERT INTO items (run, seq, key, payload, state, attempts)
       SELECT id, 0, 'a', '1', 'done', 1 FROM runs WHERE seq = FIRST""": "I9",
    """INSERT INTO items (run, seq, key, payload, state, attempts, nonce, claim)
       SELECT id, 0, 'a', '1', 'running', 1, 'n', 1 FROM runs WHERE seq = FIRST""": "I9",
    "UPDATE runs SET items_total = 1, done = 1, failed = 0, unknown = 0 WHERE seq = FIRST": "I9",
}
"""What somebody does to the rows, and the promise that is broken by it."""


@pytest.mark.parametrize(("damage", "promise"), DAMAGES.items())
def test_damage_is_seen(
    damage: str, promise: str, sound: tuple[Path, list[Executed]], tmp_path: Path
) -> None:
    """A row that is changed by hand breaks the promise that it stands for."""
    path, ledger = sound
    copy = Path(shutil.copy(path, tmp_path / FILE_NAME))
    with closing(sqlite3.connect(copy, isolation_level=None)) as db:
        damage = damage.replace("FIRST", "(SELECT min(seq) FROM runs)")
        assert db.execute(damage).rowcount > 0

    assert any(fault.startswith(promise) for fault in broken_promises(copy, ledger))


def test_the_ledger_counts(sound: tuple[Path, list[Executed]]) -> None:
    """A second execution, one without a claim and a success without an execution are seen."""
    path, ledger = sound

    assert any(fault.startswith("I1:") for fault in broken_promises(path, [*ledger, ledger[0]]))
    assert any(fault.startswith("I10") for fault in broken_promises(path, [*ledger, Executed("no run", 1)]))
    assert any(fault.startswith("I10") for fault in broken_promises(path, ledger[1:]))
