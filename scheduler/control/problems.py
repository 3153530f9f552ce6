"""Every refusal as RFC 9457 problem details: `{"type","title","status","detail","code"}` and what helps.

`code` is the word that programs go by (see `scheduler.errors`); `faults`, `run_id` and `hint` are there
where an error has them. A client never sees a traceback: what nobody expected is logged here, once.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, get_type_hints

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Match

from scheduler.config.wording import dotted, printable, shown, unknown_key
from scheduler.errors import AlreadyDone, AlreadyRunning, Fault, Invalid, NotFound, SchedulerError

MEDIA_TYPE: Final = "application/problem+json"
REPLAYED: Final = "Idempotency-Replayed"
"""Marks an answer that was given before (`scheduler.control.keys`)."""

_LOG: Final = logging.getLogger(__name__)
_INTERNAL: Final = SchedulerError(
    "the daemon met an error that it did not expect; it goes on", hint="its log says what happened"
)


class ProblemResponse(JSONResponse):
    """A problem on its way out."""

    media_type = MEDIA_TYPE


def problem_of(error: SchedulerError) -> dict[str, object]:
    """The error as problem details."""
    document = document_of(error.status, error.code, error.message, hint=error.hint)
    if isinstance(error, AlreadyRunning):
        document["run_id"] = error.run_id
    if isinstance(error, Invalid) and error.faults:
        document["faults"] = [fault_of(fault) for fault in error.faults]
    return document


def document_of(status: int, code: str, detail: str, *, hint: str | None = None) -> dict[str, object]:
    """The members that every problem has, and the hint where there is one.

    `type` is `about:blank`, so the title is the status in words (RFC 9457, 4.2.1); `code` tells them apart.
    """
    document: dict[str, object] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "code": code,
    }
    if hint is not None:
        document["hint"] = hint
    return document


def fault_of(fault: Fault) -> dict[str, object]:
    """The fault as the API lists it."""
    return {
        "message": fault.message,
        "file": fault.file,
        "line": fault.line,
        "job": fault.job,
        "key": fault.key,
    }


def encoded(document: Mapping[str, object]) -> bytes:
    """The document as the bytes of a body."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def install(app: FastAPI, routes: Sequence[BaseRoute]) -> None:
    """Whatever is raised on the way to `routes` and in them is answered as a problem."""

    async def answered(request: Request, error: Exception) -> Response:
        match error:
            case AlreadyDone():
                return _again(error)
            case SchedulerError():
                return _answer(error)
            case RequestValidationError():
                return _answer(_invalid(request, error.errors()))
            case HTTPException():
                return _framework(routes, request, error)
            case _:
                return _unexpected(error)

    for kind in (SchedulerError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, answered)


def _answer(error: SchedulerError) -> ProblemResponse:
    if error.code == SchedulerError.code:
        return _unexpected(error)
    return ProblemResponse(problem_of(error), error.status)


def _again(before: AlreadyDone) -> Response:
    """What was answered to this request when it came first."""
    status, headers, body = before.recorded
    marked = {**headers, REPLAYED: "true"}
    return Response(body, status, headers=marked, media_type=JSONResponse.media_type)


def _unexpected(error: Exception) -> ProblemResponse:
    _LOG.error("a request of the control API failed: %s", type(error).__name__, exc_info=error)
    return ProblemResponse(problem_of(_INTERNAL), _INTERNAL.status)


def _framework(routes: Sequence[BaseRoute], request: Request, error: HTTPException) -> ProblemResponse:
    """What the router itself refuses: a path or a method that is not there."""
    path = printable(request.url.path)
    if error.status_code == 404:
        return _answer(NotFound(f"there is no {path} here", hint="/openapi.json lists what there is"))
    if error.status_code == 405:
        allowed = ", ".join(_methods(routes, request))
        detail = f"{path} does not take {request.method}"
        document = document_of(405, "method_not_allowed", detail, hint=f"it takes {allowed}")
        return ProblemResponse(document, 405, headers={"Allow": allowed})
    return ProblemResponse(
        document_of(error.status_code, Invalid.code, printable(error.detail, 200)), error.status_code
    )


def _methods(routes: Sequence[BaseRoute], request: Request) -> list[str]:
    """Every method that some route takes at this path; the router names those of the first route only."""
    found: set[str] = set()
    for route in routes:
        match, _ = route.matches(request.scope)
        if match is not Match.NONE:
            found |= getattr(route, "methods", None) or set()
    return sorted(found)


def _invalid(request: Request, errors: Iterable[Any]) -> Invalid:
    known = _known_names(request)
    faults = tuple(_fault(error, known) for error in errors)
    return Invalid("; ".join(f"{f.key}: {f.message}" if f.key else f.message for f in faults), faults=faults)


def _fault(error: Mapping[str, Any], known: Collection[str]) -> Fault:
    """One error of pydantic as a fault: where it stands, and a sentence that says what to write."""
    place, *path = error["loc"]
    key = dotted(tuple(path)) or None
    match error["type"]:
        case "extra_forbidden":
            return Fault(key=key, message=_unknown(str(path[-1]), known))
        case "missing":
            return Fault(key=key, message=f"it is missing in the {place}")
        case "json_invalid":
            return Fault(message=f"the body is not JSON: {error['ctx']['error']} at character {path[-1]}")
        case "model_attributes_type" | "model_type" | "dict_type":
            return Fault(key=key, message="write a JSON object here, for example {}")
        case "value_error":
            return Fault(key=key, message=str(error["ctx"]["error"]))
        case _:
            message = printable(str(error["msg"]), 200)
            return Fault(key=key, message=message.replace("Input should be", "it has to be"))


def _unknown(name: str, known: Collection[str]) -> str:
    return unknown_key(name, known) if known else f"unknown key {shown(name)}: none is taken here"


def _known_names(request: Request) -> set[str]:
    """The query parameters and top-level fields that the route of this request takes."""
    endpoint = getattr(request.scope.get("route"), "endpoint", None)
    if endpoint is None:
        return set()
    hints = get_type_hints(endpoint)
    models = [hint for name, hint in hints.items() if name != "return" and _is_model(hint)]
    return {field.alias or name for model in models for name, field in model.model_fields.items()}


def _is_model(hint: object) -> bool:
    return isinstance(hint, type) and issubclass(hint, BaseModel)
