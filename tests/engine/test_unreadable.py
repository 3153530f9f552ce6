"""A stored definition that this machine cannot read any more breaks its own job and no other (I14)."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from scheduler.clock import MINUTE
from scheduler.errors import Conflict
from scheduler.model.jobs import JobId
from scheduler.telemetry import Event
from tests.support.builders import make_definition
from tests.support.engine import bench

pytestmark = pytest.mark.asyncio

LOST = JobId("lost")


def _lose_the_zone(folder: Path) -> None:
    """The row of the job names a time zone that no tz database has."""
    (path,) = folder.rglob("*.db")
    with sqlite3.connect(path) as db:
        db.execute(
            "UPDATE definitions SET definition = json_set(definition, '$.timezone', 'Mars/Olympus')"
            " WHERE id = 'lost'"
        )
    db.close()


async def test_job_whose_zone_is_gone_is_broken_and_the_others_fire(tmp_path: Path) -> None:
    """I14: it is told once and shown as broken, stays due and keeps its row; its neighbour runs on time."""
    async with bench(tmp_path) as here:
        await here.desk.add(make_definition(LOST, cron="* * * * *"))
        await here.desk.add(make_definition(every=MINUTE))
        _lose_the_zone(tmp_path)

        here.engine.wake()
        await here.pass_time(2 * MINUTE)

        assert [told["job"] for told in here.log.of(Event.JOB_BROKEN)] == [LOST]
        lost = (await here.store.job(LOST)).job
        assert (lost.problem_code, lost.next_fire_at is not None) == ("broken", True)
        assert "Mars/Olympus" in (lost.problem_message or "")
        assert here.executor.started
        assert {execution.grant.run.job for execution in here.executor.started} == {"job"}


async def test_resume_of_an_unreadable_job_is_refused(tmp_path: Path) -> None:
    """I14: without a schedule that can be read a resume would leave the job without a next fire time."""
    async with bench(tmp_path) as here:
        await here.desk.add(make_definition(LOST, cron="* * * * *"))
        await here.desk.pause(LOST)
        _lose_the_zone(tmp_path)

        with pytest.raises(Conflict, match="cannot be read"):
            await here.desk.resume(LOST)
