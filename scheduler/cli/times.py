"""`next` and `why`: when things fire, and why they do not."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, ParamSpec, TypeVar

import click

from scheduler.cli.connection import segment
from scheduler.cli.parameters import Moment
from scheduler.cli.screen import Cell, Column, Screen, warn
from scheduler.cli.selection import complete_job, explained
from scheduler.cli.session import Session, reading_verb
from scheduler.cli.wording import Json, escape, instant, local, moment, now, precision, relative
from scheduler.clock import Micros, from_micros, rfc3339, to_micros
from scheduler.errors import DaemonUnreachable, NotFound

P = ParamSpec("P")
R = TypeVar("R")

_SCHEDULES: Final = (
    ("cron", "EXPR", "A cron expression instead of a job: '30 2 * * *'."),
    ("every", "TIME", "A fixed grid: 15m."),
    ("delay", "TIME", "A wait after each run: 10m."),
    ("at", "TIME", "One moment: 2027-01-01T09:00:00+01:00."),
)
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def _schedule_options(verb: Callable[P, R]) -> Callable[P, R]:
    """The verb takes `--cron`, `--every`, `--delay`, `--at`, and is handed those given as `schedules`."""

    @functools.wraps(verb)
    def with_schedules(*args: P.args, **kwargs: P.kwargs) -> R:
        options: dict[str, Any] = kwargs
        told = {kind: options.pop(kind) for kind, _, _ in _SCHEDULES}
        options["schedules"] = {kind: text for kind, text in told.items() if text is not None}
        return verb(*args, **kwargs)

    for kind, metavar, text in reversed(_SCHEDULES):
        with_schedules = click.option(f"--{kind}", metavar=metavar, help=text)(with_schedules)
    return with_schedules


@click.command("next")
@click.argument("job", required=False, shell_complete=complete_job)
@_schedule_options
@click.option("--timezone", metavar="ZONE", help="Zone of the schedule, such as Europe/Berlin.")
@click.option("--after", type=Moment(), metavar="TIME", help="Only times after this one (default: now).")
@click.option("-n", "count", type=click.IntRange(1, 1_000), default=10, help="How many (default 10).")
@reading_verb
def next_verb(
    session: Session,
    job: str | None,
    *,
    schedules: Mapping[str, str],
    timezone: str | None,
    after: Micros | None,
    count: int,
) -> int:
    """Tell the coming fire times of JOB, or what a schedule means before it is used.

    A schedule is worked out here if no daemon answers.
    """
    if len(schedules) + (job is not None) != 1:
        raise click.UsageError("name one JOB, or one of --cron, --every, --delay, --at")
    if job is None:
        times = _preview(session, schedules, timezone, after, count)
        _warn_of_surprises(schedules.get("cron"))
    elif timezone is not None or after is not None:
        raise click.UsageError("--timezone and --after go with a schedule, not with a job")
    else:
        times = _times_of_job(session, job, count)
        if session.control.paused() is not None:
            warn("all jobs are paused: none of these fires until `schedctl resume --all`")
    if job is not None and not times and not session.screen.json_wanted:
        session.screen.line(f"no fire time is coming; `schedctl why {escape(job)}` tells why")
    else:
        _show_times(session.screen, times)
    return 0


@click.command("why")
@click.argument("job", shell_complete=complete_job)
@click.option(
    "--at", "slot", type=Moment(), metavar="TIME", help="About a past fire time: 02:30, 2026-10-01T02:30."
)
@reading_verb
def why_verb(session: Session, job: str, slot: Micros | None) -> int:
    """Tell the one reason why JOB is not running, and when it can; or what became of a past fire time."""
    try:
        answer = session.control.get(f"/v1/jobs/{segment(job)}/why", at=rfc3339(slot)).body
    except NotFound as unknown:
        raise explained(session.control, job, unknown) from unknown
    if session.screen.json_wanted:
        session.screen.record(answer)
    else:
        _show_why(session.screen, job, answer)
    return 0


def _show_why(screen: Screen, job: str, answer: Json) -> None:
    style = "yellow" if answer.get("blocked") else "green"
    screen.line(
        Cell(f"{escape(answer.get('job', job))}:", "bold"), Cell(escape(answer.get("code") or "?"), style)
    )
    screen.facts(
        [
            ("why", escape(answer.get("message") or "")),
            ("since", moment(answer["since"]) if answer.get("since") else ""),
            ("run", escape(answer.get("run_id") or "")),
            ("can run", moment(answer["next_possible_at"]) if answer.get("next_possible_at") else ""),
        ]
    )


def _times_of_job(session: Session, job: str, count: int) -> list[str]:
    try:
        answer = session.control.get(f"/v1/jobs/{segment(job)}/next", n=count).body
    except NotFound as unknown:
        raise explained(session.control, job, unknown) from unknown
    return [str(time) for time in answer.get("items") or []]


def _preview(
    session: Session, given: Mapping[str, str], timezone: str | None, after: Micros | None, count: int
) -> list[str]:
    """What the daemon says, whose default zone it is; without one what the same triggers say here."""
    asked: Json = {**given, "timezone": timezone, "after": rfc3339(after), "n": count}
    body = {key: value for key, value in asked.items() if value is not None}
    try:
        answer = session.control.ask("/v1/preview", body).body
    except DaemonUnreachable:
        zone = f"in {timezone}" if timezone else "in UTC, for no --timezone is given"
        warn(escape(f"no daemon answers: worked out here, {zone}"))
        return _worked_out(given, timezone or "UTC", now() if after is None else after, count)
    return [str(time) for time in answer.get("items") or []]


def _warn_of_surprises(expression: str | None) -> None:
    """What an expression that is valid may do otherwise than it was meant is said on stderr."""
    from scheduler.model.cron_notes import cron_notes

    for note in cron_notes(expression) if expression is not None else ():
        warn(escape(note))


def _worked_out(given: Mapping[str, str], timezone: str, after: Micros, count: int) -> list[str]:
    from scheduler.model.durations import parse_duration
    from scheduler.model.triggers import At, Cron, Delay, Every, load_zone, resolve_local

    zone = load_zone(timezone)
    [(kind, text)] = given.items()
    trigger: Cron | Every | Delay | At
    match kind:
        case "cron":
            trigger = Cron(text, timezone)
        case "every":
            trigger = Every(parse_duration(text))
        case "delay":
            trigger = Delay(parse_duration(text))
        case _:
            read = _read_time(text)
            trigger = At(to_micros(read) if read.tzinfo else resolve_local(read, timezone))
    times: list[str] = []
    fire = trigger.next_fire(after)
    while fire is not None and len(times) < count:
        times.append(from_micros(fire, zone.info).isoformat())
        # What comes after the first fire of a delay depends on when its run ends.
        fire = None if kind == "delay" else trigger.next_fire(fire)
    return times


def _read_time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError as bad:
        raise click.BadParameter(
            f"{text!r} is no time: write 2027-01-01T09:00:00+01:00", param_hint="--at"
        ) from bad


def _show_times(screen: Screen, times: list[str]) -> None:
    if screen.json_wanted:
        screen.record({"items": times})
        return
    if not times:
        screen.line("no further fire time")
        return
    rows = [time_row(time) for time in times]
    columns = [Column("FIRE TIME"), Column("LOCAL"), Column("WHEN")]
    if all(row[0].text.endswith(row[1].text) for row in rows):
        columns.pop(1)
        rows = [[row[0], row[2]] for row in rows]
    screen.table(columns, rows)


def time_row(time: str) -> list[Cell]:
    """The fire time as its zone shows it, as this zone does, and how far it is."""
    at = instant(time)
    if at is None:
        return [Cell(escape(time)), Cell(""), Cell("")]
    read = datetime.fromisoformat(time)
    shown = read.isoformat(sep=" ", timespec=precision(at))
    return [Cell(f"{_DAYS[read.weekday()]} {shown}"), Cell(local(at)), Cell(relative(at))]
