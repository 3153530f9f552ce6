"""The parts of the benchmarks that judge: statistics, the account of fire times, the search for a peak."""

from __future__ import annotations

import math

import pytest

from benchmarks.harness.account import SECOND, Account, Row, settle
from benchmarks.harness.figures import Step, around, middle, next_step, peak, ratio, share_below
from benchmarks.harness.overload import WATCHED, recovery
from benchmarks.harness.report import written
from benchmarks.harness.table import at_least, at_most, milliseconds, number, table, times, verdicts
from benchmarks.peers.meter import whole_passes


def ran(job: str, second: int) -> Row:
    return Row(job=job, first=second * SECOND, last=second * SECOND)


def skipped(job: str, first: int, last: int, count: int) -> Row:
    return Row(job=job, first=first * SECOND, last=last * SECOND, count=count, skipped=True)


def test_shares_are_nearest_ranks() -> None:
    """Of a hundred values the p99 is the last but one, and the p100 the last."""
    values = [float(value) for value in range(100, 0, -1)]

    assert [share_below(values, share) for share in (0.5, 0.99, 1.0)] == [50, 99, 100]
    assert (middle([3, 1, 2]), middle([4, 1, 2, 3])) == (2, 2.5)
    assert math.isnan(share_below([], 0.5))
    assert math.isnan(middle([]))
    assert math.isnan(ratio(1.0, 0.0))


def test_a_whole_history_is_in_order() -> None:
    """Each fire time up to a job's next one has a run, or lies in the span of a row that explains it."""
    rows = [ran("a", 1), ran("a", 2), ran("a", 3), ran("b", 1), skipped("b", 2, 3, 2)]

    assert settle(rows, {"a": 4 * SECOND, "b": 4 * SECOND}) == Account(ran=4, explained=2, lost=0, doubled=0)


@pytest.mark.parametrize(
    ("rows", "lost", "doubled"),
    [
        ([ran("a", 1), ran("a", 3)], 1, 0),
        ([ran("a", 1), ran("a", 2), ran("a", 2), ran("a", 3)], 0, 1),
        ([ran("a", 1), ran("a", 2), skipped("a", 2, 3, 2)], 0, 1),
        ([ran("a", 1), skipped("a", 2, 3, 1)], 1, 0),
        ([ran("a", 1), ran("a", 2), ran("a", 3), ran("b", 1)], 2, 0),
        ([ran("a", 1), ran("a", 2)], 1, 0),
    ],
    ids=["hole", "twice", "run and skip", "too few counted", "job that fell silent", "end missing"],
)
def test_what_is_lost_or_doubled_is_found(rows: list[Row], lost: int, doubled: int) -> None:
    """A fire time without a row is lost, one with two is doubled, and a row cannot hide one in its span."""
    next_fires = {row.job: 4 * SECOND for row in rows}

    account = settle(rows, next_fires)

    assert (account.lost, account.doubled) == (lost, doubled)


def test_a_job_without_any_row_is_lost_whole() -> None:
    """A job that never fired has lost every fire time since the first one of all."""
    assert settle([ran("a", 1)], {"a": 2 * SECOND, "b": 3 * SECOND}).lost == 2


def test_the_search_climbs_until_the_demand_is_not_met() -> None:
    """Steps far below the expected capacity are left out; what stores less than is due ends the search."""
    ladder = (1_000, 2_000, 4_000, 8_000)
    first, second = Step(jobs=1_000, rate=1_000), Step(jobs=4_000, rate=3_000)

    assert next_step(ladder, []) == 1_000
    assert next_step(ladder, [first]) == 2_000
    assert next_step(ladder, [first], expected=6_000) == 4_000
    assert next_step(ladder, [first], expected=90_000) == 8_000
    assert next_step(ladder, [first, second]) is None
    assert next_step(ladder, [Step(jobs=8_000, rate=8_000)]) is None
    assert peak([first, second]) == second
    assert around(ladder, first) == (1_000, 2_000)
    assert around(ladder, second) == (4_000,)


def test_passes_are_counted_whole() -> None:
    """A peer that stores in long passes is measured from the end of one to the end of another."""
    passes = [0.0] * 10 + [2.0] * 10 + [4.0] * 10

    assert whole_passes(passes, 1.0, 4.5) == (20, 4.0)
    assert whole_passes(passes, -1.0, 0.5) == (10, 1.5)
    assert whole_passes(passes, 4.5, 5.0) == (0, 0.5)


def test_an_overload_is_over_when_every_later_second_is_on_time() -> None:
    """One late second in the end, or one in which jobs are missing, is no recovery."""
    late = [(100.0 + second, 5.0 if second < 4 else 0.1) for second in range(1, WATCHED) for _ in range(10)]

    assert recovery(late, 100.0, 10) == 4
    assert recovery([*late, (100.0 + WATCHED - 1, 3.0)], 100.0, 10) == math.inf
    assert recovery([fire for fire in late if fire[0] != 107.0], 100.0, 10) == 8


def test_numbers_are_written_for_people() -> None:
    """Thousands are apart, ratios have the digits that they are worth, what is unknown is a dash."""
    assert (number(12345.6), number(0.518, 2), number(None), number(math.nan)) == ("12,346", "0.52", "–", "–")
    assert (milliseconds(0.0027), milliseconds(0.35)) == ("2.7", "350")
    assert (times(0.756), times(11.26), times(64.3), times(math.nan)) == ("0.76 ×", "11.3 ×", "64 ×", "–")
    assert table(["a", "b"], [["1|2", "3"]]) == "| a | b |\n| --- | --- |\n| 1\\|2 | 3 |"


def test_what_is_missed_is_told_first() -> None:
    """Targets that were missed stand before those that nobody could measure; those that were met are last."""
    met, missed = at_least("met", 2.0, 1.0, "2"), at_most("missed", 2.0, 1.0, "2")
    unknown = at_most("unknown", math.nan, 1.0, "–")

    lines = verdicts([met, unknown, missed]).splitlines()[2:]

    assert lines == ["| missed | 2 | **no** |", "| unknown | – | not measured |", "| met | 2 | yes |"]


def test_a_result_stands_between_its_marks() -> None:
    """Writing a result anew changes nothing else of the page; a page without marks is refused."""
    page = "before\n<!-- make bench: begin -->\nold\n<!-- make bench: end -->\nafter\n"

    once = written(page, "new", form="make bench")

    assert once == "before\n<!-- make bench: begin -->\n\nnew\n<!-- make bench: end -->\nafter\n"
    assert written(once, "new", form="make bench") == once
    with pytest.raises(ValueError, match="make bench-full: begin"):
        written(page, "new", form="make bench-full")
