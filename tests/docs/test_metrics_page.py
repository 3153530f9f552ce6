"""The page of metrics, the dashboard and the alert rules name what /metrics has, and nothing else."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from scheduler.clock import SECOND
from scheduler.metrics import JOB_LIMIT, Metrics
from tests.docs.support.pages import ROOT, code_words, rows

_PAGE: Final = ROOT / "docs/metrics.md"
_NAME: Final = re.compile(r"\bscheduler_[a-z_]+\b")
_SUFFIXES: Final = ("", "_total", "_bucket", "_sum", "_count")


def families() -> list[Any]:
    """What a scraper reads once everything has happened at least once."""
    metrics = Metrics()
    metrics.fired("schedule", SECOND)
    metrics.skipped("overlap")
    metrics.run_ended("succeeded", SECOND)
    metrics.recovered("crashed")
    metrics.job_ran("a", "succeeded", None, SECOND)
    metrics.next_fires_known({"a": SECOND})
    text = metrics.render().decode()
    return list(text_string_to_metric_families(text))  # type: ignore[no-untyped-call] # untyped there


def series() -> set[str]:
    """The names of all samples."""
    return {
        sample.name for family in families() for sample in family.samples if "_created" not in sample.name
    }


def dashboard() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((ROOT / "docs/grafana-dashboard.json").read_text(encoding="utf-8"))
    return loaded


def expressions() -> list[str]:
    return [target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]]


def test_the_page_has_one_row_for_each_metric_with_its_type_and_labels() -> None:
    """No metric is left out, none is invented, and the labels are the true ones."""
    told = {}
    for row in rows(_PAGE, "Metrics"):
        [name] = code_words(row[0])
        told[name.removesuffix("_total")] = (row[1], set(code_words(row[2])))

    true = {
        family.name: (family.type, {label for sample in family.samples for label in sample.labels} - {"le"})
        for family in families()
    }
    assert told == true


def test_the_bound_that_the_page_names_is_the_true_one() -> None:
    """So many jobs are told by name."""
    assert f"The first {JOB_LIMIT} jobs" in _PAGE.read_text(encoding="utf-8")


def test_the_dashboard_asks_for_names_that_exist_and_for_every_metric() -> None:
    """A panel with a name that is not there would stay empty and nobody would notice."""
    named = {name for expression in expressions() for name in _NAME.findall(expression)}
    asked_by_variables = set(_NAME.findall(json.dumps(dashboard()["templating"])))

    assert (named | asked_by_variables) <= series()
    shown = {family.name for family in families() if any(family.name + end in named for end in _SUFFIXES)}
    assert shown == {family.name for family in families()}


def test_the_rules_ask_for_names_that_exist() -> None:
    """A rule about a name that is not there would never fire."""
    text = (ROOT / "docs/alert-rules.yaml").read_text(encoding="utf-8")
    named = set(_NAME.findall(text))

    assert len(named) >= 8
    assert named <= series()
    assert text.count("- alert:") == text.count("expr:")


def test_the_check_of_names_sees_a_wrong_one() -> None:
    """The checks above are ones that can fail."""
    assert not set(_NAME.findall("rate(scheduler_fires[5m])")) <= series()
