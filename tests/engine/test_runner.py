"""The attempts in memory stay those of the claims that are in force."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler.clock import MINUTE
from scheduler.engine.ports import Ended, EndKind
from scheduler.telemetry import Event
from tests.support.builders import make_definition
from tests.support.engine import bench

pytestmark = pytest.mark.asyncio


async def test_end_of_one_attempt_does_not_forget_the_next_one_of_the_same_run(tmp_path: Path) -> None:
    """I2: a run that is claimed again in the commit of its own end keeps its worker and its beat."""
    async with bench(tmp_path) as here:
        await here.desk.add(make_definition(manual=True))
        run = await here.by_hand()
        await here.settle()
        (first,) = here.executor.live()
        claimed_in_the_same_commit = here.store.finish

        async def finish_and_claim(verdicts: object) -> object:
            finished = await claimed_in_the_same_commit(verdicts)
            del here.store.__dict__["finish"]
            (grant,) = await here.desk.claim()
            here.runner.start(grant)  # the tick was faster than the end of the first attempt's task
            return finished

        here.store.__dict__["finish"] = finish_and_claim
        here.executor.finish(first, Ended(kind=EndKind.RETRY_ASKED, retry_after=0))
        await here.settle()
        assert len(here.executor.live()) == 1
        assert (len(here.runner), len(here.claims)) == (1, 1)
        await here.pass_time(3 * MINUTE)
        row = await here.desk.run(run)
        assert (row.state, row.claim) == ("running", 2)
        assert here.log.of(Event.RUN_RECOVERING) == []
