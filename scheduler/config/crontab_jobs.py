"""Turns the jobs of a crontab into job tables of our own, and tells what has no counterpart.

An imported job behaves as under cron: its shell is /bin/sh unless the crontab sets SHELL, it starts in
HOME (without `cwd` where that is the home of its user), and what was missed while the daemon was down is not
caught up. Nothing is dropped in silence: each setting or line that cannot be taken over is a note. Writing
the tables to a file is the caller's business.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from scheduler.clock import MINUTE, Micros
from scheduler.config.crontab_parse import REBOOT, CrontabEntry, EnvEntry, ErrorEntry, JobEntry
from scheduler.model.durations import format_duration
from scheduler.model.triggers import Cron, smallest_gap

_MAX_ID: Final = 64
_DEFAULT_SHELL: Final = "/bin/sh"
# Settings that are instructions to cron and no part of a command's environment.
_MAIL: Final = frozenset({"MAILTO", "MAILFROM", "CONTENT_TYPE", "CONTENT_TRANSFER_ENCODING"})
_CONSUMED: Final = _MAIL | {"CRON_TZ", "RANDOM_DELAY", "LOGNAME"}
# Words before the one that says what a command is about.
_PLUMBING: Final = frozenset(
    {
        *(
            "[",
            "[[",
            "test",
            "if",
            "then",
            "else",
            "fi",
            "for",
            "while",
            "do",
            "done",
            "command",
            "cd",
            "true",
        ),
        *("false", "set", "export", "umask", "sleep", "exec", "env", "nice", "ionice", "chronic", "flock"),
        *("timeout", "nohup", "sudo", "su", "time", "bash", "sh", "dash", "zsh", "perl", "php", "python"),
        *("python2", "python3", "ruby", "node"),
    }
)
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_SUFFIX: Final = re.compile(r"\.(sh|bash|py|pl|php|rb|js)$")
_REBOOT_NOTE: Final = (
    "@reboot has no time: the job is kept with `manual = true`, start it at boot with `schedctl run`"
)
_LEFT_IN_PLACE: Final = {
    "flock": "flock stays in the command; a job does not overlap itself here, so it may go (`overlap`)",
    "timeout": "timeout stays in the command; `timeout` of the job does the same and is on record",
}
_CATCH_UP_NOTE: Final = (
    'cron forgets what it missed while the machine was off, and so do these jobs (catch_up = "skip");'
    " without that line the last missed time runs"
)
_RANDOM_NOTE: Final = "the random sleep stays in the command; `jitter` does the same before the start"
_PERCENT_NOTE: Final = (
    r"`%` ends the command in a crontab, what follows is its stdin; write `\%` where a percent sign is meant"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportNote:
    """Something of the crontab that is not, or not in the same way, in the job tables.

    Attributes:
        line: 1-based line of the crontab, or None where it concerns the file.
        job: id of the job concerned, or None.
        message: what, and what to do about it.
    """

    line: int | None = None
    job: str | None = None
    message: str

    def __str__(self) -> str:
        place = "crontab" if self.line is None else f"line {self.line}"
        return f"{place}: {self.message}" if self.job is None else f"{place}: job {self.job}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedJobs:
    """What an import gives.

    Attributes:
        jobs: (job id, keys of the job file) in the order of the crontab.
        notes: everything that was not taken over as it stood.
    """

    jobs: list[tuple[str, dict[str, object]]] = field(default_factory=list)
    notes: list[ImportNote] = field(default_factory=list)


def home_of(user: str | None) -> str | None:
    """The home directory of a user by the machine's user database; None if unknown or nobody is named."""
    try:
        return None if user is None else pwd.getpwnam(user).pw_dir
    except KeyError:
        return None


def to_job_tables(
    entries: Iterable[CrontabEntry],
    *,
    owner: str | None = None,
    timezone: str | None = None,
    taken: Collection[str] = (),
    homes: Callable[[str | None], str | None] = home_of,
) -> ImportedJobs:
    """The jobs of a crontab as tables of a job file, with a note for everything left behind.

    Args:
        entries: what `parse_crontab` gave; an error entry becomes a note, so refuse such a file first.
        owner: whose crontab it is (a user's own form), for HOME; the tables name no user then.
        timezone: zone of the lines without CRON_TZ; None leaves it to the daemon's setting.
        taken: job ids that are in use.
        homes: user name to home directory.
    """
    imported = ImportedJobs()
    ids = set(taken)
    for entry in entries:
        if isinstance(entry, ErrorEntry):
            imported.notes.append(ImportNote(line=entry.line, message=f"not taken over: {entry.message}"))
        elif isinstance(entry, EnvEntry):
            imported.notes.extend(_setting_notes(entry))
        else:
            job_id = _job_id(entry.command, ids)
            ids.add(job_id)
            table, told = _table(entry, owner, timezone, homes)
            imported.jobs.append((job_id, table))
            imported.notes.extend(
                ImportNote(line=entry.line, job=job_id, message=message) for message in told
            )
    if imported.jobs:
        imported.notes.extend(_general_notes())
    if any("catch_up" in table for _, table in imported.jobs):
        imported.notes.append(ImportNote(message=_CATCH_UP_NOTE))
    return imported


