import json
import subprocess
import sys
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.clock import SECOND
from scheduler.config.jobfile import parse_definition
from scheduler.config.settings import Settings
from scheduler.model.definitions import canonical, decode, wire_seconds, wire_time
from scheduler.model.jobs import JobDefinition
from scheduler.model.triggers import Manual

SETTINGS = Settings(timezone="Europe/Berlin", groups={"g": 1}, calendars={"c": ("2026-12-24",)})

_TEXT = st.text(st.characters(min_codepoint=32, exclude_categories=["C", "Z"]), min_size=1, max_size=10)
_MICROS = st.integers(1_000, 10**15)
_SECONDS = st.one_of(
    st.integers(1, 10**6), st.sampled_from(["500ms", "90s", "1h30m", "0.000001d"]), _MICROS.map(wire_seconds)
)
_CODES = st.lists(st.integers(0, 255), min_size=1, max_size=4)
_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=8,
)
_TRIGGERS = st.one_of(
    st.sampled_from(["* * * * *", "30 2 * * 1-5", "@daily", "*/10 0 0 * * *"]).map(
        lambda cron: {"cron": cron}
    ),
    _SECONDS.map(lambda period: {"every": period}),
    _SECONDS.map(lambda period: {"delay": period}),
    st.sampled_from(["2027-01-01T09:00:00+01:00", "2026-03-29T02:30:00", "2027-01-01t00:00:00.25z"]).map(
        lambda moment: {"at": moment}
    ),
    st.just({"manual": True}),
)
_ACTIONS = st.one_of(
    st.lists(_TEXT, min_size=1, max_size=3).map(lambda argv: {"command": argv, "success_exit_codes": [0]}),
    _TEXT.map(lambda line: {"shell": line, "cwd": "/srv", "stdin": "a\nb"}),
    st.booleans().map(lambda process: {"python": "a.b:c", "process": process}),
)
_OPTIONS: dict[str, st.SearchStrategy[Any]] = {
    "description": _TEXT,
    "timezone": st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kathmandu"]),
    "args": st.dictionaries(_TEXT, _JSON, max_size=3),
    "timeout": _SECONDS,
    "stall_timeout": _SECONDS,
    "kill_grace": st.just("10s") | _SECONDS,
    "queue_limit": st.integers(1, 3),
    "labels": st.lists(_TEXT, max_size=3),
    "group": st.just("g"),
    "priority": st.integers(-3, 3),
    "catch_up": st.sampled_from(["latest", "skip", "all"]),
    "catch_up_window": st.just("1d") | _SECONDS,
    "late_after": st.just(60.0) | _SECONDS,
    "on_crash": st.sampled_from(["record", "retry"]),
    "max_failures": st.integers(0, 3),
    "enabled": st.booleans(),
    "keep_runs": st.integers(1, 3),
    "retry": st.fixed_dictionaries(
        {}, optional={"attempts": st.integers(0, 3), "delay": st.integers(0, 10), "max_delay": st.just("1h")}
    ),
}
_TABLES = st.builds(
    lambda trigger, action, options: options | action | trigger,
    _TRIGGERS,
    _ACTIONS,
    st.fixed_dictionaries({}, optional=_OPTIONS),
)


@given(_TABLES)
def test_a_definition_survives_its_text(table: dict[str, Any]) -> None:
    """decode(source) is the definition, and the text of its text is the same text."""
    job = parse_definition("job", table, SETTINGS)

    assert decode("job", job.source) == job
    assert canonical(json.loads(job.source)) == job.source


@given(_TABLES, st.sampled_from(["UTC", "Asia/Tokyo"]))
def test_the_text_sent_back_changes_nothing(table: dict[str, Any], zone: str) -> None:
    """What the API showed, put back unchanged, is the same definition, whatever the daemon's zone is now."""
    job = parse_definition("job", table, SETTINGS)

    back = parse_definition("job", json.loads(job.source), Settings(timezone=zone, groups={"g": 1}))

    assert back == job


@given(_TABLES, _TABLES)
def test_texts_are_equal_exactly_when_definitions_are(one: dict[str, Any], two: dict[str, Any]) -> None:
    """Two definitions are the same exactly when their sources are."""
    first, second = parse_definition("job", one, SETTINGS), parse_definition("job", two, SETTINGS)

    assert (first.source == second.source) == (_meaning(first) == _meaning(second))


def _meaning(job: JobDefinition) -> str:
    """All of a definition but its source; as text, for True and 1 are equal and yet not the same JSON."""
    return repr([getattr(job, one.name) for one in fields(JobDefinition) if one.name != "source"])


@pytest.mark.parametrize(
    "extra",
    [
        {"timeout": None},
        {"kill_grace": 10},
        {"kill_grace": 10.0},
        {"jitter": 0, "except": [], "process": False, "control": False, "isolate": "none"},
        {"retry": {}},
        {
            "retry": {
                "attempts": 0,
                "delay": 10,
                "backoff": "exponential",
                "max_delay": 3600,
                "exit_codes": [],
            }
        },
        {"env": {}, "args": {}, "labels": [], "success_exit_codes": [0], "enabled": True, "description": ""},
        {"timezone": "UTC"},
    ],
)
def test_defaults_are_left_out(extra: dict[str, Any]) -> None:
    """A default that was written and one that was not make the same text."""
    table: dict[str, Any] = {"manual": True, "shell": "true"}

    assert canonical(table | extra) == canonical(table)


def test_the_text_is_sorted_and_compact() -> None:
    """One text, whatever the order of the keys; not ASCII only, so that people can read it."""
    text = canonical(
        {"shell": "grüße", "manual": True, "retry": {"delay": 5, "attempts": 2}, "args": {"b": 1, "a": 2}}
    )

    assert text == (
        '{"args":{"a":2,"b":1},"manual":true,"retry":{"attempts":2,"delay":5},"shell":"grüße","timezone":"UTC"}'
    )


def test_the_least_text_is_a_manual_job() -> None:
    """Everything that a text does not say has the default of `JobDefinition`."""
    text = canonical({"manual": True, "shell": "true"})

    job = decode("job", text)

    assert job == JobDefinition(id=job.id, schedule=job.schedule, action=job.action, source=text)
    assert job.schedule.trigger == Manual()


@given(st.integers(0, 36_525 * 86_400 * SECOND))
def test_a_duration_survives_its_seconds(duration: int) -> None:
    """Every duration up to a hundred years comes back to the microsecond, also through JSON."""
    assert round(json.loads(json.dumps(wire_seconds(duration))) * SECOND) == duration


def test_whole_seconds_have_one_text() -> None:
    """A whole number of seconds is written as one, a time in UTC with its offset."""
    assert json.dumps([wire_seconds(5 * SECOND), wire_seconds(1_500_000)]) == "[5, 1.5]"
    assert wire_time(0) == "1970-01-01T00:00:00+00:00"


def test_reading_definitions_needs_no_pydantic() -> None:
    """The store decodes and schedctl looks for sockets without paying for the validation of authors."""
    code = (
        "import sys, scheduler.model.definitions, scheduler.config.paths; sys.exit('pydantic' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
