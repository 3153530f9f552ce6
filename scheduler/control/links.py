"""Where an answer leads: the links of the OpenAPI document, from what there is to what is done with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final


def _to(operation: str, place: str) -> dict[str, Any]:
    return {"operationId": operation, "parameters": {"id": f"$response.body#/{place}"}}


_JOB: Final = (
    *("show_job", "next_times", "why", "audit"),
    *("replace", "remove", "pause", "resume", "run", "skip_next"),
)
_RUN: Final = ("show_run", "cancel", "retry", "retry_now", "output", "list_items")

OF_A_NEW_JOB: Final[Mapping[int | str, dict[str, Any]]] = {
    201: {"links": {name: _to(name, "id") for name in _JOB}}
}
OF_A_NEW_RUN: Final[Mapping[int | str, dict[str, Any]]] = {
    202: {"links": {name: _to(name, "id") for name in _RUN}}
}
OF_JOBS: Final[Mapping[int | str, dict[str, Any]]] = {
    200: {"links": {name: _to(name, "items/0/id") for name in ("show_job", "run", "audit")}}
}
OF_RUNS: Final[Mapping[int | str, dict[str, Any]]] = {
    200: {"links": {name: _to(name, "items/0/id") for name in ("show_run", "output")}}
}
