"""A bucket of late starts, on the monotonic clock."""

from __future__ import annotations

from scheduler.clock import MILLISECOND, SECOND
from scheduler.engine.start_rate import StartRate


def test_a_second_of_starts_at_once_and_then_one_each_period() -> None:
    """Twenty a second: twenty at first, none left then, one after 50 ms, never more than a second's worth."""
    rate = StartRate(20, 0)
    assert rate.available(0) == 20
    rate.spend(20)
    assert rate.available(0) == 0
    assert rate.available(49 * MILLISECOND) == 0
    assert rate.available(50 * MILLISECOND) == 1
    assert rate.available(3_600 * SECOND) == 20
    assert rate.pause == 50 * MILLISECOND


def test_rate_below_one_a_second_gives_one_at_a_time() -> None:
    """A start every four seconds is possible, and the first one does not wait."""
    rate = StartRate(0.25, 0)
    assert rate.available(0) == 1
    rate.spend(1)
    assert rate.available(3 * SECOND) == 0
    assert rate.available(4 * SECOND) == 1
