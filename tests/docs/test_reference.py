"""The reference pages are complete: every key, variable and code of the program, with its true default."""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Union, get_args, get_origin

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from scheduler import RunContext, errors
from scheduler.config.jobfile import parse_definition
from scheduler.config.jobmodel import JobTable
from scheduler.config.overlay import VARIABLES
from scheduler.config.settings import Settings, SettingsTable
from scheduler.errors import SchedulerError
from scheduler.executors.environment import build_environment
from scheduler.model.durations import format_duration
from scheduler.model.items import BegunItem
from scheduler.model.jobs import OnCrash
from scheduler.model.runs import TERMINAL, RunReason, SkipReason
from tests.docs.support.pages import ROOT, code_words, rows
from tests.support.daemon import Daemon
from tests.support.executors import command, grant, surroundings

_JOBFILE = ROOT / "docs/jobfile.md"
_SECTIONS: Final = {
    "JobTable": (
        "When it runs",
        "What it runs",
        "How long, how many, how often",
        "After a crash",
        "Who is told",
    ),
    "PingTable": ("Pings: [jobs.ID.ping]",),
    "RetryTable": ("After a failure: [jobs.ID.retry]",),
    "BatchTable": ("A batch: [jobs.ID.batch]",),
    "BudgetTable": ("What a batch may cost: [jobs.ID.budget]",),
    "SettingsTable": ("The daemon's own file: scheduler.toml",),
    "LogTable": ("[log]",),
    "RetentionTable": ("[retention]",),
    "GroupTable": ("[groups.NAME]",),
    "ListenTable": ("[listen]",),
    "RolesTable": (),
    "MembersTable": ("[roles.admin], [roles.operate], [roles.observe]",),
}
"""Where the keys of each model stand; a table in a table has headings of its own."""

_ELSEWHERE: Final = {
    "JobTable": {"description", "retry", "batch", "budget"},
    "RolesTable": {"admin", "operate", "observe"},
}
"""Keys that are explained by a heading or an example, and have no row."""

_DERIVED: Final = {
    ("JobTable", "timezone"): "the daemon's",
    ("JobTable", "cwd"): "the home directory",
    ("JobTable", "timeout"): "`default_timeout`",
    ("JobTable", "overdue_after"): "`late_after`",
    ("JobTable", "on_crash"): '`"record"`',
    ("SettingsTable", "timezone"): "the machine's",
    ("JobTable", "keep_runs"): "`retention.runs_per_job`",
    ("RetentionTable", "runs_per_job"): "all",
    ("ListenTable", "socket"): "the runtime directory",
    ("ListenTable", "group"): "the daemon's",
}
"""Defaults that are no constant, in the words of the page."""


def models_of(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """The model, and every model in it."""
    yield model
    for field in model.model_fields.values():
        for inner in _models_in(field.annotation):
            yield from models_of(inner)


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) in (Union, types.UnionType, list, dict):
        for part in get_args(annotation):
            yield from _models_in(part)


_MODELS: Final = sorted({*models_of(JobTable), *models_of(SettingsTable)}, key=lambda model: model.__name__)
_MODEL = pytest.mark.parametrize("model", _MODELS, ids=lambda model: model.__name__)


def keys_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    return {field.alias or name: field for name, field in model.model_fields.items()}


def told(model: type[BaseModel]) -> dict[str, list[str]]:
    """Key -> the cells of its row."""
    found: dict[str, list[str]] = {}
    for heading in _SECTIONS[model.__name__]:
        for key, *cells in rows(_JOBFILE, heading):
            [word] = code_words(key)
            assert word not in found, f"{word} has two rows"
            found[word] = cells
    return found


@_MODEL
def test_every_key_has_its_row(model: type[BaseModel]) -> None:
    """docs/jobfile.md has one row for each key of the models, and none for a key that does not exist."""
    assert set(told(model)) == set(keys_of(model)) - _ELSEWHERE.get(model.__name__, set())


@_MODEL
def test_every_row_shows_the_true_default(model: type[BaseModel]) -> None:
    """The default on the page is the one of the model."""
    wrong = []
    for key, (kind, default, _) in told(model).items():
        true = _written(model, key, kind)
        if default != true:
            wrong.append(f"{key}: {default}, but it is {true}")

    assert not wrong


def _written(model: type[BaseModel], key: str, kind: str) -> str:
    """The default as the page has to show it."""
    if (model.__name__, key) in _DERIVED:
        return _DERIVED[model.__name__, key]
    default = keys_of(model)[key].get_default(call_default_factory=True, validated_data={})
    return "none" if default is None else f"`{_as_toml(default, kind)}`"


