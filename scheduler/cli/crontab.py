"""`import crontab`: takes over a crontab, and shows that nothing about its times has changed.

What has no counterpart is told on stderr; a crontab with a line that cannot be read is refused whole, as
crontab(1) does. An existing file is replaced only if this verb wrote it and nobody has edited it since.
"""

from __future__ import annotations

import getpass
import hashlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from scheduler.cli.screen import Cell, Screen, warn
from scheduler.cli.session import Session, client_verb, daemon_user
from scheduler.cli.takeover import TakenJob, Takeover, take_over, users_first, whose_jobs
from scheduler.cli.times import time_row
from scheduler.cli.wording import escape, now
from scheduler.config.crontab import CrontabEntry, EnvEntry, ErrorEntry, ImportNote, JobEntry, parse_crontab
from scheduler.config.settings import local_timezone
from scheduler.errors import Conflict, Invalid
from scheduler.model.triggers import load_zone

_PROVED: Final = 20
_SHOWN: Final = 3
_HEADING: Final = "Taken over by `schedctl import crontab` from "
_SEAL: Final = "# As it was written: "
"""Begins the second line of a file that this verb wrote; a fingerprint of the rest follows."""


@click.group("import")
def import_verb() -> None:
    """Take over schedules from elsewhere."""


@import_verb.command("crontab")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
@click.option(
    "--system", is_flag=True, help="A system crontab (/etc/crontab, /etc/cron.d): has a user column."
)
@click.option("--check", is_flag=True, help="Only say how each line is understood.")
@click.option(
    "--write",
    "target",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Make this job file, for example /etc/schedulerd/jobs.d/crontab.toml.",
)
@click.option("--force", is_flag=True, help="With --write: also over what was edited since it was written.")
@click.option("--timezone", metavar="ZONE", help="Zone of lines without CRON_TZ (default: this machine's).")
@click.option("--owner", metavar="USER", help="Whose crontab it is, without --system (default: yours).")
@click.option("-n", "count", type=click.IntRange(0, 1_000), default=_SHOWN, help="Fire times to show (3).")
@client_verb
def crontab_verb(  # noqa: PLR0913 - one for each option
    session: Session,
    file: str,
    *,
    system: bool,
    check: bool,
    target: str | None,
    force: bool,
    timezone: str | None,
    owner: str | None,
    count: int,
) -> int:
    """Show the jobs of the crontab FILE with their next fire times; --write makes a job file of them.

    FILE may be - for stdin. A line that cannot be read is exit code 1, and nothing is written.
    """
    if check and target is not None:
        raise click.UsageError("--check only looks: leave it out, or leave out --write")
    if force and target is None:
        raise click.UsageError("--force is about --write: add it, or leave out --force")
    if not system and (file == "/etc/crontab" or file.startswith("/etc/cron.d/")):
        raise click.UsageError(f"{file} is a system crontab, its lines name a user: add --system")
    entries = parse_crontab(_read(file), system=system)
    if not system and (user := users_first(entries)):
        warn(
            escape(f"the first word of every command is a user ({user}): a system crontab? then add --system")
        )
    if check:
        _show_entries(session.screen, entries)
    errors = [entry for entry in entries if isinstance(entry, ErrorEntry)]
    for error in errors:
        warn(escape(f"line {error.line}: {error.message} ({error.code})"))
    if check or errors:
        return 1 if errors else 0
    if timezone is not None:
        load_zone(timezone)
    taken = take_over(
        entries,
        heading=_HEADING + escape(file),
        name=target or "job file",
        owner=None if system else owner or getpass.getuser(),
        timezone=timezone,
        machine_zone=local_timezone(os.environ),
        since=now(),
        count=max(count, _PROVED),
    )
    whose = whose_jobs(
        entries, owner=None if system else owner or getpass.getuser(), runner=daemon_user(session)
    )
    return _finish(session.screen, taken, [*taken.notes, *whose], target, count, force=force)


def _finish(
    screen: Screen,
    taken: Takeover,
    notes: Sequence[ImportNote],
    target: str | None,
    count: int,
    *,
    force: bool,
) -> int:
    for fault in (*taken.later, *taken.faults):
        warn(escape(fault))
    if taken.faults:
        return 1
    if target is not None:
        _write(Path(target), taken.text, force=force)
    _show(screen, taken, target, count)
    for note in notes:
        warn(escape(note))
    return 0


