"""`pause`, `resume`, `skip-next`: what an operator says to jobs, one after another or to all at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import click

from scheduler.cli.connection import segment
from scheduler.cli.parameters import Duration, Moment
from scheduler.cli.screen import Cell, Screen, job_cell
from scheduler.cli.selection import Choice, chosen_jobs, for_each, job_choice
from scheduler.cli.session import Session, client_verb
from scheduler.cli.waiting import wait_for_rest
from scheduler.cli.wording import (
    Json,
    brief,
    duration,
    elapsed,
    escape,
    instant,
    job_state,
    moment,
    pause_text,
    relative,
)
from scheduler.clock import SECOND, Micros, rfc3339
from scheduler.errors import Invalid

_MODES: Final = ("drain", "item", "freeze", "cancel")
_MISSED: Final = ("skip", "latest", "all")


@click.command("pause")
@job_choice
@click.option(
    "--mode",
    type=click.Choice(_MODES),
    default="drain",
    help="The run in flight: drain lets it finish (default), item ends a batch after its running items,"
    " freeze stops a command where it stands, cancel ends it.",
)
@click.option("--reason", metavar="TEXT", help="Why, for whoever looks next.")
@click.option("--for", "length", type=Duration(), metavar="TIME", help="Resume by itself after: 2h, 1h30m.")
@click.option(
    "--until", type=Moment(ahead=True), metavar="TIME", help="Resume by itself at: 18:00, 2026-10-01 02:30."
)
@click.option("--wait", is_flag=True, help="Return when the runs in flight have ended, or are held.")
@client_verb
def pause_verb(
    session: Session,
    choice: Choice,
    mode: str,
    reason: str | None,
    length: Micros | None,
    until: Micros | None,
    *,
    wait: bool,
) -> int:
    """Pause jobs: they do not fire until they are resumed, whatever happens meanwhile.

    With --all it is one pause of everything, which leaves the pauses of single jobs as they are; `resume
    --all` ends it.
    """
    if length is not None and until is not None:
        raise click.UsageError("--for and --until exclude each other")
    if wait and mode == "freeze":
        raise click.UsageError("a frozen run does not end: leave out --wait, or choose another --mode")
    body: Json = {"mode": mode}
    body |= {} if reason is None else {"reason": reason}
    body |= {} if length is None else {"for": length / SECOND}
    body |= {} if until is None else {"until": rfc3339(until)}
    flights: list[Json] = []
    if _is_everything(choice):
        code = _say_to_all(session, "pause", body, flights)
    else:
        # Over many jobs `freeze` freezes commands and drains the rest.
        instead = {**body, "mode": "drain"} if mode == "freeze" else None
        code = _say(session, choice, "pause", body, instead=instead, flights=flights)
    return max(code, wait_for_rest(session, flights)) if wait else code


@click.command("resume")
@job_choice
@click.option(
    "--missed",
    type=click.Choice(_MISSED),
    help="Fire times of the pause: skip them (default), run the latest, or all.",
)
@client_verb
def resume_verb(session: Session, choice: Choice, missed: str | None) -> int:
    """Resume jobs that are paused or failed; the schedule is computed from now.

    With --all the pause of everything ends; jobs that were paused one by one stay so (name them: '*').
    """
    if not _is_everything(choice):
        return _say(session, choice, "resume", {} if missed is None else {"missed": missed})
    if missed is not None:
        raise click.UsageError("--missed is about single jobs: name them, for example '*', instead of --all")
    return _say_to_all(session, "resume", {}, [])


@click.command("skip-next")
@job_choice
@click.option("-n", "count", type=click.IntRange(min=1), default=1, help="How many fires (default 1).")
@client_verb
def skip_next_verb(session: Session, choice: Choice, count: int) -> int:
    """Leave out the next fires of jobs; each is recorded as skipped."""
    return _say(session, choice, "skip-next", {"n": count})


def _is_everything(choice: Choice) -> bool:
    return choice.every and choice.group is None and not choice.names


def _say_to_all(session: Session, verb: str, body: Json, flights: list[Json]) -> int:
    """The verb has been said to all jobs at once, and its answer shown."""
    answer = session.control.post(f"/v1/{verb}", body).body
    flights += answer.get("runs") or []
    paused = answer.get("paused")
    if session.screen.json_wanted:
        session.screen.record(answer)
        return 0
    if isinstance(paused, dict):
        session.screen.line("all jobs paused", Cell(pause_text(paused), "yellow"))
    else:
        session.screen.line(Cell("all jobs resumed", "green"), "but for those that are paused one by one")
    _show_flights(session.screen, flights)
    return 0


def _say(
    session: Session,
    choice: Choice,
    verb: str,
    body: Json,
    instead: Json | None = None,
    flights: list[Json] | None = None,
) -> int:
    """The verb has been said to every chosen job, and its answer shown.

    Args:
        instead: what is said to one of several jobs that cannot do as `body` says.
        flights: gets the runs in flight.
    """
    jobs = list(chosen_jobs(session, choice))

    def say(id: str) -> int:
        path = f"/v1/jobs/{segment(id)}/{verb}"
        try:
            answer = session.control.post(path, body).body
        except Invalid:
            if instead is None or len(jobs) == 1:
                raise
            answer = session.control.post(path, instead).body
        if flights is not None:
            flights.extend(answer.get("runs") or [])
        if session.screen.json_wanted:
            session.screen.record(answer)
        else:
            _show(session.screen, id, answer)
        return 0

    return for_each(session, jobs, say)


def _show(screen: Screen, id: str, answer: Json) -> None:
    """One line for the job as it is now, one more for each of its runs in flight."""
    job = answer.get("job") if isinstance(answer.get("job"), dict) else answer
    screen.line(escape(id), job_cell(escape(job_state(job or {}))), *_coming(job or {}))
    _show_flights(screen, answer.get("runs") or [])


def _show_flights(screen: Screen, runs: Sequence[Json]) -> None:
    for run in runs:
        took = elapsed(run)
        for_long = "" if took is None else f" for {duration(took)}"
        screen.line(
            escape(f"  in flight: run {run.get('id')} {run.get('state')}{for_long}, wish {run.get('wish')}")
        )


def _coming(job: Json) -> list[str]:
    """When it fires next, or, paused, until when it does not; nothing where no time is known."""
    pause = job.get("pause")
    until = instant(pause.get("until")) if isinstance(pause, dict) else None
    if until is not None:
        return [f"until {brief(until)} ({relative(until)})"]
    return [f"next fire {moment(job['next_fire_at'])}"] if job.get("next_fire_at") else []
