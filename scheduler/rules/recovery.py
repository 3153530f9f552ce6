"""Whether a claim is to be released, and what follows for its job. Pure.

Slow is not dead: nothing here looks at when a run started or how long it takes. A claim is released only
on a proof that its owner is gone, on a lease that ran out, or when the row says it is ours and our own
memory has not known it for two beats (its caller vanished between the commit and the answer).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from scheduler.clock import Micros
from scheduler.model.runs import OwnerId, RunId


class OwnerState(Enum):
    """What is known of the process that holds a claim."""

    ME = auto()
    ALIVE = auto()
    DEAD = auto()
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimSeen:
    """A `running` row as a look found it: all that a release will name in its WHERE."""

    run_id: RunId
    claim: int
    owner: OwnerId
    lease_until: Micros


def should_release(
    seen: ClaimSeen, owner: OwnerState, now: Micros, *, known: bool, beats_unknown: int, lease: Micros
) -> bool:
    """The claim may be taken from its owner.

    Args:
        known: our own memory holds this claim (only asked for our own rows).
        beats_unknown: how many beats in a row memory has not known it.
        lease: a lease that ends further than two of these ahead was written under another clock.
    """
    match owner:
        case OwnerState.ME:
            return not known and beats_unknown >= 2
        case OwnerState.ALIVE:
            return False
        case OwnerState.DEAD:
            return True
        case OwnerState.UNKNOWN:
            return seen.lease_until < now or seen.lease_until > now + 2 * lease


def may_sweep(last_beat: Micros, now: Micros, heartbeat: Micros) -> bool:
    """Renew before reap: after a gap in our own beats (freeze, suspend, outage) we first renew, then look.

    Both instants are monotonic. A daemon that was frozen longer than a lease would else judge others by
    a clock that ran on without it.
    """
    return now - last_beat <= 2 * heartbeat
