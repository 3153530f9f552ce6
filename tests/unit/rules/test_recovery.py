from __future__ import annotations

import pytest

from scheduler.clock import DAY, SECOND
from scheduler.model.runs import OwnerId, RunId
from scheduler.rules.recovery import ClaimSeen, OwnerState, may_sweep, should_release
from tests.support.clock import START

LEASE = 60 * SECOND
BEAT = 20 * SECOND


def seen(lease_until: int = START + LEASE) -> ClaimSeen:
    return ClaimSeen(run_id=RunId("run"), claim=1, owner=OwnerId("owner"), lease_until=lease_until)


@pytest.mark.parametrize(
    ("owner", "known", "beats", "lease_left", "release"),
    [
        # ours: only what memory has not known for two beats
        (OwnerState.ME, True, 0, LEASE, False),
        (OwnerState.ME, True, 9, -DAY, False),
        (OwnerState.ME, False, 0, LEASE, False),
        (OwnerState.ME, False, 1, -DAY, False),
        (OwnerState.ME, False, 2, LEASE, True),
        # alive: never, whatever the lease says
        (OwnerState.ALIVE, False, 9, LEASE, False),
        (OwnerState.ALIVE, False, 9, -DAY, False),
        # dead: at once
        (OwnerState.DEAD, False, 0, LEASE, True),
        (OwnerState.DEAD, False, 0, -1, True),
        # unknown: by the lease alone; a lease far ahead was written under another clock
        (OwnerState.UNKNOWN, False, 9, 0, False),
        (OwnerState.UNKNOWN, False, 0, 1, False),
        (OwnerState.UNKNOWN, False, 0, -1, True),
        (OwnerState.UNKNOWN, False, 0, 2 * LEASE, False),
        (OwnerState.UNKNOWN, False, 0, 2 * LEASE + 1, True),
    ],
)
def test_when_a_claim_may_be_released(
    owner: OwnerState, known: bool, beats: int, lease_left: int, release: bool
) -> None:
    """I7, I8: a claim is released on a proof of death, on its lease, or when our own memory lost it."""
    decided = should_release(
        seen(START + lease_left), owner, START, known=known, beats_unknown=beats, lease=LEASE
    )

    assert decided is release


@pytest.mark.parametrize(("gap", "may"), [(0, True), (BEAT, True), (2 * BEAT, True), (2 * BEAT + 1, False)])
def test_renew_before_reap(gap: int, may: bool) -> None:
    """I8: after a gap of our own beats nobody is judged before we renewed."""
    assert may_sweep(START, START + gap, BEAT) is may
