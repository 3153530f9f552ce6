"""Cron as the daemon uses it, against the corpus and at the edges of the calendar."""

import json
import pickle
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from scheduler.clock import DAY, HOUR, MINUTE, SECOND, from_micros, to_micros
from scheduler.errors import Invalid
from scheduler.model.cron import Cron

CASES = Path(__file__).parents[2] / "cases"


def _rows(name: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in (CASES / name).read_text(encoding="utf-8").splitlines()]


def _instant(text: str) -> int:
    return to_micros(datetime.fromisoformat(text))


def _next_times(cron: Cron, start: str, count: int) -> list[str]:
    """The next `count` fires after `start`, as RFC 3339 text with their offsets."""
    fire, found = _instant(start), []
    for _ in range(count):
        following = cron.next_fire(fire)
        assert following is not None
        fire = following
        found.append(from_micros(fire, ZoneInfo(cron.timezone)).isoformat())
    return found


@pytest.mark.parametrize("row", _rows("cron-public.jsonl"), ids=lambda row: row["id"])
def test_corpus_row_gives_the_same_instants_and_offsets(row: dict[str, object]) -> None:
    """Each row of the corpus gives its next fires, compared as instant and as offset."""
    cron = Cron(str(row["expr"]), str(row["tz"]))
    expected = row["next"]
    assert isinstance(expected, list)

    assert _next_times(cron, str(row["start"]), len(expected)) == expected


@pytest.mark.parametrize("row", _rows("cron-public.jsonl"), ids=lambda row: row["id"])
def test_corpus_row_read_backwards_gives_the_same_instants(row: dict[str, object]) -> None:
    """Each row's fires are also what `last_fire` finds, going back from the last of them."""
    cron = Cron(str(row["expr"]), str(row["tz"]))
    expected = [_instant(text) for text in row["next"]]  # type: ignore[attr-defined]  # a list of texts

    fire, found = expected[-1], []
    for _ in expected:
        last = cron.last_fire(fire)
        assert last is not None
        found.append(last)
        fire = last - 1

    assert found == expected[::-1]
    assert cron.count_fires(_instant(str(row["start"])), expected[-1]) == len(expected)


@pytest.mark.parametrize("row", _rows("cron-invalid-public.jsonl"), ids=lambda row: row["id"])
def test_corpus_row_that_is_no_expression_is_refused(row: dict[str, object]) -> None:
    """Each row of the second corpus is refused with a message that says what is wrong."""
    with pytest.raises(Invalid) as refused:
        Cron(str(row["expr"]))

    assert len(refused.value.message) < 400
    assert refused.value.faults


def test_next_fire_is_strictly_later_and_last_fire_may_be_now() -> None:
    """At a fire time itself, `next_fire` gives the one after it and `last_fire` gives it."""
    cron = Cron("30 4 * * *", "Europe/Berlin")
    fire = _instant("2026-06-01T04:30:00+02:00")

    assert cron.next_fire(fire) == fire + DAY
    assert cron.next_fire(fire - 1) == fire
    assert cron.last_fire(fire) == fire
    assert cron.last_fire(fire - 1) == fire - DAY


def test_skipped_fixed_time_fires_once_at_the_end_of_the_gap() -> None:
    """A fixed time that spring skips fires at 03:00 summer time, once."""
    cron = Cron("30 2 * * *", "Europe/Berlin")

    assert _next_times(cron, "2026-03-28T12:00:00+01:00", 2) == [
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:30:00+02:00",
    ]
    assert cron.last_fire(_instant("2026-03-29T03:00:00+02:00")) == _instant("2026-03-29T03:00:00+02:00")


def test_repeated_fixed_time_fires_in_the_first_pass_only() -> None:
    """A fixed time that autumn repeats fires once, and asking inside the second pass gives no more."""
    cron = Cron("30 2 * * *", "Europe/Berlin")

    assert _next_times(cron, "2026-10-24T12:00:00+02:00", 2) == [
        "2026-10-25T02:30:00+02:00",
        "2026-10-26T02:30:00+01:00",
    ]
    assert _next_times(cron, "2026-10-25T02:10:00+01:00", 1) == ["2026-10-26T02:30:00+01:00"]


def test_wildcard_job_keeps_its_spacing_through_both_changes() -> None:
    """Every half hour stays every half hour of real time, in spring and in autumn."""
    cron = Cron("*/30 * * * *", "Europe/Berlin")
    for start in ("2026-03-29T00:00:00+01:00", "2026-10-25T00:00:00+02:00"):
        fire = _instant(start)
        fires = [fire := cron.next_fire(fire) or 0 for _ in range(12)]

        assert {later - earlier for earlier, later in pairwise(fires)} == {30 * MINUTE}


def test_day_that_a_zone_skipped_runs_a_fixed_time_at_its_end() -> None:
    """Samoa had no 30 December 2011: a job of that day runs at the first minute of the 31st."""
    cron = Cron("0 12 30 12 *", "Pacific/Apia")

    assert _next_times(cron, "2011-12-01T00:00:00-10:00", 2) == [
        "2011-12-31T00:00:00+14:00",
        "2012-12-30T12:00:00+14:00",
    ]


