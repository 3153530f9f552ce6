"""Markdown tables, numbers as people read them, and whether a target was met."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

UNKNOWN = "–"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A markdown table; a bar in a cell does not end it."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_escaped, line))} |" for line in lines)


def number(value: float | None, digits: int = 0) -> str:
    """With thousands apart, or a dash where there is none."""
    if value is None or math.isnan(value):
        return UNKNOWN
    return f"{value:,.{digits}f}"


def milliseconds(seconds: float | None) -> str:
    """In ms, with a digit behind the point below ten."""
    if seconds is None or math.isnan(seconds):
        return UNKNOWN
    return number(seconds * 1e3, 1 if seconds < 0.01 else 0)


def times(ratio: float | None) -> str:
    """A ratio, with as many digits as it is worth."""
    if ratio is None or math.isnan(ratio):
        return UNKNOWN
    return f"{number(ratio, 0 if ratio >= 20 else 1 if ratio >= 3 else 2)} ×"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A target, what was measured, and whether that meets it; None: it could not be measured."""

    target: str
    measured: str
    met: bool | None

    @property
    def word(self) -> str:
        """Yes, no, or that nobody knows."""
        return "not measured" if self.met is None else "yes" if self.met else "**no**"


def at_least(target: str, value: float | None, bound: float, told: str) -> Verdict:
    """Met from `bound` on."""
    known = value is not None and not math.isnan(value)
    return Verdict(target=target, measured=told, met=value >= bound if known and value is not None else None)


def at_most(target: str, value: float | None, bound: float, told: str) -> Verdict:
    """Met up to `bound`."""
    known = value is not None and not math.isnan(value)
    return Verdict(target=target, measured=told, met=value <= bound if known and value is not None else None)


def verdicts(found: Iterable[Verdict]) -> str:
    """The table of targets: what was missed first, then what could not be measured."""
    ordered = sorted(found, key=lambda verdict: (verdict.met is not False, verdict.met is not None))
    rows = [(verdict.target, verdict.measured, verdict.word) for verdict in ordered]
    return table(["target", "measured", "met"], rows)


def _escaped(cell: str) -> str:
    return cell.replace("|", r"\|")
