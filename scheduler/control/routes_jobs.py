"""Jobs: reading them, and the verbs that change how they live, not what they are."""

from __future__ import annotations

import json
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic_core import to_json

from scheduler.clock import Clock
from scheduler.control import models as api
from scheduler.control.answers import Answers
from scheduler.control.asking import Admitted, JobPath, look
from scheduler.control.firetimes import coming
from scheduler.control.keys import answering
from scheduler.control.links import OF_A_NEW_RUN, OF_JOBS
from scheduler.control.pages import Cursors, page_response
from scheduler.control.ports import Operations
from scheduler.control.requests import (
    JobsQuery,
    NextQuery,
    Nothing,
    PageQuery,
    PauseBody,
    ResumeBody,
    RunBody,
    SkipNextBody,
    WhyQuery,
)
from scheduler.control.views import Views, in_slices, job_and_runs, told
from scheduler.model.jobs import JobId
from scheduler.model.listed import ListedJob
from scheduler.store.protocol import Reads

_PAUSE = PauseBody()
_RESUME = ResumeBody()
_RUN = RunBody()
_SKIP_ONE = SkipNextBody()


class JobRoutes:
    """Routes below /v1/jobs."""

    def __init__(self, operations: Operations, reads: Reads, views: Views, clock: Clock) -> None:
        self._operations = operations
        self._reads = reads
        self._views = views
        self._clock = clock
        self._answers = Answers(views)
        self._jobs = Cursors("jobs")
        self._audit = Cursors("audit")

    def register(self, router: APIRouter) -> None:
        """The routes are part of the router."""
        get, post = router.get, router.post
        get("/v1/jobs", response_model=api.JobPage, responses=dict(OF_JOBS))(self.list_jobs)
        get("/v1/jobs/{id}")(self.show_job)
        get("/v1/jobs/{id}/next")(self.next_times)
        get("/v1/jobs/{id}/why")(self.why)
        get("/v1/jobs/{id}/audit")(self.audit)
        post("/v1/jobs/{id}/pause")(self.pause)
        post("/v1/jobs/{id}/resume")(self.resume)
        post("/v1/jobs/{id}/run", status_code=202, responses=dict(OF_A_NEW_RUN))(self.run)
        post("/v1/jobs/{id}/skip-next")(self.skip_next)

    async def list_jobs(self, asked: Annotated[JobsQuery, Query()]) -> Response:
        """Jobs, by id."""
        after = self._jobs.text(asked.cursor)
        await look(self._operations)
        async with self._views.one_list:
            rows = await self._reads.jobs(
                after=None if after is None else JobId(after),
                limit=asked.limit + 1,
                status=asked.status,
                group=asked.group,
                label=asked.label,
                search=asked.q,
            )
            page = self._jobs.page(rows, asked.limit, [job.id for job in rows])
            items = await in_slices(page.rows, self._told, self._breathe)
            return page_response(items, page.next_cursor)

    async def show_job(self, id: JobPath, _: Annotated[Nothing, Query()], response: Response) -> api.Job:
        """One job; its ETag is what a replacement of the definition has to name."""
        await look(self._operations)
        view = await self._reads.job(id)
        response.headers["ETag"] = f'"{view.job.definition_revision}"'
        return self._views.job(view)

    async def next_times(self, id: JobPath, asked: Annotated[NextQuery, Query()]) -> api.FireTimes:
        """The coming fire times, in the job's zone; none while it cannot fire."""
        await look(self._operations)
        job = (await self._reads.job(id)).job
        zone = self._views.zone_of(job.definition.timezone)
        async with self._views.one_list:
            times = await coming(job, asked.n, self._breathe)
        return api.FireTimes(items=[told(at, zone) for at in times])

    async def why(self, id: JobPath, asked: Annotated[WhyQuery, Query()]) -> api.Why:
        """The one reason why the job is not running, or what became of a fire time."""
        await look(self._operations)
        return self._views.why(await self._operations.why(id, asked.at))

    async def audit(self, id: JobPath, asked: Annotated[PageQuery, Query()]) -> api.AuditPage:
        """What was done to the job, newest first; also of a job that was removed."""
        before = self._audit.number(asked.cursor)
        async with self._views.one_list:
            rows = await self._reads.audit(id, before=before, limit=asked.limit + 1)
            if before is None and not any(entry.job == id for entry in rows):
                await self._reads.job(id)  # what was done to all jobs says nothing about whether there is one
            page = self._audit.page(rows, asked.limit, [entry.seq for entry in rows])
            items = await in_slices(page.rows, self._views.audit, self._breathe)
            return api.AuditPage(items=items, next_cursor=page.next_cursor)

    async def pause(
        self, id: JobPath, _: Annotated[Nothing, Query()], peer: Admitted, body: PauseBody = _PAUSE
    ) -> api.JobAndRuns:
        """The job does not fire until it is resumed, whatever happens meanwhile."""
        until = body.ends_at(self._clock.now())
        asking = answering(peer, self._answers.job_and_runs)
        done = await self._operations.pause(id, body.mode, body.reason, asking, until=until)
        return await job_and_runs(self._views, self._reads, done)

    async def resume(
        self, id: JobPath, _: Annotated[Nothing, Query()], peer: Admitted, body: ResumeBody = _RESUME
    ) -> api.JobAndRuns:
        """The job is active from now, also a failed one."""
        asking = answering(peer, self._answers.job_and_runs)
        done = await self._operations.resume(id, body.missed, asking)
        return await job_and_runs(self._views, self._reads, done)

    async def run(
        self,
        id: JobPath,
        _: Annotated[Nothing, Query()],
        peer: Admitted,
        response: Response,
        body: RunBody = _RUN,
    ) -> api.Run:
        """A run is started now, or queued; the schedule does not move."""
        args = None if body.args is None else json.dumps(body.args, ensure_ascii=False)
        asking = answering(peer, self._answers.started)
        started = await self._operations.run(id, asking, args=args, overlap=body.overlap, new=body.new)
        response.headers["Location"] = f"/v1/runs/{started.run.id}"
        return self._views.run(started.run, await self._reads.attempts(started.run.id))

    async def skip_next(
        self, id: JobPath, _: Annotated[Nothing, Query()], peer: Admitted, body: SkipNextBody = _SKIP_ONE
    ) -> api.JobAndRuns:
        """The next fire times are passed over, and told as skipped."""
        asking = answering(peer, self._answers.job_and_runs)
        done = await self._operations.skip_next(id, body.n, asking)
        return await job_and_runs(self._views, self._reads, done)

    def _told(self, job: ListedJob) -> str:
        return to_json(self._views.listed(job), inf_nan_mode="null").decode()

    async def _breathe(self) -> None:
        await self._clock.sleep(0)
