from __future__ import annotations

import re

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from scheduler.clock import SECOND
from scheduler.metrics import CONTENT_TYPE, JOB_LIMIT, LABEL_LIMIT, Metrics

NAMES = {
    "scheduler_fires",
    "scheduler_fire_lateness_seconds",
    "scheduler_run_duration_seconds",
    "scheduler_live_runs",
    "scheduler_queued_runs",
    "scheduler_non_runs",
    "scheduler_job_runs",
    "scheduler_job_last_success_timestamp_seconds",
    "scheduler_job_next_fire_timestamp_seconds",
    "scheduler_overdue_jobs",
    "scheduler_recoveries",
    "scheduler_fenced_writes",
    "scheduler_pauses_preserved",
    "scheduler_lease_renewals",
    "scheduler_store_commit_seconds",
    "scheduler_store_commit_batch",
    "scheduler_log_lines_lost",
    "scheduler_loop_lag_seconds",
}


def samples(metrics: Metrics) -> dict[str, float]:
    """Every sample by its name and labels, as a scraper reads it."""
    families = text_string_to_metric_families(metrics.render().decode())  # type: ignore[no-untyped-call]
    return {
        sample.name + "".join(f"{{{key}={value}}}" for key, value in sample.labels.items()): sample.value
        for family in families
        for sample in family.samples
    }


def test_the_text_is_openmetrics_with_our_names() -> None:
    """A scraper that knows OpenMetrics reads the text, and finds the names that are documented."""
    text = Metrics().render().decode()

    assert CONTENT_TYPE.startswith("application/openmetrics-text")
    assert set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)) == NAMES
    assert text.endswith("# EOF\n")


def test_each_fact_is_counted_where_it_belongs() -> None:
    """Each method moves its own numbers, durations in seconds."""
    metrics = Metrics()

    metrics.fired("schedule", SECOND // 2)
    metrics.skipped("overlap")
    metrics.skipped("paused", 41)
    metrics.run_ended("succeeded", 90 * SECOND)
    metrics.runs_counted(live=3, queued=2)
    metrics.recovered("crashed")
    metrics.write_fenced()
    metrics.pause_preserved()
    metrics.leases_renewed(5)
    metrics.committed(SECOND // 100, 7)
    metrics.loop_lagged(SECOND // 1000)
    metrics.job_ran("a", "succeeded", None, 7 * SECOND)
    metrics.job_ran("a", "failed", "exit_code", 9 * SECOND)
    metrics.job_skipped("a", "overlap", 4)
    metrics.overdue_counted(2)

    seen = samples(metrics)
    expected = {
        "scheduler_fires_total{trigger=schedule}": 1,
        "scheduler_fire_lateness_seconds_sum": 0.5,
        "scheduler_non_runs_total{reason=overlap}": 1,
        "scheduler_non_runs_total{reason=paused}": 41,
        "scheduler_run_duration_seconds_sum{outcome=succeeded}": 90,
        "scheduler_live_runs": 3,
        "scheduler_queued_runs": 2,
        "scheduler_recoveries_total{outcome=crashed}": 1,
        "scheduler_fenced_writes_total": 1,
        "scheduler_pauses_preserved_total": 1,
        "scheduler_lease_renewals_total": 5,
        "scheduler_store_commit_seconds_sum": 0.01,
        "scheduler_store_commit_batch_sum": 7,
        "scheduler_loop_lag_seconds_sum": 0.001,
        "scheduler_job_runs_total{job=a}{reason=}{state=succeeded}": 1,
        "scheduler_job_runs_total{job=a}{reason=exit_code}{state=failed}": 1,
        "scheduler_job_runs_total{job=a}{reason=overlap}{state=skipped}": 4,
        "scheduler_job_last_success_timestamp_seconds{job=a}": 7,
        "scheduler_overdue_jobs": 2,
    }
    assert {name: seen[name] for name in expected} == pytest.approx(expected)


def test_labels_are_bounded() -> None:
    """A label that takes ever new values ends in `other`, so that the number of series stays bounded."""
    metrics = Metrics()

    for index in range(1000):
        metrics.skipped(f"reason-{index}")

    series = [name for name in samples(metrics) if name.startswith("scheduler_non_runs_total")]
    assert len(series) == LABEL_LIMIT + 1
    assert samples(metrics)["scheduler_non_runs_total{reason=other}"] == 1000 - LABEL_LIMIT


def job_series(metrics: Metrics) -> list[str]:
    return [name for name in samples(metrics) if name.startswith("scheduler_job_") and "_created" not in name]


def test_many_runs_of_a_job_are_one_series() -> None:
    """No label bears a run, so ten thousand runs make no more series than one does (B55)."""
    metrics = Metrics()

    for number in range(10_000):
        metrics.job_ran("a", "succeeded", None, number * SECOND)

    assert len(job_series(metrics)) == 2


def test_jobs_beyond_the_limit_are_told_together_and_removed_ones_leave_nothing() -> None:
    """A thousand jobs that come and go leave no series behind, and more at a time end in `other` (B55)."""
    metrics = Metrics()

    for number in range(1000):
        metrics.job_ran(f"gone-{number}", "succeeded", None, SECOND)
        metrics.job_ran(f"gone-{number}", "failed", "exit_code", SECOND)
        metrics.job_removed(f"gone-{number}")
    assert job_series(metrics) == []

    for number in range(JOB_LIMIT + 5):
        metrics.job_ran(f"job-{number}", "succeeded", None, SECOND)
    assert len(job_series(metrics)) == 2 * JOB_LIMIT + 1
    assert samples(metrics)["scheduler_job_runs_total{job=other}{reason=}{state=succeeded}"] == 5

    metrics.job_removed("job-0")
    metrics.job_ran("job-new", "failed", "exit_code", SECOND)
    assert samples(metrics)["scheduler_job_runs_total{job=job-new}{reason=exit_code}{state=failed}"] == 1


def next_fires(metrics: Metrics) -> dict[str, float]:
    name = "scheduler_job_next_fire_timestamp_seconds"
    found = samples(metrics).items()
    return {key.removeprefix(f"{name}{{job=")[:-1]: value for key, value in found if key.startswith(name)}


def test_the_next_fire_of_each_job_is_the_latest_look() -> None:
    """A job that is not due any more has no series, nor has one that was removed."""
    metrics = Metrics()

    metrics.next_fires_known({"a": 7 * SECOND, "b": 8 * SECOND, "c": 9 * SECOND})
    metrics.next_fires_known({"b": 80 * SECOND, "c": 9 * SECOND})
    metrics.job_removed("c")

    assert next_fires(metrics) == {"b": 80}


def test_of_more_jobs_than_have_names_the_earliest_fire_is_told_as_other() -> None:
    """The number of series stays bounded, and a job that has none gives its place to another."""
    metrics = Metrics()

    metrics.next_fires_known({f"job-{number}": number * SECOND for number in range(JOB_LIMIT + 5)})
    assert len(next_fires(metrics)) == JOB_LIMIT + 1
    assert next_fires(metrics)["other"] == JOB_LIMIT

    metrics.next_fires_known({})
    metrics.next_fires_known({"new": SECOND})
    assert next_fires(metrics) == {"new": 1}


def test_two_daemons_in_one_process_count_apart() -> None:
    """Nothing is global: each instance has its own numbers."""
    one, other = Metrics(), Metrics()

    one.write_fenced()

    assert samples(other)["scheduler_fenced_writes_total"] == 0
