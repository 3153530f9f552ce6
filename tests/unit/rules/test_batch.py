"""What becomes of items and of batches, decided from counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.clock import SECOND
from scheduler.model.items import ItemCounts, ItemState
from scheduler.model.jobs import Backoff, BatchPolicy, Budget, RetryPolicy, UnknownItems
from scheduler.model.runs import RunReason, RunState
from scheduler.rules.batch import (
    ItemNext,
    affordable,
    after_crash,
    after_cut,
    after_failure,
    batch_end,
    budget_words,
    failed_enough,
    resting,
    tally,
)

SETTLE = "settle the unknown ones: schedctl item RUN KEY --done|--retry|--fail"
RETRY = RetryPolicy(attempts=2, delay=5 * SECOND, backoff=Backoff.CONSTANT)


def test_a_failed_item_is_tried_again_while_its_retry_lasts() -> None:
    """Two further tries, each charged; then it has failed."""
    policy = BatchPolicy(retry=RETRY)

    following = [after_failure(policy, tries, 1, 0.5) for tries in range(3)]

    assert [one.state for one in following] == [ItemState.PENDING, ItemState.PENDING, ItemState.FAILED]
    assert all(one.charged for one in following)
    assert following[0].wait == 5 * SECOND


def test_the_wait_of_an_item_doubles_with_each_of_its_tries() -> None:
    """From `delay` on, as that of a run does."""
    policy = BatchPolicy(retry=RetryPolicy(attempts=9, delay=SECOND))

    assert [after_failure(policy, tries, 1, 1.0).wait // SECOND for tries in range(4)] == [1, 2, 4, 8]


def test_only_some_exit_codes_are_worth_another_try() -> None:
    """`exit_codes` of the item's retry."""
    policy = BatchPolicy(retry=RetryPolicy(attempts=2, exit_codes=(75,)))

    assert after_failure(policy, 0, 75, 0.5).state is ItemState.PENDING
    assert after_failure(policy, 0, 1, 0.5).state is ItemState.FAILED


def test_an_item_that_was_cut_is_unknown_however_much_retry_is_left() -> None:
    """Never silently repeated: the call may have been billed."""
    assert after_cut(BatchPolicy(retry=RETRY), 0).state is ItemState.UNKNOWN
    assert after_cut(BatchPolicy(unknown=UnknownItems.FAIL), 0) == ItemNext(
        state=ItemState.FAILED, charged=True
    )


def test_a_cut_item_that_may_be_repeated_is_not_repeated_for_ever() -> None:
    """With unknown = "retry": once at least, and as often as retry has attempts."""
    plain = BatchPolicy(unknown=UnknownItems.RETRY)
    patient = BatchPolicy(unknown=UnknownItems.RETRY, retry=RETRY)

    assert [after_cut(plain, tries).state for tries in (0, 1)] == [ItemState.PENDING, ItemState.UNKNOWN]
    assert after_cut(patient, 1) == ItemNext(state=ItemState.PENDING, charged=True)
    assert after_cut(patient, 2).state is ItemState.UNKNOWN


@pytest.mark.parametrize(
    ("policy", "state"),
    [
        (BatchPolicy(), ItemState.UNKNOWN),
        (BatchPolicy(unknown=UnknownItems.RETRY), ItemState.PENDING),
        (BatchPolicy(unknown=UnknownItems.FAIL), ItemState.FAILED),
        (None, ItemState.UNKNOWN),
    ],
)
def test_an_item_whose_worker_is_gone(policy: BatchPolicy | None, state: ItemState) -> None:
    """By the job's rule; a job that is no batch any more does not say, so it is in doubt."""
    assert after_crash(policy) is state


counts = st.builds(
    lambda done, failed, unknown, running, pending, in_a_row: ItemCounts(
        total=done + failed + unknown + running + pending,
        done=done,
        failed=failed,
        unknown=unknown,
        running=running,
        chosen=pending,
        in_a_row=in_a_row,
    ),
    *[st.integers(0, 5)] * 6,
)


@given(counts=counts)
def test_a_batch_ends_exactly_when_nothing_of_it_is_left(counts: ItemCounts) -> None:
    """No item to begin, none under way; it succeeded exactly when all are done."""
    end = batch_end(BatchPolicy(), counts)

    assert (end is None) == bool(counts.chosen or counts.running)
    if end is not None:
        assert (end.state is RunState.SUCCEEDED) == (counts.done == counts.total)
        assert (end.reason is None) == (end.state is RunState.SUCCEEDED)
        assert (end.reason is RunReason.UNKNOWN_ITEMS) == (counts.unknown > 0)


@pytest.mark.parametrize(
    ("items", "reason", "message"),
    [
        (
            ItemCounts(total=24, done=22, failed=1, chosen=1),
            RunReason.ITEMS_FAILED,
            "22 of 24 done, 1 failed, 1 left to run; schedctl retry RUN --items KEY,... runs those alone",
        ),
        (
            ItemCounts(total=24, done=22, unknown=1, chosen=1),
            RunReason.UNKNOWN_ITEMS,
            f"22 of 24 done, 1 unknown, 1 left to run; {SETTLE}",
        ),
        (
            ItemCounts(total=24, done=23, chosen=1),
            RunReason.ITEMS_FAILED,
            "23 of 24 done, 1 left to run; schedctl retry RUN goes on with it",
        ),
    ],
)
def test_a_batch_at_rest_says_what_is_left_and_how_to_go_on(
    items: ItemCounts, reason: RunReason, message: str
) -> None:
    """It is in doubt only while an item is; the way on that it names calls nothing that was given up."""
    assert resting(BatchPolicy(), items, RunReason.UNKNOWN_ITEMS) == (reason, message)


