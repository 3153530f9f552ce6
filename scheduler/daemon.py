"""The door of the daemon: flags, settings, the lock, signals, and the exit code.

    schedulerd [--config FILE] [--state DIR] [--socket PATH] [--jobs DIR ...] [--check]

Exit codes: 0 stopped in order (or `--check` found nothing), 1 could not start, or something essential
ended, 2 usage.
"""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import os
import resource
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from scheduler import __version__
from scheduler.clock import SystemClock
from scheduler.config.check import check
from scheduler.config.paths import config_file, daemon_socket, state_dir
from scheduler.config.settings import Settings, load_settings
from scheduler.errors import Invalid, SchedulerError
from scheduler.service import Service
from scheduler.store.statelock import StateLock
from scheduler.systemd import control_socket
from scheduler.telemetry import Telemetry, configure, get_logger

_LAST_MOMENT = 1.0


def main(argv: Sequence[str] | None = None) -> None:
    """The daemon ran, or said why it could not; the process exits."""
    flags = _flags(sys.argv[1:] if argv is None else argv)
    try:
        code = _check(flags) if flags.check else _serve(flags)
    except SchedulerError as error:
        _complain(error)
        code = 1
    sys.exit(code)


def _flags(argv: Sequence[str]) -> argparse.Namespace:
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
    return parser.parse_args(argv)


def _check(flags: argparse.Namespace) -> int:
    faults = check(flags.config, os.environ, socket=flags.socket, jobs=flags.jobs)
    _say(*faults)
    return 1 if faults else 0


def _complain(error: SchedulerError) -> None:
    faults = error.faults if isinstance(error, Invalid) else ()
    lines = [f"schedulerd: {error.message}" + (f" ({error.hint})" if error.hint else "")]
    _say(*lines, *(f"  {fault}" for fault in faults))


def _say(*lines: object) -> None:
    """The lines stand on stderr: there is no log yet, and a person waits for the answer."""
    sys.stderr.write("".join(f"{line}\n" for line in lines))


def _serve(flags: argparse.Namespace) -> int:
    settings = load_settings(
        config_file(flags.config, os.environ), os.environ, socket=flags.socket, jobs=flags.jobs
    )
    state = state_dir(flags.state, os.environ)
    socket = daemon_socket(settings.socket, state, os.environ)
    activated = control_socket()
    faulthandler.enable()  # a watchdog's SIGABRT puts all stacks into the journal
    os.umask(0o077)
    _leave_no_core()
    lock = StateLock.take(state)
    telemetry = configure(settings.log_format.value, settings.log_level.value)
    try:
        return _run(settings, state, socket, activated, telemetry)
    finally:
        telemetry.close()
        lock.release()


def _leave_no_core() -> None:
    """Neither the daemon nor its jobs leave core files, for they would hold secrets (setrlimit(2)).

    The hard limit stays: a job that wants one says so (`ulimit -c unlimited`).
    """
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))


def _run(settings: Settings, state: Path, socket: Path, activated: int | None, telemetry: Telemetry) -> int:
    """The exit code of one life of the daemon."""
    loop = asyncio.new_event_loop()
    try:
        code = loop.run_until_complete(_live(settings, state, socket, activated))
        if not _end_what_is_left(loop):
            _exit_at_once(code, telemetry)
        return code
    finally:
        loop.close()


async def _live(settings: Settings, state: Path, socket: Path, activated: int | None) -> int:
    service = Service(settings, state, socket, SystemClock(), get_logger(), activated=activated)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, service.stop)
    loop.add_signal_handler(signal.SIGHUP, service.reload)
    return await service.run()


def _end_what_is_left(loop: asyncio.AbstractEventLoop) -> bool:
    """Tasks that outlived the service are cancelled; False if one, a handler's, swallows that."""
    left = asyncio.all_tasks(loop)
    if not left:
        return True
    for task in left:
        task.cancel()
    _, stubborn = loop.run_until_complete(asyncio.wait(left, timeout=_LAST_MOMENT))
    return not stubborn


def _exit_at_once(code: int, telemetry: Telemetry) -> NoReturn:
    """The process ends although a coroutine does not: everything of ours is recorded and closed."""
    telemetry.close()
    os._exit(code)


if __name__ == "__main__":
    main()
