"""How many runs are live and how many wait, counted in the store for the gauges of /metrics."""

from __future__ import annotations

from scheduler.errors import StoreUnavailable
from scheduler.metrics import Metrics
from scheduler.model.runs import LIVE, RunState
from scheduler.store.protocol import Reads


class Census:
    """Counts rows: a number kept in memory would be wrong after the first crash."""

    def __init__(self, reads: Reads, metrics: Metrics) -> None:
        self._reads = reads
        self._metrics = metrics

    async def take(self) -> None:
        """The gauges show what the store has now; they stay as they were where it cannot say."""
        try:
            runs = (await self._reads.counts()).runs
        except StoreUnavailable:
            return
        live = sum(runs.get(state, 0) for state in LIVE)
        self._metrics.runs_counted(live=live, queued=runs.get(RunState.QUEUED, 0))
