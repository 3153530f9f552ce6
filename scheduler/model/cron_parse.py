"""Reads a cron expression into bit masks, and says what is wrong with one that cannot be read.

The dialect is Debian cron's as crontab(5) describes it, with an optional leading field of seconds and the
extensions `L`, `LW`, `n#k` and `nL`. Only ASCII is read, only space and tab separate, and a date that no
calendar has (30 February) is refused here, so that what was read can fire. When it fires is the business
of `cron_wall` (wall clock) and `cron` (real time).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NoReturn

from scheduler.errors import Fault, Invalid

# Debian's cron reads at most 1000 characters (MAX_TEMPSTR, MAX_COMMAND); a sensible expression has < 600.
MAX_LENGTH: Final = 1000

ALIASES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

_MONTH_NAMES: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAY_NAMES: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MONTH_LENGTHS: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_OTHER_DIALECTS: Final = {
    "?": "? belongs to Quartz: write *",
    "~": "~ (a random value) is not supported: write a number, and use jitter to spread load",
    "H": "H belongs to Jenkins: write a number, and use jitter to spread load",
    "R": "R belongs to other schedulers: write a number, and use jitter to spread load",
    "W": "W (nearest weekday) is not supported: only LW, the last weekday of the month, is",
}


@dataclass(frozen=True, slots=True)
class Field:
    """The range and the names of one field."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    names_from: int = 0


