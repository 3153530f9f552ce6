"""`show`: one job or one run, whole."""

from __future__ import annotations

import json

import click

from scheduler.cli.money import priced, unit_of
from scheduler.cli.rows import RUN_COLUMNS, run_row
from scheduler.cli.screen import Cell, Column, Screen, job_cell, run_cell
from scheduler.cli.selection import complete_either, is_glob, job_of, run_named
from scheduler.cli.session import Session, reading_verb
from scheduler.cli.timeline import draw_timeline
from scheduler.cli.wording import (
    Json,
    brief,
    duration,
    elapsed,
    escape,
    instant,
    job_state,
    length_text,
    moment,
    outcome,
    pause_text,
    progress,
    schedule,
)
from scheduler.errors import NotFound

_LAST_RUNS = 10
_DRAWN_RUNS = 40
_LENGTHS = frozenset(
    {
        *("every", "delay", "timeout", "stall_timeout", "kill_grace", "catch_up_window", "late_after"),
        *("jitter", "overdue_after"),
    }
)
"""Keys of a definition that are seconds."""


@click.command("show")
@click.argument("name", metavar="JOB|RUN", shell_complete=complete_either)
@reading_verb
def show_verb(session: Session, name: str) -> int:
    """Show a job (definition, trigger, pause, runs) or a run (all its fields, its attempts)."""
    if is_glob(name):
        raise click.UsageError("show takes one job or one run; `schedctl list` takes globs")
    shown = _found(session, name)
    if session.screen.json_wanted:
        session.screen.record(shown)
    elif isinstance(shown.get("trigger"), dict):
        newest = list(session.control.pages("/v1/runs", job=shown["id"], limit=_DRAWN_RUNS))
        _show_job(session.screen, shown, newest)
    else:
        cost = shown.get("cost")
        _show_run(session.screen, shown, "" if cost is None else priced(cost, unit_of(session, shown)))
    return 0


def _found(session: Session, name: str) -> Json:
    """The job of that name, else the run: what has the shape of a run's id may be either."""
    try:
        return job_of(session, name)
    except NotFound as no_job:
        return run_named(session, name, no_job)


def _show_job(screen: Screen, job: Json, newest: list[Json]) -> None:
    state = job_state(job)
    cell = job_cell(escape(state))
    screen.line(Cell(escape(job["id"]), "bold"), cell)
    if job.get("description"):
        screen.line(escape(job["description"]))
    screen.facts(_job_facts(job))
    definition = job.get("definition") or {}
    if definition:
        screen.line("")
        screen.line(Cell("Definition", "bold"))
        screen.facts([(escape(key), _defined(key, value)) for key, value in definition.items()])
    live = [run for run in job.get("live_runs") or [] if isinstance(run, dict)]
    for title, runs in (("Live runs", live), ("Last runs", newest[:_LAST_RUNS])):
        if runs:
            screen.line("")
            screen.line(Cell(title, "bold"))
            if runs is not live:
                draw_timeline(screen, newest)
            screen.table(RUN_COLUMNS, [run_row(run) for run in runs])


def _job_facts(job: Json) -> list[tuple[str, Cell | str]]:
    pause, problem = job.get("pause"), job.get("problem")
    return [
        ("trigger", schedule(job.get("trigger"))),
        ("action", _action(job.get("action"))),
        ("next fire", moment(job.get("next_fire_at"))),
        ("pause", Cell(pause_text(pause), "yellow") if isinstance(pause, dict) else ""),
        ("problem", Cell(_problem(problem), "bold red") if isinstance(problem, dict) else ""),
        ("enabled", "no: disabled in its definition" if job.get("enabled") is False else ""),
        ("group", escape(job.get("group") or "")),
        ("labels", escape(", ".join(map(str, job.get("labels") or [])))),
        ("origin", escape(job.get("origin") or "")),
        ("revision", f"{job.get('revision', '?')} (definition {job.get('definition_revision', '?')})"),
    ]


