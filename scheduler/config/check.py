"""What the daemon would find wrong with its configuration, found without starting it.

The same code reads, judges and compares as at a start, so `schedulerd --check`, `schedctl check` and the
daemon cannot disagree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from scheduler.config.jobdirs import Loaded, load_job_dirs
from scheduler.config.paths import ConfigFile, config_file
from scheduler.config.presence import absence_notes
from scheduler.config.reload import diff
from scheduler.config.settings import load_settings
from scheduler.errors import ConfigError, Fault
from scheduler.model.cron_notes import cron_notes
from scheduler.model.triggers import Cron


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What a look at the configuration found.

    Attributes:
        faults: what the daemon would refuse.
        notes: what it takes, but perhaps not as its author meant it.
        read: the folders of job files that were read, or else the daemon's own file.
    """

    faults: Sequence[Fault]
    notes: Sequence[Fault] = ()
    read: Sequence[Path]


def check(
    config: Path | None,
    environ: Mapping[str, str],
    *,
    socket: Path | None = None,
    jobs: Sequence[Path] = (),
) -> list[Fault]:
    """The faults alone of what `examine` finds."""
    return list(examine(config_file(config, environ), environ, socket=socket, jobs=jobs).faults)


def examine(
    file: ConfigFile,
    environ: Mapping[str, str],
    *,
    socket: Path | None = None,
    jobs: Sequence[Path] = (),
) -> Checked:
    """Every fault of the daemon's own file, or, where that has none, of the job files; and notes on these.

    Args:
        file: the daemon's own.
        environ: as the daemon would have it.
        socket: the flag `--socket`.
        jobs: the flags `--jobs`.
    """
    try:
        settings = load_settings(file, environ, socket=socket, jobs=jobs)
    except ConfigError as error:
        return Checked(faults=error.faults, read=(file.path,))
    loaded = load_job_dirs(settings.jobs, settings)
    return Checked(
        faults=diff({}, loaded).faults, notes=list(_notes(loaded, settings.python_path)), read=settings.jobs
    )


def _notes(loaded: Loaded, python_path: Sequence[Path]) -> Iterator[Fault]:
    yield from loaded.emptiness
    absences = absence_notes(python_path)
    for file in loaded.files:
        for definition in file.definitions:
            trigger = definition.schedule.trigger
            for note in cron_notes(trigger.expression) if isinstance(trigger, Cron) else ():
                yield Fault(message=note, file=file.path, job=definition.id, key="cron")
            for key, note in absences(definition):
                yield Fault(message=note, file=file.path, job=definition.id, key=key)