SECOND: Final = Field("second", 0, 59)
MINUTE: Final = Field("minute", 0, 59)
HOUR: Final = Field("hour", 0, 23)
DAY: Final = Field("day-of-month", 1, 31)
MONTH: Final = Field("month", 1, 12, _MONTH_NAMES, 1)
WEEKDAY: Final = Field("day-of-week", 0, 7, _DAY_NAMES, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CronFields:
    """What an expression says, as sets of bits: bit n stands for the value n.

    Attributes:
        seconds: 0-59; only bit 0 in a five-field expression.
        minutes: 0-59.
        hours: 0-23.
        days: days of the month, 1-31.
        months: 1-12.
        weekdays: 0-6, Sunday is 0.
        last_day: `L`, the last day of the month.
        last_workday: `LW`, the last Monday-to-Friday day of the month.
        nth_weekdays: (weekday, k) pairs of `n#k`.
        last_weekdays: bits of `nL`, the last such weekday of the month.
        both_days: day-of-month or day-of-week begins with `*`, so both must match; else either may.
        fixed_time: neither minute nor hour begins with `*`: the clock-change rule for fixed times holds.
        has_seconds: six fields were written.
    """

    seconds: int
    minutes: int
    hours: int
    days: int
    months: int
    weekdays: int
    last_day: bool
    last_workday: bool
    nth_weekdays: frozenset[tuple[int, int]]
    last_weekdays: int
    both_days: bool
    fixed_time: bool
    has_seconds: bool

    def day_mask(self, first_weekday: int, length: int) -> int:
        """The matching days (bits 1-31) of a month whose first day is `first_weekday` (0 = Sunday)."""
        everything = (1 << (length + 1)) - 2
        by_date = (self.days | self._last_days(first_weekday, length)) & everything
        by_weekday = self._weekday_mask(first_weekday, length)
        return by_date & by_weekday if self.both_days else by_date | by_weekday

    def _last_days(self, first_weekday: int, length: int) -> int:
        mask = 1 << length if self.last_day else 0
        if self.last_workday:
            weekday = (first_weekday + length - 1) % 7
            mask |= 1 << (length - {0: 2, 6: 1}.get(weekday, 0))
        return mask

    def _weekday_mask(self, first_weekday: int, length: int) -> int:
        mask = 0
        for day in range(1, length + 1):
            weekday = (first_weekday + day - 1) % 7
            if (
                self.weekdays >> weekday & 1
                or (self.last_weekdays >> weekday & 1 and day + 7 > length)
                or (weekday, (day + 6) // 7) in self.nth_weekdays
            ):
                mask |= 1 << day
        return mask


class BadField(Exception):
    """One field cannot be read; `field` names it and the text says why (translated before it leaves here)."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(why)
        self.field = field
        self.why = why


class FieldValues:
    """Collects what the elements of one field name."""

    def __init__(self) -> None:
        self.bits = 0
        self.last_day = False
        self.last_workday = False
        self.nth_weekdays: set[tuple[int, int]] = set()
        self.last_weekdays = 0


def parse_cron(expression: str) -> CronFields:
    """The fields of a cron expression that can fire.

    Raises:
        Invalid: it cannot be read or can never fire; the message names the field and says what to write.
    """
    try:
        return parse_fields(split_expression(expression))
    except BadField as bad:
        shown = expression if len(expression) <= 100 else expression[:97] + "..."
        message = f"bad cron expression {shown!r}: {bad.field}: {bad.why}"
        raise Invalid(message, faults=[Fault(message=message, key="cron")]) from bad


def split_expression(expression: str) -> list[str]:
    """The five or six fields of an expression, an alias replaced by what it stands for."""
    if len(expression) > MAX_LENGTH:
        raise BadField("expression", f"longer than {MAX_LENGTH} characters")
    if not expression.isascii():
        raise BadField("expression", "only ASCII letters, digits and signs are read")
    if any(char != "\t" and not " " <= char <= "~" for char in expression):
        raise BadField("expression", "control character inside: only space and tab separate fields")
    stripped = expression.strip(" \t")
    if stripped.startswith("@"):
        if stripped in ALIASES:
            return ALIASES[stripped].split()
        raise BadField("alias", _alias_help(stripped))
    fields = stripped.split()
    if len(fields) not in (5, 6):
        raise BadField(
            "fields",
            f"{len(fields)} found, five are needed (minute hour day-of-month month day-of-week)"
            " or six with leading seconds",
        )
    return fields


def parse_fields(fields: list[str]) -> CronFields:
    """The bits of five or six fields that can fire; raises `BadField`."""
    has_seconds = len(fields) == 6
    second, minute, hour, day, month, weekday = fields if has_seconds else ["0", *fields]
    days, weekdays = read_field(DAY, day), read_field(WEEKDAY, weekday)
    parsed = CronFields(
        seconds=read_field(SECOND, second).bits,
        minutes=read_field(MINUTE, minute).bits,
        hours=read_field(HOUR, hour).bits,
        days=days.bits,
        months=read_field(MONTH, month).bits,
        weekdays=(weekdays.bits | weekdays.bits >> 7) & 0b111_1111,
        last_day=days.last_day,
        last_workday=days.last_workday,
        nth_weekdays=frozenset(weekdays.nth_weekdays),
        last_weekdays=weekdays.last_weekdays,
        both_days=day.startswith("*") or weekday.startswith("*"),
        fixed_time=not minute.startswith("*") and not hour.startswith("*"),
        has_seconds=has_seconds,
    )
    if not _can_fire(parsed):
        raise BadField("date", "no calendar has such a date, so it would never fire: check day and month")
    return parsed


def _can_fire(fields: CronFields) -> bool:
    """Some day matches: every weekday can begin a month of every length, so all 28 pairs are tried."""
    lengths = {_MONTH_LENGTHS[month - 1] for month in range(1, 13) if fields.months >> month & 1}
    if 29 in lengths:
        lengths.add(28)
    return any(fields.day_mask(weekday, length) for length in lengths for weekday in range(7))


def read_field(field: Field, text: str) -> FieldValues:
    """What the comma list `text` names; raises `BadField`."""
    values = FieldValues()
    for element in text.split(","):
        _read_element(field, element, values)
    return values


def _read_element(field: Field, element: str, values: FieldValues) -> None:
    if not element:
        _refuse(field, "an element of a list is missing: check the commas")
    upper = element.upper()
    if field is DAY and upper == "L":
        values.last_day = True
    elif field is DAY and upper == "LW":
        values.last_workday = True
    elif field is WEEKDAY and "#" in element:
        values.nth_weekdays.add(_nth(field, element))
    elif field is WEEKDAY and upper.endswith("L") and upper[:-1].isdigit():
        values.last_weekdays |= 1 << _value(field, element[:-1]) % 7
    else:
        values.bits |= _bits(field, element)


def _nth(field: Field, element: str) -> tuple[int, int]:
    weekday, _, nth = element.partition("#")
    if nth not in ("1", "2", "3", "4", "5"):
        _refuse(field, f"{element!r}: write one weekday, # and 1 to 5, for example 5#3 for the third Friday")
    return _value(field, weekday) % 7, int(nth)


def _bits(field: Field, element: str) -> int:
    """The bits of `*`, `n`, `a-b`, each with an optional `/step`; `n/step` is `n-max/step`."""
    span, slash, step_text = element.partition("/")
    low_text, dash, high_text = span.partition("-")
    if span == "*":
        low, high = field.low, field.high
    elif dash:
        low, high = _value(field, low_text), _value(field, high_text)
    else:
        low = _value(field, span)
        high = field.high if slash else low
    if low > high:
        _refuse(field, f"the range {span!r} runs backwards: {_forwards(field, low, high)}")
    step = _step(field, step_text) if slash else 1
    return sum(1 << value for value in range(low, high + 1, step))


def _value(field: Field, text: str) -> int:
    """One number or name of the field."""
    if not text:
        _refuse(field, "a value is missing")
    if not text.isdigit():
        if text.lower() in field.names:
            return field.names.index(text.lower()) + field.names_from
        _refuse(field, f"{text!r} is not a value: {_value_help(field, text)}")
    value = int(text)
    if not field.low <= value <= field.high:
        _refuse(field, f"{_short(text)} is out of range: write {field.low}-{field.high}")
    return value


def _step(field: Field, text: str) -> int:
    if not text.isdigit():
        _refuse(field, f"the step {_short(text)!r} is not a plain number: write for example */5")
    # Leading zeros mean nothing; a step beyond the range leaves the first value only.
    step = int(text)
    if step == 0:
        _refuse(field, "a step of 0 would never advance: write 1 or more")
    return step


def _refuse(field: Field, why: str) -> NoReturn:
    raise BadField(field.name, why)


def _forwards(field: Field, low: int, high: int) -> str:
    """What to write instead of a range that runs backwards: the same, going round the end of the field."""
    if field is WEEKDAY:
        # 7 is Sunday too, so a range may end there; what lies beyond Sunday comes after a comma.
        return f"write {low}-7" + (f",{_span(1, high)}" if high else "")
    return f"write {_span(low, field.high)},{_span(field.low, high)}"


def _span(low: int, high: int) -> str:
    return str(low) if low == high else f"{low}-{high}"


def _value_help(field: Field, text: str) -> str:
    upper = text.upper()
    for sign, why in _OTHER_DIALECTS.items():
        if (sign in upper and not upper.isalpha()) or sign == upper:
            return why
    if ("L" in upper and not upper.isalpha()) or upper == "L":
        return "L stands alone in day-of-month (L, LW) and after one weekday number in day-of-week (5L)"
    if upper[:1].isalpha() and field.names:
        return f"names are {field.names[0]}, {field.names[1]} ... {field.names[-1]}, three letters"
    if upper[:3].lower() in _MONTH_NAMES + _DAY_NAMES:
        return "names belong to the month and day-of-week fields"
    return f"write a number {field.low}-{field.high}, a range, a list, or *"


def _alias_help(alias: str) -> str:
    if alias.lower() in ALIASES:
        return f"write {alias.lower()}, in lower case"
    if alias == "@reboot":
        return "@reboot has no time of day: write manual = true, and start it at boot with `schedctl run`"
    if alias.startswith("@every"):
        return 'for a fixed interval write every = "5m" instead of cron'
    return f"{_short(alias)!r} is not known: write one of {' '.join(ALIASES)}, alone"


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."
