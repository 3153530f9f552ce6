"""What holds for every trigger, with a brute-force cron matcher as the witness."""

import re
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo

from cronsim import CronSim
from hypothesis import HealthCheck, assume, example, given, reject, settings
from hypothesis import strategies as st

from scheduler.clock import DAY, HOUR, MINUTE, SECOND, from_micros, to_micros
from scheduler.errors import Invalid
from scheduler.model.triggers import At, Cron, Every, Exclusions, Manual, Schedule, Trigger, parse_exclusions

# Zones with whole-hour and half-hour changes, changes at midnight, two a year, one ever, and none.
ZONES = [
    "UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Havana", "America/Sao_Paulo",
    "Asia/Beirut", "Africa/Casablanca", "Africa/Cairo", "Antarctica/Troll", "Asia/Pyongyang", "Asia/Tehran",
    "America/Caracas", "Pacific/Apia", "Pacific/Chatham", "America/St_Johns", "Asia/Kathmandu",
    "Europe/Volgograd", "Asia/Almaty",
]  # fmt: skip
FIRST, LAST = datetime(2009, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)

DAYS = {name: number for number, name in enumerate(["sun", "mon", "tue", "wed", "thu", "fri", "sat"])}


@cache
def changes(zone: str) -> tuple[int, ...]:
    """The hours (UTC) in which the zone's offset changes, found hour by hour."""
    info, hours = ZoneInfo(zone), int((LAST - FIRST) / timedelta(hours=1))
    offsets = [(FIRST + timedelta(hours=hour)).astimezone(info).utcoffset() for hour in range(hours)]
    return tuple(
        to_micros(FIRST) + hour * HOUR for hour in range(1, hours) if offsets[hour] != offsets[hour - 1]
    )


def values(text: str, low: int, high: int, names: dict[str, int]) -> set[int]:
    """The values of one field without L and #, read the slow way."""
    found: set[int] = set()
    for element in text.split(","):
        span, _, step = element.partition("/")
        first, dash, last = (str(names.get(part.lower(), part)) for part in span.partition("-"))
        begin = low if first == "*" else int(first)
        end = high if first == "*" or (step and not dash) else int(last) if dash else begin
        found |= {value for value in range(begin, end + 1) if (value - begin) % int(step or 1) == 0}
    return found


def matches_day(day: datetime, dom: str, month: str, dow: str) -> bool:
    """crontab(5) on one date, read the slow way."""
    if day.month not in values(month, 1, 12, {}):
        return False
    next_month = (day.replace(day=28) + timedelta(days=4)).replace(day=1)
    workdays = [before for n in range(1, 4) if (before := next_month - timedelta(days=n)).isoweekday() <= 5]
    by_date = any(
        day == next_month - timedelta(days=1)
        if part == "L"
        else day == workdays[0]
        if part == "LW"
        else day.day in values(part, 1, 31, {})
        for part in dom.split(",")
    )
    weekday = day.isoweekday() % 7
    by_weekday = False
    for part in dow.split(","):
        if "#" in part:
            name, _, nth = part.partition("#")
            by_weekday |= weekday == DAYS.get(name, name) and (day.day - 1) // 7 + 1 == int(nth)
        elif part.endswith("L"):
            by_weekday |= weekday == int(part[0]) % 7 and (day + timedelta(days=7)).month != day.month
        else:
            by_weekday |= weekday in {value % 7 for value in values(part, 0, 7, DAYS)}
    if dom.startswith("*") or dow.startswith("*"):
        return by_date and by_weekday
    return by_date or by_weekday


def brute_fires(expression: str, zone: str, begin: int, end: int) -> list[int]:
    """Every fire in [begin, end), by looking at the wall clock minute by minute as real time passes."""
    second, minute, hour, dom, month, dow = expression.split()
    seconds = sorted(values(second, 0, 59, {}))
    minutes, hours = values(minute, 0, 59, {}), values(hour, 0, 23, {})
    fixed = not minute.startswith("*") and not hour.startswith("*")
    info, fires = ZoneInfo(zone), []

    @cache
    def on_day(day: datetime) -> bool:
        return matches_day(day, dom, month, dow)

    def shown(wall: datetime) -> bool:
        return wall.minute in minutes and wall.hour in hours and on_day(wall.replace(hour=0, minute=0))

    # Two days before `begin`, so that what the clock has shown already is known.
    instant = begin - 2 * DAY
    seen = from_micros(instant, info).replace(tzinfo=None, fold=0) - timedelta(minutes=1)
    while instant < end:
        wall = from_micros(instant, info).replace(tzinfo=None, fold=0)
        if not fixed:
            fires += [instant] * shown(wall)
        elif wall > seen:
            skipped = int((wall - seen) / timedelta(minutes=1))
            fires += [instant] * any(shown(seen + timedelta(minutes=n)) for n in range(1, skipped + 1))
        seen = max(seen, wall)
        instant += MINUTE
    return [fire + s * SECOND for fire in fires for s in seconds if fire >= begin]


