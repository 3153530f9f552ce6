from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.clock import HOUR, MINUTE, SECOND
from scheduler.model.jobs import Backoff, RetryPolicy
from scheduler.rules.retry import backoff, may_retry

EXPONENTIAL = RetryPolicy(attempts=9, delay=10 * SECOND, max_delay=2 * MINUTE)
CONSTANT = RetryPolicy(attempts=9, delay=10 * SECOND, backoff=Backoff.CONSTANT)


@pytest.mark.parametrize(
    ("attempts", "attempt", "left"), [(0, 1, False), (1, 1, True), (1, 2, False), (3, 3, True)]
)
def test_attempts_are_tries_after_the_first(attempts: int, attempt: int, left: bool) -> None:
    """`attempts = n` gives n further tries, not n tries in all."""
    assert may_retry(RetryPolicy(attempts=attempts), attempt, 1) is left


@pytest.mark.parametrize(
    ("codes", "exit_code", "worth"),
    [((), 1, True), ((), None, True), ((75,), 75, True), ((75,), 1, False), ((75,), None, False)],
)
def test_only_listed_exit_codes_are_worth_another_try(
    codes: tuple[int, ...], exit_code: int | None, worth: bool
) -> None:
    """An empty list means any failure; with a list, a signal or timeout is worth none."""
    assert may_retry(RetryPolicy(attempts=1, exit_codes=codes), 1, exit_code) is worth


def test_exponential_waits_double_up_to_their_ceiling() -> None:
    """The ceiling of the wait doubles from `delay` and stops at `max_delay`."""
    ceilings = [backoff(EXPONENTIAL, attempt, 1.0) // SECOND for attempt in range(1, 8)]

    assert ceilings == [10, 20, 40, 80, 120, 120, 120]


def test_the_wait_stops_doubling_after_forty_tries() -> None:
    """Where no `max_delay` stops it before, two to the power of forty times `delay` is the longest wait."""
    policy = RetryPolicy(attempts=99, delay=1, max_delay=1 << 50)

    assert [backoff(policy, attempt, 1.0) for attempt in (40, 41, 42, 99)] == [1 << 39, *[1 << 40] * 3]


def test_constant_waits_are_exact() -> None:
    """A constant wait has no spread: the author said how long."""
    assert {backoff(CONSTANT, attempt, spread) for attempt in (1, 5) for spread in (0.0, 0.9)} == {
        10 * SECOND
    }


def test_a_constant_wait_stays_below_max_delay() -> None:
    """`max_delay` bounds every kind of wait."""
    policy = RetryPolicy(attempts=1, delay=2 * HOUR, max_delay=HOUR, backoff=Backoff.CONSTANT)

    assert backoff(policy, 1, 0.5) == HOUR


@given(attempt=st.integers(1, 10_000), spread=st.floats(0, 1, exclude_max=True))
def test_a_wait_lies_between_zero_and_its_ceiling(attempt: int, spread: float) -> None:
    """However many tries there were, the wait is a number of microseconds up to max_delay."""
    wait = backoff(EXPONENTIAL, attempt, spread)

    assert 0 <= wait <= min(2 * MINUTE, 10 * SECOND << min(attempt - 1, 40))


def test_full_jitter_spreads_runs_that_failed_together() -> None:
    """Different spreads give different waits."""
    assert len({backoff(EXPONENTIAL, 3, number / 10) for number in range(10)}) == 10
