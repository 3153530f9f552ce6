"""Runs: history, and the verbs that one run takes."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from scheduler.clock import Clock
from scheduler.control import models as api
from scheduler.control.answers import Answers
from scheduler.control.asking import Admitted, RunPath, look
from scheduler.control.keys import answering
from scheduler.control.links import OF_RUNS
from scheduler.control.pages import Cursors, page_response
from scheduler.control.ports import Operations
from scheduler.control.requests import CancelBody, Nothing, RetryBody, RunsQuery
from scheduler.control.views import Views
from scheduler.model.jobs import JobId
from scheduler.model.runs import Run
from scheduler.store.protocol import Reads

_CANCEL = CancelBody()
_RETRY = RetryBody()
_NOTHING = Nothing()


class RunRoutes:
    """Routes below /v1/runs."""

    def __init__(self, operations: Operations, reads: Reads, views: Views, clock: Clock) -> None:
        self._operations = operations
        self._reads = reads
        self._views = views
        self._clock = clock
        self._answers = Answers(views)
        self._runs = Cursors("runs")

    def register(self, router: APIRouter) -> None:
        """The routes are part of the router."""
        router.get("/v1/runs", response_model=api.RunPage, responses=dict(OF_RUNS))(self.list_runs)
        router.get("/v1/runs/{id}")(self.show_run)
        router.post("/v1/runs/{id}/cancel")(self.cancel)
        router.post("/v1/runs/{id}/retry")(self.retry)
        router.post("/v1/runs/{id}/retry-now")(self.retry_now)

    async def list_runs(self, asked: Annotated[RunsQuery, Query()]) -> Response:
        """Runs, newest first, with fire times that were skipped among them."""
        before = self._runs.number(asked.cursor)
        await look(self._operations)
        async with self._views.one_list:
            rows = await self._reads.runs(
                before=before,
                limit=asked.limit + 1,
                job=None if asked.job is None else JobId(asked.job),
                state=asked.state,
                since=asked.since,
            )
            page = self._runs.page(rows, asked.limit, [run.seq for run in rows])
            # Each look at attempts lets the loop go.
            items = [(await self._with_attempts(run)).model_dump_json(by_alias=True) for run in page.rows]
            return page_response(items, page.next_cursor)

    async def show_run(self, id: RunPath, _: Annotated[Nothing, Query()]) -> api.Run:
        """One run with its attempts."""
        await look(self._operations)
        return await self._with_attempts(await self._reads.run(id))

    async def cancel(
        self, id: RunPath, _: Annotated[Nothing, Query()], peer: Admitted, body: CancelBody = _CANCEL
    ) -> api.Run:
        """The run is to end; the answer may come before it has."""
        asking = answering(peer, self._answers.run)
        return await self._with_attempts(await self._operations.cancel(id, asking, force=body.force))

    async def retry(
        self, id: RunPath, _: Annotated[Nothing, Query()], peer: Admitted, body: RetryBody = _RETRY
    ) -> api.Run:
        """A run that ended without success is queued again."""
        failed_only = body.items == "failed"
        keys = body.items if isinstance(body.items, list) else None
        asking = answering(peer, self._answers.run)
        run = await self._operations.retry(id, asking, keys=keys, failed_only=failed_only)
        return await self._with_attempts(run)

    async def retry_now(
        self, id: RunPath, _: Annotated[Nothing, Query()], peer: Admitted, _body: Nothing = _NOTHING
    ) -> api.Run:
        """A run that waits for its next try does not wait any longer."""
        asking = answering(peer, self._answers.run)
        return await self._with_attempts(await self._operations.retry_now(id, asking))

    async def _with_attempts(self, run: Run) -> api.Run:
        attempts = await self._reads.attempts(run.id) if run.claim else []
        return self._views.run(run, attempts)