def _problem(problem: Json) -> str:
    return escape(f"{problem.get('code', '?')}: {problem.get('message', '')}")


def _action(action: object) -> str:
    if not isinstance(action, dict):
        return ""
    said = [_value(value) for key, value in action.items() if key != "kind" and value not in (None, False)]
    return escape(" ".join([str(action.get("kind", "?")), *said]))


def _value(value: object) -> str:
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        import shlex

        return escape(shlex.join(value))
    return json.dumps(value)


def _defined(key: str, value: object) -> str:
    """The value of a definition: times with their unit, a list of items as its length and its ends."""
    if key in _LENGTHS and isinstance(value, int | float):
        return length_text(value)
    items = value.get("items") if key == "batch" and isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(items, list):
        return _value(value)
    ends = [_item_name(item) for item in (items[:1] + items[1:][-1:])]
    named = f"items {len(items)}" + (f" ({' ... '.join(ends)})" if ends else "")
    others = [f"{escape(name)} {_value(part)}" for name, part in value.items() if name != "items"]
    return ", ".join([named, *others])


def _item_name(item: object) -> str:
    return escape(item["key"]) if isinstance(item, dict) and "key" in item else _value(item)


def _show_run(screen: Screen, run: Json, cost: str) -> None:
    state = escape(run.get("state", "?"))
    screen.line(Cell(escape(run["id"]), "bold"), run_cell(state))
    screen.facts(_run_facts(run, cost))
    attempts = [attempt for attempt in run.get("attempts") or [] if isinstance(attempt, dict)]
    if attempts:
        screen.line("")
        screen.line(Cell("Attempts", "bold"))
        columns = [Column(title) for title in ("ATTEMPT", "CLAIM", "STATE", "STARTED", "TOOK", "WHAT")]
        screen.table(columns, [_attempt_row(attempt) for attempt in attempts])


def _run_facts(run: Json, cost: str) -> list[tuple[str, Cell | str]]:
    took = elapsed(run)
    count = run.get("count")
    return [
        ("job", escape(run.get("job", "?"))),
        ("what", outcome(run)),
        ("trigger", escape(run.get("trigger") or "")),
        *_times(run),
        ("took", "" if took is None else duration(took)),
        ("fire times", str(count) if isinstance(count, int) and count > 1 else ""),
        ("attempt", f"{run.get('attempt', '?')} (claim {run.get('claim', '?')})"),
        ("progress", progress(run)),
        *((key.replace("_", " "), _value(run[key])) for key in _PLAIN if run.get(key) is not None),
        ("cost", cost),
        ("result", "" if run.get("result") is None else _value(run["result"])),
    ]


_TIMES = ("fire_time", "fire_time_last", "queued_at", "ready_at", "started_at", "finished_at")
_TIMES_AGAIN = ("fire_time", "fire_time_last", "started_at", "queued_at", "ready_at", "finished_at")
_PLAIN = ("exit_code", "signal", "pid", "wish")


def _times(run: Json) -> list[tuple[str, Cell | str]]:
    """Its moments in their order: a run that was retried is queued again after its first start."""
    queued, started = instant(run.get("queued_at")), instant(run.get("started_at"))
    is_again = queued is not None and started is not None and queued > started
    names = {"queued_at": "queued again at", "started_at": "first started at"} if is_again else {}
    order = _TIMES_AGAIN if is_again else _TIMES
    return [(names.get(key, key.replace("_", " ")), moment(run[key])) for key in order if run.get(key)]


def _attempt_row(attempt: Json) -> list[Cell]:
    took, began = elapsed(attempt), instant(attempt.get("started_at"))
    state = attempt.get("state") or "running"
    return [
        Cell(escape(attempt.get("attempt", "?"))),
        Cell(escape(attempt.get("claim", "?"))),
        run_cell(escape(state)),
        Cell("-" if began is None else brief(began)),
        Cell("-" if took is None else duration(took)),
        Cell(outcome(attempt)),
    ]
