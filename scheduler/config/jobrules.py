"""What the keys of one job mean together: the rules that no single key can break.

Each rule names the keys it looks at, and is asked only where each of those is sound by itself: a job with
a misspelt number gets one fault about it, and still every other fault it has.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from scheduler.clock import Micros
from scheduler.config.batchmodel import SOURCES
from scheduler.config.fields import Checked
from scheduler.config.jobmodel import Isolate, JobTable, instant
from scheduler.config.settings import Settings
from scheduler.config.wording import Problem, nearest, printable, shown
from scheduler.errors import Invalid
from scheduler.executors.unit_manager import Scope, own_scope
from scheduler.model.definitions import ACTION_KEYS, TRIGGER_KEYS
from scheduler.model.jobs import OnCrash, Overlap, UnknownItems
from scheduler.model.triggers import (
    At,
    Cron,
    Delay,
    Every,
    Manual,
    Schedule,
    Trigger,
    parse_exclusions,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """One job's table as it was written, and as far as it is sound.

    Attributes:
        raw: what was written.
        job: the model, with defaults in the place of what is not sound.
        settings: the daemon's, for groups, calendars and the default time zone.
    """

    job_id: str
    raw: Mapping[str, object]
    job: JobTable
    settings: Settings

    @property
    def timezone(self) -> str:
        """The zone in which the job's times are read."""
        return self.job.timezone or self.settings.timezone

    def chosen(self, keys: tuple[str, ...]) -> list[str]:
        """Which of these keys were written (`manual = false` chooses nothing)."""
        return [key for key in keys if self.raw.get(key) is not None and self.raw[key] is not False]


def broken_rules(found: Checked[JobTable], written: Written) -> Iterator[Problem]:
    """Every rule that the job breaks, as far as its keys are sound."""
    for rule in _RULES:
        is_asked = not rule.about or not rule.about.isdisjoint(written.raw)
        if is_asked and found.unsound.isdisjoint(rule.keys):
            yield from rule.check(written)


def _one_trigger(written: Written) -> Iterator[Problem]:
    chosen = written.chosen(TRIGGER_KEYS)
    if not chosen:
        yield Problem(
            (),
            'says nowhere when to run: write one of cron = "30 2 * * *", every = "15m", delay = "10m",'
            " at = 2027-01-01T09:00:00+01:00 or manual = true",
        )
    elif len(chosen) > 1:
        yield Problem((chosen[1],), f"{' and '.join(chosen)} exclude each other: keep one")


def _one_action(written: Written) -> Iterator[Problem]:
    chosen = written.chosen(ACTION_KEYS)
    if not chosen:
        yield Problem(
            (),
            'says nowhere what to run: write one of command = ["/usr/bin/backup", "--all"],'
            ' shell = "a | b" or python = "package.module:function"',
        )
    elif len(chosen) > 1:
        yield Problem((chosen[1],), f"{' and '.join(chosen)} exclude each other: keep one")


def _isolate(written: Written) -> Iterator[Problem]:
    if written.job.isolate is not Isolate.UNIT:
        return
    if "python" in written.raw:
        yield Problem(("isolate",), 'a Python handler has no unit of its own: write "none", or use command')
    elif written.job.batch is not None:
        yield Problem(
            ("isolate",), 'a batch has no unit of its own, its items that are left are resumed: write "none"'
        )
    elif not isinstance(scope := own_scope(), Scope):
        yield Problem(("isolate",), scope)


def _parallel(written: Written) -> Iterator[Problem]:
    job = written.job
    if job.overlap is Overlap.ALLOW and job.max_running < 2:
        yield Problem(
            ("overlap",), '"allow" needs max_running = 2 or more: it says how many runs may be live'
        )
    if job.overlap is not Overlap.ALLOW and job.max_running > 1:
        yield Problem(("max_running",), 'more than 1 needs overlap = "allow"')


def _crashes(written: Written) -> Iterator[Problem]:
    if written.job.on_crash is OnCrash.RETRY and written.job.max_crashes == 0:
        yield Problem(("max_crashes",), 'must be at least 1 with on_crash = "retry": nothing else ends it')


