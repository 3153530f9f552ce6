"""How fast a batch gets on."""

from __future__ import annotations

from scheduler.clock import MINUTE, SECOND
from scheduler.executors.item_pace import Pace


def test_it_is_what_ended_over_the_time_that_it_took() -> None:
    """Ten items in twenty seconds are half an item a second; the first look can say nothing."""
    pace = Pace()

    assert pace.see(5 * SECOND, 3) is None
    assert pace.see(5 * SECOND, 4) is None
    assert pace.see(25 * SECOND, 13) == 0.5


def test_only_the_last_minute_counts() -> None:
    """A batch that was fast and is slow now is told as slow, and one that stands still as nothing."""
    pace = Pace()
    pace.see(0, 0)
    pace.see(10 * SECOND, 1_000)

    assert pace.see(2 * MINUTE, 1_000) is None
    assert pace.see(2 * MINUTE + 10 * SECOND, 1_010) == 1.0


def test_a_fast_batch_costs_no_more_memory_than_a_slow_one() -> None:
    """A look a second is kept, however many are had."""
    pace = Pace()
    for look in range(10_000):
        pace.see(look * SECOND // 100, look)

    assert len(pace._seen) <= 62  # noqa: SLF001 - what it promises is what it keeps
