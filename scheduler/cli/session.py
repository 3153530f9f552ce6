"""What every verb has: `--json`, `--quiet`, `--socket`, `--timeout`, and through them a daemon and a screen.

    @click.command()
    @click.argument("run")
    @client_verb
    def cancel(session: Session, run: str) -> int: ...

A `reading_verb` takes `--state` too, and reads the store where no daemon answers. A verb returns its exit
code; errors it lets pass are told and turned into exit codes by `main`.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pwd
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
        quiet: `--quiet`: a list is its ids alone; of other verbs the screen shows nothing.
        socket: the `--socket` that was given, or None.
    """

    control: Control
    screen: Screen
    limit: Micros | None
    quiet: bool = False
    socket: str | None = None


def client_verb(verb: Callable[Concatenate[Session, P], int]) -> Callable[P, int]:
    """The verb has the client's options and is handed its session first; `--quiet` leaves the exit code."""

    @functools.wraps(verb)
    def with_session(*args: P.args, **kwargs: P.kwargs) -> int:
        options: dict[str, Any] = kwargs
        limit: Micros | None = options.pop("timeout")
        socket: str | None = options.pop("socket")
        control = Control(sockets_of(socket), timeout=limit or DEFAULT_TIMEOUT)
        quiet = options.pop("quiet")
        screen = Screen(json_wanted=options.pop("json"), quiet=quiet)
        session = Session(control=control, screen=screen, limit=limit, quiet=quiet, socket=socket)
        return verb(session, *args, **kwargs)

    return _json(_quiet("Print nothing but errors: the exit code tells.")(_socket(_timeout(with_session))))


def reading_verb(verb: Callable[Concatenate[Session, P], int]) -> Callable[P, int]:
    """The same for a verb that only reads: without a daemon it reads the store, and says so on stderr."""
    return _state(reading_verb_with_state(verb))


def reading_verb_with_state(verb: Callable[Concatenate[Session, P], int]) -> Callable[P, int]:
    """The same for a verb that has a `--state` of its own, which leaves the directory in `state`."""

    @functools.wraps(verb)
    def with_session(*args: P.args, **kwargs: P.kwargs) -> int:
        from scheduler.cli.offline import FallbackControl

        options: dict[str, Any] = kwargs
        limit: Micros | None = options.pop("timeout")
        state, socket = options.pop("state"), options.pop("socket")
        control = FallbackControl(
            sockets_of(socket, state), stores_of(state, socket), timeout=limit or DEFAULT_TIMEOUT
        )
        screen = Screen(json_wanted=options.pop("json"))
        quiet = options.pop("quiet")
        session = Session(control=control, screen=screen, limit=limit, quiet=quiet, socket=socket)
        try:
            return verb(session, *args, **kwargs)
        finally:
            control.close()

    quiet = _quiet("Print less: of a list the ids alone.")
    return _json(quiet(_socket(_timeout(with_session))))


def stores_of(state: str | None, socket: str | None) -> list[Path]:
    """The state directories to look at where no daemon answers, in order."""
    return list(
        paths.client_stores(Path(state) if state else None, Path(socket) if socket else None, os.environ)
    )


def sockets_of(named: str | None, state: str | None = None) -> list[str]:
    """The sockets to try, in order: the named one alone, or the places where a daemon puts its own.

    A named state directory stands for the daemon whose socket is in it, and for no other.

    Raises:
        Invalid: the named path is too long for a socket.
    """
    try:
        if state and not named:
            return [str(place) for place in paths.sockets_beside(Path(state), os.environ)]
        return [str(place) for place in paths.client_sockets(Path(named) if named else None, os.environ)]
    except ConfigError as long:
        raise Invalid(long.message) from long


def daemon_user(session: Session) -> str | None:
    """The user of the daemon that would be asked: the owner of its socket, or of a folder closed to us."""
    for socket in map(Path, sockets_of(session.socket)):
        with contextlib.suppress(OSError, KeyError):
            return pwd.getpwuid(_owner_of(socket)).pw_name
    return None


def own_user() -> str:
    """The user whose rights this process has."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # a uid without an entry, as in containers
        return str(os.geteuid())


def _owner_of(socket: Path) -> int:
    try:
        return socket.stat().st_uid
    except PermissionError:
        return socket.parent.stat().st_uid


def _quiet(text: str) -> Callable[[Callable[P, int]], Callable[P, int]]:
    return click.option("-q", "--quiet", is_flag=True, help=text)


_json = click.option("--json", is_flag=True, help="Print JSON: one object, or one a line.")
_socket = click.option("--socket", metavar="PATH", help="The daemon's control socket (or SCHEDULER_SOCKET).")
_state = click.option(
    "--state", metavar="DIR", help="The state directory to read where no daemon answers (or SCHEDULER_STATE)."
)
_timeout = click.option(
    "--timeout",
    type=Duration(),
    metavar="TIME",
    help="How long to wait for the daemon: 30s, 2m or a number of seconds (default 10).",
)
