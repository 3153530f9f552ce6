"""Pauses of all jobs in the plan of a job that is due after them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from scheduler.clock import HOUR, MINUTE, SECOND, Micros
from scheduler.model.jobs import Job, JobStatus, Origin
from scheduler.model.runs import RunTrigger, SkipReason
from scheduler.rules.planning import FirePlan, PauseSpan, plan_fire
from tests.support.builders import JOB, make_definition
from tests.support.clock import START, FakeClock

GLOBAL, MISFIRE = SkipReason.GLOBAL_PAUSE, SkipReason.MISFIRE


def planned(minutes_later: int, *paused: tuple[int, int], **keys: object) -> FirePlan:
    """The plan of a job that fires every minute, its first slot at minute 1, looked at so much later.

    Args:
        paused: from and to which minute; both a second later.
    """
    spans = [PauseSpan(since=at(since) + SECOND, until=at(until) + SECOND) for since, until in paused]
    return planned_with(spans, minutes_later, **keys)


def planned_with(spans: Sequence[PauseSpan], minutes_later: int, **keys: object) -> FirePlan:
    """The same with pauses to the microsecond."""
    definition = make_definition(**keys)  # type: ignore[arg-type]
    first = definition.schedule.next_fire(START)
    job = Job(
        id=JOB,
        definition=definition,
        status=JobStatus.ACTIVE,
        enabled=True,
        revision=1,
        definition_revision=1,
        added_revision=1,
        origin=Origin.FILE,
        next_fire_at=first,
        due_at=first,
    )
    now = START + minutes_later * MINUTE + SECOND
    plan = plan_fire(job, now, FakeClock(now).run_id, spans)
    assert plan is not None
    return plan


def at(minute: int) -> Micros:
    return START + minute * MINUTE


def told(plan: FirePlan) -> list[tuple[SkipReason, int, int, int]]:
    return [
        (span.reason, (span.first - START) // MINUTE, (span.last - START) // MINUTE, span.count)
        for span in plan.spans
    ]


def started(plan: FirePlan) -> list[int]:
    return [(slot.fire_time - START) // MINUTE for slot in plan.slots]


def test_what_a_pause_held_is_no_misfire() -> None:
    """I13: every slot of the span is told as held by the pause of all jobs, and none of them runs."""
    plan = planned(30, (0, 30))

    assert (started(plan), told(plan)) == ([], [(GLOBAL, 1, 30, 30)])
    assert plan.next_fire_at == at(31)


def test_the_same_without_the_pause_is_caught_up() -> None:
    """The span is what makes the difference."""
    plan = planned(30)

    assert (started(plan), told(plan)) == ([30], [(MISFIRE, 1, 29, 29)])


@pytest.mark.parametrize(
    ("catch_up", "runs", "skips"),
    [
        ("latest", [30], [(MISFIRE, 1, 5, 5), (GLOBAL, 6, 20, 15), (MISFIRE, 21, 29, 9)]),
        ("skip", [30], [(MISFIRE, 1, 5, 5), (GLOBAL, 6, 20, 15), (MISFIRE, 21, 29, 9)]),
        ("all", [3, 4, 5, *range(21, 31)], [(MISFIRE, 1, 2, 2), (GLOBAL, 6, 20, 15)]),
    ],
)
def test_what_lies_around_a_pause_follows_catch_up(
    catch_up: str, runs: list[int], skips: list[tuple[SkipReason, int, int, int]]
) -> None:
    """The daemon was down before and after a pause: the pause's slots are out, the others are as ever."""
    plan = planned(30, (5, 20), catch_up=catch_up, catch_up_limit=13)

    assert (started(plan), told(plan)) == (runs, skips)


def test_several_pauses_are_told_one_by_one() -> None:
    """What lies between two pauses is late, not held."""
    plan = planned(12, (2, 4), (8, 12))

    assert started(plan) == [8]
    assert told(plan) == [(MISFIRE, 1, 2, 2), (GLOBAL, 3, 4, 2), (MISFIRE, 5, 7, 3), (GLOBAL, 9, 12, 4)]