def test_a_batch_at_rest_keeps_the_threshold_that_stopped_it() -> None:
    """The counts are new, the cause is the old one."""
    reason, message = resting(
        BatchPolicy(max_failed=1), ItemCounts(total=3, done=1, failed=1, chosen=1), RunReason.ITEMS_FAILED
    )

    assert (reason, message) == (
        RunReason.ITEMS_FAILED,
        "max_failed = 1 is reached: 1 of 3 done, 1 failed, 1 left to run",
    )


@given(counts=counts, limit=st.integers(1, 5))
def test_a_threshold_stops_at_its_number(counts: ItemCounts, limit: int) -> None:
    """max_failed and max_consecutive_failed count what they say; 0 never stops."""
    assert (failed_enough(BatchPolicy(max_failed=limit), counts) is not None) == (counts.failed >= limit)
    in_a_row = failed_enough(BatchPolicy(max_consecutive_failed=limit), counts)
    assert (in_a_row is not None) == (counts.in_a_row >= limit)
    assert failed_enough(BatchPolicy(), counts) is None


@pytest.mark.parametrize(
    ("percent", "total", "failed", "stops"),
    [
        (50.0, 0, 0, False),
        (0.0, 4, 4, False),
        (0.5, 200, 1, True),
        (0.5, 201, 1, False),
        (9.95, 1_000, 99, False),
        (9.95, 1_000, 100, True),
    ],
)
def test_a_percentage_stops_at_its_number(percent: float, total: int, failed: int, *, stops: bool) -> None:
    """It counts of the whole list; 0 never stops, and an empty list is not stopped by anything."""
    told = failed_enough(BatchPolicy(max_failed_percent=percent), ItemCounts(total=total, failed=failed))

    assert told == (f"max_failed_percent = {percent:g} is reached" if stops else None)


def test_a_batch_that_is_stopped_waits_for_what_is_under_way() -> None:
    """A threshold ends it only once none of its items runs."""
    policy, stopped = BatchPolicy(max_failed=1), ItemCounts(total=3, failed=1, running=1, chosen=1)

    assert batch_end(policy, stopped) is None


def test_a_batch_of_which_a_choice_left_some_out_was_cancelled() -> None:
    """Nothing failed and nothing is in doubt, but not all of it was wanted."""
    end = batch_end(BatchPolicy(), ItemCounts(total=3, done=2, chosen=0))

    assert end is not None
    assert (end.state, end.reason, end.message) == (
        RunState.PARTIAL,
        RunReason.CANCELLED,
        "2 of 3 done, 1 not started",
    )


@pytest.mark.parametrize(
    ("cap", "estimate", "spent", "number", "words"),
    [
        (10, 0, 9, 5, ""),
        (10, 0, 10, 0, "1e-05 USD spent {}"),
        (10, 0, 11, 0, "1.1e-05 USD spent {}"),
        (10, 1, 7, 3, ""),
        (10, 1, 9, 1, ""),
        (10, 1, 10, 0, "1e-05 USD spent {}"),
        (10, 2, 9, 0, "9e-06 USD spent {}"),
    ],
)
@pytest.mark.parametrize("what", ["per_run", "per_day"])
def test_what_a_cap_leaves_and_the_words_of_one_in_the_way(
    what: str, cap: int, estimate: int, spent: int, number: int, words: str
) -> None:
    """A cap is reached at its number, or where one more estimate would pass it; the other is not told."""
    budget = Budget(**{what: cap}, cost_estimate=estimate, unit="USD")
    kept = {"run_spent": spent if what == "per_run" else 0, "day_spent": spent if what == "per_day" else 0}
    whose = "by this run" if what == "per_run" else "today"

    assert affordable(budget, 5, **kept) == number
    told = f"budget.{what} = 1e-05 USD is reached: {words.format(whose)}" if words else ""
    assert budget_words(budget, **kept) == told


def test_both_caps_are_told_and_an_amount_may_have_no_unit() -> None:
    """In the order of the run and the day."""
    budget = Budget(per_run=1_500_000, per_day=2_000_000)

    assert budget_words(budget, run_spent=1_500_000, day_spent=3_000_000) == (
        "budget.per_run = 1.5 is reached: 1.5 spent by this run; budget.per_day = 2 is reached: 3 spent today"
    )


@given(
    cap=st.integers(1, 10**7),
    spent=st.integers(0, 10**7),
    estimate=st.integers(0, 10**6),
    wanted=st.integers(1, 300),
)
def test_no_begin_passes_the_cap_by_its_estimate(cap: int, spent: int, estimate: int, wanted: int) -> None:
    """What may be begun fits under the cap, and one more would not, or was not wanted."""
    budget = Budget(per_run=cap, cost_estimate=estimate)

    number = affordable(budget, wanted, run_spent=spent, day_spent=0)

    assert 0 <= number <= wanted
    assert number == 0 or (spent < cap and spent + number * estimate <= cap)
    if number < wanted:
        assert spent >= cap or spent + (number + 1) * estimate > cap


def test_the_tally_says_what_is_there() -> None:
    """In one line, without what is not."""
    assert tally(ItemCounts(total=9, done=9)) == "9 of 9 done"
    assert (
        tally(ItemCounts(total=9, done=3, failed=2, unknown=1, chosen=3))
        == "3 of 9 done, 2 failed, 1 unknown, 3 not started"
    )