def all_fires(trigger: Trigger | Schedule, after: int, until: int) -> list[int]:
    """The fires in (after, until], one by one."""
    fires: list[int] = []
    fire = trigger.next_fire(after)
    while fire is not None and fire <= until:
        fires.append(fire)
        fire = trigger.next_fire(fire)
    return fires


def numbers(low: int, high: int) -> st.SearchStrategy[str]:
    """One field: a star, a number, a range, a step, or a list of them."""
    number = st.integers(low, high)
    spans = st.tuples(number, number).map(sorted)
    steps = st.integers(1, high)
    element = st.one_of(
        number.map(str),
        spans.map(lambda span: f"{span[0]}-{span[1]}"),
        st.tuples(spans, steps).map(lambda pair: f"{pair[0][0]}-{pair[0][1]}/{pair[1]}"),
        st.tuples(number, steps).map(lambda pair: f"{pair[0]}/{pair[1]}"),
        steps.map(lambda step: f"*/{step}"),
    )
    return st.one_of(st.just("*"), element, st.lists(element, min_size=2, max_size=3).map(",".join))


def mostly(common: str, other: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """A field that is usually left open, so that most expressions fire inside a few days."""
    return st.one_of(st.just(common), st.just(common), st.just(common), other)


SIX_FIELDS = st.tuples(
    st.sampled_from(["0", "0", "0", "30", "15,45", "*/20"]),
    numbers(0, 59),
    st.one_of(numbers(0, 23), numbers(0, 4)),
    mostly("*", st.one_of(numbers(1, 31), st.just("L"), st.just("15,L"), st.just("LW"))),
    mostly("*", numbers(1, 12)),
    mostly("*", st.one_of(numbers(0, 7), st.sampled_from(["mon-fri", "sat,0", "5L", "1#2", "sun#1,3"]))),
).map(" ".join)


@st.composite
def crons(draw: st.DrawFn) -> Cron:
    """A cron trigger that can fire, in some zone."""
    try:
        return Cron(draw(SIX_FIELDS), draw(st.sampled_from(ZONES)))
    except Invalid:
        return reject()


@st.composite
def spans_near_a_change(draw: st.DrawFn, zone: str) -> tuple[int, int]:
    """A few days in which, where the zone has any, a change of offset lies."""
    anywhere = st.integers(to_micros(FIRST), to_micros(LAST))
    near = st.sampled_from(changes(zone)) if changes(zone) else anywhere
    middle = draw(st.one_of(near, near, near, anywhere)) // MINUTE * MINUTE
    return middle - draw(st.integers(0, 36 * 60)) * MINUTE, middle + draw(st.integers(1, 36 * 60)) * MINUTE


SLOW = settings(
    deadline=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)


@SLOW
@given(st.data())
def test_cron_agrees_with_a_matcher_that_looks_at_every_minute(data: st.DataObject) -> None:
    """Forward, backward and counted, the fires are those of the brute-force matcher."""
    cron = data.draw(crons())
    begin, end = data.draw(spans_near_a_change(cron.timezone))
    expected = brute_fires(cron.expression, cron.timezone, begin, end)

    assert all_fires(cron, begin - 1, end - 1) == expected
    assert cron.count_fires(begin - 1, end - 1, cap=10**6) == len(expected)
    backwards = []
    fire = cron.last_fire(end - 1)
    while fire is not None and fire >= begin:
        backwards.append(fire)
        fire = cron.last_fire(fire - 1)
    assert backwards == expected[::-1]


@SLOW
@given(SIX_FIELDS, st.integers(to_micros(FIRST), to_micros(LAST)))
def test_cron_agrees_with_another_implementation_where_no_clock_changes(expression: str, start: int) -> None:
    """In UTC, rare dates included, the next five fires are those of cronsim."""
    # There `5-5/2` means `5/2`; with us, as in Debian's cron, it means 5.
    assume(not re.search(r"\b(\d+)-\1/", expression))
    try:
        cron, other = Cron(expression), CronSim(expression, from_micros(start))
    except Invalid:
        reject()

    fire = start
    for _ in range(5):
        following = cron.next_fire(fire)
        assert following == to_micros(next(other))
        fire = following


def triggers() -> st.SearchStrategy[Trigger]:
    """Any trigger that has fires of its own."""
    instants = st.integers(to_micros(FIRST), to_micros(LAST))
    every = st.builds(Every, st.integers(1_000, 40 * DAY), st.integers(-DAY, DAY))
    return st.one_of(crons(), every, st.builds(At, instants), st.just(Manual()))


@SLOW
@given(triggers(), st.integers(to_micros(FIRST), to_micros(LAST)))
def test_next_and_last_fire_are_inverse(trigger: Trigger, instant: int) -> None:
    """The next fire is strictly later, is its own last fire, and nothing lies between it and the last."""
    following, before = trigger.next_fire(instant), trigger.last_fire(instant)

    assert trigger.next_fire(instant) == following
    if following is not None:
        assert following > instant
        assert trigger.last_fire(following) == following
        assert trigger.last_fire(following - 1) == before
        assert trigger.count_fires(instant, following) == 1
        assert trigger.count_fires(instant, following - 1) == 0
    if before is not None:
        assert before <= instant
        assert trigger.next_fire(before) == following
        assert trigger.next_fire(before - 1) == before


@SLOW
@given(crons(), st.data())
def test_fires_do_not_depend_on_where_one_starts_asking(cron: Cron, data: st.DataObject) -> None:
    """The fires after a later start are the tail of those after an earlier one."""
    begin, end = data.draw(spans_near_a_change(cron.timezone))
    assume(cron.count_fires(begin, end) < 2_000)
    fires = all_fires(cron, begin, end)
    later = data.draw(st.integers(begin, end))

    assert all_fires(cron, later, end) == [fire for fire in fires if fire > later]
    assert cron.count_fires(later, end) == len([fire for fire in fires if fire > later])
    assert all(earlier < fire for earlier, fire in pairwise(fires))


ENTRIES = st.lists(
    st.one_of(
        st.sampled_from(
            [
                "cron: * * * * sun",
                "cron: * 2 * * *",
                "cron: 0-29 * * * *",
                "cron: */7 9-17 * * 1-5",
                "cron: 30 * * * * *",
            ]
        ),
        st.integers(0, 5).map(lambda days: f"+{days}"),
        st.tuples(st.integers(0, 3), st.integers(0, 3)).map(lambda days: f"+{days[0]}..+{sum(days)}"),
    ),
    min_size=1,
    max_size=4,
)


def entry_holds(entry: str, fire: int, zone: str) -> bool:
    """The entry excludes the instant, by its wall time, read the slow way."""
    wall = from_micros(fire, ZoneInfo(zone))
    if not entry.startswith("cron: "):
        first, _, last = entry.partition("..")
        return first <= wall.date().isoformat() <= (last or first)
    fields = entry.removeprefix("cron: ").split()
    second, minute, hour, dom, month, dow = ["*", *fields] if len(fields) == 5 else fields
    day = wall.replace(tzinfo=None, fold=0, hour=0, minute=0, second=0, microsecond=0)
    return (
        wall.second in values(second, 0, 59, {})
        and wall.minute in values(minute, 0, 59, {})
        and wall.hour in values(hour, 0, 23, {})
        and matches_day(day, dom, month, dow)
    )


def schedule_or_none(trigger: Trigger, exclusions: Exclusions, end: int) -> Schedule | None:
    """The schedule, or None where the exclusions leave nothing of the trigger."""
    try:
        return Schedule(trigger, exclusions=exclusions, end_at=end)
    except Invalid:
        return None


@SLOW
@given(st.one_of(crons(), st.builds(Every, st.integers(5 * MINUTE, DAY))), ENTRIES, st.data())
def test_schedule_fires_what_its_exclusions_leave(
    trigger: Cron | Every, entries: list[str], data: st.DataObject
) -> None:
    """Forward, backward and counted, a schedule is its trigger without the excluded wall times."""
    zone = trigger.timezone if isinstance(trigger, Cron) else data.draw(st.sampled_from(ZONES))
    begin, end = data.draw(spans_near_a_change(zone))
    assume(trigger.count_fires(begin, end) < 1_000)
    today = from_micros(begin, ZoneInfo(zone)).date()
    written = [
        re.sub(r"\+(\d)", lambda days: (today + timedelta(days=int(days[1]))).isoformat(), entry)
        for entry in entries
    ]
    schedule = schedule_or_none(trigger, parse_exclusions(written, zone), end)
    assume(schedule is not None)
    assert schedule is not None
    raw = all_fires(trigger, begin, end)
    left = [fire for fire in raw if not any(entry_holds(entry, fire, zone) for entry in written)]

    assert all_fires(schedule, begin, end) == left
    assert schedule.count_fires(begin, end) == len(left)
    assert schedule.excluded_between(begin, end) == len(raw) - len(left)
    for fire in raw:
        expected = max((other for other in left if other <= fire), default=None)
        last = schedule.last_fire(fire)
        assert last == expected or (expected is None and (last is None or last <= begin))


@given(st.integers(1, DAY), st.integers(0, 10**18), st.text(max_size=10))
@example(1, 0, "")
def test_jittered_start_lies_inside_its_slot(jitter: int, slot: int, job_id: str) -> None:
    """The start is never before the slot and never more than the jitter after it."""
    schedule = Schedule(Every(DAY + 1), jitter=jitter, job_id=job_id)

    assert slot <= schedule.due_at(slot) <= slot + jitter
