r"""The soak: daemons that are killed, frozen, paused, reloaded, filled up; at the end the accounts.

    SCHEDULERD_SOAK_MINUTES=60 python -m tests.soak [REPORT]

Two daemons side by side; the wall clock of the second one is stepped too (with libfaketime; else that is
left out, and the report says so, as it does where no small disk could be mounted). The last quarter of the
time nobody is killed, so that what leaks has time to show. The report is markdown, on stdout or into a file;
the exit code is 1 if a promise was broken.
"""

from __future__ import annotations

import os
import platform
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from scheduler import __version__
from tests.soak.accounts import Accounts, settle_accounts
from tests.soak.site import Site

MINUTES: Final = float(os.environ.get("SCHEDULERD_SOAK_MINUTES", "60"))
_QUIET: Final = 0.25
"""The share of the time, at its end, in which nobody is killed."""

_WARM_UP: Final = 45.0
_SPARE: Final = {"descriptors": 40, "threads": 20, "memory": 20_000}
"""By how much a life may weigh more at its end: runs under way, and memory (KiB) that Python keeps."""

_STEPPED: Final = (
    "A clock that is set back begins a new count of fire times; those of a job that has done so are judged"
    " for doubles only, and are not among those due."
)
_TOLD: Final = (
    "daemon_started",
    "run_recovered",
    "run_fenced",
    "lease_lost",
    "run_stuck",
    "loop_blocked",
    "store_unavailable",
    "store_recovered",
    "clock_stepped",
    "config_rejected",
    "pause_preserved",
)


@dataclass
class Course:
    """What one site went through."""

    site: Site
    weights: list[dict[str, int]] = field(default_factory=list)
    accounts: Accounts | None = None


def run(course: Course, seconds: float) -> None:
    """The torments of one site, to their end; a broken harness is a finding too."""
    try:
        began = time.monotonic()
        _torment(course, until=began + (1 - _QUIET) * seconds, deadly=True)
        course.site.restart()
        time.sleep(min(_WARM_UP, seconds / 20))
        course.weights.append(course.site.weight())
        _torment(course, until=began + seconds, deadly=False)
        time.sleep(min(15, seconds / 20))
        course.weights.append(course.site.weight())
        _judge_weights(course)
        course.accounts = settle_accounts(course.site)
    except BaseException:  # noqa: BLE001 - told in the report
        course.site.wrong.append(f"the soak broke off: {traceback.format_exc()[-3000:]}")


def _judge_weights(course: Course) -> None:
    """What a life holds at its end is what it held at its begin, but for what is under way."""
    before, after = course.weights
    for name, spare in _SPARE.items():
        if after[name] > before[name] + spare:
            course.site.wrong.append(
                f"leaked {name}: {before[name]} at the begin of a life, {after[name]} later"
            )


def _torment(course: Course, *, until: float, deadly: bool) -> None:
    site = course.site
    while time.monotonic() < until:
        time.sleep(site.dice.uniform(0.2, 6))
        site.torment(deadly=deadly)


def report(courses: Sequence[Course], seed: int, minutes: float) -> str:
    """The accounts as a page."""
    made_by = (
        f"schedulerd {__version__}, Python {platform.python_version()}, {os.cpu_count()} processors;"
        f" {minutes:.0f} minutes, seed {seed}. Made by `make soak`; what it does is in `tests/soak`."
    )
    lines = ["# Soak report", "", made_by, ""]
    for number, course in enumerate(courses, start=1):
        lines += _section(number, course)
    wrong = [fault for course in courses for fault in course.site.wrong]
    lines += ["## Findings", "", *([f"- {fault}" for fault in wrong] or ["None."]), ""]
    return "\n".join(lines)


def _section(number: int, course: Course) -> list[str]:
    site, accounts = course.site, course.accounts
    befell = ", ".join(f"{kind.replace('_', ' ')} {times}" for kind, times in sorted(site.befell.items()))
    left_out = [
        "" if site.disk is not None else "no disk was filled, for a small one could not be mounted",
        "" if number == 1 or site.steps_clock else "no clock was stepped, for libfaketime is not installed",
    ]
    lines = [
        f"## Daemon {number}{' (its clock is stepped)' if site.steps_clock else ''}",
        "",
        f"What befell it: {befell}.",
        "",
        f"What it told of that: {', '.join(f'`{name}` {site.events[name]}' for name in _TOLD)}.",
        *(["", _STEPPED] if site.steps_clock else []),
        *(f"Left out: {what}." for what in left_out if what),
        "",
    ]
    if accounts is None:
        return [*lines, "It did not come to the accounts.", ""]
    rows = [
        ("fire times due", accounts.due),
        ("... that ran", accounts.ran),
        ("... that are explained by a row", accounts.explained),
        ("... that are neither", accounts.due - accounts.ran - accounts.explained),
        ("runs on record", accounts.runs),
        ("executions in the ledger", accounts.executions),
        ("doubles", accounts.doubles),
        ("pauses and resumes answered", accounts.pauses),
        ("lost pauses", accounts.lost_pauses),
        ("fires of a paused job", "not judged" if site.steps_clock else accounts.fired_in_pause),
        ("locked jobs", accounts.locked),
        ("outcomes told and lost", accounts.lost_outcomes),
        ("processes left at the end", accounts.processes),
    ]
    lines += ["| what | how many |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in rows)]
    before, after = course.weights
    lines += [
        f"| {name} of the last life, at its begin and its end | {before[name]}, {after[name]} |"
        for name in before
    ]
    return [*lines, ""]


def main(arguments: Sequence[str]) -> int:
    """The soak ran; 1 if something was found."""
    seed = int(os.environ.get("SCHEDULERD_SOAK_SEED", str(int(time.time()))))
    sites = [
        Site(Random(seed), steps_clock=False),  # noqa: S311 - a soak that can be run again
        Site(Random(seed + 1), steps_clock=Site.can_step_clock()),  # noqa: S311
    ]
    courses = [Course(site) for site in sites]
    with ExitStack() as stack:
        for site in sites:
            stack.enter_context(site.open())
        threads = [threading.Thread(target=run, args=(course, MINUTES * 60)) for course in courses]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    text = report(courses, seed, MINUTES)
    if arguments:
        Path(arguments[0]).write_text(text)
    sys.stdout.write(text)
    return 1 if any(course.site.wrong or course.accounts is None for course in courses) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
