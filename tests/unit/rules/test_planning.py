from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.clock import DAY, HOUR, MINUTE, SECOND, Micros
from scheduler.model.cron import Cron
from scheduler.model.jobs import Job, JobStatus, Origin
from scheduler.model.runs import RunId, RunTrigger, SkipReason
from scheduler.model.triggers import Every, Schedule
from scheduler.rules.planning import COUNT_CAP, FirePlan, SkippedSpan, missed_span, plan_fire
from tests.support.builders import make_definition
from tests.support.clock import START


def job(*, last_fire_at: Micros | None = None, next_fire_at: Micros | None = None, **keys: Any) -> Job:
    """An active job whose next slot is the first one after START."""
    definition = make_definition(**keys)
    slot = definition.schedule.next_fire(START) if next_fire_at is None else next_fire_at
    return Job(
        id=definition.id,
        definition=definition,
        status=JobStatus.ACTIVE,
        enabled=True,
        revision=7,
        definition_revision=7,
        added_revision=7,
        origin=Origin.FILE,
        last_fire_at=last_fire_at,
        next_fire_at=slot,
        due_at=None if slot is None else definition.schedule.due_at(slot),
    )


def plan(of: Job, now: Micros) -> FirePlan:
    numbers = count(1)
    planned = plan_fire(of, now, lambda: RunId(f"run-{next(numbers)}"))
    assert planned is not None
    return planned


