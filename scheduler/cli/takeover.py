"""From the entries of a crontab to the text of a job file that provably fires at the same times.

The text is read back by the code that the daemon reads job files with, and the coming fire times of each
job are compared with those of its line. Nothing is printed or written here.
"""

from __future__ import annotations

import pwd
import shutil
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from scheduler.cli.toml import job_file
from scheduler.clock import Micros, from_micros
from scheduler.config.crontab import CrontabEntry, ImportNote, JobEntry, to_job_tables
from scheduler.config.jobfile import parse_definition, parse_jobs
from scheduler.config.settings import Settings
from scheduler.errors import Conflict, Fault
from scheduler.model.triggers import Cron, load_zone

_REBOOT = "@reboot"
_USER = "user"


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenJob:
    """One job of the crontab.

    Attributes:
        id: its id in the job file.
        entry: its line.
        table: its table, as it reads back from the job file.
        times: its next fire times as RFC 3339 in its zone; none for `@reboot`.
    """

    id: str
    entry: JobEntry
    table: dict[str, Any]
    times: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Takeover:
    """What a crontab becomes.

    Attributes:
        text: the job file.
        jobs: its jobs, in the order of the crontab.
        notes: what has no counterpart, or another one.
        faults: why the daemon would refuse the file.
        later: users in it that this process could not start a job for; the daemon may.
    """

    text: str
    jobs: list[TakenJob]
    notes: list[ImportNote]
    faults: list[Fault]
    later: list[Fault]


def take_over(
    entries: Sequence[CrontabEntry],
    *,
    heading: str,
    name: str,
    owner: str | None,
    timezone: str | None,
    machine_zone: str,
    since: Micros,
    count: int,
) -> Takeover:
    """The job file of a crontab without errors; `count` fire times after `since` of each job are compared.

    Args:
        entries: what `parse_crontab` gave.
        heading: a comment for the file.
        name: what faults call the file.
        owner: whose crontab it is, or None for a system crontab.
        timezone: zone of the lines without CRON_TZ, or None for the machine's.
        machine_zone: the zone that a daemon of this machine has.

    Raises:
        Conflict: a job would not fire at the times of its line: a fault of ours.
    """
    imported = to_job_tables(entries, owner=owner, timezone=timezone)
    text = job_file(imported.jobs, heading=heading)
    settings = Settings(timezone=timezone or machine_zone)
    _, faults = parse_jobs(text, name, settings)
    later = [fault for fault in faults if fault.key == _USER]
    faults = [fault for fault in faults if fault not in later]
    lines = [entry for entry in entries if isinstance(entry, JobEntry)]
    tables = tomllib.loads(text).get("jobs", {})
    jobs = [] if faults else [
        _proved(id, table, entry, settings, since=since, count=count)
        for (id, table), entry in zip(tables.items(), lines, strict=True)
    ]  # fmt: skip
    return Takeover(text=text, jobs=jobs, notes=imported.notes, faults=faults, later=later)


def whose_jobs(
    entries: Sequence[CrontabEntry], *, owner: str | None, runner: str | None
) -> Iterator[ImportNote]:
    """What is told of jobs that would run as another user than under cron.

    Args:
        owner: whose crontab it is, or None for a system crontab, where each line says so.
        runner: the daemon's user, or None where no daemon is seen.
    """
    users = {entry.user or owner for entry in entries if isinstance(entry, JobEntry)}
    for user in sorted(user for user in users if user and user != runner):
        if runner is None:
            if owner is not None:
                yield ImportNote(message=f"the jobs run as the daemon's user: that should be {user}")
        elif runner != "root":
            told = (
                f"the jobs run as {runner}, the daemon's user, and not as {user}"
                if owner is not None
                else f"jobs of {user} cannot start: the daemon runs as {runner}, and not as root"
            )
            yield ImportNote(message=f"{told} (see docs/coming-from.md: whose jobs are they?)")
        elif owner is not None:
            yield ImportNote(message=f'the daemon runs as root, and so do these jobs: add user = "{user}"')


def users_first(entries: Sequence[CrontabEntry]) -> str | None:
    """A user that a line begins with, where every line's first word is one and no program.

    Such a file is a system crontab: read as a user's, the user's name would be taken for the command.
    """
    words = [entry.command.split()[0] for entry in entries if isinstance(entry, JobEntry)]
    return words[0] if words and all(map(_is_only_user, words)) else None


def _is_only_user(word: str) -> bool:
    try:
        pwd.getpwnam(word)
    except (KeyError, ValueError):
        return False
    return shutil.which(word) is None


def _proved(
    id: str, table: dict[str, Any], entry: JobEntry, settings: Settings, *, since: Micros, count: int
) -> TakenJob:
    known = {key: value for key, value in table.items() if key != _USER}
    definition = parse_definition(id, known, settings)
    zone = entry.timezone or settings.timezone
    found = _walk(definition.schedule.next_fire, since, count)
    wanted = [] if entry.schedule == _REBOOT else _walk(Cron(entry.schedule, zone).next_fire, since, count)
    if found != wanted:
        raise Conflict(
            f"line {entry.line}: job {id} would not fire at the times of its line; nothing is written",
            hint="this is a fault of schedctl: report the line",
        )
    times = [from_micros(at, load_zone(zone).info).isoformat() for at in found]
    return TakenJob(id=id, entry=entry, table=table, times=times)


def _walk(following: Callable[[Micros], Micros | None], since: Micros, count: int) -> list[Micros]:
    """The next `count` fire times after `since`."""
    found: list[Micros] = []
    fire = following(since)
    while fire is not None and len(found) < count:
        found.append(fire)
        fire = following(fire)
    return found
