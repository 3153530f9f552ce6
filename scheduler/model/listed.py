"""A job as lists show it: what its row says, with its definition as a table that nobody has decoded.

A page of a hundred jobs shows a few words of each definition and the rest as it is written. So lists take the
words from the table; `decode` is for whoever lets the job run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from scheduler.clock import Micros
from scheduler.model.jobs import Job, JobId, JobStatus, Origin, Pause
from scheduler.model.record import record
from scheduler.model.runs import Run

STAND_IN: Final[Mapping[str, Any]] = {"manual": True, "shell": "exit 78", "timezone": "UTC"}
"""What a job is shown to be whose definition cannot be read. Exit 78: EX_CONFIG of sysexits.h, never run."""


@record
class ListedJob:
    """A job with what a list shows of its runs.

    Attributes:
        definition: the keys of its canonical text, secrets included.
        definition_error: why the definition cannot be read on this machine, or None.
        live_runs: live and queued ones, oldest first.
    """

    id: JobId
    status: JobStatus
    enabled: bool
    revision: int
    definition_revision: int
    origin: Origin
    origin_file: str | None
    next_fire_at: Micros | None
    problem_code: str | None
    problem_message: str | None
    pause: Pause | None
    definition: Mapping[str, Any]
    definition_error: str | None
    last_run: Run | None
    live_runs: tuple[Run, ...]

    @property
    def shown(self) -> Mapping[str, Any]:
        """The keys that say what the job does and when: those of the definition, where it can be read."""
        return self.definition if self.definition_error is None else STAND_IN


def listed(job: Job, last_run: Run | None, live_runs: tuple[Run, ...]) -> ListedJob:
    """The job as a list would show it."""
    return ListedJob(
        id=job.id,
        status=job.status,
        enabled=job.enabled,
        revision=job.revision,
        definition_revision=job.definition_revision,
        origin=job.origin,
        origin_file=job.origin_file,
        next_fire_at=job.next_fire_at,
        problem_code=job.problem_code,
        problem_message=job.problem_message,
        pause=job.pause,
        definition=json.loads(job.definition.source),
        definition_error=job.definition_error,
        last_run=last_run,
        live_runs=live_runs,
    )