def wanted(planned: FirePlan) -> list[int]:
    """Fire times to run, in minutes after START."""
    return [(slot.fire_time - START) // MINUTE for slot in planned.slots]


def told(planned: FirePlan) -> list[tuple[str, int, int, int]]:
    """Skipped spans, first and last in minutes after START."""
    return [
        (span.reason.value, (span.first - START) // MINUTE, (span.last - START) // MINUTE, span.count)
        for span in planned.spans
    ]


def test_what_is_due_on_time_runs() -> None:
    """A single due slot gives one run, and the next slot after it."""
    planned = plan(job(), START + MINUTE)

    assert wanted(planned) == [1]
    assert planned.spans == ()
    assert (planned.seen_fire_at, planned.seen_revision) == (START + MINUTE, 7)
    assert planned.last_fire_at == START + MINUTE
    assert planned.next_fire_at == planned.due_at == START + 2 * MINUTE
    assert planned.slots[0].trigger is RunTrigger.SCHEDULE


@pytest.mark.parametrize("seconds", [0, 59])
def test_nothing_is_planned_before_its_moment(seconds: int) -> None:
    """A look before the due moment (the clock stepped back) gives no plan."""
    assert plan_fire(job(), START + seconds * SECOND, lambda: RunId("run")) is None


def test_a_job_without_a_next_slot_gives_no_plan() -> None:
    """A paused, disabled or waiting job is not planned."""
    assert plan_fire(job(manual=True), START + DAY, lambda: RunId("run")) is None


# --- lateness of a single fire ---
@pytest.mark.parametrize("policy", ["latest", "skip", "all"])
@pytest.mark.parametrize("window", [0, 3600])
def test_a_single_fire_less_late_than_late_after_always_runs(policy: str, window: int) -> None:
    """Up to late_after a fire is on time, whatever catch_up and its window say."""
    planned = plan(job(every=HOUR, catch_up=policy, catch_up_window=window), START + HOUR + MINUTE)

    assert wanted(planned) == [60]
    assert planned.slots[0].trigger is RunTrigger.SCHEDULE


@pytest.mark.parametrize(("policy", "runs"), [("latest", [60]), ("skip", []), ("all", [60])])
def test_a_single_fire_found_late_is_catch_ups_to_decide(policy: str, runs: list[int]) -> None:
    """A misfire runs as catch_up, or is told."""
    planned = plan(job(every=HOUR, catch_up=policy), START + HOUR + MINUTE + 1)

    assert wanted(planned) == runs
    assert told(planned) == ([] if runs else [("misfire", 60, 60, 1)])
    assert [slot.trigger for slot in planned.slots] == [RunTrigger.CATCH_UP] * len(runs)


@pytest.mark.parametrize("policy", ["latest", "all"])
def test_a_fire_older_than_the_window_does_not_run(policy: str) -> None:
    """catch_up_window bounds how old a fire may be, to the microsecond."""
    of = job(every=DAY, catch_up=policy, catch_up_window=3600)
    slot = of.next_fire_at
    assert slot is not None

    assert len(plan(of, slot + HOUR).slots) == 1
    late = plan(of, slot + HOUR + 1)
    assert (late.slots, late.spans[0].count) == ((), 1)


# --- several due fires ---
def test_latest_runs_the_newest_and_tells_the_rest() -> None:
    """Of ten due fires the last runs and nine are one record."""
    planned = plan(job(), START + 10 * MINUTE + SECOND)

    assert wanted(planned) == [10]
    assert told(planned) == [("misfire", 1, 9, 9)]
    assert planned.next_fire_at == START + 11 * MINUTE


def test_skip_runs_the_newest_only_while_it_is_fresh() -> None:
    """catch_up skip over several fires: the newest runs if it is at most late_after late."""
    fresh = plan(job(every=HOUR, catch_up="skip"), START + 3 * HOUR + MINUTE)
    stale = plan(job(every=HOUR, catch_up="skip"), START + 3 * HOUR + MINUTE + 1)

    assert (wanted(fresh), told(fresh)) == ([180], [("misfire", 60, 120, 2)])
    assert (wanted(stale), told(stale)) == ([], [("misfire", 60, 180, 3)])


def test_all_runs_oldest_first_up_to_the_limit() -> None:
    """catch_up all: the newest `catch_up_limit` fires, oldest first; older ones are told."""
    planned = plan(job(catch_up="all", catch_up_limit=3), START + 5 * MINUTE)

    assert wanted(planned) == [3, 4, 5]
    assert told(planned) == [("misfire", 1, 2, 2)]


def test_all_stays_within_the_window() -> None:
    """catch_up all: what is older than catch_up_window is told, also where the limit would have room."""
    planned = plan(job(catch_up="all", catch_up_limit=50, catch_up_window=150), START + 10 * MINUTE)

    assert wanted(planned) == [8, 9, 10]
    assert told(planned) == [("misfire", 1, 7, 7)]


def test_late_and_fresh_fires_of_one_plan_say_which_they_are() -> None:
    """Each run says whether it was caught up or on time."""
    planned = plan(job(catch_up="all"), START + 3 * MINUTE)

    assert [slot.trigger for slot in planned.slots] == [
        RunTrigger.CATCH_UP,
        RunTrigger.SCHEDULE,
        RunTrigger.SCHEDULE,
    ]


# --- kinds of trigger ---
def test_an_at_fires_once() -> None:
    """An `at` has no slot after its own."""
    planned = plan(job(at=START + HOUR), START + HOUR)

    assert wanted(planned) == [60]
    assert (planned.next_fire_at, planned.due_at, planned.next_if_skipped) == (None, None, None)


def test_a_delay_has_no_next_slot_unless_it_is_skipped() -> None:
    """The end of the run gives the next slot; a skip, which has no end, gives it from now."""
    planned = plan(job(delay=HOUR), START + HOUR + 5 * SECOND)

    assert wanted(planned) == [60]
    assert planned.next_fire_at is None
    assert planned.next_if_skipped == START + 2 * HOUR + 5 * SECOND


def test_a_delay_found_late_is_one_fire() -> None:
    """A `delay` has no grid: however late, one fire was due."""
    planned = plan(job(delay=MINUTE), START + DAY)

    assert (wanted(planned), planned.spans) == ([1], ())


def test_the_last_fire_before_the_end_has_none_after_it() -> None:
    """`end_at` is the last instant that can fire."""
    planned = plan(job(end_at=START + 3 * MINUTE), START + DAY - MINUTE)

    assert wanted(planned) == [3]
    assert told(planned) == [("misfire", 1, 2, 2)]
    assert planned.next_fire_at is None


def test_a_cron_job_is_planned_in_its_zone() -> None:
    """Missed days of a cron job are counted by its wall clock."""
    of = job(cron="30 2 * * *", timezone="Europe/Berlin")

    planned = plan(of, START + 10 * DAY)

    assert len(planned.slots) == 1
    assert planned.spans[0].count == 9


# --- jitter ---
def jittered(**keys: Any) -> Job:
    of = job(every=DAY, jitter=20 * HOUR, **keys)
    assert of.due_at is not None
    assert of.next_fire_at is not None
    assert of.due_at > of.next_fire_at + MINUTE
    return of


@pytest.mark.parametrize("policy", ["latest", "skip", "all"])
def test_a_start_that_jitter_put_off_is_not_late(policy: str) -> None:
    """Lateness counts from the due moment, not from the slot."""
    of = jittered(catch_up=policy)
    assert of.due_at is not None

    planned = plan(of, of.due_at)

    assert len(planned.slots) == 1
    assert planned.slots[0].fire_time == of.next_fire_at
    assert planned.slots[0].trigger is RunTrigger.SCHEDULE
    assert planned.next_fire_at is not None
    assert planned.due_at == of.definition.schedule.due_at(planned.next_fire_at)


def test_a_slot_whose_jitter_has_not_passed_is_left_for_later() -> None:
    """The newest slot counts only once its own start has come."""
    of = jittered()
    first, due = of.next_fire_at, of.due_at
    assert first is not None
    assert due is not None
    second = first + DAY
    assert of.definition.schedule.due_at(second) > second + SECOND

    planned = plan(of, second + SECOND)

    assert [slot.fire_time for slot in planned.slots] == [first]
    assert planned.next_fire_at == second


# --- exclusions ---
def test_excluded_fires_are_told_with_their_count() -> None:
    """I13: what `except` took out between two fires is one record of its own."""
    of = job(
        every=HOUR, exclude=("2027-01-02",), last_fire_at=START + 11 * HOUR, next_fire_at=START + 36 * HOUR
    )

    planned = plan(of, START + 36 * HOUR)

    assert told(planned) == [("excluded", 12 * 60, 35 * 60, 24)]
    assert [slot.fire_time for slot in planned.slots] == [START + 36 * HOUR]


def test_exclusions_that_took_nothing_out_are_not_told() -> None:
    """A record stands for fire times; where there were none there is no record."""
    of = job(every=HOUR, exclude=("2027-01-02",), last_fire_at=START)

    assert plan(of, START + HOUR).spans == ()


def test_many_excluded_fires_are_a_lower_bound_that_says_so() -> None:
    """I13: above ten thousand the count is told as "at least"."""
    day = START + 12 * HOUR
    of = job(every=SECOND, exclude=("2027-01-02",), last_fire_at=day - SECOND, next_fire_at=day + DAY)

    (span,) = plan(of, day + DAY).spans

    assert (span.reason, span.count, span.exact) == (SkipReason.EXCLUDED, COUNT_CAP, False)
    assert "at least 10000" in span.note


def test_excluded_fires_at_the_cap_are_exact() -> None:
    """I13: ten thousand that `except` took out are counted exactly, and say nothing of a lower bound."""
    day, period = START + 12 * HOUR, DAY // COUNT_CAP
    of = job(every=period, exclude=("2027-01-02",), last_fire_at=day - period, next_fire_at=day + DAY)

    (span,) = plan(of, day + DAY).spans

    assert (span.count, span.exact, span.note) == (COUNT_CAP, True, "taken out by except")


def test_a_first_fire_tells_of_no_exclusions() -> None:
    """Before a job's first fire nothing was taken out of anything."""
    of = job(every=HOUR, exclude=("2027-01-02",), next_fire_at=START + 36 * HOUR)

    assert plan(of, START + 36 * HOUR).spans == ()


# --- cost ---
class Counted:
    """How often a schedule was asked for a fire time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kind: type[Any]) -> None:
        self.asked = 0
        for name in ("next_fire", "last_fire"):
            monkeypatch.setattr(kind, name, self._counting(getattr(kind, name)))

    def _counting(self, method: Any) -> Any:
        def counted(trigger: Any, instant: Micros) -> Any:
            self.asked += 1
            return method(trigger, instant)

        return counted


@pytest.mark.parametrize(
    ("kind", "keys"),
    [(Every, {"every": SECOND}), (Cron, {"cron": "* * * * * *"}), (Cron, {"cron": "*/7 * * * *"})],
)
@pytest.mark.parametrize("policy", ["latest", "skip", "all"])
def test_ten_years_of_absence_cost_as_much_as_a_minute(
    monkeypatch: pytest.MonkeyPatch, kind: type[Any], keys: dict[str, Any], policy: str
) -> None:
    """Planning asks the trigger as often as there are runs wanted, never as often as fires were missed."""
    of = job(catch_up=policy, **keys)
    counted = Counted(monkeypatch, kind)
    assert of.next_fire_at is not None

    planned = plan(of, START + 3_650 * DAY + MINUTE // 2)

    assert counted.asked <= 30
    assert planned.last_fire_at > START + 3_649 * DAY
    assert sum(span.count for span in planned.spans) == COUNT_CAP
    assert not planned.spans[0].exact
    assert "at least 10000" in planned.spans[0].note


def test_a_count_at_the_cap_is_exact() -> None:
    """Ten thousand missed fires are counted exactly, one more is a lower bound and says so."""
    schedule = Schedule(trigger=Every(MINUTE))

    exact = missed_span(schedule, START, START + 9_999 * MINUTE, SkipReason.MISFIRE)
    capped = missed_span(schedule, START, START + 10_000 * MINUTE, SkipReason.MISFIRE, "found late")

    assert (exact.count, exact.exact, exact.note) == (COUNT_CAP, True, "")
    assert (capped.count, capped.exact) == (COUNT_CAP, False)
    assert capped.note == "found late; at least 10000 fire times"


# --- nothing is lost ---
@given(
    period=st.integers(1, 90),
    late=st.integers(0, 3_000),
    policy=st.sampled_from(["latest", "skip", "all"]),
    limit=st.integers(1, 12),
    window=st.integers(0, 4_000),
    late_after=st.integers(0, 200),
)
def test_every_due_slot_is_a_run_or_in_one_span(
    period: int, late: int, policy: str, limit: int, window: int, late_after: int
) -> None:
    """I13: whatever the policy, runs and spans together are exactly the slots up to the newest due one."""
    keys: dict[str, Any] = {"catch_up_limit": limit, "catch_up_window": window, "late_after": late_after}
    of = job(every=period * SECOND, catch_up=policy, **keys)
    first = of.next_fire_at
    assert first is not None
    now = first + late * SECOND

    planned = plan(of, now)

    due = set(range(first, now + 1, period * SECOND))
    runs = [slot.fire_time for slot in planned.slots]
    spanned = [slot for span in planned.spans for slot in slots_of(span, period)]
    assert sorted([*runs, *spanned]) == sorted(due)
    assert runs == sorted(runs)
    assert planned.last_fire_at == max(due)
    assert planned.next_fire_at == max(due) + period * SECOND
    assert len(runs) <= max(1, limit)


def slots_of(span: SkippedSpan, period: int) -> list[Micros]:
    slots = list(range(span.first, span.last + 1, period * SECOND))
    assert span.count == len(slots)
    return slots


def test_a_plan_names_what_it_saw() -> None:
    """FIRE can tell from the plan whether the row is still the one that was planned from."""
    of = replace(job(), revision=42)

    planned = plan(of, START + 5 * MINUTE)

    assert (planned.seen_revision, planned.seen_fire_at) == (42, of.next_fire_at)
