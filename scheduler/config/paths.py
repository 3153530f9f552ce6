"""Where things are: configuration, state and control socket, for the daemon and for schedctl.

Under systemd the service manager says so (`CONFIGURATION_DIRECTORY`, `STATE_DIRECTORY`,
`RUNTIME_DIRECTORY`); started by hand the XDG base directories do. A flag beats the environment
(`SCHEDULER_CONFIG`, `SCHEDULER_STATE`, `SCHEDULER_SOCKET`), which beats both. Nothing is created here, and
nothing but the standard library is imported: schedctl pays for this module at every call.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scheduler.errors import ConfigError, Fault

CONFIG_NAME: Final = "scheduler.toml"
JOBS_NAME: Final = "jobs.d"
SOCKET_NAME: Final = "control.sock"

# sockaddr_un has 108 bytes, the last one is NUL (unix(7)).
SOCKET_LIMIT: Final = 107

_FOLDER: Final = "schedulerd"
_SYSTEM_SOCKET: Final = Path("/run/schedulerd") / SOCKET_NAME
_SYSTEM_CONFIG: Final = Path("/etc") / _FOLDER
_SYSTEM_STATE: Final = Path("/var/lib/schedulerd")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile:
    """The daemon's own file.

    Attributes:
        path: absolute path of `scheduler.toml`.
        named: somebody named it, so it has to exist; else its absence means the defaults.
    """

    path: Path
    named: bool


def config_file(flag: Path | None, environ: Mapping[str, str]) -> ConfigFile:
    """The file that `--config` names, else `SCHEDULER_CONFIG`, else the one of the configuration directory.

    A directory stands for the `scheduler.toml` in it, which may be missing beside a folder `jobs.d`.
    """
    chosen = flag or _from_environ(environ, "SCHEDULER_CONFIG")
    if chosen is None:
        folder = _service_dir(environ, "CONFIGURATION_DIRECTORY") or _xdg(
            environ, "XDG_CONFIG_HOME", ".config"
        )
        return ConfigFile(path=folder / CONFIG_NAME, named=False)
    path = _absolute(chosen)
    if path.is_dir():
        return ConfigFile(path=path / CONFIG_NAME, named=not (path / JOBS_NAME).is_dir())
    return ConfigFile(path=path, named=True)


def checked_config(flag: Path | None, environ: Mapping[str, str]) -> ConfigFile:
    """The file that a check of the configuration is about: the user's own, or else the service's."""
    own = config_file(flag, environ)
    if own.named or own.path.parent.is_dir() or not _SYSTEM_CONFIG.is_dir():
        return own
    return ConfigFile(path=_SYSTEM_CONFIG / CONFIG_NAME, named=False)


def state_dir(flag: Path | None, environ: Mapping[str, str]) -> Path:
    """The directory that `--state` names, else `SCHEDULER_STATE`, else the service's or the user's own."""
    chosen = flag or _from_environ(environ, "SCHEDULER_STATE")
    if chosen is not None:
        return _absolute(chosen)
    return _service_dir(environ, "STATE_DIRECTORY") or _xdg(environ, "XDG_STATE_HOME", ".local/state")


def daemon_socket(chosen: Path | None, state: Path, environ: Mapping[str, str]) -> Path:
    """The socket to bind: the chosen one (flag, environment or file), else the one of the runtime directory.

    Raises:
        ConfigError: the path is longer than a Unix socket's address can be.
    """
    if chosen is not None:
        return checked_socket(_absolute(chosen))
    runtime = _service_dir(environ, "RUNTIME_DIRECTORY") or _runtime_dir(environ)
    return checked_socket((runtime or state) / SOCKET_NAME)


def client_sockets(flag: Path | None, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """The sockets to look at, in this order; one that was named is the only one.

    Falling back from a named socket could reach another daemon than the one that was meant.

    Raises:
        ConfigError: the named path is longer than a Unix socket's address can be.
    """
    chosen = flag or _from_environ(environ, "SCHEDULER_SOCKET")
    if chosen is not None:
        return (checked_socket(_absolute(chosen)),)
    runtime = _runtime_dir(environ)
    mine = (runtime / SOCKET_NAME,) if runtime else ()
    candidates = (*mine, _SYSTEM_SOCKET, state_dir(None, environ) / SOCKET_NAME)
    return tuple(path for path in candidates if len(os.fsencode(path)) <= SOCKET_LIMIT)


def sockets_beside(state: Path, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """The sockets of the daemon of a named state directory: one that was named, else the one in it."""
    chosen = _from_environ(environ, "SCHEDULER_SOCKET")
    if chosen is not None:
        return (checked_socket(_absolute(chosen)),)
    path = _absolute(state) / SOCKET_NAME
    return (path,) if len(os.fsencode(path)) <= SOCKET_LIMIT else ()


def client_stores(state: Path | None, socket: Path | None, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """The state directories to look at without a daemon, in this order; one that was named is the only one.

    A named socket stands for the store of its daemon, and for no other: one of the places where a daemon puts
    its own without being told for the default store there, any other for one in the same folder.
    """
    named_state = _from_environ(environ, "SCHEDULER_STATE") if socket is None else None
    chosen = state or named_state
    if chosen is not None:
        return (_absolute(chosen),)
    named = socket or _from_environ(environ, "SCHEDULER_SOCKET")
    default = state_dir(None, environ)
    if named is None:
        return tuple(dict.fromkeys((default, _SYSTEM_STATE)))
    place, runtime = _absolute(named), _runtime_dir(environ)
    if place == _SYSTEM_SOCKET:
        return (_SYSTEM_STATE,)
    if runtime is not None and place == runtime / SOCKET_NAME:
        return (default,)
    return (place.parent,)


def checked_socket(path: Path) -> Path:
    """The same path, short enough for a Unix socket.

    Raises:
        ConfigError: it is longer than 107 bytes.
    """
    length = len(os.fsencode(path))
    if length <= SOCKET_LIMIT:
        return path
    message = (
        f"the socket path {str(path)!r} has {length} bytes, a Unix socket's path has at most {SOCKET_LIMIT}:"
        " choose a shorter one with --socket, SCHEDULER_SOCKET or listen.socket"
    )
    raise ConfigError(message, faults=[Fault(message=message, key="listen.socket")])


def _from_environ(environ: Mapping[str, str], name: str) -> Path | None:
    """The path in a variable; an empty variable is not set."""
    value = environ.get(name)
    return Path(value) if value else None


def _service_dir(environ: Mapping[str, str], name: str) -> Path | None:
    """The directory that systemd made for the service; of several (`a:b`) the first is ours."""
    value = environ.get(name, "").split(":")[0]
    return Path(value) if value else None


def _xdg(environ: Mapping[str, str], name: str, default: str) -> Path:
    """Our folder in an XDG base directory; a relative one is ignored, as the specification asks."""
    value = environ.get(name, "")
    base = Path(value) if value.startswith("/") else _home(environ) / default
    return base / _FOLDER


def _runtime_dir(environ: Mapping[str, str]) -> Path | None:
    """Our folder in the user's runtime directory, where there is one."""
    value = environ.get("XDG_RUNTIME_DIR", "")
    return Path(value) / _FOLDER if value.startswith("/") else None


def _home(environ: Mapping[str, str]) -> Path:
    """The user's home: `HOME`, else what the user database says."""
    home = environ.get("HOME", "")
    if home.startswith("/"):
        return Path(home)
    try:
        return Path(pwd.getpwuid(os.geteuid()).pw_dir)
    except KeyError:  # a uid without an entry, as in containers
        return Path("/")


def _absolute(path: Path) -> Path:
    """The path from the root; symbolic links stay as they were named."""
    return Path(os.path.abspath(path))  # noqa: PTH100 -- resolve() would follow links, absolute() keeps `..`
