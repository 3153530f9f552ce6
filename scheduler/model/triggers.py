"""When a job fires: the door to triggers, and to the schedule that is laid over them.

`Trigger` is the closed union of the five kinds; each kind, and `Schedule`, keeps the contract `FireTimes`.
The kinds live in `trigger_kinds` and `cron`, start, end, exclusions and jitter in `schedule`.
"""

from __future__ import annotations

from scheduler.model.cron import Cron
from scheduler.model.exclusions import Exclusions, parse_exclusions
from scheduler.model.schedule import Schedule, smallest_gap
from scheduler.model.trigger_kinds import COUNT_CAP, At, Delay, Every, FireTimes, Manual, Trigger
from scheduler.model.zones import load_zone, resolve_local

__all__ = [
    "COUNT_CAP",
    "At",
    "Cron",
    "Delay",
    "Every",
    "Exclusions",
    "FireTimes",
    "Manual",
    "Schedule",
    "Trigger",
    "load_zone",
    "parse_exclusions",
    "resolve_local",
    "smallest_gap",
]
