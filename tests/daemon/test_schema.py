"""The OpenAPI document is true: requests made from it, and around it, against a real daemon."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import FlakyStrategyDefinition, Unsatisfiable
from hypothesis.stateful import run_state_machine_as_test
from requests import RequestException, Response
from schemathesis import Case
from schemathesis.checks import CheckFunction
from schemathesis.config import SchemathesisConfig
from schemathesis.generation import GenerationMode
from schemathesis.schemas import BaseSchema
from schemathesis.specs.openapi.checks import positive_data_acceptance, use_after_free

from tests.control.test_openapi import ROUTES
from tests.support.daemon import Daemon
from tests.support.unix_session import BASE_URL, unix_session

JOBS = """
[jobs.nightly]
cron = "30 2 29 2 *"
shell = "true"
labels = ["billing"]

[jobs.work]
manual = true
overlap = "allow"
max_running = 3
shell = "sleep 0.2; exit 3"

[jobs.narrate]
manual = true
command = ["true"]
[jobs.narrate.batch]
items = ["intro", "one"]
"""

BOUNDED = settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
STREAMS = ("/v1/events", "/v1/runs/{id}/output")
DEFINITIONS = ("/v1/jobs", "/v1/jobs/{id}", "/v1/preview")
NUMBERS = count(1)


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with Daemon(JOBS) as started:
        started.run("work")
        started.run("narrate")
        yield started


@pytest.fixture(scope="module")
def schema(daemon: Daemon) -> BaseSchema:
    return schemathesis.openapi.from_dict(daemon.get("/openapi.json"), config=SchemathesisConfig())


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(GenerationMode))
@pytest.mark.parametrize(
    ("path", "method"), sorted((path, method) for path, methods in ROUTES.items() for method in methods)
)
def test_the_document_is_true(
    schema: BaseSchema, daemon: Daemon, path: str, method: str, mode: GenerationMode
) -> None:
    """Every operation answers what the document says, to what it allows and to what it does not."""
    session = unix_session(daemon.socket)

    @BOUNDED
    @given(case=schema[path][method].as_strategy(generation_mode=mode))
    def holds(case: Case[Any]) -> None:
        _made_sensible(case, mode)
        case.call_and_validate(base_url=BASE_URL, session=session, excluded_checks=_not_asked(path))

    try:
        holds()
    except Unsatisfiable:
        pytest.skip("nothing of this request can be wrong")
    assert daemon.get("/healthz") == {"status": "ok"}


@pytest.mark.slow
def test_what_was_made_can_be_used(schema: BaseSchema, daemon: Daemon) -> None:
    """Along the links of the document: what one answer names is there for the next request, until removed."""
    session = unix_session(daemon.socket)
    seen: set[tuple[str, int]] = set()
    broken: list[RequestException] = []  # a walk that is repeated may lead elsewhere, and tell of that alone

    class Walk(schema.as_state_machine()):  # type: ignore[misc]
        def before_call(self, case: Case[Any]) -> None:
            _made_sensible(case, GenerationMode.POSITIVE)
            if case.operation.label == "POST /v1/jobs":
                case.body = {"id": f"made-{next(NUMBERS)}", "manual": True, "shell": "sleep 0.1"}
            if case.operation.label == "PUT /v1/jobs/{id}":
                case.body = {"manual": True, "shell": f"exit {next(NUMBERS) % 200}"}

        def get_call_kwargs(self, case: Case[Any]) -> dict[str, Any]:
            return {"base_url": BASE_URL, "session": session}

        def call(self, case: Case[Any], **kwargs: Any) -> Response:
            try:
                return super().call(case, **kwargs)  # type: ignore[no-any-return]
            except RequestException as fault:
                broken.append(fault)
                raise

        def validate_response(self, response: Any, case: Case[Any], **_: Any) -> None:
            seen.add((case.operation.label, response.status_code))
            case.validate_response(response, excluded_checks=_not_asked(case.path), recorder=self.recorder)

    wanted = {("POST /v1/jobs", 201), ("GET /v1/jobs/{id}", 200), ("POST /v1/jobs/{id}/run", 202)}
    for walks in (15, 30, 60):  # where a walk leads depends on what the daemon's jobs are doing meanwhile
        with suppress(FlakyStrategyDefinition):  # and so does what can be drawn next
            run_state_machine_as_test(
                Walk,
                settings=settings(
                    max_examples=walks,
                    stateful_step_count=12,
                    deadline=None,
                    derandomize=True,
                    database=None,
                    phases=[Phase.generate],
                    suppress_health_check=list(HealthCheck),
                ),
            )
        if wanted <= seen:
            break

    assert not broken
    assert wanted <= seen
    assert daemon.get("/healthz") == {"status": "ok"}


def _made_sensible(case: Case[Any], mode: GenerationMode) -> None:
    """What no schema says: streams have no end, random words are no cursors, fresh keys or future times."""
    query = dict(case.query or {})
    if case.path in STREAMS:
        query["follow"] = "false"
    if mode is GenerationMode.POSITIVE:
        query.pop("cursor", None)
        if case.path in STREAMS:
            query.pop("after", None)
        if isinstance(case.body, dict) and case.path.endswith("/pause"):
            case.body.pop("until", None)
        if "Idempotency-Key" in (case.headers or {}):
            case.headers["Idempotency-Key"] = f"key-{next(NUMBERS)}"
    case.query = query


def _not_asked(path: str) -> list[CheckFunction]:
    """A definition that fits the schema may still be none: that is told by its faults, with 422.

    What was done to a job can be read when it is gone, too.
    """
    if path.endswith("/audit"):
        return [use_after_free]
    return [positive_data_acceptance] if path in DEFINITIONS else []
