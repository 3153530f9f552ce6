"""What `next` says is what fires: a year of fires, both clock changes among them."""

from __future__ import annotations

import pytest

from scheduler.clock import DAY, Micros
from scheduler.control.firetimes import coming
from tests.support.builders import make_definition
from tests.support.clock import START
from tests.support.desk import Desk

_YEAR: Micros = 366 * DAY


async def _let_go() -> None:
    """Nothing else waits for the loop here."""


@pytest.mark.parametrize(
    ("cron", "timezone"),
    [
        ("30 2,3 * * *", "Europe/Berlin"),  # 02:30 falls into the gap of March and into the repeated hour
        ("15 */12 * * *", "America/New_York"),  # a wildcard hour follows real time
        ("0 0 * * *", "Australia/Lord_Howe"),  # changes of half an hour
    ],
)
async def test_next_is_what_then_fires_over_a_year(desk: Desk, cron: str, timezone: str) -> None:
    """I1: the times foreseen at the start are those of the runs, each once and no other, for a whole year."""
    await desk.add(make_definition(cron=cron, timezone=timezone))
    foreseen = [at for at in await coming(await desk.job(), 1_000, _let_go) if at < START + _YEAR]

    fired = []
    for _ in foreseen:
        run = await desk.fired()
        fired.append(run.fire_time)
        await desk.finish(run)

    assert len(foreseen) >= 365
    assert fired == foreseen
    following = (await desk.job()).next_fire_at
    assert following is not None
    assert following >= START + _YEAR
