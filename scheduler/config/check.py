"""What the daemon would find wrong with its configuration, found without starting it.

The same code reads, judges and compares as at a start, so `schedulerd --check`, `schedctl check` and the
daemon cannot disagree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from scheduler.config.jobdirs import load_job_dirs
from scheduler.config.paths import config_file
from scheduler.config.reload import diff
from scheduler.config.settings import load_settings
from scheduler.errors import ConfigError, Fault


def check(
    config: Path | None,
    environ: Mapping[str, str],
    *,
    socket: Path | None = None,
    jobs: Sequence[Path] = (),
) -> list[Fault]:
    """Every fault of the daemon's own file, or, where that has none, of the job files.

    Args:
        config: the flag `--config`.
        environ: as the daemon would have it.
        socket: the flag `--socket`.
        jobs: the flags `--jobs`.
    """
    try:
        settings = load_settings(config_file(config, environ), environ, socket=socket, jobs=jobs)
    except ConfigError as error:
        return list(error.faults)
    return list(diff({}, load_job_dirs(settings.jobs, settings)).faults)
