from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.jobs import Overlap
from scheduler.rules.planning import Admission, Occupancy, admit

A = Admission


def occupied(live: int = 0, recovering: int = 0, queued: int = 0, *, room: bool = True) -> Occupancy:
    return Occupancy(live=live, recovering=recovering, queued=queued, room=room)


FREE, FULL = occupied(), occupied(room=False)
LIVE, RECOVERING, QUEUED = occupied(live=1), occupied(live=1, recovering=1), occupied(queued=1)
BOTH = occupied(live=1, queued=1)

# The whole table for one slot and a queue of two: what stands in the way -> skip, queue, cancel_running.
TABLE = {
    FREE: (A.CLAIM, A.CLAIM, A.CLAIM),
    FULL: (A.QUEUE, A.QUEUE, A.QUEUE),
    LIVE: (A.SKIP_OVERLAP, A.QUEUE, A.REPLACE),
    RECOVERING: (A.QUEUE, A.QUEUE, A.QUEUE),
    QUEUED: (A.SKIP_OVERLAP, A.QUEUE, A.REPLACE),
    BOTH: (A.SKIP_OVERLAP, A.QUEUE, A.REPLACE),
    occupied(live=1, recovering=1, queued=1): (A.SKIP_OVERLAP, A.QUEUE, A.REPLACE),
    occupied(live=1, queued=2): (A.SKIP_OVERLAP, A.SKIP_QUEUE_FULL, A.REPLACE),
    occupied(queued=2, room=False): (A.SKIP_OVERLAP, A.SKIP_QUEUE_FULL, A.REPLACE),
}


@pytest.mark.parametrize("way", TABLE, ids=str)
def test_what_becomes_of_a_start_of_a_job_with_one_slot(way: Occupancy) -> None:
    """I2: each overlap policy against everything that can stand in the way."""
    policies = (Overlap.SKIP, Overlap.QUEUE, Overlap.CANCEL_RUNNING)

    assert tuple(admit(policy, 1, 2, way) for policy in policies) == TABLE[way]


@pytest.mark.parametrize(
    ("way", "admission"),
    [
        (FREE, A.CLAIM),
        (occupied(live=2), A.CLAIM),
        (occupied(live=1, queued=1), A.CLAIM),
        (occupied(live=2, room=False), A.QUEUE),
        (occupied(live=3), A.SKIP_OVERLAP),
        (occupied(live=2, queued=1), A.SKIP_OVERLAP),
        (occupied(live=3, recovering=2), A.SKIP_OVERLAP),
        (occupied(live=3, recovering=3), A.QUEUE),
        (occupied(live=4), A.SKIP_OVERLAP),
    ],
)
def test_what_becomes_of_a_start_of_a_job_with_three_slots(way: Occupancy, admission: Admission) -> None:
    """I2: `allow` counts live and queued runs against max_running."""
    assert admit(Overlap.ALLOW, 3, 1, way) is admission


@pytest.mark.parametrize("way", [LIVE, QUEUED, BOTH, occupied(live=1, queued=9)])
@pytest.mark.parametrize("policy", list(Overlap))
def test_runs_of_catch_up_all_wait_their_turn(policy: Overlap, way: Occupancy) -> None:
    """Caught-up fires of one plan queue behind whatever is there, under every policy."""
    assert admit(policy, 1, 1, way, in_turn=True) is A.QUEUE


@pytest.mark.parametrize("policy", [Overlap.SKIP, Overlap.QUEUE, Overlap.CANCEL_RUNNING])
def test_max_running_is_for_allow_only(policy: Overlap) -> None:
    """A job that does not allow overlap has one slot, whatever its max_running says."""
    assert admit(policy, 9, 1, LIVE) is not A.CLAIM


@given(
    policy=st.sampled_from(Overlap),
    max_running=st.integers(1, 4),
    live=st.integers(0, 5),
    recovering=st.integers(0, 5),
    queued=st.integers(0, 5),
    room=st.booleans(),
    in_turn=st.booleans(),
)
def test_no_claim_beyond_the_slots_or_the_room(
    policy: Overlap, max_running: int, live: int, recovering: int, queued: int, room: bool, in_turn: bool
) -> None:
    """I2: whatever stands in the way, a claim is only given where slot and room are free."""
    way = occupied(live, min(recovering, live), queued, room=room)

    if admit(policy, max_running, 1, way, in_turn=in_turn) is A.CLAIM:
        assert room
        assert live + queued < (max_running if policy is Overlap.ALLOW else 1)
