"""The kinds of trigger, and the schedule laid over them."""

import json
import pickle
from datetime import date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from scheduler.clock import DAY, HOUR, MINUTE, SECOND, from_micros, to_micros
from scheduler.errors import Invalid
from scheduler.model.durations import parse_duration
from scheduler.model.triggers import (
    At,
    Cron,
    Delay,
    Every,
    Exclusions,
    Manual,
    Schedule,
    Trigger,
    parse_exclusions,
    resolve_local,
    smallest_gap,
)

CASES = Path(__file__).parents[2] / "cases"
BERLIN = "Europe/Berlin"


def _instant(text: str) -> int:
    return to_micros(datetime.fromisoformat(text))


def _local(text: str, zone: str = BERLIN) -> int:
    return resolve_local(datetime.fromisoformat(text), zone)


def _rows() -> list[dict[str, object]]:
    return [json.loads(line) for line in (CASES / "interval-public.jsonl").read_text().splitlines()]


def _corpus_schedule(written: dict[str, object]) -> Schedule:
    if written["type"] == "date":
        at = datetime.fromisoformat(str(written["at"]))
        return Schedule(At(to_micros(at) if at.tzinfo else resolve_local(at, str(written["tz"]))))
    seconds, start, end = written["seconds"], _instant(str(written["start"])), written.get("end")
    assert isinstance(seconds, int | float)
    return Schedule(
        Every(parse_duration(seconds), anchor=start),
        start_at=start,
        end_at=None if end is None else _instant(str(end)),
    )


@pytest.mark.parametrize("row", _rows(), ids=lambda row: row["id"])
def test_corpus_row_gives_the_same_instants_and_offsets(row: dict[str, object]) -> None:
    """Each interval and date of the corpus gives its next fires, and nothing after its end."""
    written, expected = row["trigger"], row["next"]
    assert isinstance(written, dict)
    assert isinstance(expected, list)
    schedule = _corpus_schedule(written)

    fire: int | None = _instant(str(row["after"]))
    found: list[str] = []
    while fire is not None and len(found) < max(len(expected), 1):
        fire = schedule.next_fire(fire)
        if fire is not None:
            found.append(from_micros(fire, ZoneInfo(str(row["tz"]))).isoformat())

    assert found == expected


def test_grid_does_not_depend_on_where_one_asks() -> None:
    """A grid goes on in both directions from its anchor, and is counted by division."""
    every = Every(15 * MINUTE)
    now = _instant("2026-03-01T10:07:00+00:00")

    assert every.next_fire(now) == _instant("2026-03-01T10:15:00+00:00")
    assert every.last_fire(now) == _instant("2026-03-01T10:00:00+00:00")
    assert every.last_fire(-1) == -15 * MINUTE
    assert every.count_fires(0, 10 * HOUR) == 40
    assert every.count_fires(now, now + 40 * 365 * DAY) == 10_001
    assert every.count_fires(now, now - HOUR) == 0


def test_delay_counts_from_the_instant_it_is_asked_about() -> None:
    """A delay fires once, one period later, and leaves nothing behind."""
    delay = Delay(10 * MINUTE)

    assert delay.next_fire(1_000) == 1_000 + 10 * MINUTE
    assert delay.last_fire(10**18) is None
    assert delay.count_fires(0, 10 * MINUTE) == 1
    assert delay.count_fires(0, 10 * MINUTE - 1) == 0


def test_at_fires_once_and_manual_never() -> None:
    """`at` is one instant, `manual` none."""
    at = At(5 * SECOND)

    assert (at.next_fire(5 * SECOND - 1), at.next_fire(5 * SECOND)) == (5 * SECOND, None)
    assert (at.last_fire(5 * SECOND), at.last_fire(5 * SECOND - 1)) == (5 * SECOND, None)
    assert (at.count_fires(0, 5 * SECOND), at.count_fires(5 * SECOND, 9 * SECOND)) == (1, 0)
    manual = Manual()
    assert (manual.next_fire(0), manual.last_fire(0), manual.count_fires(0, 10**18)) == (None, None, 0)


