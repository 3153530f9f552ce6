"""Time that work has really had: monotonic, and standing still while the work is frozen."""

from __future__ import annotations

from scheduler.clock import Clock, Micros


class Stopwatch:
    """A monotonic clock that an operator's `freeze` stops."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._frozen_at: Micros | None = None
        self._lost: Micros = 0

    @property
    def is_frozen(self) -> bool:
        """It stands still."""
        return self._frozen_at is not None

    def now(self) -> Micros:
        """Microseconds of working time, from an arbitrary origin."""
        at = self._clock.monotonic() if self._frozen_at is None else self._frozen_at
        return at - self._lost

    def set_frozen(self, frozen: bool) -> None:  # noqa: FBT001 - a switch
        """It stands still, or goes on from where it stood."""
        if frozen and self._frozen_at is None:
            self._frozen_at = self._clock.monotonic()
        elif not frozen and self._frozen_at is not None:
            self._lost += self._clock.monotonic() - self._frozen_at
            self._frozen_at = None
