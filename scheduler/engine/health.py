"""How the store is: one event when it stops committing, one when it works again, one after a check."""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.errors import StoreUnavailable
from scheduler.telemetry import Event, Logger


class StoreHealth:
    """Remembers whether the last commit worked, and tells of the change."""

    def __init__(self, log: Logger) -> None:
        self._log = log
        self.is_ok = True

    def __call__(self, trouble: StoreUnavailable | None) -> None:
        """The writer's report: an error, or None when commits work again."""
        if trouble is None and not self.is_ok:
            self.is_ok = True
            self._log.info(
                Event.STORE_RECOVERED, message="commits work again; what was kept has been written"
            )
        elif trouble is not None and self.is_ok:
            self.is_ok = False
            self._log.error(
                Event.STORE_UNAVAILABLE,
                message=f"{trouble}; nothing new starts, outcomes are kept until it works again",
            )

    def tell_check(self, unchecked: Sequence[str]) -> None:
        """The file was checked after an unclean stop, but for these tables, and nothing was found."""
        message = "the daemon before was not stopped in order; the store was checked and is whole"
        if unchecked:
            message += f", as far as there was time: `schedctl doctor` looks at {', '.join(unchecked)}, too"
        self._log.info(Event.STORE_CHECKED, message=message)
