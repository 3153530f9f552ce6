from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.cli.toml import job_file

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUE = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(TEXT, st.dictionaries(TEXT, VALUE, max_size=4), max_size=3))
def test_any_table_reads_back_the_same(jobs: dict[str, dict[str, Any]]) -> None:
    """Keys and values of any text, nested as they may be, survive writing and reading."""
    text = job_file(jobs.items(), heading="a heading\nof two lines")

    assert tomllib.loads(text).get("jobs", {}) == jobs


def test_a_job_file_reads_as_people_write_it() -> None:
    """Bare keys, one key a line, a table of its own for each job."""
    jobs: list[tuple[str, dict[str, Any]]] = [
        ("a", {"cron": "@daily", "command": ["x", "y"], "env": {"A": "1"}}),
        ("b.c", {"manual": True}),
    ]

    assert job_file(jobs, heading="h").splitlines() == [
        "# h",
        "",
        "[jobs.a]",
        'cron = "@daily"',
        'command = ["x", "y"]',
        'env = { A = "1" }',
        "",
        '[jobs."b.c"]',
        "manual = true",
    ]


def test_a_value_that_no_job_has_is_refused() -> None:
    """Nothing is written in a form that was not meant."""
    with pytest.raises(TypeError, match="NoneType"):
        job_file([("a", {"x": None})], heading="")


def test_fractions_read_back_the_same() -> None:
    """A definition of the API may have them, as in a delay of half a second."""
    table = {"delay": 0.5, "timeout": 1e-06, "factor": 1e22}

    assert tomllib.loads(job_file([("a", table)], heading=""))["jobs"]["a"] == table
