"""The door of the daemon: flags, and the signals that come before anybody can hear them.

    schedulerd [--config FILE] [--state DIR] [--socket PATH] [--jobs DIR ...] [--check]

Exit codes: 0 stopped in order (or `--check` found nothing), 1 could not start, or something essential
ended, 2 usage.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from scheduler import __version__
from scheduler.signals import EarlySignals


def main(argv: Sequence[str] | None = None) -> None:
    """The daemon ran, or said why it could not; the process exits."""
    flags = parser().parse_args(sys.argv[1:] if argv is None else argv)
    early = EarlySignals() if flags.check else EarlySignals.heard()
    # Imported only now: it takes half a second, in which a SIGHUP would end the process.
    from scheduler.process import live  # noqa: PLC0415

    sys.exit(live(flags, early))


def parser() -> argparse.ArgumentParser:
    """What the daemon's command line may say."""
    parser = argparse.ArgumentParser(
        prog="schedulerd", description="An async scheduler daemon: jobs run on time, pauses survive."
    )
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="scheduler.toml, or the directory it is in"
    )
    parser.add_argument("--state", type=Path, metavar="DIR", help="where the store, lock and output are")
    parser.add_argument("--socket", type=Path, metavar="PATH", help="where the control socket is made")
    parser.add_argument(
        "--jobs",
        type=Path,
        metavar="DIR",
        action="append",
        default=[],
        help="a directory of job files; may be repeated",
    )
    parser.add_argument(
        "--check", action="store_true", help="say what is wrong with the configuration, and exit"
    )
    parser.add_argument("--version", action="version", version=f"schedulerd {__version__}")
    return parser


if __name__ == "__main__":
    main()
