"""What became of a fire time, as an answer: from the row that tells of it, or from what holds it back."""

from __future__ import annotations

from pathlib import Path

from scheduler.clock import DAY, MINUTE
from scheduler.control.explaining import explained_then
from scheduler.control.ports import Why
from scheduler.model.jobs import PauseMode
from scheduler.store.pausevalues import PauseAllRequest
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
            return await explained_then(store, await desk.job(), at, clock.now())

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


async def test_a_slot_that_came_under_the_pause_of_all_names_it(tmp_path: Path) -> None:
    """I13: one before it has come and has not started; one after now is still to come."""
    clock = FakeClock()
    async with sqlite_store(tmp_path / "store.db", clock) as store:
        desk = Desk(store, clock)
        await desk.add(make_definition(every=MINUTE))
        clock.move(2 * MINUTE)
        await store.pause_all(PauseAllRequest(mode=PauseMode.DRAIN, peer=desk.peer, note="power cut"))
        clock.move(5 * MINUTE)
        job = await desk.job()

        before, held, ahead = [
            await explained_then(store, job, START + minutes * MINUTE, clock.now()) for minutes in (1, 5, 9)
        ]

    assert (held.code, held.blocked, held.since) == ("global_pause", True, START + 2 * MINUTE)
    assert "power cut" in held.message
    assert (before.code, ahead.code) == ("no_record", "no_record")
    assert "has come" in before.message
    assert ahead.message == "this fire time is still to come"
