"""One life of the daemon's process: settings, the lock, the loop, the exit code.

The door (`scheduler.daemon`) has read the flags and holds the signals that come before anybody listens;
from the moment in which the loop turns they are the service's.
"""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import os
import resource
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, NoReturn

from scheduler.clock import SystemClock
from scheduler.config.check import check
from scheduler.config.paths import config_file, daemon_socket, state_dir
from scheduler.config.settings import Settings, load_settings
from scheduler.errors import Invalid, SchedulerError
from scheduler.executors.outcome import describe
from scheduler.service import Service
from scheduler.signals import EarlySignals, turn_deaf
from scheduler.store.statelock import StateLock
from scheduler.systemd import control_socket
from scheduler.telemetry import Event, Telemetry, configure, get_logger

_LAST_MOMENT = 1.0


def live(flags: argparse.Namespace, early: EarlySignals) -> int:
    """The exit code of the process, once the daemon has run, or has said why it could not."""
    try:
        return _check(flags) if flags.check else _serve(flags, early)
    except SchedulerError as error:
        _complain(error)
        return 1


def _check(flags: argparse.Namespace) -> int:
    faults = check(flags.config, os.environ, socket=flags.socket, jobs=flags.jobs)
    _say(*faults)
    return 1 if faults else 0


def _complain(error: SchedulerError) -> None:
    faults = error.faults if isinstance(error, Invalid) else ()
    lines = [f"schedulerd: {error.message}" + (f" ({error.hint})" if error.hint else "")]
    # The message about a configuration lists its faults itself.
    _say(*lines, *(f"  {fault}" for fault in faults if str(fault) not in error.message))


def _say(*lines: object) -> None:
    """The lines stand on stderr: there is no log yet, and a person waits for the answer."""
    sys.stderr.write("".join(f"{line}\n" for line in lines))


def _serve(flags: argparse.Namespace, early: EarlySignals) -> int:
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
        return _run(_heard(settings, state, socket, activated, early, telemetry), telemetry)
    finally:
        telemetry.close()
        lock.release()


def _leave_no_core() -> None:
    """Neither the daemon nor its jobs leave core files, for they would hold secrets (setrlimit(2)).

    The hard limit stays: a job that wants one says so (`ulimit -c unlimited`).
    """
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))


def _run(life: Coroutine[Any, Any, int], telemetry: Telemetry) -> int:
    """The exit code of one life of the daemon."""
    loop = asyncio.new_event_loop()
    try:
        try:
            code = loop.run_until_complete(life)
        except SchedulerError:
            raise
        except BaseException as error:  # noqa: BLE001 - `sys.exit()` or `stop()` in a callback that a handler left
            _tell_end(error)
            _exit_at_once(1, telemetry)
        if not _end_what_is_left(loop):
            _exit_at_once(code, telemetry)
        return code
    finally:
        turn_deaf()  # closing gives the signals back their deadly defaults
        loop.close()


async def _heard(
    settings: Settings,
    state: Path,
    socket: Path,
    activated: int | None,
    early: EarlySignals,
    telemetry: Telemetry,
) -> int:
    """The service runs and hears the signals; what came before it could is told to it now."""
    service = Service(
        settings,
        state,
        socket,
        SystemClock(),
        get_logger(),
        activated=activated,
        lines_lost=lambda: telemetry.lines_lost,
    )
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, service.stop)
    loop.add_signal_handler(signal.SIGHUP, service.reload)
    if early.reload_wanted:
        service.reload()
    return await service.run()


def _tell_end(error: BaseException) -> None:
    """The log says what has ended the loop: no part of the daemon can go on, nor stop in order."""
    message = f"the loop ended without a stop: {describe(error)}; what ran is recovered at the next start"
    get_logger().error(Event.DAEMON_STOPPED, exit_code=1, message=message, exc_info=error)


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
    """The process ends although coroutines or threads of it do not."""
    telemetry.close()
    os._exit(code)
