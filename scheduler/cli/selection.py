"""Which jobs and runs a verb is about, and how a verb is applied to several of them.

Jobs are named by id, by glob, by `--group`, by `--all`; runs by id, by the beginning of one, or by the job
that they belong to. The daemon is asked only where a name alone does not say it. Completion for the shell
lives here too: it is fast, and silent where no daemon answers.
"""

# ruff: noqa: ARG001 - click says what a completion is handed

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, ParamSpec, TypeVar

import click
from click.shell_completion import CompletionItem

from scheduler.cli.connection import Control, segment
from scheduler.cli.problems import problem_of
from scheduler.cli.screen import tell
from scheduler.cli.session import Session, sockets_of
from scheduler.cli.wording import Json
from scheduler.clock import SECOND
from scheduler.errors import ClientTimeout, DaemonUnreachable, NotFound, SchedulerError

P = ParamSpec("P")
R = TypeVar("R")

UNFINISHED: Final = ("queued", "running", "recovering", "waiting", "held")

_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_BEGINNING: Final = re.compile(r"[0-9a-f][0-9a-f-]{5,35}")
_SHORTEST: Final = 6
_TOO_SHORT: Final = re.compile(r"[0-9][0-9a-f]{0,4}")
"""What was meant to be a run's id: they begin with the time, and so with a digit."""

_JOBS_LOOKED_AT: Final = 5_000
"""Among as many jobs the nearest id is looked for."""

_RUNS_LOOKED_AT: Final = 2_000
"""Among as many of the newest runs one is looked for whose id begins as given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What was written on the command line: names and globs, or a group, or everything."""

    names: tuple[str, ...]
    group: str | None
    every: bool

    @property
    def is_empty(self) -> bool:
        """Nothing was chosen."""
        return not self.names and self.group is None and not self.every


def job_choice(verb: Callable[P, R]) -> Callable[P, R]:
    """The verb takes `[JOB]...`, `--group` and `--all`, and is handed them as `choice`."""

    @functools.wraps(verb)
    def with_choice(*args: P.args, **kwargs: P.kwargs) -> R:
        options: dict[str, Any] = kwargs
        options["choice"] = Choice(
            names=options.pop("names"), group=options.pop("group"), every=options.pop("every")
        )
        return verb(*args, **kwargs)

    names = click.argument("names", metavar="[JOB]...", nargs=-1, shell_complete=complete_job)
    group = click.option("--group", metavar="GROUP", help="The jobs of this group.")
    every = click.option("--all", "every", is_flag=True, help="All jobs.")
    return names(group(every(with_choice)))


def chosen_jobs(session: Session, choice: Choice) -> list[str]:
    """The ids that the choice stands for; a plain id is taken at its word and asks nothing.

    Raises:
        NotFound: a glob or the group matches no job.
    """
    if choice.is_empty:
        raise click.UsageError("which jobs? name a JOB or a glob, or give --group or --all")
    if choice.names and choice.every:
        raise click.UsageError("--all already means every job: leave out the names, or leave out --all")
    if choice.group is None and not choice.every and not any(map(is_glob, choice.names)):
        return list(dict.fromkeys(choice.names))
    known = [str(job["id"]) for job in session.control.pages("/v1/jobs", group=choice.group)]
    return matching(known, choice)


def matching(known: Sequence[str], choice: Choice) -> list[str]:
    """Those of the known ids that the choice names, in their order.

    Raises:
        NotFound: one of its names matches none of them, or nothing is left.
    """
    place = f" in group {choice.group}" if choice.group else ""
    for name in choice.names:
        if not any(fnmatchcase(id, name) for id in known):
            what = "no job matches" if is_glob(name) else "there is no job"
            raise NotFound(f"{what} {name}{place}", hint=nearest(name, known))
    found = [id for id in known if not choice.names or any(fnmatchcase(id, name) for name in choice.names)]
    if not found and choice.group:
        raise NotFound(
            f"group {choice.group} has no jobs", hint="`schedctl list` shows the jobs and their groups"
        )
    return found


def is_glob(name: str) -> bool:
    """The name has a character that no id has and a glob means something by."""
    return any(mark in name for mark in "*?[")


def for_each(session: Session, ids: Iterable[str], apply: Callable[[str], int]) -> int:
    """The verb has been tried on every one; the exit code is the worst of theirs.

    A refusal is told on stderr (with `--json` also as `{"id", "error"}`) and the next one is tried. A daemon
    that does not answer ends it: the rest would wait in vain.
    """
    worst = 0
    for id in ids:
        try:
            code = apply(id)
        except (DaemonUnreachable, ClientTimeout):
            raise
        except SchedulerError as refused:
            error = explained(session.control, id, refused)
            if session.screen.json_wanted:
                session.screen.record({"id": id, "error": problem_of(error)})
            tell(error)
            code = error.exit_code
        worst = max(worst, code)
    return worst