def _batch(written: Written) -> Iterator[Problem]:
    batch = written.job.batch
    if batch is None:
        if written.job.on_crash is OnCrash.RESUME:
            yield Problem(("on_crash",), '"resume" is for batches: write "record" or "retry"')
        if written.job.budget is not None:
            yield Problem(("budget",), "belongs to a batch: a run without items has nothing to stop before")
        return
    chosen = [key for key in SOURCES if getattr(batch, key) is not None]
    if len(chosen) != 1:
        found = (
            " and ".join(chosen) + " exclude each other: keep one" if chosen else "has no items: write one of"
        )
        offer = (
            ""
            if chosen
            else ' items = ["a", "b"], items_file = "items.jsonl" or items_command = ["list-items"]'
        )
        yield Problem(("batch",), found + offer)
    if batch.retry.max_delay < batch.retry.delay:
        yield Problem(
            ("batch", "retry", "max_delay"), "is shorter than retry.delay: make it at least as long"
        )
    if "python" in written.raw and batch.retry.exit_codes:
        yield Problem(
            ("batch", "retry", "exit_codes"), "a Python handler has no exit code: leave the key out"
        )
    for key in written.chosen(("complete_exit_codes",)):
        yield Problem((key,), "a batch is over when its items are: leave the key out")
    if batch.unknown is UnknownItems.RETRY and written.job.max_crashes == 0:
        yield Problem(("max_crashes",), 'must be at least 1 with unknown = "retry": nothing else ends it')


def _budget(written: Written) -> Iterator[Problem]:
    budget = written.job.budget
    if budget is None:
        return
    caps = {key: getattr(budget, key) for key in ("per_run", "per_day")}
    if not any(caps.values()):
        yield Problem(("budget",), "caps nothing: write per_run, per_day, or both")
    for key, cap in caps.items():
        if cap is not None and budget.cost_estimate > cap:
            yield Problem(("budget", "cost_estimate"), f"is more than {key}: no item could ever begin")


def _alerts(written: Written) -> Iterator[Problem]:
    job = written.job
    if job.overdue_after is not None and job.on_overdue is None:
        yield Problem(("overdue_after",), "belongs to on_overdue: say there who is to be told")
    if job.on_overdue is not None and job.manual:
        yield Problem(("on_overdue",), "a manual job has no fire times, so it is never overdue")
    if job.on_budget is not None and job.budget is None:
        yield Problem(("on_budget",), "the job has no budget: add [jobs.ID.budget], or leave the key out")


def _process(written: Written) -> Iterator[Problem]:
    if written.job.process and "python" not in written.raw:
        yield Problem(("process",), "belongs to python: a command is a process of its own anyway")


def _on_the_loop(written: Written) -> Iterator[Problem]:
    if "python" not in written.raw or written.job.process:
        return
    for key in written.chosen(("cwd", "env", "env_file", "user", "stdin")):
        yield Problem((key,), "a Python handler in the daemon's own process has none: add process = true")


def _user(written: Written) -> Iterator[Problem]:
    name = written.job.user
    if name is None:
        return
    if os.geteuid() != 0:
        yield Problem(
            ("user",),
            "only a daemon that runs as root can start a job as another user, and this one runs as user"
            f" {os.geteuid()}: leave the key out, or run a daemon of that user (docs/systemd.md)",
        )
    elif not _is_user(name):
        near = nearest(name, {entry.pw_name for entry in pwd.getpwall()})
        meant = f"did you mean {shown(near)}?" if near else "name a user by its name, not by its number"
        yield Problem(("user",), f"there is no user {shown(name)} on this machine: {meant}")


def _is_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except (KeyError, ValueError):
        return False
    return True


def _exit_codes(written: Written) -> Iterator[Problem]:
    if "python" in written.raw:
        for key in written.chosen(("success_exit_codes", "complete_exit_codes")):
            yield Problem(
                (key,), "a Python handler has no exit code: it returns, returns Completed, or raises"
            )
        if written.job.retry.exit_codes:
            yield Problem(("retry", "exit_codes"), "a Python handler has no exit code: leave the key out")
    elif not written.job.success_exit_codes and not written.job.complete_exit_codes:
        yield Problem(("success_exit_codes",), "must name an exit code, or no run could ever succeed")


def _retry(written: Written) -> Iterator[Problem]:
    retry = written.job.retry
    if retry.max_delay < retry.delay:
        yield Problem(("retry", "max_delay"), "is shorter than retry.delay: make it at least as long")


def _group(written: Written) -> Iterator[Problem]:
    group, known = written.job.group, written.settings.groups
    if group is None or group in known:
        return
    near = nearest(group, known)
    meant = f"did you mean {shown(near)}?" if near else f"add [groups.{printable(group)}] to scheduler.toml"
    yield Problem(("group",), f"no group {shown(group)} in the daemon's configuration: {meant}")


