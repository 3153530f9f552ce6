"""Refusals as problem details, whatever is wrong."""

from __future__ import annotations

import inspect
import logging
from typing import Any

import pytest

from scheduler import errors
from scheduler.control.problems import problem_of
from scheduler.errors import AlreadyRunning, Fault, Invalid, SchedulerError, Stale
from tests.control.support.client import Answer, Client, connected, request
from tests.control.support.serving import Daemon

MEMBERS = {"type", "title", "status", "detail", "code"}


def assert_problem(answer: Answer, status: int, code: str) -> Any:
    """The answer is a problem with the members that every problem has; its document."""
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json
    assert set(problem) >= MEMBERS
    assert (answer.status, problem["status"], problem["code"]) == (status, status, code)
    assert problem["detail"].isprintable()
    return problem


class TestDocument:
    def test_every_error_becomes_a_problem_with_its_own_code(self) -> None:
        """Code and status are those of the error's class, for each class there is."""
        kinds = [
            kind
            for kind in vars(errors).values()
            if inspect.isclass(kind)
            and issubclass(kind, SchedulerError)
            and "message" in inspect.signature(kind).parameters
        ]
        for kind in kinds:
            required = [
                name
                for name, parameter in inspect.signature(kind).parameters.items()
                if parameter.default is parameter.empty and name != "message"
            ]
            problem = problem_of(kind("what happened", **dict.fromkeys(required, "run-1")))

            assert (problem["status"], problem["code"]) == (kind.status, kind.code)
            assert problem["detail"] == "what happened"
        assert len(kinds) > 15

    def test_what_helps_is_there_and_nothing_else(self) -> None:
        """Faults and the run's id come with the errors that have them; a missing hint is left out."""
        fault = Fault(message="bad", file="jobs.toml", line=3, job="x", key="cron")

        assert set(problem_of(Stale("stale"))) == MEMBERS
        assert problem_of(Stale("stale", hint="what to do"))["hint"] == "what to do"
        assert problem_of(AlreadyRunning("again", run_id="run-1"))["run_id"] == "run-1"
        assert problem_of(Invalid("bad", faults=[fault]))["faults"] == [
            {"message": "bad", "file": "jobs.toml", "line": 3, "job": "x", "key": "cron"}
        ]


class TestRequests:
    async def test_a_path_that_is_not_there(self, standing: Client) -> None:
        """404 names the path."""
        problem = assert_problem(await standing.get("/v1/nothing"), 404, "not_found")

        assert "/v1/nothing" in problem["detail"]

    async def test_a_method_that_is_not_there(self, standing: Client) -> None:
        """405 lists every method that the path takes, in the header too."""
        answer = await standing.ask("PATCH", "/v1/jobs/nightly")
        assert_problem(answer, 405, "method_not_allowed")

        assert answer.headers["allow"] == "DELETE, GET, PUT"

    @pytest.mark.parametrize(
        ("body", "word"),
        [
            (b"{", "not JSON"),
            (b'{"reason": NaN}', "NaN"),
            (b'{"reason": "a", "reason": "b"}', "twice"),
            (b'{"reason": "\\ud800"}', "surrogate"),
            (b'{"reason": "\xff"}', "UTF-8"),
            (b"[" * 100_000, "deep"),
            (b'{"reason": ' + b"[" * 100 + b"]" * 100 + b"}", "deep"),
            (b'{"reason": [' + b"1," * 200_000 + b"1]}", "100,000 values"),
            (b'{"reason": ' + b"9" * 5_000 + b"}", "digit"),
        ],
    )
    async def test_a_body_that_is_no_json(self, standing: Client, body: bytes, word: str) -> None:
        """Whatever is wrong with the text is told, and nothing is done."""
        async with connected(standing.path) as wire:
            answer = await wire.ask("POST", "/v1/jobs/nightly/pause", body)

        problem = assert_problem(answer, 422, "invalid")
        assert word in problem["detail"]
        assert (await standing.value("/v1/jobs/nightly"))["status"] == "active"

    @pytest.mark.parametrize("kind", [None, "application/x-www-form-urlencoded", "text/plain", "garbage"])
    async def test_a_body_is_json_whatever_it_is_called(self, client: Client, kind: str | None) -> None:
        """`curl -d` calls its data a form: it is read as what it is."""
        headers = {} if kind is None else {"Content-Type": kind}
        async with connected(client.path) as wire:
            answer = await wire.ask("POST", "/v1/jobs/nightly/pause", b'{"reason": "x"}', headers)

        assert answer.json["job"]["pause"]["note"] == "x"

    async def test_a_body_above_a_megabyte(self, client: Client) -> None:
        """A megabyte of arguments is taken as far as the body goes, one above gets a typed refusal (B43)."""
        large = await client.post("/v1/jobs/nightly/run", {"args": {"text": "x" * (1 << 20)}})
        fits = await client.post("/v1/jobs/nightly/run", {"args": {"text": "x" * 1_000_000}})

        assert_problem(large, 413, "too_large")
        assert fits.status == 202

    @pytest.mark.parametrize(
        "target",
        ["/v1/status?x=1", "/v1/jobs/nightly?x=1", "/healthz?x", "/metrics?x=", "/openapi.json?x=1"],
    )
    async def test_a_parameter_where_none_is_taken(self, standing: Client, target: str) -> None:
        """A parameter is never ignored."""
        problem = assert_problem(await standing.get(target), 422, "invalid")

        assert problem["faults"][0]["key"] == "x"

    @pytest.mark.parametrize("verb", ["cancel", "retry", "retry-now"])
    async def test_a_field_where_none_is_taken(self, standing: Client, verb: str) -> None:
        """A field is never ignored, also where a verb takes none."""
        run = "00000000-0000-7000-8000-000000000000"
        answer = await standing.post(f"/v1/runs/{run}/{verb}", {"surprise": 1})

        assert assert_problem(answer, 422, "invalid")["faults"][0]["key"] == "surprise"


class TestUnexpected:
    async def test_a_client_never_sees_a_traceback(
        self, daemon: Daemon, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A bug answers 500 `internal` without its text; the log has it; the daemon goes on (I14)."""

        def broken() -> None:
            raise ZeroDivisionError("a secret of the inside")

        monkeypatch.setattr("scheduler.control.facade.Facade.status", lambda _: broken())
        with caplog.at_level(logging.ERROR):
            answer = await daemon.client.get("/v1/status")

        problem = assert_problem(answer, 500, "internal")
        assert "secret" not in answer.text
        assert "Traceback" not in answer.text
        assert "log" in problem["hint"]
        assert [record.exc_info is not None for record in caplog.records] == [True]
        assert (await daemon.client.get("/v1/jobs")).status == 200

    async def test_a_connection_survives_a_bug(self, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        """The next request on the same connection is answered."""
        monkeypatch.setattr("scheduler.control.facade.Facade.status", lambda _: 1 / 0)
        async with connected(client.path) as wire:
            first = await wire.ask("GET", "/v1/status")
            second = await wire.ask("GET", "/v1/jobs")

        assert (first.status, second.status) == (500, 200)


async def test_a_request_without_a_host_is_answered(standing: Client) -> None:
    """HTTP/1.0 clients and plain netcat are served."""
    async with connected(standing.path) as wire:
        await wire.send(b"GET /healthz HTTP/1.0\r\n\r\n")
        answer = await wire.answer()

    assert answer.json == {"status": "ok"}
    assert request("GET", "/").startswith(b"GET / HTTP/1.1\r\n")
