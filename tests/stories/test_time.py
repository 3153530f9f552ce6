"""Stories of clocks: cron dialects, clock changes, misfires, outages, early timers."""

from __future__ import annotations

import time
from datetime import datetime
from itertools import islice
from pathlib import Path

import pytest

from scheduler.clock import DAY, HOUR, MILLISECOND, MINUTE, SECOND, Micros, from_micros, to_micros
from scheduler.config.crontab_jobs import to_job_tables
from scheduler.config.crontab_parse import parse_crontab
from scheduler.config.jobdirs import load_job_dirs
from scheduler.config.settings import Settings
from scheduler.engine.ports import Ended, EndKind
from scheduler.model.cron import Cron
from scheduler.model.cron_notes import cron_notes
from scheduler.model.jobs import JobId
from scheduler.model.runs import RunTrigger
from scheduler.model.triggers import Every, Trigger
from scheduler.model.zones import load_zone
from scheduler.rules.planning import plan_fire
from scheduler.telemetry import Event
from tests.support.builders import JOB, make_definition
from tests.support.clock import START, FakeClock
from tests.support.desk import Desk, Told
from tests.support.engine import bench

_DONE = Ended(kind=EndKind.EXITED, exit_code=0)
_NOW = to_micros(datetime.fromisoformat("2026-01-01T00:00:01+00:00"))


def fires(trigger: Trigger, after: Micros, count: int) -> list[Micros]:
    found: list[Micros] = []
    while len(found) < count:
        following = trigger.next_fire(after)
        assert following is not None
        found.append(following)
        after = following
    return found


def days(expression: str, count: int) -> list[str]:
    """The next fires, as weekday, day and month, in UTC."""
    return [f"{from_micros(at):%a %-d %b}" for at in fires(Cron(expression, "UTC"), _NOW, count)]


def moments(expression: str, zone: str, after: str, count: int) -> list[str]:
    begin = to_micros(datetime.fromisoformat(after))
    info = load_zone(zone).info
    return [f"{from_micros(at, info):%d %H:%M%z}" for at in fires(Cron(expression, zone), begin, count)]


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("0", ["Sun 4 Jan"]),
        ("7", ["Sun 4 Jan"]),
        ("sun", ["Sun 4 Jan"]),
        ("1-5", ["Fri 2 Jan", "Mon 5 Jan", "Tue 6 Jan"]),
        ("5-7", ["Fri 2 Jan", "Sat 3 Jan", "Sun 4 Jan"]),
        ("*/2", ["Sat 3 Jan", "Sun 4 Jan", "Tue 6 Jan", "Thu 8 Jan"]),
    ],
)
def test_b01_weekday_numbers_are_those_of_cron(field: str, expected: list[str], tmp_path: Path) -> None:
    """B01: 0 and 7 are Sunday, in a job file and through the import of a crontab alike."""
    line = f"0 0 * * {field}"
    (tmp_path / "a.toml").write_text(f'[jobs.a]\ntimezone = "UTC"\ncron = "{line}"\nshell = "true"\n')
    (file,) = load_job_dirs([tmp_path], Settings()).files
    ((_, table),) = to_job_tables(parse_crontab(f"{line} true\n", system=False)).jobs

    assert days(line, len(expected)) == expected
    schedule = file.definitions[0].schedule
    assert [f"{from_micros(at):%a %-d %b}" for at in islice(_all(schedule), len(expected))] == expected
    assert table["cron"] == line


def _all(schedule: object) -> list[Micros]:
    return fires(schedule, _NOW, 4)  # type: ignore[arg-type]  # it answers as a trigger does


def test_b02_both_day_fields_are_joined_as_cron_joins_them() -> None:
    """B02: two restricted day fields are ORed; where one starts with a star, both must fit."""
    assert days("0 0 13 * 5", 6) == [
        "Fri 2 Jan",
        "Fri 9 Jan",
        "Tue 13 Jan",
        "Fri 16 Jan",
        "Fri 23 Jan",
        "Fri 30 Jan",
    ]
    assert days("0 0 */2 * 1", 4) == ["Mon 5 Jan", "Mon 19 Jan", "Mon 9 Feb", "Mon 23 Feb"]
    assert days("0 0 1-31 * 1", 3) == ["Fri 2 Jan", "Sat 3 Jan", "Sun 4 Jan"]


def test_b04_clock_changes_lose_and_double_nothing() -> None:
    """B04: fixed times run once, wildcards keep their spacing, an interval is elapsed time."""
    berlin = "Europe/Berlin"
    assert moments("30 2 * * *", berlin, "2026-03-28T12:00+01:00", 2) == ["29 03:00+0200", "30 02:30+0200"]
    assert moments("30 2 * * *", berlin, "2026-10-24T12:00+02:00", 2) == ["25 02:30+0200", "26 02:30+0100"]
    assert moments("*/30 * * * *", berlin, "2026-10-25T01:45+02:00", 5) == [
        "25 02:00+0200",
        "25 02:30+0200",
        "25 02:00+0100",
        "25 02:30+0100",
        "25 03:00+0100",
    ]
    start = to_micros(datetime.fromisoformat("2026-03-28T08:00+01:00"))
    (following,) = fires(Every(DAY, anchor=start), start, 1)
    assert f"{from_micros(following, load_zone(berlin).info):%H:%M%z}" == "09:00+0200"


