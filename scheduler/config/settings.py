"""The daemon's own settings: `scheduler.toml`, with environment and flags laid over it.

A flag beats the environment (`SCHEDULER_MAX_RUNNING=8`), which beats the file, which beats the default.
All faults of all of them are found at once, and any keeps the daemon from starting: one that runs on other
settings than its operator wrote is worse than one that says why it does not.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, Field

from scheduler.clock import DAY, MILLISECOND, MINUTE, SECOND, Micros
from scheduler.config.fields import (
    STRICT,
    ByteSize,
    Checked,
    CountFromOne,
    Duration,
    DurationOrZero,
    Line,
    Timezone,
    checked,
    choice,
)
from scheduler.config.locate import Lines, locate
from scheduler.config.overlay import Given, from_environ, from_flags, lay_over
from scheduler.config.paths import ConfigFile
from scheduler.config.roles import Roles, RolesTable, group_id, roles_of, unknown_members
from scheduler.config.tomlfile import TomlText, read_toml
from scheduler.config.wording import KeyPath, Problem, dotted, shown
from scheduler.errors import ConfigError, Fault, Invalid
from scheduler.model.triggers import load_zone, parse_exclusions
from scheduler.trust import foreign_hands

MEBIBYTE: Final = 1024 * 1024
HISTORY_AGE: Final[Micros] = 90 * DAY


class LogFormat(StrEnum):
    """How log lines look; `auto`: coloured text on a terminal, JSON elsewhere."""

    AUTO = "auto"
    JSON = "json"
    CONSOLE = "console"


class LogLevel(StrEnum):
    """The least severe lines that are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the daemon runs with. Durations are microseconds, paths absolute.

    Attributes:
        timezone: of jobs that name none; by default the machine's.
        max_running: live runs of all jobs together.
        start_rate: starts a second after a downtime.
        drain_timeout: how long live runs may go on after SIGTERM; 0 = not at all.
        lease: how long a claim is believed without a sign of life.
        heartbeat: how often it is renewed.
        output_limit: bytes of output kept of one attempt.
        default_timeout: of jobs that have no `timeout`; None = none.
        runs_per_job: executed runs that the history keeps of a job without `keep_runs`; None = all.
        history_age: how long the history keeps what ended; None = for ever.
        groups: `max_running` of each group.
        calendars: the exclusions of each shared calendar.
        python_path: folders from which Python handlers are imported.
        socket: where to listen, or None for the usual place (`paths.daemon_socket`).
        socket_group: whose members may connect; None = the daemon's own group.
        roles: who may what.
        jobs: folders of job files.
    """

    timezone: str = "UTC"
    max_running: int = 32
    start_rate: float = 20.0
    drain_timeout: Micros = 30 * SECOND
    lease: Micros = MINUTE
    heartbeat: Micros = 20 * SECOND
    output_limit: int = 10 * MEBIBYTE
    default_timeout: Micros | None = None
    runs_per_job: int | None = None
    history_age: Micros | None = HISTORY_AGE
    log_format: LogFormat = LogFormat.AUTO
    log_level: LogLevel = LogLevel.INFO
    groups: Mapping[str, int] = field(default_factory=dict)
    calendars: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    python_path: tuple[Path, ...] = ()
    socket: Path | None = None
    socket_group: int | None = None
    roles: Roles = field(default_factory=Roles)
    jobs: tuple[Path, ...] = ()


def load_settings(
    config: ConfigFile,
    environ: Mapping[str, str],
    *,
    socket: Path | None = None,
    jobs: Sequence[Path] = (),
) -> Settings:
    """The settings of this start.

    Args:
        config: the file; one that nobody named may be missing.
        environ: `SCHEDULER_*` variables, and `TZ` for the default time zone.
        socket: the flag `--socket`.
        jobs: the flags `--jobs`.

    Raises:
        ConfigError: with every fault of file, environment and flags.
    """
    read = _read(config)
    if read.fault is not None:
        raise _refusal([read.fault])
    overlay = {**from_environ(environ), **from_flags(socket, jobs)}
    values = dict(read.table or {})
    lay_over(values, overlay)
    found = checked(SettingsTable, values, foreign=_FOREIGN)
    problems = [*found.problems, *_across(found)]
    if problems:
        raise _refusal(_faults(problems, overlay, config, locate(read.text or "")))
    return _settings(found.table, config.path.parent, environ)


class LogTable(BaseModel):
    """`[log]`."""

    model_config = STRICT

    format: Annotated[LogFormat, choice(LogFormat)] = LogFormat.AUTO
    level: Annotated[LogLevel, choice(LogLevel)] = LogLevel.INFO


class GroupTable(BaseModel):
    """`[groups.NAME]`."""

    model_config = STRICT

    max_running: CountFromOne = 1


class RetentionTable(BaseModel):
    """`[retention]`."""

    model_config = STRICT

    runs_per_job: CountFromOne | None = None
    age: DurationOrZero = HISTORY_AGE


class ListenTable(BaseModel):
    """`[listen]`."""

    model_config = STRICT

    socket: Line | None = None
    group: Line | None = None


class SettingsTable(BaseModel):
    """The top level of `scheduler.toml`."""

    model_config = STRICT

    timezone: Timezone | None = None
    max_running: CountFromOne = 32
    start_rate: Annotated[float, Field(gt=0, le=10_000)] = 20.0
    drain_timeout: DurationOrZero = 30 * SECOND
    lease: Duration = MINUTE
    heartbeat: Duration = 20 * SECOND
    output_limit: ByteSize = 10 * MEBIBYTE
    default_timeout: Duration | None = None
    log: LogTable = LogTable()
    retention: RetentionTable = RetentionTable()
    groups: dict[Line, GroupTable] = {}
    calendars: dict[Line, list[Line]] = {}
    python_path: list[Line] = []
    listen: ListenTable = ListenTable()
    roles: RolesTable = RolesTable()
    jobs: list[Line] = ["jobs.d"]


_FOREIGN: Final = {"tz": "timezone", "socket": "listen", "job_dirs": "jobs", "max_workers": "max_running"}


def _read(config: ConfigFile) -> TomlText:
    if not config.named and not os.path.lexists(config.path):
        return TomlText(table={})
    read = read_toml(config.path)
    try:
        why = foreign_hands(config.path.parent, config.path.parent.stat(), as_name=True)
    except OSError:  # then the file could not be read either, and that is told
        return read
    if why is None or read.fault is not None:
        return read
    return TomlText(fault=Fault(message=f"the folder it is in {why}", file=str(config.path)))


def _across(found: Checked[SettingsTable]) -> Iterator[Problem]:
    """What several values are together, where each is sound by itself."""
    table = found.table
    if not found.unsound & {"lease", "heartbeat"}:
        yield from _check_lease(table)
    if table.listen.group is not None and group_id(table.listen.group) is None:
        yield Problem(("listen", "group"), f"there is no group {shown(table.listen.group)} on this machine")
    yield from unknown_members(table.roles)
    for name, entries in table.calendars.items():
        for number, entry in enumerate(entries):
            try:
                parse_exclusions([entry], "UTC")
            except Invalid as error:
                yield Problem(("calendars", name, number), error.message)


def _check_lease(table: SettingsTable) -> Iterator[Problem]:
    if table.heartbeat < 50 * MILLISECOND:
        yield Problem(("heartbeat",), "must be at least 50ms: each one is a commit of the store")
    if table.heartbeat * 2 >= table.lease:
        yield Problem(
            ("heartbeat",),
            "must be shorter than half of lease, so that one lost renewal does not cost the claim:"
            ' write for example lease = "60s" and heartbeat = "20s"',
        )


def _faults(
    problems: Sequence[Problem], overlay: Mapping[KeyPath, Given], config: ConfigFile, lines: Lines
) -> list[Fault]:
    """Each problem with its place: a variable, a flag, or a line of the file."""
    faults = []
    for problem in problems:
        given = next((given for path, given in overlay.items() if problem.path[: len(path)] == path), None)
        if given is not None:
            faults.append(Fault(message=problem.message, key=given.name))
            continue
        names = [part for part in problem.path if isinstance(part, str)]
        faults.append(
            Fault(
                message=problem.message, file=str(config.path), line=lines.of(names), key=dotted(problem.path)
            )
        )
    return faults


def _refusal(faults: Sequence[Fault]) -> ConfigError:
    count = "a fault" if len(faults) == 1 else f"{len(faults)} faults"
    listed = "\n".join(f"  {fault}" for fault in faults)
    return ConfigError(f"the daemon's configuration has {count}:\n{listed}", faults=faults)


def _settings(table: SettingsTable, base: Path, environ: Mapping[str, str]) -> Settings:
    socket = table.listen.socket
    return Settings(
        timezone=table.timezone or local_timezone(environ),
        max_running=table.max_running,
        start_rate=table.start_rate,
        drain_timeout=table.drain_timeout,
        lease=table.lease,
        heartbeat=table.heartbeat,
        output_limit=table.output_limit,
        default_timeout=table.default_timeout,
        runs_per_job=table.retention.runs_per_job,
        history_age=table.retention.age or None,
        log_format=table.log.format,
        log_level=table.log.level,
        groups={name: group.max_running for name, group in table.groups.items()},
        calendars={name: tuple(entries) for name, entries in table.calendars.items()},
        python_path=tuple(_below(base, folder) for folder in table.python_path),
        socket=None if socket is None else _below(base, socket),
        socket_group=None if table.listen.group is None else group_id(table.listen.group),
        roles=roles_of(table.roles),
        jobs=tuple(dict.fromkeys(_below(base, folder) for folder in table.jobs)),
    )


def _below(base: Path, path: str) -> Path:
    """A path of the file: relative ones start from the file's folder."""
    return Path(os.path.abspath(base / path))  # noqa: PTH100 -- see `paths`


def local_timezone(environ: Mapping[str, str], localtime: Path = Path("/etc/localtime")) -> str:
    """The machine's time zone by name: `TZ`, else the link `/etc/localtime`, else UTC."""
    _, _, linked = os.path.realpath(localtime).rpartition("/zoneinfo/")
    for name in (environ.get("TZ", "").removeprefix(":"), linked):
        try:
            return load_zone("UTC" if name == "Etc/UTC" else name).name
        except Invalid:
            continue
    return "UTC"