def test_seconds_of_a_skipped_minute_are_added_to_the_catch_up_minute() -> None:
    """Six fields follow the clock-change rule by the minute, and keep their seconds."""
    cron = Cron("15,45 30 2 * * *", "Europe/Berlin")

    assert _next_times(cron, "2026-03-29T00:00:00+01:00", 3) == [
        "2026-03-29T03:00:15+02:00",
        "2026-03-29T03:00:45+02:00",
        "2026-03-30T02:30:15+02:00",
    ]
    assert cron.count_fires(_instant("2026-03-29T03:00:15+02:00"), _instant("2026-03-29T04:00:00+02:00")) == 1


@pytest.mark.parametrize(
    ("expression", "fixed"),
    [
        ("30 2 * * *", True),
        ("0-59 0-23 * * *", True),
        ("*/5 2 * * *", False),
        ("5 * * * *", False),
        ("@hourly", False),
        ("* 30 2 * * *", True),
        ("0 *,5 2 * * *", False),
    ],
)
def test_first_sign_of_minute_or_hour_makes_a_wildcard_job(expression: str, *, fixed: bool) -> None:
    """Only the first character of the minute and hour fields decides the clock-change rule."""
    assert Cron(expression).fixed_time is fixed


def test_per_second_job_is_counted_over_ten_years_without_walking() -> None:
    """Counting is exact up to the cap, and one more means more, however many fires there are."""
    cron = Cron("* * * * * *", "Europe/Berlin")
    start = _instant("2016-01-01T00:00:00+01:00")

    assert cron.count_fires(start, start + 3_652 * DAY) == 10_001
    assert cron.count_fires(start, start + 10_000 * SECOND) == 10_000
    assert cron.count_fires(start, start + 10_001 * SECOND) == 10_001
    assert cron.count_fires(start, start + HOUR, cap=5_000) == 3_600
    assert cron.count_fires(start, start) == 0
    assert cron.count_fires(start, start - DAY) == 0


def test_daily_job_is_counted_exactly_over_decades() -> None:
    """A day counts one fire, whatever the clocks did."""
    cron = Cron("30 2 * * *", "Europe/Berlin")
    start = _instant("2000-01-01T00:00:00+01:00")
    until = _instant("2020-01-01T00:00:00+01:00")

    assert cron.count_fires(start, until) == (datetime(2020, 1, 1) - datetime(2000, 1, 1)).days  # noqa: DTZ001


def test_rare_date_is_found_across_a_year_without_leap_day() -> None:
    """29 February on a Sunday is found from 2076 in 2104, over 2100."""
    cron = Cron("0 0 29 2 */7", "America/New_York")

    found = cron.next_fire(_instant("2088-03-01T00:00:00-05:00"))

    assert found is not None
    assert from_micros(found, ZoneInfo("America/New_York")).isoformat() == "2128-02-29T00:00:00-05:00"
    assert cron.last_fire(found - 1) == _instant("2088-02-29T00:00:00-05:00")


def test_calendar_ends_without_an_error() -> None:
    """Beyond the years that a calendar has there is no fire, and no exception."""
    cron = Cron("0 0 1 1 *", "Europe/Berlin")

    assert cron.next_fire(to_micros(datetime(9999, 6, 1, tzinfo=UTC))) is None
    assert cron.next_fire(10**24) is None
    assert cron.last_fire(-(10**24)) is None
    assert cron.next_fire(-(10**24)) is not None
    assert cron.last_fire(10**24) is not None
    assert Cron("* * * * *").last_fire(to_micros(datetime(1, 1, 1, tzinfo=UTC))) is None


def test_same_text_is_the_same_value_and_survives_a_pickle() -> None:
    """A cron trigger is a value: equal, hashable, and two words when it travels."""
    cron = Cron("30 4 * * *", "Europe/Berlin")

    assert cron == Cron("30 4 * * *", "Europe/Berlin")
    assert len({cron, Cron("30 4 * * *", "Europe/Berlin"), Cron("30 4 * * *")}) == 2
    copied = pickle.loads(pickle.dumps(cron))  # noqa: S301 - our own bytes
    assert copied == cron
    assert copied.next_fire(0) == cron.next_fire(0)


def test_unknown_zone_is_refused_with_one_that_is_near() -> None:
    """A zone name that does not exist is refused, and the message names what was meant."""
    with pytest.raises(Invalid, match=r"did you mean Europe/Berlin"):
        Cron("0 0 * * *", "Berlin")


def test_next_fire_at_a_century_distance_answers_quickly() -> None:
    """A search across eight years without a match skips the clock changes between."""
    cron = Cron("0 0 29 2 *", "Europe/Berlin")
    start = datetime(2097, 1, 1, tzinfo=UTC)

    found = cron.next_fire(to_micros(start))

    assert found is not None
    assert timedelta(days=2_550) < from_micros(found) - start < timedelta(days=2_650)


def test_first_pass_is_found_from_the_second_when_the_day_is_rare() -> None:
    """Looking back from a repeated hour, the first pass of a once-a-year job is not jumped."""
    cron = Cron("15 */2 2 11 *", "America/Havana")  # 2025-11-02 01:00 -> 00:00

    assert cron.last_fire(_instant("2025-11-02T00:05:00-05:00")) == _instant("2025-11-02T00:15:00-04:00")
    assert cron.next_fire(_instant("2025-11-02T00:15:00-04:00")) == _instant("2025-11-02T00:15:00-05:00")