@pytest.mark.parametrize("period", [0, -SECOND, 999, 200 * 366 * DAY])
def test_period_out_of_bounds_is_refused(period: int) -> None:
    """A period of nothing, or of more than a hundred years, is no trigger."""
    with pytest.raises(Invalid):
        Every(period)
    with pytest.raises(Invalid):
        Delay(period)


@pytest.mark.parametrize(
    ("written", "resolved"),
    [
        ("2026-06-01T12:00:00.5", "2026-06-01T12:00:00.500000+02:00"),
        ("2026-03-29T02:30:00.5", "2026-03-29T03:00:00+02:00"),
        ("2026-10-25T02:30:00", "2026-10-25T02:30:00+02:00"),
        ("2026-10-25T03:00:00", "2026-10-25T03:00:00+01:00"),
        ("1969-07-20T20:17:40", "1969-07-20T20:17:40+01:00"),
    ],
)
def test_local_time_names_one_instant(written: str, resolved: str) -> None:
    """A local time in a gap means its end, a repeated one its first pass."""
    assert from_micros(_local(written), ZoneInfo(BERLIN)).isoformat() == resolved


def test_local_time_outside_the_calendar_is_refused() -> None:
    """A year that no clock can show is a fault, not an exception from below."""
    with pytest.raises(Invalid, match="out of range"):
        _local("9999-12-31T12:00:00")
    with pytest.raises(Invalid, match="out of range"):
        _local("0001-01-01T12:00:00")


def test_start_and_end_are_inclusive() -> None:
    """A fire at the start and one at the end happen, the ones outside do not."""
    noon = Cron("0 12 * * *", BERLIN)
    schedule = Schedule(noon, start_at=_local("2026-05-02T12:00"), end_at=_local("2026-05-04T12:00"))

    fires = []
    fire = schedule.next_fire(0)
    while fire is not None:
        fires.append(from_micros(fire, ZoneInfo(BERLIN)).day)
        fire = schedule.next_fire(fire)

    assert fires == [2, 3, 4]
    assert schedule.count_fires(0, 10**18) == 3
    assert schedule.last_fire(10**18) == _local("2026-05-04T12:00")
    assert schedule.last_fire(_local("2026-05-02T11:00")) is None
    assert Schedule(noon, start_at=5, end_at=5).next_fire(0) is None


def test_end_before_start_is_refused() -> None:
    """An end before the start is a slip, and told."""
    with pytest.raises(Invalid, match="before start_at"):
        Schedule(Every(SECOND), start_at=2, end_at=1)


def test_delay_waits_for_the_start() -> None:
    """A delay whose end lies before the start fires at the start."""
    schedule = Schedule(Delay(MINUTE), start_at=HOUR, end_at=2 * HOUR)

    assert schedule.next_fire(0) == HOUR
    assert schedule.next_fire(HOUR) == HOUR + MINUTE
    assert schedule.next_fire(2 * HOUR) is None
    assert schedule.count_fires(0, HOUR) == 1


def test_excluded_dates_are_whole_local_days() -> None:
    """A range takes out both its days and nothing else, by the job's zone."""
    exclusions = parse_exclusions(["2026-12-24..2026-12-26", "2026-12-31"], BERLIN)
    schedule = Schedule(Cron("0 */6 * * *", BERLIN), exclusions=exclusions)

    assert schedule.next_fire(_local("2026-12-23T18:00")) == _local("2026-12-27T00:00")
    assert schedule.last_fire(_local("2026-12-26T23:59:59")) == _local("2026-12-23T18:00")
    assert schedule.count_fires(_local("2026-12-23T12:00"), _local("2026-12-27T06:00")) == 3
    assert schedule.excluded_between(_local("2026-12-01T00:00"), _local("2027-01-31T00:00")) == 16


