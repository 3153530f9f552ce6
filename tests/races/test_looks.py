"""Looks that come in parts, while somebody else writes between the parts (I7, I8)."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from scheduler.store.schema import load_queries
from scheduler.store.values import LiveLook
from tests.support.builders import make_definition
from tests.support.clock import FakeClock
from tests.support.desk import Desk
from tests.support.gates import Gate, HeldQueries
from tests.support.stores import sqlite_store

TORN: Mapping[str, str] = {**load_queries(), "begin_read": "SELECT 1;", "end_read": "SELECT 1;"}
"""The same reads, each at its own moment."""


async def _look_while_a_run_moves(tmp_path: Path, queries: Mapping[str, str] | None) -> LiveLook:
    """The look of a store in which a recovering run is taken up again between two parts of the look."""
    gate, clock, path = Gate(), FakeClock(), tmp_path / "schedulerd.db"
    async with sqlite_store(path, clock, queries=HeldQueries(gate, "recovering_runs", queries)) as store:
        desk = Desk(store, clock)
        await desk.add(make_definition(manual=True))
        await desk.start()
        _set_state(path, "recovering")
        looking = asyncio.create_task(store.look())
        await gate.reached()
        _set_state(path, "running")
        gate.open()
        return await looking


def _set_state(path: Path, state: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        assert db.execute("UPDATE runs SET state = ?", (state,)).rowcount == 1


async def test_no_run_is_between_the_parts_of_a_look(tmp_path: Path) -> None:
    """I7: a run that moves while the sweep looks is seen as what it was, so nothing of it is forgotten."""
    look = await _look_while_a_run_moves(tmp_path, None)

    assert (len(look.running), len(look.recovering)) == (0, 1)


@pytest.mark.parametrize("queries", [TORN], ids=["without a snapshot"])
async def test_a_look_in_parts_loses_it(tmp_path: Path, queries: Mapping[str, str]) -> None:
    """Each part by itself: the run is neither among the running nor among the recovering ones."""
    look = await _look_while_a_run_moves(tmp_path, queries)

    assert (len(look.running), len(look.recovering)) == (0, 0)
