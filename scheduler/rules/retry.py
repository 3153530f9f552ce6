"""When a failed attempt gets another try, and how long it waits. Pure."""

from __future__ import annotations

from scheduler.clock import Micros
from scheduler.model.jobs import Backoff, RetryPolicy

_MAX_DOUBLINGS = 40  # 2^40 microseconds-to-hours is beyond any max_delay; keeps the shift small


def may_retry(policy: RetryPolicy, attempt: int, exit_code: int | None) -> bool:
    """Another try is left for a failure of `attempt` (1 = the first), and its exit code is worth one."""
    if attempt > policy.attempts:
        return False
    return not policy.exit_codes or exit_code in policy.exit_codes


def backoff(policy: RetryPolicy, attempt: int, spread: float) -> Micros:
    """The wait after `attempt` failed, in microseconds.

    Exponential waits double from `delay` up to `max_delay` and are spread over [0, wait] by `spread`
    in [0, 1) ("full jitter"), so that jobs which failed together do not come back together. Constant
    waits are exactly `delay`.
    """
    if policy.backoff is Backoff.CONSTANT:
        return min(policy.delay, policy.max_delay)
    ceiling = min(policy.max_delay, policy.delay << min(attempt - 1, _MAX_DOUBLINGS))
    return int(ceiling * spread)
