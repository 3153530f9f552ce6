"""Issue 3, point 3: after a downtime one start where one is wanted, the rest told in one row."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from scheduler.clock import DAY, HOUR, MINUTE, SECOND
from scheduler.engine.ports import Ended, EndKind
from scheduler.model.jobs import JobId
from scheduler.rules.planning import COUNT_CAP
from tests.support.builders import make_definition
from tests.support.clock import START
from tests.support.desk import Told
from tests.support.engine import Bench, bench

pytestmark = pytest.mark.asyncio

_DONE = Ended(kind=EndKind.EXITED, exit_code=0)


async def down_for(here: Bench, duration: int) -> None:
    """The daemon was not there for so long; then it came up, and whatever starts ends at once."""
    here.executor.script = lambda _: _DONE
    here.clock.move(duration)
    await here.start()


async def test_per_second_job_after_ten_years_starts_once(tmp_path: Path) -> None:
    """I13: the newest slot runs, all before it is one row whose count is a lower bound and says so."""
    async with bench(tmp_path, started=False) as here:
        await here.desk.add(make_definition(every=SECOND))
        await down_for(here, 3_652 * DAY)
        now = here.clock.now()
        assert here.fire_times() == [now]
        (skip,) = await here.desk.skips()
        assert skip == Told("misfire", START + SECOND, now - SECOND, COUNT_CAP)
        row = next(run for run in await here.desk.runs() if run.state == "skipped")
        assert f"at least {COUNT_CAP}" in (row.message or "")


@pytest.mark.parametrize(
    ("catch_up", "ran", "skipped"),
    [
        ("latest", [120], Told("misfire", START + MINUTE, START + 119 * MINUTE, 119)),
        ("skip", [], Told("misfire", START + MINUTE, START + 120 * MINUTE, 120)),
        ("all", list(range(111, 121)), Told("misfire", START + MINUTE, START + 110 * MINUTE, 110)),
    ],
)
async def test_catch_up_decides_over_all_missed_times(
    tmp_path: Path, catch_up: str, ran: list[int], skipped: Told
) -> None:
    """I13: `latest` runs the newest, `skip` none that is late, `all` the newest ten; the rest is one row."""
    async with bench(tmp_path, started=False) as here:
        await here.desk.add(make_definition(every=MINUTE, catch_up=catch_up, late_after=1))
        await down_for(here, 2 * HOUR + 30 * SECOND)
        await here.pass_time(SECOND)
        assert here.fire_times() == [START + number * MINUTE for number in ran]
        assert await here.desk.skips() == [skipped]
        assert {grant.run.trigger.value for grant in here.starts()} <= {"catch_up"}


async def test_catch_up_all_runs_one_after_the_other(tmp_path: Path) -> None:
    """I2: ten caught-up times of a solo job queue and run in order, never two at once, none dropped."""
    async with bench(tmp_path, started=False) as here:
        await here.desk.add(make_definition(every=MINUTE, catch_up="all"))
        here.clock.move(5 * MINUTE + 30 * SECOND)
        await here.start()
        for number in range(1, 6):
            assert here.fire_times() == [START + slot * MINUTE for slot in range(1, number + 1)]
            await here.end()
        assert await here.desk.skips() == []


async def test_times_older_than_the_window_are_not_caught_up(tmp_path: Path) -> None:
    """I13: a weekly job that is three days late does not run, and a row says why."""
    async with bench(tmp_path, started=False) as here:
        await here.desk.add(make_definition(cron="0 0 * * sun"))
        await down_for(here, 5 * DAY)  # Friday to Wednesday: past the Sunday by more than a day
        assert here.fire_times() == []
        (skip,) = await here.desk.skips()
        assert (skip.reason, skip.count) == ("misfire", 1)


async def test_late_starts_are_spread_older_first_and_regular_ones_go_between(tmp_path: Path) -> None:
    """I15: so many late jobs a second start, the oldest first; what is due now is on time."""
    async with bench(tmp_path, started=False, start_rate=5.0, max_running=1_000) as here:
        for number in range(40):
            minute = number % 50 + 1
            await here.desk.add(make_definition(f"late-{number}", cron=f"{minute} 12 * * *"))
        await here.desk.add(make_definition("regular", every=MINUTE, catch_up="skip"))
        here.executor.script = lambda _: _DONE
        here.clock.move(HOUR - 1 * SECOND)
        await here.start()
        begun = here.clock.now()
        await here.pass_time(20 * SECOND)
        late = [grant for grant in (e.grant for e in here.executor.started) if grant.run.job != "regular"]
        assert len(late) == 40
        assert [grant.run.fire_time for grant in late] == sorted(grant.run.fire_time or 0 for grant in late)
        seconds = Counter(((grant.run.claimed_at or 0) - begun) // SECOND for grant in late)
        assert max(seconds.values()) <= 10
        assert all(seconds[second] <= 6 for second in seconds if second >= 1), seconds
        on_time = [grant for grant in here.starts("regular") if grant.run.fire_time == START + HOUR]
        assert [(grant.run.claimed_at or 0) - START - HOUR for grant in on_time] == [0]


async def test_limits_hold_at_every_moment_after_a_downtime(tmp_path: Path) -> None:
    """I2: `max_running` and a group's limit hold under the blow of late jobs; priority goes first."""
    most: Counter[str] = Counter()
    async with bench(tmp_path, started=False, start_rate=1_000.0, max_running=3, groups={"g": 1}) as here:
        for number in range(12):
            keys: dict[str, Any] = {"group": "g"} if number % 2 else {}
            await here.desk.add(make_definition(f"j-{number}", every=HOUR, priority=number // 6, **keys))
        here.clock.move(HOUR + 5 * MINUTE)
        await here.start()
        order: list[str] = []
        while live := here.executor.live():
            jobs = [execution.grant.run.job for execution in live]
            order += [job for job in jobs if job not in order]
            most["all"] = max(most["all"], len(jobs))
            most["g"] = max(most["g"], sum(int(job.split("-")[1]) % 2 for job in jobs))
            here.executor.finish(live[0])
            await here.settle()
        assert len(order) == 12
        assert most == {"all": 3, "g": 1}
        free = [int(job.split("-")[1]) for job in order if int(job.split("-")[1]) % 2 == 0]
        assert free == sorted(free, key=lambda number: -(number // 6))


async def test_paused_time_is_told_as_paused_and_not_as_missed(tmp_path: Path) -> None:
    """I13: two hours of pause are one row, reason `paused`, and nothing is caught up at resume."""
    async with bench(tmp_path) as here:
        here.executor.script = lambda _: _DONE
        await here.desk.add(make_definition(every=MINUTE))
        await here.desk.pause()
        here.engine.wake()
        await here.pass_time(2 * HOUR + 30 * SECOND)
        await here.desk.resume()
        here.engine.wake()
        await here.pass_time(30 * SECOND)
        assert here.fire_times() == [START + 121 * MINUTE]
        assert await here.desk.skips() == [Told("paused", START + MINUTE, START + 120 * MINUTE, 120)]
        assert (await here.desk.job(JobId("job"))).next_fire_at == START + 122 * MINUTE


async def test_late_jobs_that_only_skip_do_not_wait_for_the_rate_of_starts(tmp_path: Path) -> None:
    """I13: three hundred late jobs of which none starts are told at once, at one start a second."""
    async with bench(tmp_path, started=False, start_rate=1.0) as here:
        for number in range(300):
            await here.desk.add(make_definition(f"late-{number}", every=HOUR, catch_up="skip"))
        await down_for(here, HOUR + 30 * MINUTE)
        await here.pass_time(SECOND)
        skips = [run for run in await here.desk.runs(None) if run.state == "skipped"]
        assert len(skips) == 300
        assert here.executor.started == []
