"""Measures schedulerd beside what one would use instead, and prints the result as markdown.

    python -m benchmarks [--full] [--only SECTION ...] [--skip SECTION ...] [--folder DIR] [--write PAGE]

The real daemon is started as users start it, the peers run in environments of their own; contenders take
turns, and figures are medians, to be compared within one run only. What cannot be measured here has a row
that says why. `make bench` is the short form, ten minutes on two cores; `make bench-full` the rest. Exits 1
where a target is missed.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from benchmarks.harness import report
from benchmarks.harness.plan import SECTIONS
from benchmarks.harness.processes import Unmeasured

DISK = Path("/var/tmp")  # noqa: S108 - made for what is large and on a disk; names below it are random


def main() -> int:
    """The result was printed; 1 if a target is missed, 2 if nothing could be measured."""
    signal.signal(signal.SIGTERM, _leave)
    options = _options()
    began = time.monotonic()
    try:
        machine = report.machine(options.folder)
    except Unmeasured as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    only = [name for name in options.only or SECTIONS if name not in options.skip]
    sections = report.measure(options.folder, full=options.full, only=only)
    result = report.text(sections, machine, began=began)
    print(result)
    if options.write:
        form = "make bench-full" if options.full else "make bench"
        options.write.write_text(report.written(options.write.read_text(), result, form=form))
    missed = [verdict for section in sections for verdict in section.verdicts if verdict.met is False]
    return 1 if missed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--full", action="store_true", help="everything, with more repetitions")
    names = ", ".join(SECTIONS)
    parser.add_argument("--only", action="append", choices=SECTIONS, metavar="SECTION", help=f"of {names}")
    parser.add_argument("--skip", action="append", choices=SECTIONS, metavar="SECTION", default=[])
    parser.add_argument("--folder", type=Path, default=DISK, help=f"on the disk that is measured; {DISK}")
    parser.add_argument(
        "--write", type=Path, metavar="PAGE", help="a page that gets the result between its marks"
    )
    return parser.parse_args()


def _leave(number: int, _: FrameType | None) -> None:
    """A signal ends us as an exception does, so that everything started is ended."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
