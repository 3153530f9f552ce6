"""What the store has now, for the gauges of /metrics: live runs, waiting runs, and when jobs fire next."""

from __future__ import annotations

from scheduler.clock import Micros
from scheduler.errors import StoreUnavailable
from scheduler.metrics import JOB_LIMIT, Metrics
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
            fires = await self._fires()
        except StoreUnavailable:
            return
        live = sum(runs.get(state, 0) for state in LIVE)
        self._metrics.runs_counted(live=live, queued=runs.get(RunState.QUEUED, 0))
        self._metrics.next_fires_known(fires)

    async def _fires(self) -> dict[str, Micros]:
        """What fires next if nobody does anything: nothing while all jobs are paused."""
        if await self._reads.global_pause() is not None:
            return {}
        return {str(job): at for job, at in (await self._reads.next_fires(JOB_LIMIT)).items()}