def _read(file: str) -> str:
    """The text of the crontab, its line ends as they are.

    Raises:
        Invalid: it cannot be read, or is no UTF-8.
    """
    name = "stdin" if file == "-" else file
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as bad:
        raise Invalid(f"cannot read {name}: {bad.strerror}") from bad
    try:
        return data.decode()
    except UnicodeDecodeError as bad:
        line = data.count(b"\n", 0, bad.start) + 1
        raise Invalid(f"line {line} of {name} is no UTF-8", hint="convert the file, then import it") from bad


def _write(target: Path, text: str, *, force: bool) -> None:
    """The job file stands at `target`, whole.

    Raises:
        Conflict: another file is there, or it was edited since and `force` is not given.
        Invalid: it cannot be written.
    """
    fresh = target.with_name(f".{target.name}.new")
    try:
        before = target.read_text(encoding="utf-8", errors="replace") if target.exists() else None
        if before is not None and not before.startswith(f"# {_HEADING}"):
            raise Conflict(
                f"{target} exists and was not written by this import",
                hint="name another file, or move it away",
            )
        if before is not None and not force and _sealed(_unsealed(before)) != before:
            raise Conflict(
                f"{target} was edited since this import wrote it",
                hint="name another file, or give up those edits with --force",
            )
        fresh.write_text(_sealed(text), encoding="utf-8")
        fresh.replace(target)
    except OSError as bad:
        raise Invalid(f"cannot write {target}: {bad.strerror}") from bad


def _sealed(text: str) -> str:
    """The job file with a fingerprint of itself below its heading."""
    heading, _, rest = text.partition("\n")
    return f"{heading}\n{_SEAL}{hashlib.sha256(rest.encode()).hexdigest()[:16]}\n{rest}"


def _unsealed(text: str) -> str:
    """The same without its second line."""
    heading, _, rest = text.partition("\n")
    return f"{heading}\n{rest.partition(chr(10))[2]}"


def _show_entries(screen: Screen, entries: Sequence[CrontabEntry]) -> None:
    """Every entry: as JSON one list, for a person one line each (errors come on stderr)."""
    if screen.json_wanted:
        screen.record([entry.to_json() for entry in entries])
        return
    for entry in entries:
        match entry:
            case EnvEntry():
                screen.line(f"line {entry.line}:", "setting", escape(f"{entry.name} = {entry.value}"))
            case JobEntry():
                user = f" as {entry.user}" if entry.user else ""
                zone = f" ({entry.timezone})" if entry.timezone else ""
                stdin = f", stdin {entry.stdin!r}" if entry.stdin is not None else ""
                said = f"{entry.schedule}{zone}{user}: {entry.command}{stdin}"
                screen.line(f"line {entry.line}:", "job", escape(said))


def _show(screen: Screen, taken: Takeover, target: str | None, count: int) -> None:
    for job in taken.jobs:
        _show_job(screen, job, job.times[:count])
    if screen.json_wanted:
        return
    compared = sum(len(job.times) for job in taken.jobs)
    jobs = "1 job" if len(taken.jobs) == 1 else f"{len(taken.jobs)} jobs"
    screen.line(f"{jobs}; {compared} coming fire times are those of the crontab")
    if target is not None:
        is_placed = Path(target).absolute().parent.name == "jobs.d"
        move = "" if is_placed else "put it into the daemon's jobs folder, then "
        screen.line(f"written to {escape(target)}; {move}`schedctl reload` puts it in force")


def _show_job(screen: Screen, job: TakenJob, times: Sequence[str]) -> None:
    line, schedule = job.entry.line, job.entry.schedule
    if screen.json_wanted:
        shown = {"id": job.id, "line": line, "schedule": schedule, "table": job.table, "times": list(times)}
        screen.record(shown)
        return
    screen.line(Cell(job.id, "bold"), escape(f"line {line}: {schedule}  {job.entry.command}"))
    for time in times:
        zoned, _, away = time_row(time)
        screen.line(f"  {zoned.text}  {away.text}")
