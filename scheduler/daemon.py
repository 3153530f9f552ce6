"""The door of the daemon: flags, and the signals that come before anybody can hear them.

    schedulerd [--config FILE] [--state DIR] [--socket PATH] [--jobs DIR ...] [--check]

Exit codes: 0 stopped in order (or `--check` found nothing), 1 could not start, or something essential
ended, 2 usage.
"""

from __future__ import annotations

import argparse
import gc
import sys
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from scheduler import __version__
from scheduler.signals import EarlySignals

FILES: Final[Mapping[str, str]] = {
    "~/.config/schedulerd/scheduler.toml": "The configuration, which may be missing; job files are in jobs.d/"
    " beside it. $XDG_CONFIG_HOME stands for ~/.config where it is set.",
    "~/.local/state/schedulerd/": "The state directory: store, lock and output. $XDG_STATE_HOME stands for"
    " ~/.local/state where it is set.",
    "$XDG_RUNTIME_DIR/schedulerd/control.sock": "The control socket; control.sock in the state directory"
    " where the variable is not set.",
    "/etc/schedulerd/, /var/lib/schedulerd/, /run/schedulerd/control.sock": "The same as a service of"
    " systemd, which says so in CONFIGURATION_DIRECTORY, STATE_DIRECTORY and RUNTIME_DIRECTORY.",
}
"""Where things are by default, and what each is."""

VARIABLES: Final[Mapping[str, str]] = {
    "SCHEDULER_CONFIG, SCHEDULER_STATE, SCHEDULER_SOCKET": "As --config, --state and --socket.",
    "SCHEDULER_JOBS, SCHEDULER_PYTHON_PATH": "Folders of job files, and of Python handlers, between colons.",
    "SCHEDULER_LOG_FORMAT, SCHEDULER_LOG_LEVEL, SCHEDULER_TIMEZONE, SCHEDULER_MAX_RUNNING,"
    " SCHEDULER_START_RATE, SCHEDULER_DRAIN_TIMEOUT, SCHEDULER_LEASE, SCHEDULER_HEARTBEAT,"
    " SCHEDULER_OUTPUT_LIMIT, SCHEDULER_DEFAULT_TIMEOUT": "As the keys of scheduler.toml. A flag beats a"
    " variable, which beats the file.",
}
"""The variables that the daemon reads, and what they stand for."""


def main(argv: Sequence[str] | None = None) -> None:
    """The daemon ran, or said why it could not; the process exits."""
    flags = parser().parse_args(sys.argv[1:] if argv is None else argv)
    early = EarlySignals() if flags.check else EarlySignals.heard()
    # Imported only now: it takes half a second, in which a SIGHUP would end the process.
    with quick_imports():
        from scheduler.process import live  # noqa: PLC0415

    sys.exit(live(flags, early))


@contextmanager
def quick_imports() -> Iterator[None]:
    """What is imported inside is there a quarter sooner.

    Models are built when they are first used: those of FastAPI's document, hundreds, mostly never. Nothing of
    what is made at a start is garbage, so nobody looks for any until the service is ready and says so.
    """
    gc.disable()
    from pydantic import BaseModel  # noqa: PLC0415 - as above
    from pydantic.warnings import UnsupportedFieldAttributeWarning  # noqa: PLC0415 - as above

    # FastAPI silences it around what it builds itself; what is built later would tell it to our stderr.
    warnings.simplefilter("ignore", UnsupportedFieldAttributeWarning)
    BaseModel.model_config["defer_build"] = True
    try:
        with _without("rich"):
            yield
    finally:
        del BaseModel.model_config["defer_build"]


@contextmanager
def _without(module: str) -> Iterator[None]:
    """What imports the module if it is there does without: structlog would only draw tracebacks with it."""
    modules: dict[str, object] = sys.modules  # type: ignore[assignment]
    if module in modules:
        yield
        return
    modules[module] = None  # as the import system has it: not to be found
    try:
        yield
    finally:
        del modules[module]


def parser() -> argparse.ArgumentParser:
    """What the daemon's command line may say."""
    parser = argparse.ArgumentParser(
        prog="schedulerd",
        description="An async scheduler daemon: jobs run on time, pauses survive.",
        epilog=f"{_listed('files', FILES)}\n\n{_listed('environment', VARIABLES)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
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


def _listed(title: str, entries: Mapping[str, str]) -> str:
    """The names and, indented below each, what is said of it."""
    lines = [f"{title}:"]
    for name, text in entries.items():
        lines += textwrap.wrap(name, 90, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
        lines += textwrap.wrap(text, 90, initial_indent="      ", subsequent_indent="      ")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