def _manual(written: Written) -> Iterator[Problem]:
    if not written.job.manual:
        return
    for key in written.chosen(("jitter", "start_at", "end_at", "except", "max_runs")):
        yield Problem((key,), "a manual job has no fire times for it to act on: leave the key out")


def _exclusions(written: Written) -> Iterator[Problem]:
    for number, entry in enumerate(written.job.exclusions):
        try:
            parse_exclusions([entry], written.timezone, written.settings.calendars)
        except Invalid as error:
            yield Problem(("except", number), error.message)


def _jitter(written: Written) -> Iterator[Problem]:
    trigger = _trigger(written)
    if trigger is not None:
        yield from _refused("jitter", lambda: Schedule(trigger, jitter=written.job.jitter))


def _window(written: Written) -> Iterator[Problem]:
    yield from _refused("end_at", lambda: Schedule(Manual(), *_bounds(written)))


def _something_remains(written: Written) -> Iterator[Problem]:
    """What the exclusions leave; only where nothing else is wrong with them or the window."""
    trigger = _trigger(written)
    if trigger is None or any(_window(written)) or any(_exclusions(written)):
        return
    zone, calendars = written.timezone, written.settings.calendars
    exclusions = parse_exclusions(written.job.exclusions, zone, calendars)
    yield from _refused("except", lambda: Schedule(trigger, *_bounds(written), exclusions))


def _refused(key: str, build: Callable[[], object]) -> Iterator[Problem]:
    """The problem that keeps a value from being built, if one does."""
    try:
        build()
    except Invalid as error:
        yield Problem((key,), error.message)


def _bounds(written: Written) -> tuple[Micros | None, Micros | None]:
    """`start_at` and `end_at` as instants."""
    start, end = written.job.start_at, written.job.end_at
    return (
        None if start is None else instant(start, written.timezone),
        None if end is None else instant(end, written.timezone),
    )


def _trigger(written: Written) -> Trigger | None:
    """The job's trigger, or None where not exactly one is written."""
    job = written.job
    match written.chosen(TRIGGER_KEYS):
        case ["cron"] if job.cron is not None:
            return Cron(job.cron, written.timezone)
        case ["every"] if job.every is not None:
            return Every(job.every, _bounds(written)[0] or 0)
        case ["delay"] if job.delay is not None:
            return Delay(job.delay)
        case ["at"] if job.at is not None:
            return At(instant(job.at, written.timezone))
        case ["manual"]:
            return Manual()
        case _:
            return None


@dataclass(frozen=True, slots=True)
class _Rule:
    """A check, and when it is asked.

    Attributes:
        keys: they must be sound.
        about: one of these must be written, for their defaults break no rule; none: it is asked of every job.
    """

    check: Callable[[Written], Iterator[Problem]]
    about: frozenset[str] = frozenset()
    keys: tuple[str, ...] = ()


def _rule(check: Callable[[Written], Iterator[Problem]], *about: str, keys: tuple[str, ...] = ()) -> _Rule:
    """A rule that is asked where one of these is written, and where they and the other keys are sound."""
    return _Rule(check, frozenset(about), keys or about)


_WHEN: Final = (*TRIGGER_KEYS, "timezone", "start_at")
_RULES: Final = (
    _Rule(_one_trigger),
    _Rule(_one_action),
    _rule(_isolate, "isolate", keys=("isolate", "batch")),
    _rule(_parallel, "overlap", "max_running"),
    _rule(_crashes, "max_crashes", keys=("on_crash", "max_crashes")),
    _rule(_batch, "batch", "on_crash", "budget", keys=("batch", "on_crash", "max_crashes", "budget")),
    _rule(_budget, "budget"),
    _rule(
        _alerts,
        *("on_overdue", "overdue_after", "on_budget"),
        keys=("on_overdue", "overdue_after", "on_budget", "budget", "manual"),
    ),
    _rule(_process, "process"),
    _rule(_on_the_loop, "cwd", "env", "env_file", "user", "stdin", keys=("process",)),
    _rule(_user, "user"),
    _rule(_exit_codes, "success_exit_codes", "complete_exit_codes", "retry"),
    _rule(_retry, "retry"),
    _rule(_group, "group"),
    _rule(_manual, "manual"),
    _rule(_exclusions, "except", keys=("except", "timezone")),
    _rule(_jitter, "jitter", keys=(*_WHEN, "jitter")),
    _rule(_window, "start_at", "end_at", keys=("start_at", "end_at", "timezone")),
    _rule(_something_remains, "except", keys=(*_WHEN, "end_at", "except")),
)
