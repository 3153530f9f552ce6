"""What a reload changes: the jobs in force against the job files as they are now. Pure.

A reload only does what a file says. A file with faults says nothing, so its jobs stay as they are, and so
do those of a folder whose listing cannot be trusted. Unchanged jobs are not touched at all, and nothing
here knows of pauses: they are the operator's. To remove every job of a folder on purpose, leave one file
without jobs in it (`none.toml`): an emptied folder may be a mount that failed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from scheduler.config.jobdirs import Loaded
from scheduler.errors import Fault
from scheduler.model.jobs import JobDefinition, JobId, Origin
from scheduler.store.values import ChangeKind, DefinitionChange, Peer

InForce: TypeAlias = Mapping[JobId, tuple[str | None, str]]
"""Of every job that came from a file: that file, and the canonical source of its definition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A definition and the file it stands in."""

    definition: JobDefinition
    file: str

    @property
    def id(self) -> JobId:
        """The job's id."""
        return self.definition.id


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What is to be done about each job.

    Attributes:
        added: ids that no file's job had.
        changed: another definition under the same id.
        moved: the same definition in another file.
        removed: in no file any more.
        unchanged: as it was.
        kept: as it was, because what the files say of it cannot be taken.
        faults: everything that is wrong with the files, their folders and their ids.
    """

    added: tuple[Placed, ...] = ()
    changed: tuple[Placed, ...] = ()
    moved: tuple[Placed, ...] = ()
    removed: tuple[JobId, ...] = ()
    unchanged: tuple[JobId, ...] = ()
    kept: tuple[JobId, ...] = ()
    faults: tuple[Fault, ...] = ()

    def for_store(self, peer: Peer) -> list[DefinitionChange]:
        """The same as the store takes it, which applies all of it in one transaction."""
        return [
            *(_change(ChangeKind.ADD, job, peer) for job in self.added),
            *(_change(ChangeKind.CHANGE, job, peer) for job in self.changed),
            *(_change(ChangeKind.MOVE, job, peer) for job in self.moved),
            *(
                DefinitionChange(kind=ChangeKind.REMOVE, job_id=job_id, origin=Origin.FILE, peer=peer)
                for job_id in self.removed
            ),
        ]


def new_ids(live: InForce, loaded: Loaded) -> list[JobId]:
    """Ids that no file's job in force has; the API may have one of them."""
    return [JobId(job_id) for file in loaded.files for job_id in file.ids or () if job_id not in live]


def diff(live: InForce, loaded: Loaded, *, api_ids: Collection[JobId] = ()) -> Changes:
    """How the jobs in force become what the files say.

    Args:
        live: the file jobs in force.
        loaded: the files as they are now.
        api_ids: ids of jobs made through the API; a file cannot take them.
    """
    silence = _Silence(loaded)
    said = [
        Placed(definition=definition, file=file.path)
        for file in loaded.files
        for definition in file.definitions
        if definition.id not in loaded.conflicts
    ]
    taken = [job for job in said if job.id in api_ids]
    unclear = [job for job in said if job.id in live and silence.may_still_hold(job, live[job.id][0])]
    refused = {job.id for job in (*taken, *unclear)}
    sound = [job for job in said if job.id not in refused]
    missing = live.keys() - {job.id for job in sound}
    kept = sorted(job_id for job_id in missing if silence.keeps(job_id, live[job_id][0]))
    return Changes(
        added=tuple(job for job in sound if job.id not in live),
        changed=tuple(job for job in sound if _has_changed(job, live)),
        moved=tuple(job for job in sound if _has_moved(job, live)),
        removed=tuple(sorted(missing.difference(kept))),
        unchanged=tuple(job.id for job in sound if live.get(job.id) == (job.file, job.definition.source)),
        kept=tuple(kept),
        faults=(
            # An empty folder is how a service begins; where jobs came from files a mount may have failed.
            *(fault for fault in loaded.faults if live or fault not in loaded.emptiness),
            *(_taken_fault(job) for job in taken),
            *(_unclear_fault(job, live[job.id][0]) for job in unclear),
        ),
    )


class _Silence:
    """Which files and folders do not say what stands in them."""

    def __init__(self, loaded: Loaded) -> None:
        self._loaded = loaded
        self._faulty = {file.path for file in loaded.files if file.faults}
        self._unread = {file.path for file in loaded.files if file.ids is None}
        self._named = frozenset(
            job_id for file in loaded.files if file.faults and file.ids for job_id in file.ids
        )

    def may_still_hold(self, job: Placed, origin: str | None) -> bool:
        """The file that the job came from cannot be read, so it may stand there and in the new file too."""
        return origin != job.file and self._is_unknown(origin)

    def keeps(self, job_id: JobId, origin: str | None) -> bool:
        """A job that no sound file has may still not be taken for removed."""
        return (
            job_id in self._loaded.conflicts
            or job_id in self._named
            or origin in self._faulty
            or self._is_unknown(origin)
        )

    def _is_unknown(self, origin: str | None) -> bool:
        if origin is None:
            return False
        folder = str(Path(origin).parent)
        if folder in self._loaded.folders:
            return folder in self._loaded.distrusted or origin in self._unread
        # The folder is no longer configured: its jobs may have gone to one that cannot be listed now.
        return not self._loaded.complete


def _has_changed(job: Placed, live: InForce) -> bool:
    return job.id in live and live[job.id][1] != job.definition.source


def _has_moved(job: Placed, live: InForce) -> bool:
    return job.id in live and live[job.id][1] == job.definition.source and live[job.id][0] != job.file


def _change(kind: ChangeKind, job: Placed, peer: Peer) -> DefinitionChange:
    return DefinitionChange(
        kind=kind,
        job_id=job.id,
        origin=Origin.FILE,
        peer=peer,
        definition=job.definition,
        origin_file=job.file,
    )


def _taken_fault(job: Placed) -> Fault:
    message = (
        "a job made through the API has this id, and it stays: choose another id,"
        f" or remove that job first (schedctl remove {job.id})"
    )
    return Fault(message=message, file=job.file, job=job.id)


def _unclear_fault(job: Placed, origin: str | None) -> Fault:
    message = (
        f"this job is in force from {origin}, which cannot be read now, so it stays as it is:"
        " make that file readable, or remove it"
    )
    return Fault(message=message, file=job.file, job=job.id)
