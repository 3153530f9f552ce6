"""One hook that is a command: started, given the facts, waited for until its deadline.

It gets the facts as SCHEDULER_ variables and as a JSON object on stdin, the user of its job, and a clean
environment. It is no run: it bears no mark of the store, so recovery and control take it for none. Its output
goes nowhere; its exit code is all that is asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Mapping
from typing import Final

from scheduler.clock import SECOND, Micros
from scheduler.engine.alerts import Alert
from scheduler.engine.deliveries import Undelivered
from scheduler.errors import SchedulerError
from scheduler.executors.accounts import Account, account_of, looking_as, own_account
from scheduler.executors.environment import encode
from scheduler.executors.program import explain, find_program
from scheduler.executors.spawn import UMASK, exited, memory_file, reap
from scheduler.executors.surroundings import DEFAULT_PATH
from scheduler.executors.threads import NoThread, off_loop, start_thread

_VARIABLES: Final = {"state": "NEW_STATE"}
"""Facts whose own name says something else to a schedctl in the hook: `SCHEDULER_STATE` is a directory."""

_ANYWHERE: Final = "/"
_LONGEST: Final = 8000
"""Characters of one variable: the whole text is on stdin."""


async def run_hook(
    argv: tuple[str, ...],
    alert: Alert,
    *,
    socket: str = "",
    timeout: Micros,  # noqa: ASYNC109 - the deadline is part of the promise
) -> None:
    """The command has ended with exit code 0.

    Args:
        socket: of the control API, so that a schedctl in the hook asks this daemon; empty: it is not told.

    Raises:
        Undelivered: it could not be started, ended otherwise, or was killed at its deadline.

    Cancellation:
        The command is killed with its group.
    """
    try:
        child = await off_loop(lambda: _start(argv, alert, socket), discard=_kill)
    except SchedulerError as error:
        raise Undelivered(error.message) from error
    over = False
    try:
        async with asyncio.timeout(timeout / SECOND):
            await exited(child.pid)
        over = True
    except TimeoutError as error:
        raise Undelivered(f"it was killed after {timeout / SECOND:g} s") from error
    finally:
        if not over:
            _kill(child)
    code = reap(child)
    if code != 0:
        raise Undelivered(_ending(code))


def _start(argv: tuple[str, ...], alert: Alert, socket: str) -> subprocess.Popen[bytes]:
    """The command runs. Blocks: called in a thread."""
    account = own_account() if alert.user is None else account_of(alert.user)
    environment = _environment(alert.facts, account)
    if socket:
        environment["SCHEDULER_SOCKET"] = socket
    with looking_as(account.identity):
        program = find_program(argv[0], path=DEFAULT_PATH, cwd=_ANYWHERE, who=account.who)
    identity = account.identity
    try:
        stdin = memory_file(encode(json.dumps(dict(alert.facts), ensure_ascii=False)))
        try:
            return subprocess.Popen(
                [encode(word) for word in argv],
                executable=encode(program),
                env={encode(name): encode(value) for name, value in environment.items()},
                cwd=_ANYWHERE,
                stdin=stdin,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                close_fds=True,
                start_new_session=True,
                umask=UMASK,
                user=None if identity is None else identity.uid,
                group=None if identity is None else identity.gid,
                extra_groups=None if identity is None else identity.groups,
            )
        finally:
            os.close(stdin)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise explain(error, program=program, argv=argv, environment=environment) from error


def _environment(facts: Mapping[str, object], account: Account) -> dict[str, str]:
    """The base, and each fact under its name; one that does not apply is empty."""
    told = {
        f"SCHEDULER_{_VARIABLES.get(name, name.upper())}": "" if value is None else _line(str(value))
        for name, value in facts.items()
    }
    return {
        "PATH": DEFAULT_PATH,
        "HOME": account.home,
        "USER": account.name,
        "LOGNAME": account.name,
        "SHELL": "/bin/sh",
        "LANG": "C.UTF-8",
        **told,
    }


def _line(text: str) -> str:
    return text[:_LONGEST].replace("\0", "")


def _ending(code: int | None) -> str:
    if code is None:
        return "how it ended is not known"
    return f"it ended with exit code {code}" if code > 0 else f"it was killed by signal {-code}"


def _kill(child: subprocess.Popen[bytes]) -> None:
    """The command is killed with its group, and reaped when it is gone; nobody waits for that."""
    # Not reaped yet, so the number still names this group.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    with contextlib.suppress(NoThread):
        start_thread(lambda: _forget(child), name="reap-hook")


def _forget(child: subprocess.Popen[bytes]) -> None:
    reap(child)
