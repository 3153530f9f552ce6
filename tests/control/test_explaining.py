"""What became of a fire time, as an answer: from the row that tells of it, or from what holds it back."""

from __future__ import annotations

from pathlib import Path

from scheduler.clock import DAY, MINUTE
from scheduler.control.explaining import explained_then
from scheduler.control.ports import Why
from tests.support.builders import make_definition
from tests.support.clock import START, FakeClock
from tests.support.desk import Desk
from tests.support.stores import sqlite_store


async def test_a_slot_that_is_held_back_names_what_holds_it(tmp_path: Path) -> None:
    """I13: before its row is written, at the end of a pause or of `enabled = false`; no other slot is."""
    clock = FakeClock()
    async with sqlite_store(tmp_path / "store.db", clock) as store:
        desk = Desk(store, clock)

        async def why(at: int) -> Why:
            return await explained_then(store, await desk.job(), at)

        await desk.add(make_definition(every=MINUTE))
        await desk.pause()
        clock.move(5 * MINUTE)

        paused = await why(START + MINUTE)
        other = await why(START + MINUTE // 2)
        await desk.resume()
        await desk.edit(make_definition(every=MINUTE, enabled=False))
        clock.move(5 * MINUTE)
        disabled = await why(START + 7 * MINUTE)
        before = await why(START - DAY)

    assert other.message.endswith(
        ": it is 2027-01-01T12:00:30+00:00 in UTC, and the fire time before it is 2027-01-01T12:00:00+00:00"
    )
    assert (paused.code, paused.blocked, paused.since) == ("paused", True, START)
    assert "told as skipped when that ends" in paused.message
    assert (disabled.code, disabled.blocked) == ("disabled", True)
    assert {(known.code, known.blocked) for known in (other, before)} == {("no_record", False)}
