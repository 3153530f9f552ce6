"""`runs`, `cancel`, `retry`, `retry-now`: history, and verbs about single runs."""

# ruff: noqa: ARG002 - click says what its methods are handed

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from scheduler.cli.connection import segment
from scheduler.cli.parameters import Moment
from scheduler.cli.rows import RUN_COLUMNS, run_row
from scheduler.cli.screen import Cell, Column, run_cell
from scheduler.cli.selection import (
    UNFINISHED,
    complete_either,
    complete_job,
    complete_run,
    for_each,
    is_glob,
    job_of,
    runs_meant,
)
from scheduler.cli.session import Session, client_verb, reading_verb_with_state
from scheduler.cli.wording import Json, escape, outcome
from scheduler.clock import Micros, rfc3339
from scheduler.errors import Conflict

_WAITING: Final = ("waiting",)
_ENDED: Final = ("succeeded", "partial", "failed", "cancelled", "crashed", "interrupted", "skipped")

_STATES: Final = (*UNFINISHED, *_ENDED)


class _StateOrDirectory(click.ParamType[str]):
    """The state of a run, or a path; a state of no run that is no path either is told as such."""

    name = "STATE|DIR"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if text not in _STATES and "/" not in text and not Path(text).is_dir():
            self.fail(f"{text!r} is neither a path nor one of {', '.join(_STATES)}", param, ctx)
        return text

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return self.name

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(state) for state in _STATES if state.startswith(incomplete)]


def _told_apart(context: click.Context, param: click.Parameter, given: tuple[str, ...]) -> str | None:
    """The state among the values of `--state`; the directory among them is left in `state`."""
    states = [text for text in given if text in _STATES]
    places = [text for text in given if text not in _STATES]
    if len(states) > 1 or len(places) > 1:
        raise click.BadParameter("one state and one directory at most", context, param)
    context.params["state"] = places[0] if places else None
    return states[0] if states else None


@click.command("runs")
@click.argument("job", required=False, shell_complete=complete_job)
@click.option(
    "--state",
    "only",
    multiple=True,
    type=_StateOrDirectory(),
    callback=_told_apart,
    help="Only runs in this state; a path is the state directory to read without a daemon.",
)
@click.option(
    "--since", type=Moment(ago=True), metavar="TIME", help="Only runs since: 2h, 02:30, 2026-10-01."
)
@click.option("--limit", type=click.IntRange(min=1), default=50, help="At most so many (default 50).")
@reading_verb_with_state
def runs_verb(session: Session, job: str | None, only: str | None, since: Micros | None, limit: int) -> int:
    """List runs, newest first: of one job, or of all."""
    if job is not None and is_glob(job):
        raise click.UsageError("runs takes the id of one job, or none for the runs of all")
    found = list(session.control.pages("/v1/runs", limit=limit, job=job, state=only, since=rfc3339(since)))
    if job is not None and not found:
        job_of(session, job)  # an empty history and a misspelt id are two things
    if session.screen.json_wanted:
        for run in found:
            session.screen.record(run)
    elif session.quiet:
        session.screen.raw("".join(f"{escape(run['id'])}\n" for run in found))
    elif not found:
        session.screen.line("no runs")
    else:
        _show(session, found, with_job=job is None)
    return 0


@click.command("cancel")
@click.argument("names", metavar="RUN|JOB...", nargs=-1, required=True, shell_complete=complete_either)
@click.option("--force", is_flag=True, help="Release a run whose processes cannot be ended.")
@client_verb
def cancel_verb(session: Session, names: Sequence[str], *, force: bool) -> int:
    """Cancel runs; a JOB stands for its live and queued runs."""
    body = {"force": True} if force else {}
    return for_each(session, names, lambda name: _each_run(session, name, "cancel", UNFINISHED, body))


@click.command("retry")
@click.argument("names", metavar="RUN...", nargs=-1, required=True, shell_complete=complete_run)
@click.option("--failed", is_flag=True, help="Of a batch: only its failed items.")
@click.option("--items", metavar="KEY,KEY...", help="Of a batch: only these items.")
@client_verb
def retry_verb(session: Session, names: Sequence[str], *, failed: bool, items: str | None) -> int:
    """Run ended runs again, as the same runs, from their first attempt; a batch for what is not done."""
    if failed and items is not None:
        raise click.UsageError("--failed and --items exclude each other")
    chosen = "failed" if failed else items.split(",") if items is not None else None
    body: Json | None = None if chosen is None else {"items": chosen}
    return for_each(session, names, lambda name: _each_run(session, name, "retry", (), body))


@click.command("retry-now")
@click.argument("names", metavar="RUN|JOB...", nargs=-1, required=True, shell_complete=complete_either)
@client_verb
def retry_now_verb(session: Session, names: Sequence[str]) -> int:
    """Let runs that wait for their next try go on at once; a JOB stands for its waiting runs."""
    return for_each(session, names, lambda name: _each_run(session, name, "retry-now", _WAITING))


def _each_run(session: Session, name: str, verb: str, states: Sequence[str], body: Json | None = None) -> int:
    """The verb has been said to the run of that name, or to those of the job that are in one of `states`."""
    meant = runs_meant(session, name, states)
    if not meant:
        wanted = "is waiting" if states == _WAITING else "is live or queued"
        raise Conflict(
            f"{name} has no run that {wanted}" if states else f"{verb} takes a run, and {name} is a job",
            hint=f"`schedctl runs {name}` lists its runs",
        )

    def say(id: str) -> int:
        answer = session.control.post(f"/v1/runs/{segment(id)}/{verb}", body).body
        run = answer["run"] if isinstance(answer.get("run"), dict) else answer
        if session.screen.json_wanted:
            session.screen.record(run)
        else:
            _tell(session, run)
        return 0

    return for_each(session, [str(run["id"]) for run in meant], say)


def _tell(session: Session, run: Json) -> None:
    wish = f"wish {run['wish']}" if run.get("wish") not in (None, "run") else ""
    said = ", ".join(part for part in (wish, outcome(run)) if part)
    session.screen.line(
        escape(run.get("job", "?")),
        f"run {escape(run.get('id', '?'))}",
        run_cell(escape(run.get("state", "?")), said),
    )


def _show(session: Session, found: Sequence[Json], *, with_job: bool) -> None:
    columns, rows = list(RUN_COLUMNS), [run_row(run) for run in found]
    if with_job:
        columns.insert(1, Column("JOB", whole=True))
        for row, run in zip(rows, found, strict=True):
            row.insert(1, Cell(escape(run.get("job", "?"))))
    session.screen.table(columns, rows)