def _general_notes() -> list[ImportNote]:
    return [
        ImportNote(message="cron mails output; here it is kept with each run: `schedctl output JOB`"),
        ImportNote(
            message="cron starts a command again while it still runs; here that start is skipped and recorded"
            ' (overlap = "allow" with max_running restores it)'
        ),
    ]


def _setting_notes(entry: EnvEntry) -> list[ImportNote]:
    """What is told about a setting that does not reach the commands as it stands."""
    if entry.name in _MAIL and entry.value:
        return [ImportNote(line=entry.line, message=_mail_note(entry.name))]
    if entry.name == "LOGNAME":
        return [ImportNote(line=entry.line, message="LOGNAME is not taken over: cron sets its own too")]
    return []


def _mail_note(name: str) -> str:
    return (
        f"{name} is not taken over: no mail is sent; on_failure = [PROGRAM, ...] or a URL is told of a job"
        " that failed"
    )


def _table(
    entry: JobEntry,
    owner: str | None,
    timezone: str | None,
    homes: Callable[[str | None], str | None],
) -> tuple[dict[str, object], list[str]]:
    """The keys of one job, and what is told about it."""
    told: list[str] = []
    table: dict[str, object] = {"description": f"crontab line {entry.line}"}
    if entry.schedule == REBOOT:
        table["manual"] = True
        told.append(_REBOOT_NOTE)
    else:
        table["cron"] = entry.schedule
        table["catch_up"] = "skip"
        _add(table, "timezone", entry.timezone or timezone)
        _add_jitter(table, entry, told)
    _add_command(table, entry)
    _add(table, "stdin", entry.stdin)
    if entry.stdin is not None:
        told.append(_PERCENT_NOTE)
    _add(table, "user", entry.user)
    _add_cwd(table, entry, homes(entry.user or owner), told)
    told.extend(_left_in_place(entry.command))
    env = {name: value for name, value in entry.env.items() if name not in _CONSUMED}
    table["env"] = {"SHELL": _DEFAULT_SHELL, **env}
    return table, told


def _add(table: dict[str, object], key: str, value: object) -> None:
    if value is not None:
        table[key] = value


def _add_command(table: dict[str, object], entry: JobEntry) -> None:
    """The command for the shell that the crontab asks for."""
    shell = entry.env.get("SHELL") or _DEFAULT_SHELL
    if shell == _DEFAULT_SHELL:
        table["shell"] = entry.command
    else:
        table["command"] = [shell, "-c", entry.command]


def _add_cwd(table: dict[str, object], entry: JobEntry, home: str | None, told: list[str]) -> None:
    """The directory to start in, where it is not the home that a job of its user starts in anyway."""
    wanted = entry.env.get("HOME") or home
    if wanted is None:
        told.append("no home directory is known, so cwd is not set: cron would start it there")
    elif wanted != home:
        table["cwd"] = wanted
    elif entry.user is not None and not os.path.isdir(wanted):  # noqa: PTH112 - text stays as written
        table["cwd"] = "/"
        told.append(f'{wanted}, the home of {entry.user}, is not there, so it starts in / (cwd = "/")')


def _left_in_place(command: str) -> list[str]:
    """What is told about words of a command that do what a key of the job could."""
    words = [word.strip("\"'`(){};&|<>").rpartition("/")[2] for word in command.split()]
    told = [note for word, note in _LEFT_IN_PLACE.items() if word in words]
    return [*told, _RANDOM_NOTE] if "sleep" in words and "RANDOM" in command else told


def _add_jitter(table: dict[str, object], entry: JobEntry, told: list[str]) -> None:
    """RANDOM_DELAY of cronie (minutes) as a jitter, where it fits between two fires."""
    text = entry.env.get("RANDOM_DELAY", "0").strip()
    if not (text.isascii() and text.isdigit() and len(text) < 6):
        told.append(f"RANDOM_DELAY={text} is not taken over: it is no number of minutes")
        return
    delay: Micros = int(text) * MINUTE
    gap = smallest_gap(Cron(entry.schedule, entry.timezone or "UTC"))
    if gap is not None and delay >= gap:
        told.append(f"RANDOM_DELAY={text} is not taken over: longer than the time between two runs")
    elif delay:
        table["jitter"] = format_duration(delay)


def _job_id(command: str, taken: Collection[str]) -> str:
    """An id made from the first word that says what the command is about, unlike those taken."""
    name = next((slug for word in command.split() if (slug := _slug(word))), "job")
    number, job_id = 1, name
    while job_id in taken:
        number += 1
        ending = f"-{number}"
        job_id = name[: _MAX_ID - len(ending)] + ending
    return job_id


def _slug(word: str) -> str:
    """The word as an id, or nothing if it is plumbing; an assignment may hold a secret and gives none."""
    bare = word.strip("\"'`(){};&|<>$")
    if word in _PLUMBING or bare in _PLUMBING or _ASSIGNMENT.match(bare) or bare.startswith(("-", "$")):
        return ""
    last = _SUFFIX.sub("", bare.rstrip("/").rpartition("/")[2].lower())
    if last in _PLUMBING:
        return ""
    slug = re.sub(r"[^a-z0-9]+", "-", last).strip("-")[:_MAX_ID].strip("-")
    return slug if re.search("[a-z]", slug) else ""
