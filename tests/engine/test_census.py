"""What /metrics tells of the store: counted there."""

from __future__ import annotations

from pathlib import Path

from scheduler.engine.census import Census
from scheduler.metrics import Metrics
from scheduler.model.jobs import PauseMode
from scheduler.store.pausevalues import PauseAllRequest, ResumeAllRequest
from tests.support.builders import make_definition
from tests.support.clock import FakeClock
from tests.support.desk import Desk
from tests.support.stores import sqlite_store


async def test_no_fire_is_expected_while_all_jobs_are_paused(tmp_path: Path) -> None:
    """The gauge of the next fire has a series of the job before and after the pause, and none in it."""
    clock, metrics = FakeClock(), Metrics()

    def is_expected() -> bool:
        return b'scheduler_job_next_fire_timestamp_seconds{job="a"}' in metrics.render()

    async with sqlite_store(tmp_path / "store.db", clock) as store:
        desk, census = Desk(store, clock), Census(store, metrics)
        await desk.add(make_definition("a"))
        await census.take()
        assert is_expected()

        await store.pause_all(PauseAllRequest(mode=PauseMode.DRAIN, peer=desk.peer))
        await census.take()
        assert not is_expected()

        await store.resume_all(ResumeAllRequest(peer=desk.peer))
        await census.take()
        assert is_expected()
