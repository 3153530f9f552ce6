"""The daemon's calendar work on history: runs beyond `keep_runs` go, with their output, a few at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from scheduler.errors import StoreUnavailable
from scheduler.model.runs import RunId
from scheduler.store.protocol import Store

_SLICE: Final = 100
_MOST_A_LOOK: Final = 2_000
"""Runs of one job that one look takes: a long backlog is worked off over several."""


class RetentionWatch:
    """Prunes what jobs do not keep.

    Args:
        remove_output: takes the output of a run off the disk.
    """

    def __init__(self, store: Store, remove_output: Callable[[RunId], Awaitable[None]]) -> None:
        self._store = store
        self._remove_output = remove_output

    async def look(self) -> None:
        """No job has much more history than it keeps; a store that cannot commit has it at the next look."""
        after = ""
        try:
            while retentions := await self._store.retentions(after=after, limit=_SLICE):
                for retention in retentions:
                    for _ in range(_MOST_A_LOOK // _SLICE):
                        gone = await self._store.prune(retention, limit=_SLICE)
                        for run_id in gone:
                            await self._remove_output(run_id)
                        if len(gone) < _SLICE:
                            break
                after = retentions[-1].job_id
        except StoreUnavailable:
            return
