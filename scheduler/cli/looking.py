"""What is going on, seen again and again: jobs due next, live runs, last failures, and what has changed.

`watch` looks once a second and spends a tenth of the time on it at most, whatever there is. The stream of
events was set aside: it tells transitions, while most of a screen (ages, progress, what is due next) moves
without one, and behind each gap of the stream a look like this would be needed all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from scheduler.cli.connection import Control
from scheduler.cli.wording import Json, instant

_MOST_JOBS: Final = 2_000
_MOST_FAILURES: Final = 20
_BAD: Final = ("failed", "crashed", "partial")
_NEVER: Final = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One look at the daemon.

    Attributes:
        jobs: those due next first, then those that are not due, by id.
        live: runs that are live or queued, oldest first.
        failures: runs that ended badly, newest first.
        is_cut: there are more jobs than were looked at.
    """

    status: Json
    jobs: Sequence[Json]
    live: Sequence[Json]
    failures: Sequence[Json]
    is_cut: bool


def look(control: Control) -> Look:
    """How things stand.

    Raises:
        SchedulerError: the daemon does not say.
    """
    jobs = list(control.pages("/v1/jobs", limit=_MOST_JOBS + 1))
    failures = [run for state in _BAD for run in control.pages("/v1/runs", state=state, limit=_MOST_FAILURES)]
    live = [run for job in jobs for run in job.get("live_runs") or []]
    return Look(
        status=control.get("/v1/status").body,
        jobs=sorted(jobs[:_MOST_JOBS], key=_due),
        live=sorted(live, key=_began),
        failures=sorted(failures, key=_ended, reverse=True)[:_MOST_FAILURES],
        is_cut=len(jobs) > _MOST_JOBS,
    )


def changes(before: Look | None, after: Look) -> Iterator[tuple[Json, Json | None]]:
    """What is not as it was: a job with the run that began or ended, or with None where it changed itself."""
    seen = {} if before is None else {str(job["id"]): job for job in before.jobs}
    for job in sorted(after.jobs, key=lambda job: str(job["id"])):
        old = seen.get(str(job["id"]))
        if before is None:
            continue
        if old is None or _standing(old) != _standing(job):
            yield job, None
        for run in _moved(old or {}, job):
            yield job, run


def _moved(old: Json, new: Json) -> list[Json]:
    """Runs of the job whose state is another one now."""
    before = {str(run["id"]): run.get("state") for run in _runs(old)}
    return [run for run in _runs(new) if before.get(str(run["id"])) != run.get("state")]


def _runs(job: Json) -> list[Json]:
    last = job.get("last_run")
    live = list(job.get("live_runs") or [])
    ids = {run.get("id") for run in live}
    return live if not isinstance(last, dict) or last.get("id") in ids else [last, *live]


def _standing(job: Json) -> tuple[object, ...]:
    return (job.get("status"), job.get("enabled"), bool(job.get("problem")), job.get("definition_revision"))


def _due(job: Json) -> tuple[int, str]:
    at = instant(job.get("next_fire_at"))
    return (_NEVER if at is None else at, str(job.get("id")))


def _began(run: Json) -> int:
    return instant(run.get("started_at")) or instant(run.get("queued_at")) or 0


def _ended(run: Json) -> int:
    return instant(run.get("finished_at")) or 0