def test_excluded_expression_takes_out_what_it_matches() -> None:
    """`cron: * * * * sun` is all of Sunday, whatever the trigger's granularity."""
    exclusions = parse_exclusions(["cron: * * * * sun"], BERLIN)
    schedule = Schedule(Every(SECOND // 2), exclusions=exclusions)
    sunday, monday = _local("2026-06-07T00:00"), _local("2026-06-08T00:00")

    assert schedule.next_fire(sunday - 1) == monday
    assert schedule.last_fire(monday - 1) == sunday - SECOND // 2
    assert schedule.excluded_between(sunday - HOUR, monday + HOUR, cap=10**6) == 2 * 86_400
    assert schedule.count_fires(sunday - 2 * SECOND, monday + SECOND) == 3 + 3


def test_excluded_expression_with_seconds_takes_out_seconds() -> None:
    """Six fields exclude by the second."""
    schedule = Schedule(Cron("* * * * * *"), exclusions=parse_exclusions(["cron: 0-57 * * * * *"], "UTC"))

    assert schedule.next_fire(0) == 58 * SECOND
    assert schedule.next_fire(59 * SECOND) == 118 * SECOND
    assert schedule.last_fire(117 * SECOND) == 59 * SECOND
    assert schedule.count_fires(0, HOUR) == 120
    assert schedule.excluded_between(0, HOUR) == 58 * 60


def test_exclusion_of_the_repeated_hour_counts_in_both_passes() -> None:
    """An expression is read literally: both passes of 02:00-02:59 are excluded."""
    schedule = Schedule(
        Cron("*/30 * * * *", BERLIN), exclusions=parse_exclusions(["cron: * 2 * * *"], BERLIN)
    )

    assert schedule.next_fire(_local("2026-10-25T01:30")) == _local("2026-10-25T03:00")
    assert schedule.excluded_between(_local("2026-10-25T00:00"), _local("2026-10-26T00:00")) == 4


def test_exclusion_that_equals_the_trigger_on_some_days_is_jumped_by_days() -> None:
    """A pattern that swallows the trigger's times on most days is not walked fire by fire."""
    schedule = Schedule(
        Cron("*/5 * * * *", BERLIN), exclusions=parse_exclusions(["cron: */5 * * 1-11 *"], BERLIN)
    )

    assert schedule.next_fire(_local("2026-01-01T00:00")) == _local("2026-12-01T00:00")
    assert schedule.last_fire(_local("2026-11-30T00:00")) == _local("2025-12-31T23:55")


def test_expired_dates_cost_nothing() -> None:
    """Exclusions that lie in the past change nothing any more."""
    schedule = Schedule(Every(MINUTE), exclusions=parse_exclusions(["2020-01-01..2020-12-31"], BERLIN))
    now = _local("2026-01-01T00:00")

    assert schedule.next_fire(now) == now + MINUTE
    assert schedule.excluded_between(now, now + 365 * DAY) == 0
    assert schedule.count_fires(now, now + HOUR) == 60


@pytest.mark.parametrize(
    ("trigger", "entries"),
    [
        (Cron("0 9 * * 1-5", BERLIN), ["cron: * * * * *"]),
        (Cron("0 9 * * 1-5", BERLIN), ["cron: 0 9 * * *"]),
        (Cron("0 9 * * 1-5", BERLIN), ["cron: * * * * 1-3", "cron: * * * * 4,5"]),
        (Every(5 * MINUTE), ["cron: */5 * * * *"]),
        (Every(7 * MINUTE), ["cron: * * * * *"]),
        (At(1_750_000_000 * SECOND), ["2025-06-15"]),
    ],
)
def test_exclusions_that_leave_nothing_are_refused(trigger: Trigger, entries: list[str]) -> None:
    """A schedule of which the exclusions leave nothing is a fault, found without an endless search."""
    with pytest.raises(Invalid, match="leave no fire time"):
        Schedule(trigger, exclusions=parse_exclusions(entries, BERLIN))


def test_delay_that_would_end_in_an_exclusion_waits_for_its_end() -> None:
    """A delay is put off to the first free instant."""
    schedule = Schedule(Delay(HOUR), exclusions=parse_exclusions(["2026-12-24"], BERLIN))

    assert schedule.next_fire(_local("2026-12-23T23:30")) == _local("2026-12-25T00:00")
    assert schedule.next_fire(_local("2026-12-23T22:30")) == _local("2026-12-23T23:30")
    assert schedule.excluded_between(0, 10**18) == 0


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ("2026-13-01", "no such date"),
        ("2026-02-29", "no such date"),
        ("2026-12-26..2026-12-24", "write 2026-12-24..2026-12-26"),
        ("24.12.2026", "write a date"),
        ("cron: 0 0 * *", "4 found"),
        ("calendar: holidays", "add it to [calendars] in scheduler.toml (known calendars: works)"),
        ("٢٠٢٦-12-24", "write a date"),
    ],
)
def test_bad_exclusion_is_told(entry: str, told: str) -> None:
    """A fault in `except` says what to write."""
    with pytest.raises(Invalid) as refused:
        parse_exclusions([entry], BERLIN, {"works": ["2026-01-01"]})

    assert told in refused.value.message