def test_b05_times_that_never_come_are_refused_at_load(tmp_path: Path) -> None:
    """B05: each bad expression is a fault with file and key, at once; the good jobs load."""
    bad = ["0 0 30 2 *", "0 0 31 4 *", "*/0 * * * *", "0 24 * * *", "* * * *"]
    for number, expression in enumerate(bad):
        (tmp_path / f"bad-{number}.toml").write_text(
            f'[jobs.bad-{number}]\ncron = "{expression}"\nshell = "true"\n'
        )
    good = "".join(f'[jobs.good-{number}]\ncron = "* * * * *"\nshell = "true"\n' for number in range(5))
    (tmp_path / "good.toml").write_text(good + '[jobs.leap]\ncron = "0 0 29 2 *"\nshell = "true"\n')

    began = time.process_time()
    loaded = load_job_dirs([tmp_path], Settings())

    assert time.process_time() - began < 2
    assert sum(len(file.definitions) for file in loaded.files) == 6
    assert {(fault.job, fault.key) for fault in loaded.faults} == {(f"bad-{n}", "cron") for n in range(5)}
    assert days("0 0 29 2 *", 1) == ["Tue 29 Feb"]
    (note,) = cron_notes("*/60 * * * *")  # cron runs it once an hour; `check` says so
    assert "as large as the range" in note


async def test_b07_a_late_job_runs_and_says_how_late(desk: Desk, clock: FakeClock) -> None:
    """B07: five seconds late is no reason to drop a run; slot and real start both stand in its row."""
    await desk.add(make_definition(every=7 * DAY))
    due = (await desk.job()).next_fire_at
    assert due is not None
    clock.move(due - clock.now() + 5 * SECOND)

    run = await desk.fired()

    assert (run.trigger, run.fire_time) == (RunTrigger.SCHEDULE, due)
    assert (run.claimed_at or 0) - due == 5 * SECOND
    await desk.finish(run)
    clock.move(7 * DAY + 30 * SECOND)
    late = await desk.fired()
    assert late.fire_time == due + 7 * DAY
    assert await desk.skips() == []


async def test_b08_a_job_wakes_up_with_the_machine(tmp_path: Path) -> None:
    """B08: after an hour that the monotonic clock did not count, the job starts within a minute, once."""
    async with bench(tmp_path) as here:
        here.executor.script = lambda _: _DONE
        await here.desk.add(make_definition(every=HOUR))
        here.engine.wake()
        await here.pass_time(30 * MINUTE)
        here.clock.step(HOUR)

        await here.pass_time(MINUTE)

        assert here.fire_times() == [START + HOUR]
        assert here.starts()[0].run.trigger is RunTrigger.CATCH_UP
        assert len(here.log.of(Event.CLOCK_STEPPED)) == 1


@pytest.mark.parametrize(
    ("every", "gap"), [(MINUTE, 5 * HOUR), (SECOND, 730 * DAY)], ids=["five hours", "two years"]
)
@pytest.mark.parametrize(("policy", "runs"), [("latest", 1), ("all", 10), ("skip", 0)])
async def test_b10_a_long_outage_is_caught_up_in_bounds(
    desk: Desk, clock: FakeClock, every: Micros, gap: Micros, policy: str, runs: int
) -> None:
    """B10: one run, a capped number, or none: at once, and then the normal cadence; the rest is told."""
    await desk.add(
        make_definition(every=every, catch_up=policy, overlap="allow", max_running=20, late_after=0.5)
    )
    await desk.finish(await desk.fired())
    clock.move(gap + every * 7 // 10)

    began = time.process_time()
    await desk.tick()

    assert time.process_time() - began < 2
    caught_up = (await desk.executed())[1:]
    assert len(caught_up) == runs
    following = (await desk.job()).next_fire_at
    assert following is not None
    assert 0 < following - clock.now() <= every
    assert sum(told.count for told in await desk.skips()) > 0


async def test_b10_a_paused_job_goes_on_after_many_slots(desk: Desk, clock: FakeClock) -> None:
    """B10: 150 slots under a pause are one row, and the next regular one runs."""
    await desk.add(make_definition(every=MINUTE))
    await desk.pause()
    clock.move(150 * MINUTE + SECOND)

    await desk.resume()

    assert await desk.skips() == [Told("paused", START + MINUTE, START + 150 * MINUTE, 150)]
    assert (await desk.fired()).fire_time == START + 151 * MINUTE


async def test_b12_an_early_or_unsteady_timer_fires_a_slot_once(desk: Desk, clock: FakeClock) -> None:
    """B12: 5 ms early nothing is due; afterwards, and after a step back, the next slot is a later one."""
    await desk.add(make_definition(cron="* * * * *"))
    slot = (await desk.job()).next_fire_at
    assert slot is not None
    clock.move(slot - clock.now() - 5 * MILLISECOND)
    assert await desk.tick() == []
    clock.move(505 * MILLISECOND)
    stale = plan_fire(await desk.job(), clock.now(), clock.run_id)
    assert stale is not None
    first = await desk.fired()
    clock.step(-20 * MILLISECOND - 500 * MILLISECOND)

    again = await desk.store.fire(desk.who, [stale])

    assert again[0].grants == ()
    assert await desk.tick() == []
    assert [run.id for run in await desk.executed()] == [first.id]
    assert (await desk.job(JobId(JOB))).next_fire_at == slot + MINUTE
