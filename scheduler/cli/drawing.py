"""The live screen drawn: a look at the daemon as rich renders it, cut to the lines and columns there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from scheduler.cli.looking import Look
from scheduler.cli.wording import (
    JOB_GLYPHS,
    RUN_GLYPHS,
    STYLES,
    Json,
    brief,
    duration,
    elapsed,
    escape,
    instant,
    job_state,
    outcome,
    relative,
)

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

HELP: Final = "j/k ↑↓ choose  p pause  r resume  x run  c cancel  q quit"
_LONGEST_NAME: Final = 32
"""Columns that the first cell of a row gets at most, so that the others are seen on a narrow screen."""

_BAR: Final = 16
_FRAME: Final = 5
"""Lines that are always there: the head, the message, the help, and two blank ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """What is to be drawn.

    Attributes:
        look: the last look that succeeded, or None before the first.
        chosen: id of the chosen job.
        message: the answer to the last key, or why there is none; with its style.
        trouble: why the last look failed, or nothing.
    """

    look: Look | None
    chosen: str | None
    message: str
    style: str
    trouble: str


def draw(picture: Picture, height: int) -> Group:
    """The whole screen, at most `height` lines."""
    from rich.console import Group
    from rich.text import Text

    parts: list[Text | Table] = [_head(picture), Text("")]
    look = picture.look
    if look is not None:
        room = max(height - _FRAME, 6)
        failures = min(len(look.failures) + 2, max(room // 4, 3)) if look.failures else 0
        live = min(len(look.live) + 2, max(room // 3, 3)) if look.live else 2
        jobs = max(room - failures - live, 3)
        parts += [_jobs(look.jobs, picture.chosen, jobs - 2), Text(""), _live(look.live, live - 2)]
        if failures:
            parts += [Text(""), _failures(look.failures, failures - 2)]
    parts += [
        Text(picture.message, picture.style, no_wrap=True, overflow="ellipsis"),
        Text(HELP, "dim", no_wrap=True),
    ]
    return Group(*parts)


def _head(picture: Picture) -> Text:
    from rich.text import Text

    head = Text("schedulerd ", "bold", no_wrap=True, overflow="ellipsis")
    if picture.trouble:
        return head.append(picture.trouble, "bold red")
    if picture.look is None:
        return head.append("...")
    status, look = picture.look.status, picture.look
    healthy = (status.get("health") or {}).get("ok")
    head.append("healthy" if healthy else "not healthy", "green" if healthy else "bold red")
    if status.get("draining"):
        head.append("  draining: it starts nothing new", "yellow")
    if status.get("paused"):
        head.append("  all jobs are paused", "yellow")
    more = "+" if look.is_cut else ""
    return head.append(f"  {len(look.jobs)}{more} jobs, {len(look.live)} live", "")


def _jobs(jobs: Sequence[Json], chosen: str | None, rows: int) -> Table:
    """The jobs around the chosen one."""
    place = next((index for index, job in enumerate(jobs) if job.get("id") == chosen), 0)
    begin = max(0, min(place - rows // 2, len(jobs) - rows))
    table = _table("JOB", "STATE", "NEXT", "LAST RUN", giving_way=2)
    for job in jobs[begin : begin + max(rows, 1)]:
        state = job_state(job)
        upcoming = instant(job.get("next_fire_at"))
        is_chosen = job.get("id") == chosen
        table.add_row(
            _text(("> " if is_chosen else "  ") + escape(job.get("id", "?")), "bold"),
            _text(f"{JOB_GLYPHS.get(state, '?')} {escape(state)}", STYLES.get(state, "")),
            _text("-" if upcoming is None else f"{relative(upcoming)}, {brief(upcoming)}"),
            _last(job.get("last_run")),
            style="reverse" if is_chosen else "",
        )
    return table


def _last(run: object) -> Text:
    if not isinstance(run, dict):
        return _text("-")
    ended = instant(run.get("finished_at"))
    said = "" if ended is None else f" {relative(ended)}"
    return _state(run, said)


def _live(live: Sequence[Json], rows: int) -> Table:
    table = _table("LIVE", "STATE", "TOOK", "PROGRESS", "")
    for run in live[: max(rows, 0)]:
        took = elapsed(run)
        told = run.get("progress") or {}
        table.add_row(
            _text(f"  {escape(run.get('job', '?'))}", "bold"),
            _state(run),
            _text("-" if took is None else duration(took)),
            _text(_bar(told)),
            _text(escape(told.get("message") or "")),
        )
    if not live:
        table.add_row(_text("  nothing runs", "dim"))
    return table


def _failures(failures: Sequence[Json], rows: int) -> Table:
    table = _table("LAST FAILURES", "STATE", "WHEN", "WHY")
    for run in failures[: max(rows, 0)]:
        ended = instant(run.get("finished_at"))
        table.add_row(
            _text(f"  {escape(run.get('job', '?'))}", "bold"),
            _state(run),
            _text("-" if ended is None else relative(ended)),
            _text(outcome(run)),
        )
    return table


def _table(name: str, *titles: str, giving_way: int = 1) -> Table:
    """A table whose last `giving_way` columns shrink first where there is no room for all."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0), expand=False)
    table.add_column(Text(name), no_wrap=True, overflow="ellipsis", max_width=_LONGEST_NAME)
    for index, title in enumerate(titles):
        gives_way = index >= len(titles) - giving_way  # rich asks only what could wrap; our cells are cut
        table.add_column(Text(title, no_wrap=True), no_wrap=not gives_way, overflow="ellipsis")
    return table


def _bar(told: Json) -> str:
    """`██████░░░░ 3/10`, `3 done`, or nothing where the work tells nothing."""
    done, total = told.get("done"), told.get("total")
    if done is None:
        return ""
    bad = ", ".join(f"{told[key]} {key}" for key in ("failed", "unknown") if told.get(key))
    if not total:
        return ", ".join(part for part in (f"{done} done", bad) if part)
    filled = min(_BAR, _BAR * max(done, 0) // total)
    count = ", ".join(part for part in (f"{done}/{total}", bad) if part)
    return f"{'█' * filled}{'░' * (_BAR - filled)} {count}"


def _state(run: Json, more: str = "") -> Text:
    state = str(run.get("state", "?"))
    return _text(f"{RUN_GLYPHS.get(state, '?')} {escape(state)}{more}", STYLES.get(state, ""))


def _text(text: str, style: str = "") -> Text:
    from rich.text import Text

    return Text(text, style, no_wrap=True, overflow="ellipsis")
