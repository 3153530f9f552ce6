"""How fast a batch gets on, measured over its last minute. Pure: the caller brings the time."""

from __future__ import annotations

from collections import deque
from typing import Final

from scheduler.clock import MINUTE, SECOND, Micros

_OVER: Final[Micros] = MINUTE
_LOOKS_APART: Final[Micros] = SECOND


class Pace:
    """Remembers a look a second, so that a fast batch costs no more memory than a slow one."""

    def __init__(self) -> None:
        self._seen: deque[tuple[Micros, int]] = deque()

    def see(self, at: Micros, ended: int) -> float | None:
        """Items per second between the oldest look of the last minute and this one; None: nothing to say yet.

        Args:
            at: monotonic, never before that of an earlier look.
            ended: how many items had ended then.
        """
        if not self._seen or at - self._seen[-1][0] >= _LOOKS_APART:
            self._seen.append((at, ended))
        while len(self._seen) > 1 and at - self._seen[0][0] > _OVER:
            self._seen.popleft()
        first_at, first = self._seen[0]
        if at <= first_at or ended <= first:
            return None
        return (ended - first) * SECOND / (at - first_at)
