"""A peer under a load: its driver runs in the peer's own environment and tells what it found as JSON."""

from __future__ import annotations

import json
import re
import subprocess
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmarks.harness.contender import Found, Load
from benchmarks.harness.postgres import server
from benchmarks.harness.processes import Unmeasured, started, workspace

PROJECT = Path(__file__).parents[2]
STAND_BY_SECONDS = 90.0
"""What a driver may need beside the load itself: to store its jobs one by one, for example."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A driver in `benchmarks/peers`, the environment that it needs, and the variant it shall be.

    Attributes:
        name: as it stands in a table.
        durable: what of a fire is on disk.
        driver: module below `benchmarks.peers`.
        variant: of the driver.
        environment: folder of the virtual environment.
        needs_server: whether it stores in PostgreSQL.
    """

    name: str
    durable: str
    driver: str
    root: Path
    variant: str = ""
    environment: str = ".venv-bench"
    needs_server: bool = False

    def put(self, load: Load) -> Found:
        """See the protocol."""
        python = PROJECT / self.environment / "bin" / "python"
        if not python.exists():
            raise Unmeasured(f"{self.environment} is missing: make {self.environment}/.peers")
        with workspace(self.root) as folder, self._server(folder) as address:
            scratch = folder / "d"
            scratch.mkdir()
            own = replace(load, folder=str(scratch), variant=self.variant, server=address)
            return self._driven(python, own, folder / "out")

    def _server(self, folder: Path) -> AbstractContextManager[str]:
        return server(folder) if self.needs_server else nullcontext("")

    def _driven(self, python: Path, load: Load, out: Path) -> Found:
        command: list[str | Path] = [
            python,
            "-m",
            f"benchmarks.peers.{self.driver}",
            json.dumps(asdict(load)),
        ]
        seconds = load.patience if load.kind == "burst" else load.warm + load.window
        with started(command, log=out, cwd=PROJECT) as process:
            try:
                process.wait(seconds + STAND_BY_SECONDS)
            except subprocess.TimeoutExpired as error:
                raise Unmeasured(f"no answer within {seconds + STAND_BY_SECONDS:.0f} s") from error
        return _answer(out.read_text(errors="replace"))


def _answer(text: str) -> Found:
    lines = text.strip().splitlines() or ["nothing"]
    for line in reversed(lines):
        if line.startswith('{"started"'):
            return Found(**json.loads(line))
    raise Unmeasured(f"its driver said: {lines[-1][-200:]}")


def versions(lock: Path) -> dict[str, str]:
    """Package -> version, as a lock pins them."""
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", lock.read_text(), re.MULTILINE))
