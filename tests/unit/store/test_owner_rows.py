"""Process starts on record: how many are kept, and what the end of one writes."""

from __future__ import annotations

from pathlib import Path

from scheduler.clock import SECOND
from scheduler.model.jobs import JobId
from tests.support.builders import make_definition, make_owner
from tests.support.desk import Desk
from tests.support.tables import rows_of, write

MANY = """
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 102)
INSERT INTO owners (id, machine_id, boot_id, pid, start_ticks, started_at)
SELECT printf('old-%03d', n), 'machine', 'boot-1', n, n, n FROM numbers
"""


async def test_the_newest_hundred_starts_stay_and_those_that_a_claim_names(desk: Desk, path: Path) -> None:
    """A run that is running or recovering names its owner; one that has ended needs it no more."""
    write(path, MANY)
    for number, state in enumerate(("running", "recovering", "succeeded"), 1):
        await desk.add(make_definition(f"job-{number}", manual=True))
        run = (await desk.start(JobId(f"job-{number}"))).run
        owner = f"old-{number:03}"
        write(
            path,
            "UPDATE runs SET owner = :owner, state = :state WHERE id = :id",
            owner=owner,
            state=state,
            id=run.id,
        )

    new = make_owner()
    await desk.store.register(new)

    kept = {key[1] for key in rows_of(path) if key[0] == "owners"}
    assert kept == {new.id, "old-001", "old-002", *(f"old-{number:03}" for number in range(4, 103))}


async def test_an_owner_stops_once(desk: Desk, path: Path) -> None:
    """The moment at which it signed off stays, and no other owner signs off with it."""
    first, second = make_owner(), make_owner()
    for owner in (first, second):
        await desk.store.register(owner)
    stopped_at = desk.clock.now()
    await desk.store.sign_off(first.id)
    desk.clock.move(SECOND)

    await desk.store.sign_off(first.id)

    owners = {row["id"]: row["stopped_at"] for key, row in rows_of(path).items() if key[0] == "owners"}
    assert owners == {first.id: stopped_at, second.id: None}