def explained(control: Control, id: str, error: SchedulerError) -> SchedulerError:
    """The same error; where a job was not found, with the nearest id that exists."""
    if not isinstance(error, NotFound) or error.hint:
        return error
    try:
        known = [str(job["id"]) for job in control.pages("/v1/jobs", limit=_JOBS_LOOKED_AT)]
    except SchedulerError:
        return error
    return NotFound(error.message, hint=nearest(id, known))


def nearest(name: str, known: Sequence[str]) -> str:
    """What to write instead of an id that does not exist."""
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else "`schedctl list` shows the jobs"


def job_of(session: Session, id: str) -> Json:
    """The job.

    Raises:
        NotFound: there is none; the hint names the nearest.
    """
    try:
        return session.control.get(f"/v1/jobs/{segment(id)}").body
    except NotFound as unknown:
        raise explained(session.control, id, unknown) from unknown


def run_of(session: Session, name: str) -> Json:
    """The run with that id, or the only one of the newest whose id begins so.

    Raises:
        NotFound: there is none.
        UsageError: several begin so, or as good as all.
    """
    if _TOO_SHORT.fullmatch(name):
        raise click.UsageError(f"run {name} is too short: give at least {_SHORTEST} characters of its id")
    if _UUID.fullmatch(name):
        return session.control.get(f"/v1/runs/{segment(name)}").body
    newest = session.control.pages("/v1/runs", limit=_RUNS_LOOKED_AT) if _BEGINNING.fullmatch(name) else ()
    found = [run for run in newest if str(run["id"]).startswith(name)]
    if not found:
        raise NotFound(f"there is no run {name}", hint="`schedctl runs` lists runs")
    if len(found) > 1:
        some = ", ".join(f"{run['id']} ({run.get('job')})" for run in found[:5])
        raise click.UsageError(f"{len(found)} runs begin with {name}: {some}; write more of it")
    return found[0]


def run_or_last(session: Session, name: str) -> Json:
    """The run with that id or the beginning of it, or else the last run that began of the job of that name.

    Raises:
        NotFound: there is neither, or the job has not run.
        UsageError: several runs begin so, or as good as all.
    """
    try:
        return run_of(session, name)
    except NotFound as no_run:
        if _UUID.fullmatch(name):
            raise
        try:
            job = str(job_of(session, name)["id"])
        except NotFound as no_job:
            raise (no_run if _BEGINNING.fullmatch(name) else no_job) from None
    newest = session.control.pages("/v1/runs", job=job, limit=_RUNS_LOOKED_AT)
    begun = next((run for run in newest if run.get("started_at")), None)
    if begun is None:
        raise NotFound(f"job {job} has not run yet", hint=f"`schedctl why {job}` says what it waits for")
    return begun


def run_named(session: Session, name: str, no_job: NotFound) -> Json:
    """The run of a name that no job has.

    Raises:
        NotFound: there is none, or no run has such a name: `no_job`, or that more of the name is needed.
    """
    if _TOO_SHORT.fullmatch(name):
        hint = f"if it is a run's: too short, give at least {_SHORTEST} characters"
        raise NotFound(no_job.message, hint=hint) from no_job
    if not _BEGINNING.fullmatch(name):
        raise no_job
    try:
        return run_of(session, name)
    except NotFound:
        raise no_job from None


def runs_meant(session: Session, name: str, states: Sequence[str]) -> list[Json]:
    """The run of that name, or the runs in one of `states` of the job of that name or of those it matches.

    Raises:
        NotFound: there is neither.
    """
    if _UUID.fullmatch(name):
        return [run_of(session, name)]
    if is_glob(name):
        jobs = chosen_jobs(session, Choice(names=(name,), group=None, every=False))
        return [run for job in jobs for run in _runs_in(session, job, states)]
    try:
        job = str(job_of(session, name)["id"])
    except NotFound as none:
        return [run_named(session, name, none)]
    return _runs_in(session, job, states)


def _runs_in(session: Session, job: str, states: Sequence[str]) -> list[Json]:
    return [run for state in states for run in session.control.pages("/v1/runs", job=job, state=state)]


def complete_job(context: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ids of jobs that begin as typed."""
    jobs = _completions(context, "/v1/jobs")
    return [
        CompletionItem(id, help=str(job.get("description") or job.get("status", "")))
        for job in jobs
        if (id := str(job.get("id", ""))).startswith(incomplete)
    ]


def complete_run(context: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ids of the newest runs that begin as typed."""
    runs = _completions(context, "/v1/runs")
    return [
        CompletionItem(id, help=f"{run.get('job')} {run.get('state')}")
        for run in runs
        if (id := str(run.get("id", ""))).startswith(incomplete)
    ]


def complete_either(context: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ids of jobs, and of the newest runs, that begin as typed."""
    return [*complete_job(context, param, incomplete), *complete_run(context, param, incomplete)]


def _completions(context: click.Context, path: str) -> list[Json]:
    """A list of the daemon within a second, or nothing: a shell waits at its prompt for this."""
    try:
        control = Control(sockets_of(context.params.get("socket")), timeout=SECOND)
        return list(control.pages(path, limit=1_000))
    except SchedulerError:
        return []
