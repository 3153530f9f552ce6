"""The pause of all jobs: said, and taken back."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from scheduler.clock import Clock
from scheduler.control import models as api
from scheduler.control.answers import Answers
from scheduler.control.asking import Admitted
from scheduler.control.keys import answering
from scheduler.control.ports import Operations
from scheduler.control.requests import Nothing, PauseBody
from scheduler.control.views import Views

_PAUSE = PauseBody()
_NOTHING = Nothing()


class PauseRoutes:
    """POST /v1/pause and /v1/resume."""

    def __init__(self, operations: Operations, views: Views, clock: Clock) -> None:
        self._operations = operations
        self._answers = Answers(views)
        self._clock = clock

    def register(self, router: APIRouter) -> None:
        """The routes are part of the router."""
        router.post("/v1/pause")(self.pause_all)
        router.post("/v1/resume")(self.resume_all)

    async def pause_all(
        self, _: Annotated[Nothing, Query()], peer: Admitted, body: PauseBody = _PAUSE
    ) -> api.AllJobs:
        """No job fires and no run starts until this is taken back; the jobs' own pauses are left alone."""
        until = body.ends_at(self._clock.now())
        asking = answering(peer, self._answers.all_jobs)
        done = await self._operations.pause_all(body.mode, body.reason, asking, until=until)
        return self._answers.of_all(done)

    async def resume_all(
        self, _: Annotated[Nothing, Query()], peer: Admitted, _body: Nothing = _NOTHING
    ) -> api.AllJobs:
        """The pause of all jobs is over; jobs that are paused by themselves stay so."""
        done = await self._operations.resume_all(answering(peer, self._answers.all_jobs))
        return self._answers.of_all(done)
