"""Answers of the API without a daemon: the same shapes, from the store and the files of the runs.

Only what can be read is answered. Nothing here serves or imports a server; schedctl holds it in its hand
where no daemon answers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import tzinfo
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from scheduler.clock import Clock, Micros
from scheduler.control import models as api
from scheduler.control.explaining import explained, explained_then
from scheduler.control.firetimes import coming
from scheduler.control.outputs import OutputReading
from scheduler.control.pages import Cursors
from scheduler.control.ports import Outputs, Why
from scheduler.control.requests import JobsQuery, NextQuery, OutputQuery, RunsQuery, WhyQuery
from scheduler.control.views import Views, told
from scheduler.errors import DaemonUnreachable, Invalid
from scheduler.model.jobs import JobId
from scheduler.model.runs import Run, RunId, RunState
from scheduler.rules.why import Limits, why
from scheduler.store.protocol import Reads

Q = TypeVar("Q", bound=BaseModel)

_NO_LIMIT: Final = Limits(claimed=0, max_running=1)
"""How full a daemon is does not matter where there is none."""

_CLAIMED: Final = (RunState.RUNNING, RunState.RECOVERING)


class OfflineAnswers:
    """What GET would answer, by path.

    Args:
        zone: in which times are shown that belong to no job.
    """

    def __init__(self, reads: Reads, outputs: Outputs, zone: tzinfo, clock: Clock) -> None:
        self._reads = reads
        self._outputs = outputs
        self._views = Views(zone)
        self._clock = clock
        self._jobs = Cursors("jobs")
        self._runs = Cursors("runs")

    async def answer(self, path: str, query: Mapping[str, object]) -> dict[str, Any]:
        """The body of the answer, as JSON's values.

        Raises:
            NotFound: there is no such job or run.
            Invalid: the query is none.
            DaemonUnreachable: only a daemon can answer this.
        """
        match path.strip("/").split("/"):
            case ["v1", "jobs"]:
                found: BaseModel = await self._list_jobs(_asked(JobsQuery, query))
            case ["v1", "jobs", id]:
                found = self._views.job(await self._reads.job(JobId(id)))
            case ["v1", "jobs", id, "next"]:
                found = await self._next(JobId(id), _asked(NextQuery, query))
            case ["v1", "jobs", id, "why"]:
                found = self._views.why(await self._why(JobId(id), _asked(WhyQuery, query).at))
            case ["v1", "runs"]:
                found = await self._list_runs(_asked(RunsQuery, query))
            case ["v1", "runs", id]:
                found = await self._run(await self._reads.run(RunId(id)))
            case _:
                raise DaemonUnreachable(f"no daemon answers, and the store alone does not tell {path}")
        return found.model_dump(mode="json", by_alias=True)

    async def paused(self) -> dict[str, Any] | None:
        """The pause of all jobs, as the daemon's status tells it; None if there is none."""
        pause = await self._reads.global_pause()
        return None if pause is None else self._views.pause(pause).model_dump(mode="json", by_alias=True)

    async def output(self, run_id: RunId, query: Mapping[str, object]) -> AsyncIterator[bytes]:
        """What the run wrote so far, in pieces."""
        reading = OutputReading(self._outputs, run_id, _asked(OutputQuery, query), self._views.time)
        await self._reads.run(run_id)
        reading.know([attempt.claim for attempt in await self._reads.attempts(run_id)])
        async for piece in reading.news():
            yield piece

    async def _list_jobs(self, asked: JobsQuery) -> api.JobPage:
        after = self._jobs.text(asked.cursor)
        rows = await self._reads.jobs(
            after=None if after is None else JobId(after),
            limit=asked.limit + 1,
            status=asked.status,
            group=asked.group,
            label=asked.label,
            search=asked.q,
        )
        page = self._jobs.page(rows, asked.limit, [job.id for job in rows])
        items = [api.Job.model_validate(self._views.listed(job)) for job in page.rows]
        return api.JobPage(items=items, next_cursor=page.next_cursor)

    async def _list_runs(self, asked: RunsQuery) -> api.RunPage:
        rows = await self._reads.runs(
            before=self._runs.number(asked.cursor),
            limit=asked.limit + 1,
            job=None if asked.job is None else JobId(asked.job),
            state=asked.state,
            since=asked.since,
        )
        page = self._runs.page(rows, asked.limit, [run.seq for run in rows])
        return api.RunPage(items=[await self._run(run) for run in page.rows], next_cursor=page.next_cursor)

    async def _run(self, run: Run) -> api.Run:
        return self._views.run(run, await self._reads.attempts(run.id) if run.claim else [])

    async def _next(self, job_id: JobId, asked: NextQuery) -> api.FireTimes:
        job = (await self._reads.job(job_id)).job
        times = await coming(job, asked.n, _nobody_waits)
        return api.FireTimes(items=[told(at, self._views.zone_of(job.definition.timezone)) for at in times])

    async def _why(self, job_id: JobId, at: Micros | None) -> Why:
        """The reason in the job's own rows; where they have none, that no daemon is there to run it."""
        view = await self._reads.job(job_id)
        if at is not None:
            return await explained_then(self._reads, view.job, at, self._clock.now())
        cut = next((run for run in view.live_runs if run.state in _CLAIMED), None)
        if cut is not None:
            pause = "" if view.job.pause is None else f"; the job is {view.job.pause.words}"
            return Why(
                job=job_id,
                blocked=True,
                code="no_daemon",
                message=f"no daemon; run {cut.id} was live when it went away:"
                f" its next start recovers it{pause}",
                since=cut.started_at,
                run_id=cut.id,
            )
        found = why(
            view.job,
            view.live_runs,
            _NO_LIMIT,
            self._clock.now(),
            draining=False,
            global_pause=await self._reads.global_pause(),
        )
        if not found.is_blocked and found.code == "due":
            return Why(job=job_id, blocked=True, code="no_daemon", message="it is due, and no daemon runs")
        return explained(job_id, found)


async def _nobody_waits() -> None:
    """There is no loop to let go of."""


def _asked(kind: type[Q], query: Mapping[str, object]) -> Q:
    """The query, judged as the daemon would."""
    try:
        return kind.model_validate({key: value for key, value in query.items() if value is not None})
    except ValidationError as bad:
        first = bad.errors()[0]
        raise Invalid(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from bad
