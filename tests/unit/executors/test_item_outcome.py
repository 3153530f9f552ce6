"""What an item's end means: done, failed, tried again, or nobody knows."""

from __future__ import annotations

import pytest

from scheduler.clock import SECOND
from scheduler.engine.ports import Ended, EndKind
from scheduler.executors.item_outcome import ItemCut, not_called, outcome_of
from scheduler.model.items import BegunItem, ItemState
from scheduler.model.jobs import BatchPolicy, RetryPolicy
from scheduler.model.runs import RunId
from tests.support.executors import command, grant

RUN = RunId("run")
ITEM = BegunItem(index=3, key="k", payload="1", nonce="n", attempts=1, tries=0)
PLAIN = grant(command("true"), batch=BatchPolicy()).definition
PATIENT = grant(command("true"), batch=BatchPolicy(retry=RetryPolicy(attempts=1, delay=SECOND))).definition

DONE = Ended(kind=EndKind.EXITED, exit_code=0)


@pytest.mark.parametrize(
    ("ended", "cut", "state", "said"),
    [
        (DONE, None, "done", None),
        (Ended(kind=EndKind.RETURNED, result={"n": 1}), None, "done", None),
        (Ended(kind=EndKind.EXITED, exit_code=3), None, "failed", "exited with code 3"),
        (Ended(kind=EndKind.RAISED, message="ValueError: no"), None, "failed", "ValueError: no"),
        (Ended(kind=EndKind.SIGNALLED, signal=9), None, "unknown", "killed by SIGKILL"),
        (Ended(kind=EndKind.SIGNALLED, signal=250), None, "unknown", "killed by signal 250"),
        (Ended(kind=EndKind.EXITED, exit_code=None, message="lost"), None, "unknown", "lost"),
        (DONE, ItemCut.TIMEOUT, "unknown", "item_timeout"),
        (DONE, ItemCut.STOPPED, "unknown", "stopped with its run"),
        (Ended(kind=EndKind.RETRY_ASKED, retry_after=5, message="busy"), None, "pending", "busy"),
    ],
)
def test_what_an_end_means(ended: Ended, cut: ItemCut | None, state: str, said: str | None) -> None:
    """An item that we ended is in doubt whatever its exit code says, for its call may have been billed."""
    outcome = outcome_of(RUN, ITEM, PLAIN, ended, cut, cost=0.5, spread=0.5)

    assert (outcome.index, outcome.nonce, outcome.state) == (3, "n", ItemState(state))
    assert outcome.cost == 500_000
    assert outcome.error == said if said is None else said in (outcome.error or "")
    assert outcome.result == ('{"n": 1}' if ended.result else None)


def test_a_failure_is_charged_and_a_wait_that_was_asked_for_is_not() -> None:
    """`Retry(after=)` does not use up the item's retries."""
    failed = outcome_of(
        RUN, ITEM, PATIENT, Ended(kind=EndKind.EXITED, exit_code=1), None, cost=None, spread=0.5
    )
    asked = outcome_of(
        RUN, ITEM, PATIENT, Ended(kind=EndKind.RETRY_ASKED, retry_after=7), None, cost=None, spread=0.5
    )

    assert (failed.state, failed.charged, failed.cost) == (ItemState.PENDING, True, None)
    assert (asked.state, asked.charged, asked.wait) == (ItemState.PENDING, False, 7)


def test_an_item_whose_call_never_began_costs_nothing() -> None:
    """A broken handler charges no try; what could not be started for another reason has failed."""
    broken = not_called(RUN, ITEM, PLAIN, "no module", broken=True, spread=0.5)
    failed = not_called(RUN, ITEM, PLAIN, "no such program", broken=False, spread=0.5)

    assert (broken.state, broken.charged, broken.cost) == (ItemState.PENDING, False, 0)
    assert (failed.state, failed.charged, failed.cost) == (ItemState.FAILED, True, 0)