def test_all_bad_exclusions_are_listed_at_once() -> None:
    """Each bad entry is a fault of its own."""
    with pytest.raises(Invalid) as refused:
        Exclusions(("x", "2026-01-01", "y"), BERLIN)

    assert [fault.key for fault in refused.value.faults] == ["except", "except"]


def test_calendar_stands_for_its_entries() -> None:
    """A named calendar is replaced by what the configuration has for it."""
    exclusions = parse_exclusions(["calendar: works", "2026-01-02"], BERLIN, {"works": ["2026-01-01"]})

    assert exclusions == Exclusions(("2026-01-01", "2026-01-02"), BERLIN)
    assert pickle.loads(pickle.dumps(exclusions)) == exclusions  # noqa: S301 - our own bytes


def test_jitter_is_stable_and_stays_inside_its_bounds() -> None:
    """The start of a slot is the same in every process, lies in [slot, slot + jitter], and uses all of it."""
    schedule = Schedule(Every(MINUTE), jitter=20 * SECOND, job_id="a")
    again = Schedule(Every(MINUTE), jitter=20 * SECOND, job_id="a")
    other = Schedule(Every(MINUTE), jitter=20 * SECOND, job_id="b")
    slots = [slot * MINUTE for slot in range(1_000)]

    shifts = [schedule.due_at(slot) - slot for slot in slots]

    assert shifts == [again.due_at(slot) - slot for slot in slots]
    assert shifts != [other.due_at(slot) - slot for slot in slots]
    assert min(shifts) >= 0
    assert max(shifts) <= 20 * SECOND
    tenths = [sum(k * 2 * SECOND <= shift < (k + 1) * 2 * SECOND for shift in shifts) for k in range(10)]
    assert all(60 < count < 150 for count in tenths)
    assert schedule.due_at(MINUTE) == 60_000_000 + shifts[1]


def test_jitter_of_a_known_slot_never_changes() -> None:
    """The number for a slot is part of the format: an upgrade must not roll another one."""
    schedule = Schedule(Every(MINUTE), jitter=20 * SECOND, job_id="nightly-export")

    assert schedule.due_at(1_780_000_020_000_000) == 1_780_000_025_922_340


def test_end_caps_the_jittered_start_and_keeps_the_slot() -> None:
    """A slot just before the end still starts, by the end at the latest."""
    schedule = Schedule(Every(MINUTE), end_at=10 * MINUTE + 5 * SECOND, jitter=50 * SECOND, job_id="a")

    assert schedule.last_fire(DAY) == 10 * MINUTE
    assert 10 * MINUTE <= schedule.due_at(10 * MINUTE) <= 10 * MINUTE + 5 * SECOND


