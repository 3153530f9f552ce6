"""From an author's text to definitions, or to every fault in it at once.

Job files and the control API come through here, so that the same job is right or wrong in both. Nothing
is imported, looked up on disk or run: whether a command exists is found out when it is to start.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scheduler.config.fields import checked, names_of
from scheduler.config.jobmodel import FOREIGN, JobTable, source_of
from scheduler.config.jobrules import Written, broken_rules
from scheduler.config.locate import Lines, locate
from scheduler.config.settings import Settings
from scheduler.config.tomlfile import TomlText, parse_toml, read_toml
from scheduler.config.wording import Problem, dotted, kind_of, nearest, printable, shown
from scheduler.errors import Fault, Invalid
from scheduler.model.definitions import ACTION_KEYS, TRIGGER_KEYS, canonical, decode
from scheduler.model.jobs import JobDefinition

_ID: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}", re.ASCII)
_ID_RULE: Final = "an id has 1 to 64 characters: a-z, 0-9, and after the first one also . _ -"
_MESSAGE_LIMIT: Final = 1000
_KEYS: Final = names_of(JobTable)
_JOB_SIGNS: Final = frozenset({*TRIGGER_KEYS, *ACTION_KEYS})


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedFile:
    """What one job file says.

    Attributes:
        path: the file's path.
        definitions: the jobs in it; none where it has a fault, for a file is taken whole or not at all.
        faults: everything that is wrong with it.
        ids: the ids that stand in it, as far as a faulty text can be followed; None: nobody can tell.
    """

    path: str
    definitions: tuple[JobDefinition, ...] = ()
    faults: tuple[Fault, ...] = ()
    ids: frozenset[str] | None = None


def load_job_file(path: Path, settings: Settings) -> LoadedFile:
    """The job file as it is on disk now, read once."""
    read = read_toml(path)
    name = str(path)
    if read.table is None:
        ids = locate(read.text).names("jobs") if read.text is not None else None
        return LoadedFile(path=name, faults=(read.fault,) if read.fault else (), ids=ids)
    definitions, findings = _jobs_of(read.table, settings)
    if findings:
        ids = frozenset(map(str, _tables(read.table)))
        return LoadedFile(path=name, faults=tuple(_faults(findings, name, read.text)), ids=ids)
    return LoadedFile(
        path=name,
        definitions=tuple(definitions),
        ids=frozenset(definition.id for definition in definitions),
    )


def lines_of(path: Path) -> Lines:
    """Where the keys of the file stand, as it is on disk now; of one that cannot be read, nowhere."""
    return locate(read_toml(path).text or "")


def parse_jobs(
    source: str | Mapping[str, object], file: str | None, settings: Settings
) -> tuple[list[JobDefinition], list[Fault]]:
    """The definitions of the jobs that are sound, and every fault of the others.

    Args:
        source: the text of a job file, or its parsed top level (then no fault has a line).
        file: the name that faults carry.
        settings: the daemon's, for what it lends to jobs.
    """
    read = parse_toml(source, file) if isinstance(source, str) else TomlText(table=dict(source))
    if read.table is None:
        return [], [read.fault] if read.fault else []
    definitions, findings = _jobs_of(read.table, settings)
    return definitions, _faults(findings, file, read.text)


def parse_definition(job_id: str, mapping: object, settings: Settings) -> JobDefinition:
    """The definition of one job, given as the table that stands below its id in a job file.

    Raises:
        Invalid: it is not acceptable; all faults are listed.
    """
    definitions, findings = _jobs_of({"jobs": {job_id: mapping}}, settings)
    if not findings:
        return definitions[0]
    faults = _faults(findings, None, None)
    raise Invalid("; ".join(_sentence(fault) for fault in faults), faults=faults)


@dataclass(frozen=True, slots=True)
class _Finding:
    """A problem, and the id of its job as it was written (None: at the top level)."""

    problem: Problem
    job: str | None = None


def _faults(findings: Sequence[_Finding], file: str | None, text: str | None) -> list[Fault]:
    """The findings with their places, in the order of the text."""
    if not findings:
        return []
    lines = locate(text or "")
    faults = [_fault(finding, file, lines) for finding in findings]
    return sorted(faults, key=lambda fault: fault.line or 0)


def _fault(finding: _Finding, file: str | None, lines: Lines) -> Fault:
    path = finding.problem.path
    above = () if finding.job is None else ("jobs", finding.job)
    return Fault(
        message=printable(finding.problem.message, _MESSAGE_LIMIT),
        file=file,
        line=lines.of([*above, *(part for part in path if isinstance(part, str))]),
        job=None if finding.job is None else printable(finding.job),
        key=dotted(path) or None,
    )


def _jobs_of(top: Mapping[str, object], settings: Settings) -> tuple[list[JobDefinition], list[_Finding]]:
    """The sound jobs of a parsed file, and what is wrong with the rest."""
    definitions: list[JobDefinition] = []
    findings = [_Finding(problem) for problem in _top_problems(top)]
    for job_id, table in _tables(top).items():
        judged = _judge(job_id, table, settings)
        if isinstance(judged, JobDefinition):
            definitions.append(judged)
        else:
            findings.extend(_Finding(problem, str(job_id)) for problem in judged)
    return definitions, findings


def _tables(top: Mapping[str, object]) -> Mapping[object, object]:
    tables = top.get("jobs")
    return tables if isinstance(tables, Mapping) else {}


def _top_problems(top: Mapping[str, object]) -> Iterator[Problem]:
    """What is wrong at the top level of a job file, whose one key is `jobs`."""
    for key, value in top.items():
        if key == "jobs":
            if not isinstance(value, Mapping):
                yield Problem(("jobs",), f"must be tables, one for each job: [jobs.ID], not {kind_of(value)}")
        elif isinstance(value, Mapping) and _looks_like_job(value):
            yield Problem(
                (str(key),), f"a job's table is [jobs.{printable(str(key), 64)}]: put jobs. before it"
            )
        else:
            near = nearest(str(key), ["jobs"])
            meant = f"did you mean {near}?" if near else "a job file holds [jobs.ID] tables and nothing else"
            yield Problem((str(key),), f"unknown key {shown(str(key))}: {meant}")


def _judge(job_id: object, table: object, settings: Settings) -> JobDefinition | list[Problem]:
    """The definition, or everything that is wrong with it."""
    problems = list(_id_problems(job_id))
    if not isinstance(table, Mapping):
        return [*problems, Problem((), f"must be a table, [jobs.ID], not {kind_of(table)}")]
    split = list(_split_ids(str(job_id), table))
    if split and len(split) == len(table):
        return [*problems, *split]
    heads = _heads(split)
    left = {key: value for key, value in table.items() if key not in heads}
    found = checked(JobTable, left, foreign=FOREIGN)
    written = Written(job_id=str(job_id), raw=table, job=found.table, settings=settings)
    problems += [*split, *found.problems, *broken_rules(found, written)]
    if problems:
        return problems
    try:
        return decode(str(job_id), canonical(source_of(found.table, settings)))
    except Invalid as error:  # no rule above has refused it: say at least what the model says
        return [Problem((), error.message)]


def _id_problems(job_id: object) -> Iterator[Problem]:
    if not isinstance(job_id, str):
        yield Problem((), f"a job's id must be text, not {kind_of(job_id)}")
    elif not _ID.fullmatch(job_id):
        plain = job_id.strip().lower().replace(" ", "-")
        offer = f" (write {plain})" if _ID.fullmatch(plain) else ""
        yield Problem((), f"{shown(job_id)} is no id{offer}: {_ID_RULE}")


def _split_ids(job_id: str, table: Mapping[str, object]) -> Iterator[Problem]:
    """Ids with a dot that TOML has cut, for want of quotes: `[jobs.a.b]` is a table b in the job a."""
    for key, inner in table.items():
        if key in _KEYS or not isinstance(inner, Mapping):
            continue
        rest = _path_to_job(inner)
        if rest is not None:
            whole = ".".join([job_id, str(key), *rest])
            yield Problem(
                (str(key),), f'an id with a dot stands in quotes: write [jobs."{printable(whole)}"]'
            )


def _path_to_job(table: Mapping[str, object], depth: int = 0) -> list[str] | None:
    """The keys that lead to a job's table, or None where none is near."""
    if _looks_like_job(table):
        return []
    for key, inner in table.items():
        if isinstance(inner, Mapping) and depth < 5:
            rest = _path_to_job(inner, depth + 1)
            if rest is not None:
                return [str(key), *rest]
    return None


def _looks_like_job(table: Mapping[str, object]) -> bool:
    return not _JOB_SIGNS.isdisjoint(table)


def _heads(problems: list[Problem]) -> frozenset[str | int]:
    return frozenset(problem.path[0] for problem in problems)


def _sentence(fault: Fault) -> str:
    return f"{fault.key}: {fault.message}" if fault.key else fault.message
