"""Batches and budgets in job files: what is taken, what it means, and what is wrong with the rest."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.clock import MINUTE, SECOND
from scheduler.config.jobfile import parse_definition
from scheduler.config.settings import Settings
from scheduler.errors import Invalid
from scheduler.model.definitions import decode
from scheduler.model.jobs import BatchPolicy, Budget, OnCrash, RetryPolicy, UnknownItems


def _parsed(batch: dict[str, Any] | None = None, **keys: Any) -> Any:
    table: dict[str, Any] = {"manual": True, "shell": "true", **keys}
    if batch is not None:
        table["batch"] = batch
    return parse_definition("b", table, Settings())


def test_a_whole_batch() -> None:
    """Every key is where the worker looks for it, and the text alone says the same."""
    job = _parsed(
        {
            "items": ["intro", {"key": "ch1", "text": "x"}],
            "concurrency": 4,
            "item_timeout": "3m",
            "retry": {"attempts": 2, "delay": "5s"},
            "unknown": "retry",
            "max_failed": 3,
            "max_failed_percent": 12.5,
            "max_consecutive_failed": 2,
        },
        budget={"per_run": 5.0, "per_day": 20, "unit": "EUR", "cost_estimate": 0.1},
    )

    assert job.batch == BatchPolicy(
        items=("intro", {"key": "ch1", "text": "x"}),
        concurrency=4,
        item_timeout=3 * MINUTE,
        retry=RetryPolicy(attempts=2, delay=5 * SECOND),
        unknown=UnknownItems.RETRY,
        max_failed=3,
        max_failed_percent=12.5,
        max_consecutive_failed=2,
    )
    assert job.budget == Budget(per_run=5_000_000, per_day=20_000_000, unit="EUR", cost_estimate=100_000)
    assert decode("b", job.source) == job


def test_the_defaults_of_a_batch() -> None:
    """It resumes after a crash, holds what is in doubt, and is stalled after half an hour of silence."""
    job = _parsed({"items": [1]})

    assert job.on_crash is OnCrash.RESUME
    assert job.batch == BatchPolicy(items=(1,))
    assert job.stall_after == 30 * MINUTE
    assert _parsed({"items": [1], "item_timeout": "20m"}).stall_after == 60 * MINUTE
    assert _parsed({"items": [1]}, on_crash="record").on_crash is OnCrash.RECORD
    assert _parsed().on_crash is OnCrash.RECORD


@pytest.mark.parametrize(
    ("batch", "keys", "said"),
    [
        ({}, {}, "has no items"),
        ({"items": [1], "items_file": "x"}, {}, "exclude each other"),
        ({"items": ["a", "b", "a"]}, {}, "a stands twice: items 0 and 2"),
        ({"items": "a"}, {}, "must be a list"),
        ({"items": ["x" * 70_000]}, {}, "usable key"),
        ({"items": [{"key": "big", "text": "x" * 70_000}]}, {}, "item big has"),
        ({"items": [1], "concurrency": 0}, {}, "at least 1"),
        ({"items": [1], "concurency": 2}, {}, "concurrency"),
        ({"items": [1], "unknown": "forget"}, {}, "must be"),
        ({"items": [1], "max_failed_percent": 101.0}, {}, "at most 100"),
        ({"items": [1]}, {"complete_exit_codes": [3]}, "leave the key out"),
        ({"items": [1], "unknown": "retry"}, {"max_crashes": 0}, "at least 1"),
        (None, {"on_crash": "resume"}, "for batches"),
        (None, {"budget": {"per_run": 1.0}}, "belongs to a batch"),
        ({"items": [1]}, {"budget": {}}, "caps nothing"),
        ({"items": [1]}, {"budget": {"per_run": 1.0, "cost_estimate": 2.0}}, "no item could ever begin"),
        ({"items": [1]}, {"budget": {"per_run": -1.0}}, "more than 0"),
    ],
)
def test_what_is_wrong_is_said(batch: dict[str, Any] | None, keys: dict[str, Any], said: str) -> None:
    """One fault that names the key, and says what to write instead."""
    with pytest.raises(Invalid) as refused:
        _parsed(batch, **keys)
    assert any(said in str(fault) for fault in refused.value.faults), refused.value.faults
