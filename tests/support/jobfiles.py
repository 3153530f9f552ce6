"""A folder of job files that is read again and again, as a daemon's reload does it."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from scheduler.config.jobdirs import load_job_dirs
from scheduler.config.reload import Changes, diff
from scheduler.config.settings import Settings
from scheduler.model.jobs import JobId


class Files:
    """A folder of job files, and the jobs in force that reloads of it made."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.live: dict[JobId, tuple[str | None, str]] = {}

    def write(self, name: str, text: str | bytes) -> Path:
        """The file says this."""
        path = self.folder / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def jobs(self, name: str, *ids: str, every: str = "5s") -> Path:
        """The file has these jobs."""
        return self.write(name, "".join(f'[jobs.{job}]\nevery = "{every}"\nshell = "true"\n' for job in ids))

    def reload(self, *more: Path, api_ids: Collection[JobId] = ()) -> Changes:
        """What a reload changes; it is in force afterwards."""
        changes = diff(self.live, load_job_dirs([self.folder, *more], Settings()), api_ids=api_ids)
        for job in (*changes.added, *changes.changed, *changes.moved):
            self.live[job.id] = (job.file, job.definition.source)
        for job_id in changes.removed:
            del self.live[job_id]
        return changes
