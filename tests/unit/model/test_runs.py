from __future__ import annotations

from itertools import product
from uuid import UUID

import pytest

from scheduler.clock import MILLISECOND
from scheduler.errors import IllegalTransition
from scheduler.model.runs import (
    LIVE,
    TERMINAL,
    TRANSITIONS,
    RunState,
    new_owner_id,
    new_run_id,
    require_transition,
)
from tests.support.clock import START

# The design's table, written a second time: state -> what may follow.
TABLE = {
    None: "running queued skipped",
    "queued": "running cancelled skipped",
    "running": "succeeded partial failed cancelled crashed interrupted waiting held recovering",
    "recovering": "waiting crashed cancelled running succeeded failed",
    "waiting": "running cancelled",
    "held": "waiting cancelled",
    "succeeded": "",
    "skipped": "",
    "partial": "queued succeeded partial failed",
    "failed": "queued succeeded partial failed",
    "cancelled": "queued succeeded partial failed",
    "crashed": "queued succeeded partial failed",
    "interrupted": "queued succeeded partial failed",
}


@pytest.mark.parametrize(("before", "after"), list(product([None, *RunState], RunState)))
def test_only_steps_of_the_table_are_taken(before: RunState | None, after: RunState) -> None:
    """Every pair that the table lacks raises, every pair that it has passes."""
    if after in TABLE[before].split():
        require_transition(before, after)
    else:
        with pytest.raises(IllegalTransition, match=f"to {after}"):
            require_transition(before, after)


def test_the_table_names_every_state() -> None:
    """A new state needs its row in the table, and is live, terminal or queued."""
    assert set(TRANSITIONS) == {None, *RunState}
    assert LIVE | TERMINAL | {RunState.QUEUED} == set(RunState)
    assert not LIVE & TERMINAL


def test_nothing_becomes_live_without_a_claim() -> None:
    """A terminal run gets back to work only through the queue."""
    for state in TERMINAL:
        assert not TRANSITIONS[state] & LIVE


def test_run_ids_sort_by_time() -> None:
    """A run's id is a UUIDv7: ids made a millisecond apart sort as they were made."""
    ids = [new_run_id(START + number * MILLISECOND) for number in range(20)]

    assert ids == sorted(ids)
    for number, run_id in enumerate(ids):
        value = UUID(run_id)
        assert (value.version, value.variant) == (7, "specified in RFC 4122")
        assert value.int >> 80 == (START + number * MILLISECOND) // MILLISECOND


def test_ids_are_fresh() -> None:
    """Two ids of the same moment differ, and so do two starts of a process."""
    assert len({new_run_id(START) for _ in range(1_000)}) == 1_000
    assert len({new_owner_id() for _ in range(1_000)}) == 1_000
