"""What a bad cron expression is told, and what a good one means."""

import pytest

from scheduler.errors import Invalid
from scheduler.model.cron_parse import ALIASES, parse_cron


def _bits(mask: int) -> set[int]:
    return {number for number in range(mask.bit_length()) if mask >> number & 1}


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("*", set(range(60))),
        ("7", {7}),
        ("007", {7}),
        ("1-5", {1, 2, 3, 4, 5}),
        ("5-5", {5}),
        ("*/20", {0, 20, 40}),
        ("50/4", {50, 54, 58}),
        ("10-20/5", {10, 15, 20}),
        ("5-5/2", {5}),
        ("*/90", {0}),
        ("1,3-4,*/30", {0, 1, 3, 4, 30}),
    ],
)
def test_field_means_its_values(text: str, values: set[int]) -> None:
    """Numbers, ranges, steps and lists name exactly the values of crontab(5)."""
    assert _bits(parse_cron(f"{text} * * * *").minutes) == values


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("0", {0}),
        ("7", {0}),
        ("*", set(range(7))),
        ("*/7", {0}),
        ("1/2", {0, 1, 3, 5}),
        ("5-7", {0, 5, 6}),
        ("0-7", set(range(7))),
        ("MON-Fri", {1, 2, 3, 4, 5}),
        ("sat,2", {2, 6}),
        ("sun-2", {0, 1, 2}),
    ],
)
def test_weekday_zero_and_seven_are_sunday(text: str, values: set[int]) -> None:
    """The weekday field runs over 0-7, both ends Sunday, and takes names in any case."""
    assert _bits(parse_cron(f"0 0 * * {text}").weekdays) == values


def test_extensions_are_read_apart_from_plain_values() -> None:
    """`L`, `LW`, `n#k` and `nL` are kept beside the plain values of their lists."""
    fields = parse_cron("0 0 l,LW,5 * 1#2,sun#5,7L,3")

    assert (fields.last_day, fields.last_workday, _bits(fields.days)) == (True, True, {5})
    assert fields.nth_weekdays == {(1, 2), (0, 5)}
    assert _bits(fields.last_weekdays) == {0}
    assert _bits(fields.weekdays) == {3}
    assert not fields.both_days


def test_star_at_the_start_of_a_day_field_makes_both_days_count() -> None:
    """Only a field that begins with `*` is unrestricted; `1-31` is not."""
    assert parse_cron("0 0 */2 * 1").both_days
    assert parse_cron("0 0 1 * *,5").both_days
    assert not parse_cron("0 0 1-31 * 5").both_days


def test_alias_stands_for_its_fields() -> None:
    """Each alias means what crontab(5) says, blanks round it or not."""
    for alias, fields in ALIASES.items():
        assert parse_cron(f" {alias}\t") == parse_cron(fields)


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("0 0 * * fri-sun", "write 5-7"),
        ("0 0 * * sat-sun", "write 6-7"),
        ("0 0 * * fri-mon", "write 5-7,1"),
        ("0 22-6 * * *", "write 22-23,0-6"),
        ("0 23-1 * * *", "write 23,0-1"),
        ("60 * * * *", "minute: 60 is out of range: write 0-59"),
        ("0 0 0 * *", "day-of-month: 0 is out of range: write 1-31"),
        ("0 0 * 0 *", "month: 0 is out of range: write 1-12"),
        ("0 0 12 ? * MON", "write *"),
        ("0~30 * * * *", "jitter"),
        ("H/15 * * * *", "Jenkins"),
        ("0 0 15W * *", "only LW"),
        ("0 0 * * 5#6", "5#3 for the third Friday"),
        ("0 0 30 2 *", "never fire"),
        ("0 0 * * mon-", "a value is missing"),
        ("*/0 * * * *", "step of 0"),
        ("* * *", "3 found, five are needed"),
        ("@Daily", "write @daily, in lower case"),
        ("@reboot", "manual = true"),
        ("@every 5m", 'every = "5m"'),
        ("0 0 * * monday", "three letters"),
        ("0 0 jan * *", "names belong to the month and day-of-week fields"),
    ],
)
def test_fault_is_told_with_what_to_write(expression: str, told: str) -> None:
    """A refusal names the field, what is wrong in it, and what to write instead."""
    with pytest.raises(Invalid) as refused:
        parse_cron(expression)

    assert told in refused.value.message


def test_thousand_digits_are_refused_before_they_are_a_number() -> None:
    """Length is judged first, and a long number within it is only out of range."""
    with pytest.raises(Invalid, match="longer than 1000"):
        parse_cron("9" * 5_000 + " * * * *")
    with pytest.raises(Invalid, match="out of range"):
        parse_cron("9" * 900 + " * * * *")


@pytest.mark.parametrize("expression", ["0 0 30 2 1", "0 0 31 4 5L", "0 0 29 2 1#5", "0 0 29 2 */7"])
def test_date_that_some_year_has_is_accepted(expression: str) -> None:
    """A date that is rare, or one that the weekday rescues, is no fault."""
    parse_cron(expression)
