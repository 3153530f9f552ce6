"""Rules about several keys, each asked only of jobs that it can find a fault in."""

from __future__ import annotations

from typing import Final

from scheduler.clock import HOUR
from scheduler.config.fields import checked
from scheduler.config.jobfile import parse_definition
from scheduler.config.jobmodel import FOREIGN, JobTable
from scheduler.config.jobrules import _RULES, Written
from scheduler.config.settings import Settings

SETTINGS: Final = Settings(timezone="Europe/Berlin", default_timeout=HOUR, groups={"exports": 2})

TRIGGERS: Final[tuple[dict[str, object], ...]] = (
    {"cron": "30 2 * * *"},
    {"every": "15m"},
    {"delay": "10m"},
    {"at": "2027-03-28T02:30:00"},
    {"manual": True},
)
ACTIONS: Final[tuple[dict[str, object], ...]] = (
    {"command": ["true"]},
    {"shell": "true"},
    {"python": "package.module:function"},
)
OTHERS: Final[dict[str, object]] = {
    "description": "words",
    "timezone": "Asia/Tokyo",
    "process": True,
    "args": {"a": 1},
    "env": {"A": "b"},
    "env_file": "/etc/env",
    "cwd": "/srv",
    "user": "root",
    "stdin": "text",
    "timeout": "2h",
    "stall_timeout": "5m",
    "kill_grace": "1s",
    "success_exit_codes": [3],
    "complete_exit_codes": [4],
    "overlap": "queue",
    "max_running": 2,
    "queue_limit": 3,
    "labels": ["a"],
    "group": "exports",
    "priority": 1,
    "catch_up": "all",
    "catch_up_window": "1h",
    "catch_up_limit": 2,
    "late_after": "5m",
    "jitter": "30s",
    "start_at": "2026-01-01T00:00:00",
    "end_at": "2030-01-01T00:00:00",
    "max_runs": 2,
    "except": ["2027-01-01"],
    "on_crash": "retry",
    "max_crashes": 1,
    "max_failures": 1,
    "enabled": False,
    "control": True,
    "isolate": "unit",
    "keep_runs": 5,
    "retry": {"attempts": 2},
    "batch": {"items": ["a"]},
    "budget": {"per_run": 1},
    "ping": {"start": "https://ping.example/"},
    "on_failure": "https://a.example/",
    "on_recovery": "https://a.example/",
    "overdue_after": "5m",
    "on_overdue": "https://a.example/",
    "on_pause": "https://a.example/",
    "on_budget": "https://a.example/",
}
"""A sound value for every other key."""

DEFAULTS: Final[dict[str, object]] = {
    "description": "",
    "process": False,
    "args": {},
    "env": {},
    "kill_grace": "10s",
    "overlap": "skip",
    "success_exit_codes": [0],
    "complete_exit_codes": [],
    "max_running": 1,
    "queue_limit": 1,
    "labels": [],
    "priority": 0,
    "catch_up": "latest",
    "catch_up_window": "1d",
    "catch_up_limit": 10,
    "jitter": 0,
    "late_after": "1m",
    "except": [],
    "on_crash": "record",
    "max_crashes": 3,
    "max_failures": 0,
    "enabled": True,
    "control": False,
    "isolate": "none",
    "retry": {},
    "ping": {},
    "manual": False,
    "timeout": "1h",
    "timezone": "Europe/Berlin",
}


def test_every_key_is_tried_here() -> None:
    """A new key has a sound value above, so that the next test looks at it too."""
    keys = {field.alias or name for name, field in JobTable.model_fields.items()}
    named = {key for table in (*TRIGGERS, *ACTIONS) for key in table}

    assert keys - named == OTHERS.keys()


def test_a_rule_that_is_not_asked_would_have_found_nothing() -> None:
    """I14: it is left out only where none of its keys is written, and their defaults break no rule."""
    tables = [
        {**trigger, **action, **more}
        for trigger in TRIGGERS
        for action in ACTIONS
        for more in ({}, *({key: value} for key, value in OTHERS.items()))
    ]
    for table in tables:
        found = checked(JobTable, table, foreign=FOREIGN)
        assert not found.problems
        written = Written(job_id="a", raw=table, job=found.table, settings=SETTINGS)
        unasked = [rule for rule in _RULES if rule.about and rule.about.isdisjoint(table)]
        assert unasked
        for rule in unasked:
            assert list(rule.check(written)) == [], (rule, table)


def test_a_default_that_is_written_makes_no_other_definition() -> None:
    """What an author writes out, and what stands there anyway, is one text, and so no edit."""
    table = {"cron": "30 2 * * *", "command": ["true"]}
    plain = parse_definition("a", table, SETTINGS)

    assert (
        plain.source == '{"command":["true"],"cron":"30 2 * * *","timeout":3600,"timezone":"Europe/Berlin"}'
    )
    for key, value in DEFAULTS.items():
        assert parse_definition("a", {**table, key: value}, SETTINGS) == plain, key
