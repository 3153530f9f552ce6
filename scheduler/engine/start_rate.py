"""A budget of late starts: after a downtime they are spread, so that they do not come as one blow."""

from __future__ import annotations

from scheduler.clock import SECOND, Micros


class StartRate:
    """A token bucket on the monotonic clock: `per_second` late fires a second, as many at once at most."""

    def __init__(self, per_second: float, now: Micros) -> None:
        self._period = int(SECOND / per_second)
        self._most = max(self._period, SECOND)
        self._left = self._most
        self._seen = now

    def available(self, now: Micros) -> int:
        """How many late fires may go now."""
        self._left = min(self._most, self._left + now - self._seen)
        self._seen = now
        return self._left // self._period

    def spend(self, count: int) -> None:
        """So many went."""
        self._left -= count * self._period

    @property
    def pause(self) -> Micros:
        """How long until another one may go, once the budget is spent."""
        return self._period
