"""What a run has cost, in the unit of its job's budget.

A run's row has the number alone; the unit stands in the job's definition, which is asked for it.
"""

from __future__ import annotations

from scheduler.cli.connection import segment
from scheduler.cli.session import Session
from scheduler.cli.wording import Json, escape
from scheduler.errors import SchedulerError


def unit_of(session: Session, run: Json) -> str:
    """The unit of the budget of the run's job; empty where there is none, or the job is gone."""
    try:
        job = session.control.get(f"/v1/jobs/{segment(str(run.get('job')))}").body
    except SchedulerError:
        return ""
    budget = (job.get("definition") or {}).get("budget") or {}
    return escape(budget.get("unit") or "")


def priced(cost: float, unit: str) -> str:
    """`0.48 EUR`, or `0.48` where there is no unit."""
    return f"{cost:g} {unit}".rstrip()
