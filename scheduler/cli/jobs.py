"""`list`: what there is."""

from __future__ import annotations

import click

from scheduler.cli.screen import Cell, Column, job_cell, run_cell
from scheduler.cli.selection import (
    Choice,
    job_choice,
    matching,
)
from scheduler.cli.session import Session, reading_verb
from scheduler.cli.wording import (
    Json,
    brief,
    duration,
    elapsed,
    escape,
    instant,
    job_state,
    pause_text,
    progress,
    relative,
)

_JOB_COLUMNS = (
    Column("JOB"),
    Column("STATE", whole=True),
    Column("NEXT"),
    Column("LAST RUN"),
    Column("LIVE"),
)


@click.command("list")
@job_choice
@click.option("--status", metavar="STATUS", help="Only active, paused, completed or failed jobs.")
@click.option("--label", metavar="LABEL", help="Only jobs with this label.")
@reading_verb
def list_verb(session: Session, choice: Choice, status: str | None, label: str | None) -> int:
    """List jobs with their state, next fire, last run and live runs; all of them if none is named."""
    found = list(session.control.pages("/v1/jobs", group=choice.group, status=status, label=label))
    if choice.names:
        ids = set(matching([str(job["id"]) for job in found], choice))
        found = [job for job in found if job["id"] in ids]
    if session.screen.json_wanted:
        for job in found:
            session.screen.record(job)
        return 0
    if session.quiet:
        session.screen.raw("".join(f"{escape(job['id'])}\n" for job in found))
        return 0
    paused = session.control.paused()
    if paused is not None:
        session.screen.line(Cell(f"all jobs are paused {pause_text(paused)}", "yellow"))
        session.screen.line(
            "none fires until then" if paused.get("until") else "none fires until `schedctl resume --all`"
        )
    if not found:
        session.screen.line("no jobs" if not (status or label or choice.group) else "no such jobs")
        return 0
    session.screen.table(_JOB_COLUMNS, [_job_row(job, all_paused=paused is not None) for job in found])
    return 0


def _job_row(job: Json, *, all_paused: bool) -> list[Cell]:
    upcoming = None if all_paused else instant(job.get("next_fire_at"))
    live = [run for run in job.get("live_runs") or [] if isinstance(run, dict)]
    return [
        Cell(escape(job["id"]), "bold"),
        job_cell(escape(job_state(job))),
        Cell("-" if upcoming is None else f"{relative(upcoming)}, {brief(upcoming)}"),
        _last_run(job.get("last_run")),
        _live_cell(live),
    ]


def _last_run(run: object) -> Cell:
    if not isinstance(run, dict):
        return Cell("-")
    ended = instant(run.get("finished_at")) or instant(run.get("started_at")) or instant(run.get("queued_at"))
    return run_cell(escape(run.get("state", "?")), "" if ended is None else relative(ended))


def _live_cell(live: list[Json]) -> Cell:
    """All live runs of a job; glyph and colour are those of the first."""
    if not live:
        return Cell("-")
    first = run_cell(escape(live[0].get("state", "?")))
    return Cell("; ".join(_live(run) for run in live), first.style, first.glyph)


def _live(run: Json) -> str:
    took = elapsed(run)
    said = [escape(run.get("state", "?")), "" if took is None else duration(took), progress(run)]
    return " ".join(part for part in said if part)