@pytest.mark.parametrize(
    ("since", "until", "runs", "skips"),
    [
        ((3, 0), (5, 0), [10], [(MISFIRE, 1, 2, 2), (GLOBAL, 3, 5, 3), (MISFIRE, 6, 9, 4)]),
        ((2, 1), (6, -1), [10], [(MISFIRE, 1, 2, 2), (GLOBAL, 3, 5, 3), (MISFIRE, 6, 9, 4)]),
        ((1, 0), (10, 0), [], [(GLOBAL, 1, 10, 10)]),
        ((0, 0), (1, 0), [10], [(GLOBAL, 1, 1, 1), (MISFIRE, 2, 9, 8)]),
        ((0, 0), (1, -1), [10], [(MISFIRE, 1, 9, 9)]),
        ((10, 0), (12, 0), [9], [(MISFIRE, 1, 8, 8), (GLOBAL, 10, 10, 1)]),
        ((10, 1), (12, 0), [10], [(MISFIRE, 1, 9, 9)]),
        ((9, 1), (10, 0), [9], [(MISFIRE, 1, 8, 8), (GLOBAL, 10, 10, 1)]),
    ],
)
def test_a_pause_holds_the_slots_at_its_edges(
    since: tuple[int, int],
    until: tuple[int, int],
    runs: list[int],
    skips: list[tuple[SkipReason, int, int, int]],
) -> None:
    """I13: to the microsecond, each slot is told once: both ends of a pause belong to it."""
    span = PauseSpan(since=at(since[0]) + since[1], until=at(until[0]) + until[1])

    plan = planned_with([span], 10)

    assert (started(plan), told(plan)) == (runs, skips)


def test_pauses_after_the_slot_of_a_delay_hold_nothing() -> None:
    """It was the only slot: what lies between two later pauses is no time that was missed."""
    plan = planned(300, (70, 80), (200, 210), delay=HOUR, catch_up="skip")

    assert (started(plan), told(plan)) == ([], [(MISFIRE, 60, 60, 1)])


@pytest.mark.parametrize("policy", ["latest", "skip", "all"])
def test_a_pause_that_was_over_makes_no_slot_late(policy: str) -> None:
    """The only slot runs up to `late_after`, whatever `catch_up` and its window say, as without the pause."""
    over = PauseSpan(since=START - 2 * MINUTE, until=START - MINUTE)

    plan = planned_with([over], 1, catch_up=policy, catch_up_window=0, late_after=1)

    assert (started(plan), told(plan)) == ([1], [])


def test_the_only_slot_may_be_held() -> None:
    """However little late it is found."""
    plan = planned(1, (0, 1))

    assert (started(plan), told(plan)) == ([], [(GLOBAL, 1, 1, 1)])


def test_the_only_slot_outside_is_not_late_by_itself() -> None:
    """One open slot that is barely late runs whatever `catch_up` says, however many the pause held."""
    plan = planned(30, (0, 29), catch_up="skip")

    assert (started(plan), told(plan)) == ([30], [(GLOBAL, 1, 29, 29)])
    assert plan.slots[0].trigger is RunTrigger.SCHEDULE


def test_a_pause_of_years_costs_nothing() -> None:
    """The count is bounded and says so; no slot is visited one by one."""
    plan = planned(60 * 24 * 365, (0, 60 * 24 * 365), every=MINUTE)

    (span,) = plan.spans
    assert (span.reason, span.count, span.exact) == (GLOBAL, 10_000, False)


def test_a_delay_goes_on_from_the_look() -> None:
    """The one slot of `delay` that was held is told, and the next one counts from now."""
    plan = planned(3 * 60, (0, 3 * 60), delay=HOUR)

    assert (started(plan), told(plan)) == ([], [(GLOBAL, 60, 60, 1)])
    assert plan.next_if_skipped == START + 4 * HOUR + SECOND
