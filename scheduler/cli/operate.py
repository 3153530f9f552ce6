"""`pause`, `resume`, `skip-next`: what an operator says to jobs, one after another."""

from __future__ import annotations

from typing import Final

import click

from scheduler.cli.connection import segment
from scheduler.cli.screen import Screen, job_cell
from scheduler.cli.selection import Choice, chosen_jobs, for_each, job_choice
from scheduler.cli.session import Session, client_verb
from scheduler.cli.wording import Json, duration, elapsed, escape, job_state, moment
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
@client_verb
def pause_verb(session: Session, choice: Choice, mode: str, reason: str | None) -> int:
    """Pause jobs: they do not fire until they are resumed, whatever happens meanwhile."""
    body = {"mode": mode, **({"reason": reason} if reason is not None else {})}
    # Over many jobs `freeze` freezes commands and drains the rest.
    return _say(
        session, choice, "pause", body, instead={**body, "mode": "drain"} if mode == "freeze" else None
    )


@click.command("resume")
@job_choice
@click.option(
    "--missed",
    type=click.Choice(_MISSED),
    help="Fire times of the pause: skip them (default), run the latest, or all.",
)
@client_verb
def resume_verb(session: Session, choice: Choice, missed: str | None) -> int:
    """Resume jobs that are paused or failed; the schedule is computed from now."""
    return _say(session, choice, "resume", {} if missed is None else {"missed": missed})


@click.command("skip-next")
@job_choice
@click.option("-n", "count", type=click.IntRange(min=1), default=1, help="How many fires (default 1).")
@client_verb
def skip_next_verb(session: Session, choice: Choice, count: int) -> int:
    """Leave out the next fires of jobs; each is recorded as skipped."""
    return _say(session, choice, "skip-next", {"n": count})


def _say(session: Session, choice: Choice, verb: str, body: Json, instead: Json | None = None) -> int:
    """The verb has been said to every chosen job, and its answer shown.

    Args:
        instead: what is said to one of several jobs that cannot do as `body` says.
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
    for run in answer.get("runs") or []:
        took = elapsed(run)
        for_long = "" if took is None else f" for {duration(took)}"
        screen.line(
            escape(f"  in flight: run {run.get('id')} {run.get('state')}{for_long}, wish {run.get('wish')}")
        )


def _coming(job: Json) -> list[str]:
    return [f"next fire {moment(job['next_fire_at'])}"] if job.get("next_fire_at") else []