@pytest.mark.parametrize(
    ("trigger", "jitter"),
    [
        (Every(MINUTE), MINUTE),
        (Delay(MINUTE), 2 * MINUTE),
        (Cron("*/5 * * * *"), 5 * MINUTE),
        (Cron("0,1 9 * * *", BERLIN), MINUTE),
        (Cron("0 9 * * 1-5", BERLIN), DAY),
        (Every(MINUTE), -1),
    ],
)
def test_jitter_not_smaller_than_the_period_is_refused(trigger: Trigger, jitter: int) -> None:
    """A jitter that could swap or merge two slots is a fault."""
    with pytest.raises(Invalid, match="jitter"):
        Schedule(trigger, jitter=jitter)


def test_jitter_smaller_than_the_period_is_accepted() -> None:
    """One microsecond less than the time between two fires is enough."""
    for trigger in (Every(MINUTE), Delay(MINUTE), Cron("*/5 * * * *"), At(0), Manual()):
        gap = smallest_gap(trigger)
        Schedule(trigger, jitter=(gap or HOUR) - 1)


def test_kind_of_a_schedule_is_that_of_its_trigger() -> None:
    """Each kind is one word."""
    triggers = (Cron("@daily"), Every(SECOND), Delay(SECOND), At(0), Manual())

    assert [Schedule(trigger).kind for trigger in triggers] == ["cron", "every", "delay", "at", "manual"]


def test_day_that_is_shown_twice_is_excluded_in_both_parts() -> None:
    """Where the clock goes back over midnight, an excluded date is excluded both times it is shown."""
    zone = "America/St_Johns"  # 2010-11-07 00:01 -> 2010-11-06 23:01
    schedule = Schedule(Every(MINUTE), exclusions=parse_exclusions(["2010-11-06"], zone))
    saturday = _local("2010-11-06T00:00", zone)
    fires = [saturday + minute * MINUTE for minute in range(27 * 60)]
    shown = [fire for fire in fires if from_micros(fire, ZoneInfo(zone)).date() == date(2010, 11, 6)]

    assert [fire for fire in fires if schedule.next_fire(fire - 1) != fire] == shown
    assert [fire for fire in fires if schedule.last_fire(fire) != fire] == shown
    assert schedule.excluded_between(saturday - DAY, saturday + 2 * DAY) == len(shown) == 25 * 60 - 1
    assert timedelta(microseconds=shown[-1] - shown[0]) == timedelta(hours=24, minutes=59)


def test_schedule_travels_as_a_value() -> None:
    """A schedule is equal to its copy, and the copy answers the same."""
    schedule = Schedule(
        Every(MINUTE), start_at=1, end_at=DAY, exclusions=parse_exclusions(["2026-12-24"], BERLIN), job_id="a"
    )

    copied = pickle.loads(pickle.dumps(schedule))  # noqa: S301 - our own bytes

    assert copied == schedule
    assert copied.next_fire(HOUR) == schedule.next_fire(HOUR) == HOUR + MINUTE


def test_absurd_instants_are_answered_with_nothing() -> None:
    """Instants that no calendar has give None or a bound, never an exception."""
    schedule = Schedule(
        Every(MINUTE), exclusions=parse_exclusions(["2026-12-24", "cron: * * * * sun"], BERLIN)
    )

    assert schedule.next_fire(10**24) is None
    assert schedule.last_fire(-(10**24)) is None
    assert schedule.next_fire(-(10**24)) is not None
    assert schedule.last_fire(10**24) is not None
    assert schedule.count_fires(-(10**24), 10**24) == 10_001


def test_ten_years_with_exclusions_are_counted_by_arithmetic() -> None:
    """What is left and what is taken out add up, over spans that nobody could walk."""
    exclusions = parse_exclusions(
        ["cron: * 9-17 * * 1-5", "cron: */7 * * * *", "2020-12-24..2020-12-26", "2020-12-26"], BERLIN
    )
    schedule = Schedule(Cron("* * * * * *", BERLIN), exclusions=exclusions)
    start, end = _local("2016-01-01T00:00"), _local("2026-01-01T00:00")

    left, out = schedule.count_fires(start, end, 10**10), schedule.excluded_between(start, end, 10**10)

    assert left + out == (end - start) // SECOND
    assert (schedule.count_fires(start, end), schedule.excluded_between(start, end)) == (10_001, 10_001)
