"""A PostgreSQL server of our own for as long as a peer is measured: durable as it comes, on a Unix socket."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.harness.processes import Unmeasured, started

CANDIDATES = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin")
USERS = ("postgres", "nobody")
"""PostgreSQL refuses to run as root; one of these stands in."""


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """The address of a fresh database `postgres`, in a cluster below the folder."""
    initdb, postgres = _binary("initdb"), _binary("postgres")
    user = USERS[0] if os.geteuid() == 0 else None
    data = folder / "pg"
    data.mkdir(mode=0o700)
    with TemporaryDirectory(prefix="schedulerd-bench-") as short:
        for place in (data, Path(short)):
            if user:
                shutil.chown(place, user)
        _initialise(initdb, data, user)
        command: list[str | Path] = [
            postgres,
            "-D",
            data,
            "-k",
            short,
            "-c",
            "listen_addresses=",
            "-c",
            "fsync=on",
        ]
        with started(command, log=folder / "pg.log", cwd=data, user=user) as process:
            _wait(process, Path(short), folder / "pg.log")
            yield f"postgresql://bench@/postgres?host={short}"


def _binary(name: str) -> Path:
    found = shutil.which(name)
    if found:
        return Path(found)
    for pattern in CANDIDATES:
        for folder in sorted(Path("/").glob(pattern[1:]), reverse=True):
            if (folder / name).exists():
                return folder / name
    raise Unmeasured(f"PostgreSQL is not installed here: no {name}")


def _initialise(initdb: Path, data: Path, user: str | None) -> None:
    done = subprocess.run(
        [initdb, "-D", data, "-U", "bench", "-A", "trust", "-E", "UTF8", "--locale=C"],
        cwd=data, user=user, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise Unmeasured(f"initdb: {done.stderr.strip()[-200:]}")


def _wait(process: subprocess.Popen[bytes], folder: Path, log: Path) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        if "ready to accept connections" in log.read_text(errors="replace"):
            return
        time.sleep(0.05)
    raise Unmeasured(f"PostgreSQL did not start in {folder}: {log.read_text(errors='replace')[-200:]}")
