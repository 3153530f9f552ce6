"""The short way to /healthz: taken for a plain question of who may look, while all is well."""

from __future__ import annotations

import os
from typing import Any

import pytest

from scheduler.config.roles import Members, Roles
from scheduler.control.connection import PEER_KEY
from scheduler.control.peer import Credentials, Gatekeeper
from scheduler.control.probe import Probe

NOBODY = Credentials(pid=os.getpid(), uid=65534, gid=65534)
EVERYBODY, MEMBERS_ONLY = Roles(), Roles(observe=Members(gids=frozenset({7})))


async def _is_routed(
    *,
    roles: Roles = EVERYBODY,
    well: bool = True,
    method: str = "GET",
    path: str = "/healthz",
    query: bytes = b"",
) -> bool:
    """Whether the routes were asked."""
    routed: list[Any] = []
    said: list[Any] = []

    async def routes(scope: Any, _receive: Any, _send: Any) -> None:
        routed.append(scope)

    async def send(message: Any) -> None:
        said.append(message["type"])

    async def receive() -> Any:
        raise AssertionError("nothing is to be received")

    scope: dict[str, Any] = {
        "method": method,
        "path": path,
        "query_string": query,
        "state": {PEER_KEY: NOBODY},
    }
    gatekeeper = Gatekeeper(store_id="s", own_uid=os.getuid(), daemon_pid=None, roles=roles)
    await Probe(routes, gatekeeper, lambda: well)(scope, receive, send)
    assert said == ([] if routed else ["http.response.start", "http.response.body"])
    return bool(routed)


async def test_plain_question_takes_the_short_way() -> None:
    """The routes are not asked."""
    assert not await _is_routed()


@pytest.mark.parametrize(
    "asked",
    [
        {"roles": MEMBERS_ONLY},
        {"well": False},
        {"method": "HEAD"},
        {"method": "POST"},
        {"path": "/healthz/"},
        {"query": b"x=1"},
    ],
    ids=str,
)
async def test_all_else_is_for_the_routes(asked: dict[str, Any]) -> None:
    """Who may not look, a daemon that is not well, another method, path or query: the rules are there."""
    assert await _is_routed(**asked)
