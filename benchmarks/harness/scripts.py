"""Benchmarks that stand alone: each prints one markdown table and exits 1 where it finds something too slow.

To add one is to add a line to `SCRIPTS`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.peer import PROJECT
from benchmarks.harness.processes import Unmeasured, end
from benchmarks.harness.section import Section, attempt
from benchmarks.harness.table import Verdict

FOLDER = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A file of `benchmarks/`, and how it is run.

    Attributes:
        file: its name.
        title: what it measures; a heading.
        target: what its exit code 0 stands for.
        short: its arguments in the short form; None: it is left out there.
        full: its arguments in the full form.
        patience: seconds after which it is ended.
    """

    file: str
    title: str
    target: str
    short: Sequence[str] | None = None
    full: Sequence[str] = ()
    patience: float = 3_600

    @property
    def name(self) -> str:
        """As the command line names it."""
        return self.file.removesuffix(".py")


SCRIPTS: Sequence[Script] = (
    Script(
        file="items.py",
        title="Items of a batch",
        target="6. batch items: what `items.py` demands",
        short=("100", "10000"),
        full=("100", "1000", "10000", "100000", "1000000"),
    ),
    Script(
        file="next_fire.py",
        title="The next fire of a cron expression",
        target="a common expression within its budget (`next_fire.py`)",
        short=(),
    ),
    Script(
        file="telling.py",
        title="Telling an event",
        target="an event told within its budget (`telling.py`)",
    ),
    Script(
        file="commands.py",
        title="Commands",
        target="5. commands: what `commands.py` demands",
        short=("300",),
        full=("--full",),
    ),
    Script(
        file="scale.py",
        title="A million jobs, ten million runs",
        target="3. scale: what `scale.py` demands",
        full=("--full",),
        patience=7_200,
    ),
    Script(
        file="growth.py",
        title="Growth",
        target="8. growth: what `growth.py` demands",
        full=("--full",),
        patience=6 * 3_600,
    ),
)


def sections(root: Path, *, full: bool, only: Collection[str]) -> list[Section]:
    """What the scripts that were asked for and exist have printed, one after another."""
    found = []
    for script in SCRIPTS:
        arguments = script.full if full else script.short
        if script.name in only and arguments is not None and (FOLDER / script.file).exists():
            found.append(_section(root, script, arguments))
    return found


def _section(root: Path, script: Script, arguments: Sequence[str]) -> Section:
    what = " ".join([f"benchmarks/{script.file}", *arguments])
    done = attempt(what, lambda: _run(root, script, arguments))
    if isinstance(done, str):
        verdict = Verdict(target=script.target, measured=done, met=None)
        return Section(title=script.title, text=f"`{what}` was not measured: {done}", verdicts=(verdict,))
    code, text = done
    met = None if code not in {0, 1} else code == 0
    verdict = Verdict(target=script.target, measured="see its table", met=met)
    return Section(title=script.title, text=f"`{what}`\n\n{text.strip()}", verdicts=(verdict,))


def _run(root: Path, script: Script, arguments: Sequence[str]) -> tuple[int, str]:
    """Exit code and standard output; it is asked to clean up after itself if it takes too long."""
    process = subprocess.Popen(
        [sys.executable, FOLDER / script.file, *arguments],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=PROJECT,
        start_new_session=True, env={**os.environ, "TMPDIR": str(root)},
    )  # fmt: skip
    try:
        out, told = process.communicate(timeout=script.patience)
    except subprocess.TimeoutExpired as error:
        raise Unmeasured(f"not done within {script.patience:.0f} s") from error
    finally:
        end(process)
    if process.returncode and not out.strip():
        raise Unmeasured(f"exit code {process.returncode}: {told.decode(errors='replace').strip()[-200:]}")
    return process.returncode, out.decode()
