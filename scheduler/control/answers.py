"""The answer to a keyed request, made in the store's thread inside the transaction of its effect.

It is the one that the route gives to a request without a key, so a client sees no difference but for one:
a repeated request is answered with what was answered first, and the header `Idempotency-Replayed`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from pydantic import BaseModel

from scheduler.control import models as api
from scheduler.control.views import Views
from scheduler.model.runs import Run
from scheduler.store.keyed import Outcome, RecordedAnswer
from scheduler.store.pausevalues import AllOperated
from scheduler.store.values import JobView

ToAnswer: TypeAlias = Callable[[Outcome], RecordedAnswer]


class Answers:
    """What each verb answers, from its outcome."""

    def __init__(self, views: Views) -> None:
        self._views = views

    def job_and_runs(self, outcome: Outcome) -> RecordedAnswer:
        """Of a verb on a job."""
        runs = [self._views.summary(run) for run in outcome.runs]
        return _recorded(api.JobAndRuns(job=self._views.job(_job(outcome)), runs=runs))

    def all_jobs(self, outcome: Outcome) -> RecordedAnswer:
        """Of a verb on all jobs."""
        return _recorded(self.of_all(_all(outcome)))

    def of_all(self, done: AllOperated) -> api.AllJobs:
        """The pause of all jobs as it is now, and the runs in flight."""
        return api.AllJobs(
            paused=None if done.pause is None else self._views.pause(done.pause),
            runs=[self._views.summary(run) for run in done.in_flight],
        )

    def created(self, outcome: Outcome) -> RecordedAnswer:
        """Of a new definition."""
        view = _job(outcome)
        headers = {"Location": f"/v1/jobs/{view.job.id}", **_etag(view)}
        return _recorded(self._views.job(view), status=201, headers=headers)

    def replaced(self, outcome: Outcome) -> RecordedAnswer:
        """Of another definition."""
        view = _job(outcome)
        return _recorded(self._views.job(view), headers=_etag(view))

    def started(self, outcome: Outcome) -> RecordedAnswer:
        """Of a start."""
        run = _run(outcome)
        return _recorded(
            self._views.run(run, outcome.attempts), status=202, headers={"Location": f"/v1/runs/{run.id}"}
        )

    def run(self, outcome: Outcome) -> RecordedAnswer:
        """Of a verb on a run."""
        return _recorded(self._views.run(_run(outcome), outcome.attempts))

    def item(self, outcome: Outcome) -> RecordedAnswer:
        """Of a settlement."""
        if outcome.item is None:
            raise TypeError("no item was settled")
        return _recorded(
            api.ItemAndRun(item=self._views.item(outcome.item), run=self._views.summary(_run(outcome)))
        )


def _recorded(
    answer: BaseModel, *, status: int = 200, headers: dict[str, str] | None = None
) -> RecordedAnswer:
    return RecordedAnswer(status=status, headers=headers or {}, body=answer.model_dump_json(by_alias=True))


def _etag(view: JobView) -> dict[str, str]:
    return {"ETag": f'"{view.job.definition_revision}"'}


def _job(outcome: Outcome) -> JobView:
    if outcome.job is None:
        raise TypeError("the verb was about no job")
    return outcome.job


def _run(outcome: Outcome) -> Run:
    if outcome.run is None:
        raise TypeError("the verb was about no run")
    return outcome.run


def _all(outcome: Outcome) -> AllOperated:
    if outcome.all is None:
        raise TypeError("the verb was not about all jobs")
    return outcome.all
