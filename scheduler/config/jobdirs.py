"""Folders of job files: which files count, and whether a folder's listing can be trusted.

A folder that is missing, unreadable or empty says nothing about the jobs that came from it: a mount that
failed looks just like that. So it is told apart from a folder whose files hold no jobs. One that others may
write is not believed either: whoever puts a file there would have the rights of the daemon.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from scheduler.config.jobfile import LoadedFile, lines_of, load_job_file
from scheduler.config.settings import Settings
from scheduler.config.wording import printable
from scheduler.errors import Fault
from scheduler.trust import foreign_hands

ENDING: Final = ".toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What the folders of job files say, all of it.

    Attributes:
        folders: the folders that were asked for.
        distrusted: those whose listing cannot be trusted.
        files: their files, in the order of their names.
        conflicts: ids that stand in several files, with these files.
        ignored: names in the folders that are no job files (hidden files and backups are not listed).
        faults: of the folders, of the files, and one for each conflict.
        emptiness: those of them that only say that a folder could be listed and holds no job file.
    """

    folders: tuple[str, ...] = ()
    distrusted: frozenset[str] = frozenset()
    files: tuple[LoadedFile, ...] = ()
    conflicts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()
    emptiness: tuple[Fault, ...] = ()

    @property
    def complete(self) -> bool:
        """Every folder could be listed, so a job that is in no file was taken out on purpose."""
        return not self.distrusted


def load_job_dirs(folders: Sequence[Path], settings: Settings) -> Loaded:
    """Every job file of the folders, read now and by content, with all faults of all of them."""
    listings = [_list(folder) for folder in folders]
    files = tuple(
        load_job_file(listing.folder / name, settings) for listing in listings for name in listing.names
    )
    conflicts = _conflicts(files)
    return Loaded(
        folders=tuple(str(folder) for folder in folders),
        distrusted=frozenset(str(listing.folder) for listing in listings if not listing.names),
        files=files,
        conflicts=conflicts,
        ignored=tuple(str(listing.folder / name) for listing in listings for name in listing.ignored),
        faults=(
            *(fault for listing in listings for fault in listing.faults),
            *(fault for file in files for fault in file.faults),
            *_conflict_faults(conflicts),
        ),
        emptiness=tuple(listing.emptiness for listing in listings if listing.emptiness is not None),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listing:
    """The names in one folder; no names: it cannot be trusted, and a fault says why."""

    folder: Path
    names: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()
    emptiness: Fault | None = None


def _list(folder: Path) -> _Listing:
    try:
        why = foreign_hands(folder, folder.stat())
        found = sorted(path.name for path in folder.iterdir())
    except OSError as error:
        reason = error.strerror or type(error).__name__
        remedy = "make it" if isinstance(error, FileNotFoundError) else "the daemon's user has to read it"
        message = (
            f"the folder of job files cannot be read: {reason}; {remedy};"
            " jobs that came from it stay as they are"
        )
        return _Listing(folder=folder, faults=(Fault(message=message, file=str(folder)),))
    if why is not None:
        message = f"the folder of job files {why}; until then jobs that came from it stay as they are"
        return _Listing(folder=folder, faults=(Fault(message=message, file=str(folder)),))
    visible = [name for name in found if not _is_hidden(name)]
    odd = [name for name in visible if name.endswith(ENDING) and not name.isprintable()]
    names = tuple(name for name in visible if name.endswith(ENDING) and name not in odd)
    faults = [_odd_name(folder, name) for name in odd]
    emptiness = None if names else _no_files(folder)
    if emptiness is not None:
        faults.append(emptiness)
    return _Listing(
        folder=folder,
        names=names,
        ignored=tuple(printable(name) for name in visible if not name.endswith(ENDING)),
        faults=tuple(faults),
        emptiness=emptiness,
    )


def _is_hidden(name: str) -> bool:
    """Hidden files, and what editors leave beside a file."""
    return name.startswith((".", "#")) or name.endswith("~")


def _odd_name(folder: Path, name: str) -> Fault:
    message = "the file's name is not UTF-8 or has control characters in it, so it is not read: rename it"
    return Fault(message=message, file=f"{folder}/{printable(name)}")


def _no_files(folder: Path) -> Fault:
    message = (
        "the folder holds no job file (*.toml); jobs that came from it stay as they are: to remove them"
        " on purpose, put an empty file there, for example none.toml"
    )
    return Fault(message=message, file=str(folder))


def _conflicts(files: Sequence[LoadedFile]) -> dict[str, tuple[str, ...]]:
    """The ids that stand in more than one file."""
    places: dict[str, list[str]] = {}
    for file in files:
        for job_id in sorted(file.ids or ()):
            places.setdefault(job_id, []).append(file.path)
    return {job_id: tuple(paths) for job_id, paths in places.items() if len(paths) > 1}


def _conflict_faults(conflicts: Mapping[str, tuple[str, ...]]) -> Iterator[Fault]:
    lines = {path: lines_of(Path(path)) for path in {paths[-1] for paths in conflicts.values()}}
    for job_id, paths in conflicts.items():
        message = (
            f"the same id stands in {' and in '.join(paths)}: none of them is taken, what was in force"
            " before stays; take it out of all files but one"
        )
        line = lines[paths[-1]].of(["jobs", job_id])
        yield Fault(message=message, file=paths[-1], line=line, job=printable(job_id))
