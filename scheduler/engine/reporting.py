"""Signs of life on their way to the store: merged per run, written once a second at most.

A child is put on record soon: should the daemon die, that is what tells who belonged to the run. Soon and not
at once, so that those who start together go together, and a child that is gone by then with its run's end.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

from scheduler.clock import MILLISECOND, SECOND, Clock, Micros
from scheduler.engine.bell import Bell
from scheduler.engine.ports import BatchProgress, ProgressReport
from scheduler.errors import StoreUnavailable
from scheduler.model.items import MONEY
from scheduler.model.jobs import JobId
from scheduler.model.runs import Progress, Run, RunId
from scheduler.store.protocol import Store
from scheduler.store.values import Report
from scheduler.telemetry import Event, Logger

_PERIOD: Final[Micros] = SECOND
_SOON: Final[Micros] = 50 * MILLISECOND


class Reporter:
    """Collects what attempts tell and writes it in batches."""

    def __init__(self, store: Store, clock: Clock, log: Logger) -> None:
        self._store = store
        self._clock = clock
        self._log = log
        self._pending: dict[tuple[RunId, int], Report] = {}
        self._jobs: dict[RunId, JobId] = {}
        self._batches: dict[RunId, BatchProgress] = {}
        self._dirty = asyncio.Event()
        self._has_child = False
        self._bell = Bell(clock)
        self._under_way: set[asyncio.Future[None]] = set()

    def child(self, run: Run, pid: int, start_ticks: int) -> None:
        """The attempt's main process is to go on record."""
        self._put(run, replace(self._of(run), pid=pid, pid_ticks=start_ticks))
        self._has_child = True
        self._bell.ring()

    def alive(self, run: Run, told: ProgressReport | None = None) -> None:
        """The work gave a sign of life just now, with or without numbers."""
        report = replace(self._of(run), progress_at=self._clock.now())
        if told is not None:
            merged = _merged(report.progress or Progress(), told.progress)
            cost = report.cost if told.cost is None else told.cost
            report = replace(report, progress=merged, cost=cost)
            if told.batch is not None:
                self._batches[run.id] = told.batch
        self._put(run, report)

    def owes(self, run: Run) -> bool:
        """Something that the attempt told is not on its way to the record yet."""
        return (run.id, run.claim) in self._pending

    def last_cost(self, run: Run) -> float | None:
        """The cost that the attempt told and that is not on record yet."""
        pending = self._pending.get((run.id, run.claim))
        return None if pending is None else pending.cost

    async def run(self) -> None:
        """Writes what is pending, for as long as the daemon lives."""
        while True:
            await self._dirty.wait()
            if self._has_child:
                await self._clock.sleep(_SOON)
            await self.flush()
            if not self._has_child:
                await self._bell.rung(_PERIOD)

    async def recorded(self) -> None:
        """What was told before this call is on record, also what another flush is writing now."""
        others = set(self._under_way)
        await self.flush()
        if others:
            await asyncio.wait(others)

    async def flush(self) -> None:
        """What was pending is on record; while the store cannot commit it is kept."""
        self._dirty.clear()
        self._has_child = False
        reports, self._pending = self._pending, {}
        jobs, self._jobs = self._jobs, {}
        batches, self._batches = self._batches, {}
        if not reports:
            return
        written = asyncio.get_running_loop().create_future()
        self._under_way.add(written)
        try:
            await self._store.report(list(reports.values()))
        except StoreUnavailable:
            self._pending = {**reports, **self._pending}
            self._jobs = {**jobs, **self._jobs}
            self._batches = {**batches, **self._batches}
            self._dirty.set()
            return
        except Exception as error:  # noqa: BLE001 - signs of life are not worth a run, let alone the daemon
            message = f"progress of {len(reports)} runs could not be recorded: {error!r}"
            self._log.error(Event.RUN_PROGRESSED, message=message, exc_info=error)
            return
        finally:
            self._under_way.remove(written)
            written.set_result(None)
        for report in reports.values():
            batch = batches.get(report.run_id)
            if batch is not None or report.cost is not None or report.progress not in (None, Progress()):
                self._tell(report, jobs[report.run_id], batch)

    def _tell(self, report: Report, job: JobId, batch: BatchProgress | None) -> None:
        progress = report.progress or Progress()
        numbers = (
            {"done": progress.done, "total": progress.total, "cost": report.cost}
            if batch is None
            else _numbers(batch)
        )
        self._log.debug(
            Event.RUN_PROGRESSED,
            job=job,
            run_id=report.run_id,
            claim=report.claim,
            **numbers,
            message=progress.message,
        )

    def _of(self, run: Run) -> Report:
        return self._pending.get((run.id, run.claim)) or Report(run_id=run.id, claim=run.claim)

    def _put(self, run: Run, report: Report) -> None:
        self._jobs[run.id] = run.job
        self._pending[report.run_id, report.claim] = report
        self._dirty.set()


def _merged(before: Progress, after: Progress) -> Progress:
    """What was told last, field by field."""
    return Progress(
        done=before.done if after.done is None else after.done,
        total=before.total if after.total is None else after.total,
        failed=before.failed if after.failed is None else after.failed,
        unknown=before.unknown if after.unknown is None else after.unknown,
        message=before.message if after.message is None else after.message,
    )


def _numbers(batch: BatchProgress) -> dict[str, float | None]:
    """What a follower wants to know of a batch, the time that it will still take included (seconds)."""
    counts, rate = batch.counts, batch.rate
    return {
        "done": counts.done,
        "failed": counts.failed,
        "unknown": counts.unknown,
        "total": counts.total,
        "rate": None if rate is None else round(rate, 3),
        "seconds_left": None if rate is None else round((counts.chosen + counts.running) / rate),
        "cost": counts.spent / MONEY,
    }
