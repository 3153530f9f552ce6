"""The daemon's numbers, in the OpenMetrics text format.

Promises: a registry of its own, nothing global; names begin with `scheduler_`; the number of time series
is bounded, however many jobs there are: no label bears the id of a run, and of the jobs the first
`JOB_LIMIT` that are due or run are told by name, the rest as `other`; a removed job gives its place back.
Durations come in as microseconds and go out as seconds, the unit of the format. Serving the text is left to
the control API.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST, generate_latest

from scheduler.clock import SECOND, Micros, seconds
from scheduler.series import Counts, Histograms, Levels

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST

LABEL_LIMIT: Final = 32
"""Values of one label; the words of the closed lists fit, anything beyond is counted as `other`."""

JOB_LIMIT: Final = 200
"""Jobs that have series of their own, at most."""

OTHER: Final = "other"

_JOB_RUN: Final = ("job", "state", "reason")
_LATENESS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300, 3_600, 86_400)
_DURATION: Final = (0.1, 0.5, 1, 5, 15, 60, 300, 900, 3_600, 14_400, 86_400)
_COMMIT: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)
_BATCH: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_LAG: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5)


class Metrics:
    """What happened, counted where it happened; each method is one fact.

    Args:
        lines_lost: log lines that could not be written, asked for at each look.
    """

    def __init__(self, lines_lost: Callable[[], int] = lambda: 0) -> None:
        self._registry = registry = CollectorRegistry()
        self._labels: dict[str, dict[str, str]] = {}
        self._jobs: dict[str, set[tuple[str, str]]] = {}
        self._fires = _counter("fires", "Fire times that made a run.", registry, "trigger")
        self._lateness = _durations("fire_lateness_seconds", "From due to fired.", _LATENESS, registry)
        self._durations = _durations(
            "run_duration_seconds",
            "From the start of an attempt to its recorded end.",
            _DURATION,
            registry,
            "outcome",
        )
        self._live = _gauge("live_runs", "Runs that take a slot.", registry)
        self._queued = _gauge("queued_runs", "Runs that wait for a slot.", registry)
        self._overdue = _gauge("overdue_jobs", "Jobs with on_overdue whose run has not begun.", registry)
        self._job_runs = _counter(
            "job_runs",
            "Runs that came to an end, and fire times that were skipped.",
            registry,
            *_JOB_RUN,
        )
        self._job_successes = _gauge(
            "job_last_success_timestamp_seconds",
            "When a run of the job last succeeded, since the daemon started.",
            registry,
            "job",
        )
        self._next_fires = _gauge(
            "job_next_fire_timestamp_seconds",
            "When the job is due next, if it is not paused.",
            registry,
            "job",
        )
        self._awaited: set[str] = set()
        self._skips = _counter("non_runs", "Fire times without a run.", registry, "reason")
        self._recoveries = _counter("recoveries", "Dead claims that were released.", registry, "outcome")
        self._fenced = _counter("fenced_writes", "Write-backs that came with an old claim.", registry)
        self._preserved = _counter(
            "pauses_preserved", "Write-backs that met a pause, which stayed.", registry
        )
        self._renewals = _counter("lease_renewals", "Leases that were renewed.", registry)
        self._commits = _durations("store_commit_seconds", "Time of a store commit.", _COMMIT, registry)
        self._batches = Histograms(
            "scheduler_store_commit_batch", "Requests in one store commit.", (), registry, bounds=_BATCH
        )
        lost = Gauge("scheduler_log_lines_lost", "Log lines that could not be written.", registry=registry)
        lost.set_function(lines_lost)
        self._lag = _durations("loop_lag_seconds", "How late the event loop came back.", _LAG, registry)

    def fired(self, trigger: str, lateness: Micros) -> None:
        """A fire time made a run, `lateness` after it was due."""
        self._fires.add((self._bounded("trigger", trigger),))
        self._lateness.observe((), lateness)

    def skipped(self, reason: str, count: int = 1) -> None:
        """`count` fire times made no run."""
        self._skips.add((self._bounded("reason", reason),), count)

    def run_ended(self, outcome: str, duration: Micros) -> None:
        """An attempt ended after `duration`, and its outcome is recorded."""
        self._durations.observe((self._bounded("outcome", outcome),), duration)

    def job_ran(self, job: str, state: str, reason: str | None, at: Micros | None = None) -> None:
        """A run of the job ended for good at `at`."""
        name = self._job_run(job, state, reason, 1)
        if state == "succeeded" and at is not None and name != OTHER:
            self._job_successes.set((name,), seconds(at))

    def job_skipped(self, job: str, reason: str, count: int = 1) -> None:
        """`count` fire times of the job made no run."""
        self._job_run(job, "skipped", reason, count)

    def next_fires_known(self, fires: Mapping[str, Micros]) -> None:
        """These jobs are due next, at these instants; of all that are told as `other` the earliest counts."""
        told: dict[str, Micros] = {}
        for job, at in fires.items():
            name = self._job_name(job)
            told[name] = min(at, told.get(name, at))
        for name in self._awaited - told.keys():
            self._next_fires.forget((name,))
            if not self._jobs.get(name, True):  # it has no series left, so it needs no place
                del self._jobs[name]
        for name, at in told.items():
            self._next_fires.set((name,), seconds(at))
        self._awaited = set(told)

    def job_removed(self, job: str) -> None:
        """The job has no series any more, and another one may have its place."""
        if job in self._awaited:
            self._awaited.remove(job)
            self._next_fires.forget((job,))
        for state, reason in self._jobs.pop(job, ()):
            self._job_runs.forget((job, state, reason))
        self._job_successes.forget((job,))

    def overdue_counted(self, count: int) -> None:
        """So many jobs are overdue, by the latest look."""
        self._overdue.set((), count)

    def runs_counted(self, *, live: int, queued: int) -> None:
        """So many runs take a slot and wait for one, by the latest count."""
        self._live.set((), live)
        self._queued.set((), queued)

    def recovered(self, outcome: str) -> None:
        """A dead claim was released, and its run became `outcome`."""
        self._recoveries.add((self._bounded("outcome", outcome),))

    def write_fenced(self) -> None:
        """A write-back came with an old claim and changed nothing."""
        self._fenced.add(())

    def pause_preserved(self) -> None:
        """A write-back met a pause, which stayed."""
        self._preserved.add(())

    def leases_renewed(self, count: int) -> None:
        """One heartbeat renewed `count` leases."""
        self._renewals.add((), count)

    def committed(self, duration: Micros, requests: int) -> None:
        """The store committed `requests` at once, in `duration`."""
        self._commits.observe((), duration)
        self._batches.observe((), requests)

    def loop_lagged(self, lag: Micros) -> None:
        """The event loop came back `lag` later than asked."""
        self._lag.observe((), lag)

    def render(self) -> bytes:
        """Everything counted so far as OpenMetrics text, of type `CONTENT_TYPE`."""
        text: bytes = generate_latest(self._registry)  # type: ignore[no-untyped-call]  # untyped there
        return text

    def _job_run(self, job: str, state: str, reason: str | None, count: int) -> str:
        """One more of the job's counter; the name under which the job is told."""
        name, why = self._job_name(job), self._bounded("job_reason", reason or "")
        if name != OTHER:
            self._jobs[name].add((state, why))
        self._job_runs.add((name, state, why), count)
        return name

    def _job_name(self, job: str) -> str:
        """What the label says of the job: its id while there is room for one more, else `other`."""
        if job not in self._jobs and len(self._jobs) >= JOB_LIMIT:
            return OTHER
        self._jobs.setdefault(job, set())
        return job

    def _bounded(self, label: str, value: str) -> str:
        known = self._labels.setdefault(label, {})
        told = known.get(value)
        if told is None:
            if len(known) >= LABEL_LIMIT:
                return OTHER
            told = known[str(value)] = str(value)
        return told


def _gauge(name: str, text: str, registry: CollectorRegistry, *labels: str) -> Levels:
    return Levels(f"scheduler_{name}", text, labels, registry)


def _counter(name: str, text: str, registry: CollectorRegistry, *labels: str) -> Counts:
    return Counts(f"scheduler_{name}", text, labels, registry)


def _durations(
    name: str, text: str, bounds: tuple[float, ...], registry: CollectorRegistry, *labels: str
) -> Histograms:
    """A histogram in seconds that is told microseconds."""
    return Histograms(f"scheduler_{name}", text, labels, registry, bounds=bounds, unit=SECOND)
