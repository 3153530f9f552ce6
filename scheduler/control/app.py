"""The application: every route, its dependencies, and the OpenAPI document that describes them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import tzinfo
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, FastAPI, Query
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from scheduler import __version__
from scheduler.clock import Clock
from scheduler.control import problems
from scheduler.control.asking import StrictRoute, observing
from scheduler.control.intake import Intake
from scheduler.control.limits import Limits
from scheduler.control.models import Fault, Problem
from scheduler.control.peer import Gatekeeper
from scheduler.control.ports import Operations, Outputs, ParseDefinition
from scheduler.control.probe import Probe
from scheduler.control.requests import Nothing
from scheduler.control.routes_daemon import DaemonRoutes, trouble_of
from scheduler.control.routes_definitions import DefinitionRoutes
from scheduler.control.routes_events import EventRoutes
from scheduler.control.routes_items import ItemRoutes
from scheduler.control.routes_jobs import JobRoutes
from scheduler.control.routes_output import OutputRoutes
from scheduler.control.routes_pauses import PauseRoutes
from scheduler.control.routes_runs import RunRoutes
from scheduler.control.views import Views
from scheduler.engine.eventring import EventRing
from scheduler.executors.threads import off_loop
from scheduler.store.protocol import Reads

_REFUSALS: Final[dict[int | str, dict[str, Any]]] = {
    "default": {
        "description": "Refused: problem details (RFC 9457).",
        "content": {problems.MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
}
_REF: Final = "#/components/schemas/{model}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What the routes need.

    Attributes:
        render_metrics: the body of /metrics, OpenMetrics text.
        zone: the daemon's time zone.
    """

    operations: Operations
    reads: Reads
    outputs: Outputs
    parse_definition: ParseDefinition
    render_metrics: Callable[[], bytes]
    gatekeeper: Gatekeeper
    ring: EventRing
    clock: Clock
    zone: tzinfo


class ControlApp:
    """The control API as an ASGI application."""

    def __init__(self, services: Services, limits: Limits | None = None) -> None:
        self._closing = asyncio.Event()
        self._ring = services.ring
        self._api = _api(services, self._closing)
        body_limit = (limits or Limits()).body
        probed = Probe(
            self._api, services.gatekeeper, lambda: trouble_of(services.operations.status()) is None
        )
        self._intake = Intake(probed, services.clock, body_limit)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        await self._intake(scope, receive, send)

    def end_streams(self) -> None:
        """Answers that follow a run end soon, whether the run has ended or not."""
        self._closing.set()
        self._ring.close()

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document."""
        return self._api.openapi()


def _api(services: Services, closing: asyncio.Event) -> FastAPI:
    api = FastAPI(
        title="schedulerd",
        version=__version__,
        summary="The control API of schedulerd, on its Unix socket.",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    api.state.gatekeeper = services.gatekeeper
    api.state.reads, api.state.clock = services.reads, services.clock
    router = _router(services, closing)
    problems.install(api, router.routes)
    api.include_router(router)
    api.openapi = lambda: _document(api)  # type: ignore[method-assign]  # FastAPI's way to extend the document
    api.include_router(_openapi_route(api))
    return api


def _openapi_route(api: FastAPI) -> APIRouter:
    """/openapi.json, made when it is first asked for, and off the loop: it takes a fifth of a second."""
    router = APIRouter(route_class=StrictRoute)

    async def openapi(_: Annotated[Nothing, Query()]) -> JSONResponse:
        return JSONResponse(await off_loop(api.openapi))

    router.get("/openapi.json", include_in_schema=False)(openapi)
    return router


def _router(services: Services, closing: asyncio.Event) -> APIRouter:
    router = APIRouter(route_class=StrictRoute, responses=_REFUSALS, dependencies=[Depends(observing)])
    views = Views(services.zone)
    operations, reads, clock = services.operations, services.reads, services.clock
    # Whoever is asked for most often comes first: a request is compared with each route in turn.
    DaemonRoutes(services, views).register(router)
    JobRoutes(operations, reads, views, clock).register(router)
    DefinitionRoutes(operations, reads, views, services.parse_definition).register(router)
    RunRoutes(operations, reads, views, clock).register(router)
    EventRoutes(services.ring, views).register(router)
    PauseRoutes(operations, views, clock).register(router)
    ItemRoutes(operations, reads, views, clock).register(router)
    OutputRoutes(operations, reads, services.outputs, views, closing).register(router)
    return router


def _document(api: FastAPI) -> dict[str, Any]:
    """The document, with the shape of problems, which no route returns by itself."""
    if api.openapi_schema is None:
        document = get_openapi(title=api.title, version=api.version, summary=api.summary, routes=api.routes)
        schemas = document["components"]["schemas"]
        schemas["Fault"] = Fault.model_json_schema(ref_template=_REF)
        problem = Problem.model_json_schema(ref_template=_REF)
        problem.pop("$defs")
        schemas["Problem"] = problem
        api.openapi_schema = document
    return api.openapi_schema
