"""What every verb has: `--json`, `--socket`, `--timeout`, and through them a daemon and a screen.

    @click.command()
    @click.argument("run")
    @client_verb
    def cancel(session: Session, run: str) -> int: ...

A verb returns its exit code; errors it lets pass are told and turned into exit codes by `main`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

import click

from scheduler.cli.connection import DEFAULT_TIMEOUT, Control
from scheduler.cli.parameters import Duration
from scheduler.cli.screen import Screen
from scheduler.clock import Micros
from scheduler.config import paths
from scheduler.errors import ConfigError, Invalid

P = ParamSpec("P")


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One call of schedctl: whom it asks and where it prints.

    Attributes:
        limit: the `--timeout` that was given, or None: verbs that wait for work end by it too.
    """

    control: Control
    screen: Screen
    limit: Micros | None


def client_verb(verb: Callable[Concatenate[Session, P], int]) -> Callable[P, int]:
    """The verb has the three options of the client and is handed its session first."""

    @functools.wraps(verb)
    def with_session(*args: P.args, **kwargs: P.kwargs) -> int:
        options: dict[str, Any] = kwargs
        limit: Micros | None = options.pop("timeout")
        control = Control(sockets_of(options.pop("socket")), timeout=limit or DEFAULT_TIMEOUT)
        session = Session(control=control, screen=Screen(json_wanted=options.pop("json")), limit=limit)
        return verb(session, *args, **kwargs)

    return _json(_socket(_timeout(with_session)))


def sockets_of(named: str | None) -> list[str]:
    """The sockets to try, in order: the named one alone, or the places where a daemon puts its own.

    Raises:
        Invalid: the named path is too long for a socket.
    """
    try:
        return [str(place) for place in paths.client_sockets(Path(named) if named else None, os.environ)]
    except ConfigError as long:
        raise Invalid(long.message) from long


_json = click.option("--json", is_flag=True, help="Print JSON: one object, or one a line.")
_socket = click.option("--socket", metavar="PATH", help="The daemon's control socket (or SCHEDULER_SOCKET).")
_timeout = click.option(
    "--timeout",
    type=Duration(),
    metavar="TIME",
    help="How long to wait for the daemon: 30s, 2m or a number of seconds (default 10).",
)
