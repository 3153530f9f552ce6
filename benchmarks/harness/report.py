"""The whole run, and its text: targets first, then a section for each measurement, then the machine."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from pathlib import Path

from benchmarks.harness import burst, doors, overload, precision, restart, scripts, sustained
from benchmarks.harness.grouped import limit
from benchmarks.harness.machine import facts
from benchmarks.harness.ours import Schedulerd
from benchmarks.harness.plan import burst_entries, extent, peers, precision_entries, sustained_entries
from benchmarks.harness.section import Section, attempt
from benchmarks.harness.table import verdicts

BEGIN, END = "<!-- {form}: begin -->", "<!-- {form}: end -->"
"""Between these lines of a page the result of a form stands."""


def measure(root: Path, *, full: bool, only: Collection[str]) -> list[Section]:
    """Every section that was asked for, one after another."""
    ours, others, size = Schedulerd(root), peers(root), extent(full=full)
    found: list[Section] = []
    if "sustained" in only or "overload" in only:
        found += _sustained(ours, root, full=full, window=size.window, overloaded="overload" in only)
    if "burst" in only:
        bursts, asking = burst_entries(ours, others, full=full), burst.Asking()
        burst.measure(bursts, ours, asked=size.asked, asking=asking)
        found.append(burst.section(bursts, asking))
    if "precision" in only:
        precise = precision_entries(ours, others, full=full)
        precision.measure(precise, window=size.precise)
        found.append(precision.section(precise))
    if "restart" in only:
        found.append(restart.section(restart.measure(ours, size.kills)))
    if "doors" in only:
        measured = doors.measure(root, commands=size.commands, repetitions=size.answers)
        found.append(doors.section(measured))
    return found + scripts.sections(root, full=full, only=only)


def _sustained(ours: Schedulerd, root: Path, *, full: bool, window: int, overloaded: bool) -> list[Section]:
    entries = sustained_entries(ours, peers(root), full=full)
    grouped = attempt("the grouped limit", lambda: limit(root))
    sustained.measure(entries, window=window)
    found = [sustained.section(entries, grouped=None if isinstance(grouped, str) else grouped)]
    if overloaded:
        peak = entries[0].rate
        result = overload.measure(ours, peak) if entries[0].peaks else "the peak is not known"
        found.append(overload.section(peak, result))
    return found


def text(sections: Sequence[Section], machine: Sequence[str], *, began: float) -> str:
    """Markdown for people and for `docs/performance.md`."""
    minutes = (time.monotonic() - began) / 60
    parts = [
        "\n".join(f"- {line}" for line in [*machine, f"measured in {minutes:.0f} minutes"]),
        "### Targets",
        verdicts(verdict for section in sections for verdict in section.verdicts),
    ]
    for section in sections:
        parts += [f"### {section.title}", section.text]
    return "\n\n".join(parts) + "\n"


def machine(root: Path) -> list[str]:
    """Where this runs; raises Unmeasured where a file is on no disk."""
    return facts(root)


def written(page: str, result: str, *, form: str) -> str:
    """The page, with the result between the two marks of that form; raises ValueError where it has none."""
    first, last = BEGIN.format(form=form), END.format(form=form)
    before, begin, rest = page.partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise ValueError(f"the page has no lines {first} and {last}")
    return f"{before}{first}\n\n{result}\n{last}{after}"