def _as_toml(value: object, kind: str) -> str:
    """The value as an author would write it."""
    match value:
        case BaseModel():
            return "{}"
        case str():  # also the words of a closed list
            return f'"{value!s}"'
        case bool():
            return str(value).lower()
        case int() if kind == "duration":
            return f'"{format_duration(value)}"'
        case int() if kind == "size":
            return f'"{value // 1024**2}MiB"'
        case list():
            return f"[{', '.join(_as_toml(part, '') for part in value)}]"
        case _:
            return str(value)


def test_the_default_of_on_crash_is_the_one_that_is_told() -> None:
    """A job that is no batch records a crash unless it says otherwise, as the page has it."""
    definition = parse_definition("a", {"manual": True, "command": ["true"]}, Settings())

    assert definition.on_crash is OnCrash.RECORD


@_MODEL
def test_every_choice_is_named(model: type[BaseModel]) -> None:
    """The words of a closed list stand in the row of its key."""
    missing = []
    for key, cells in told(model).items():
        default = keys_of(model)[key].get_default(call_default_factory=True, validated_data={})
        if isinstance(default, StrEnum):
            words = code_words(cells[0])
            missing += [f"{key}: {word}" for word in type(default) if word.value not in words]

    assert not missing


def test_every_variable_of_the_daemon_is_told() -> None:
    """Each variable that stands for a setting has its row."""
    named = {word for row in rows(_JOBFILE, "Environment") for word in code_words(row[0])}

    assert named == {*VARIABLES, "SCHEDULER_CONFIG", "SCHEDULER_STATE"}


def test_every_reason_of_a_skip_is_told() -> None:
    """docs/time.md explains each reason for which a fire time did not run, and no other."""
    found = rows(ROOT / "docs/time.md", "Why no fire is lost in silence")

    assert [code_words(row[0])[0] for row in found] == [reason.value for reason in SkipReason]


def test_every_reason_of_a_run_is_told() -> None:
    """docs/crash.md names each reason for which a run did not succeed, under the states that it goes with."""
    found = rows(ROOT / "docs/crash.md", "How a run can end")
    reasons = {word for row in found for word in code_words(row[1])}

    assert {code_words(row[0])[0] for row in found} <= {state.value for state in TERMINAL}
    assert reasons == {reason.value for reason in RunReason} - {
        "budget"
    }  # that pauses a job, and ends no run


def problems() -> dict[str, tuple[int, int]]:
    """Code -> HTTP status and exit code, of every error that a client can meet on the API."""
    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, SchedulerError)
    ]
    local = {"internal", "unreachable", "timeout"}
    return {kind.code: (kind.status, kind.exit_code) for kind in reversed(kinds) if kind.code not in local}


def test_every_problem_code_is_told() -> None:
    """docs/api.md has a row for each code, with the HTTP status and the exit code that the program uses."""
    found = {
        code_words(code)[0]: (int(status), int(exit_code))
        for code, status, exit_code, _ in rows(ROOT / "docs/api.md", "Errors")
    }

    assert found == problems()


def test_every_path_of_the_api_is_told() -> None:
    """docs/api.md names each path that the real daemon describes in its OpenAPI document, and no other."""
    named = {
        word
        for row in rows(ROOT / "docs/api.md", "What there is")
        for word in code_words(row[0])
        if word.startswith("/")
    }
    with Daemon(jobs="") as daemon:
        described = set(daemon.get("/openapi.json")["paths"])

    assert named == described


def test_every_variable_of_a_run_is_told(tmp_path: Path) -> None:
    """docs/handlers.md names each variable that an attempt is given, those of an item too, and no other."""
    item = BegunItem(index=0, key="a", payload='"a"', nonce="n", attempts=1, tries=0)
    granted = replace(grant(command("true")), item=item)
    named = {word for row in rows(ROOT / "docs/handlers.md", "Environment") for word in code_words(row[0])}

    assert named == set(build_environment(granted, surroundings(tmp_path), cwd="/", progress_fd=9))


def test_the_promises_are_all_there() -> None:
    """The README names I1 to I16, once each and in order."""
    found = [row[0] for row in rows(ROOT / "README.md", "What is promised")]

    assert found == [f"I{number}" for number in range(1, 17)]


def test_the_context_of_a_handler_is_told_whole() -> None:
    """docs/handlers.md names every attribute and method of `RunContext`."""
    public = {name for name in vars(RunContext) if not name.startswith("_")}
    named = {
        word.partition("(")[0]
        for row in rows(ROOT / "docs/handlers.md", "RunContext")
        for word in code_words(row[0])
    }

    assert named == public
