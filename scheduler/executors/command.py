"""Commands: `command` (argv) and `shell` (a line for /bin/sh) as attempts.

Promises: a session of its own; end of file on stdin at once, or the job's `stdin`; nothing inherited; the
environment of `environment` and no other; output kept by `capture`; ended whole, with everything that was
started in it; the user that the job names, with nothing of the daemon's rights left. Leaves to others: what
an exit code means, timeouts.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from scheduler.engine.ports import AttemptHooks, Execution
from scheduler.errors import SpawnFailed
from scheduler.executors.accounts import Account, account_of, enter, looking_as
from scheduler.executors.capture import open_output
from scheduler.executors.environment import build_environment, idempotency_key
from scheduler.executors.execution import ProcessExecution
from scheduler.executors.processes import Belonging
from scheduler.executors.program import find_directory, find_program
from scheduler.executors.pump import Sink
from scheduler.executors.spawn import Launch, Spawned, Spawner
from scheduler.executors.surroundings import Surroundings
from scheduler.executors.threads import NoThread
from scheduler.model.jobs import Action, CommandAction, JobDefinition, ShellAction
from scheduler.model.runs import Grant

SHELL: Final = "/bin/sh"


class CommandExecutor:
    """Starts command and shell actions. Fulfils `engine.ports.Executor`."""

    def __init__(self, around: Surroundings, spawner: Spawner) -> None:
        self._around = around
        self._spawner = spawner

    async def start(self, grant: Grant, hooks: AttemptHooks) -> Execution:
        return await start_process(
            grant, hooks, argv=argv_of(grant.definition.action), around=self._around, spawner=self._spawner
        )


async def start_process(
    grant: Grant,
    hooks: AttemptHooks,
    *,
    argv: tuple[str, ...],
    around: Surroundings,
    spawner: Spawner,
    passed: tuple[int, ...] = (),
    more: Mapping[int, Sink] | None = None,
) -> ProcessExecution:
    """`argv` runs as an attempt of the grant's run, in the job's environment.

    Args:
        passed: further descriptors for the child; closed here, whatever happens.
        more: further descriptors to read, taken over once this has returned.

    Raises:
        SpawnFailed: it could not be started; nothing of it runs.

    Cancellation:
        A process that has been started in the meantime is killed.
    """
    output = open_output(grant, around)
    spawned = await _spawned(grant, argv, around, spawner, passed)
    belonging = Belonging(
        store_id=around.store_id,
        run_id=grant.run.id,
        claim=grant.run.claim,
        session=spawned.session,
        effect_key=None if grant.item is None else idempotency_key(grant),
    )
    return ProcessExecution(
        spawned,
        spawner=spawner,
        belonging=belonging,
        hooks=hooks,
        output=output,
        clock=around.clock,
        more=more,
        guard=around.guard,
    )


async def _spawned(
    grant: Grant, argv: tuple[str, ...], around: Surroundings, spawner: Spawner, passed: tuple[int, ...]
) -> Spawned:
    try:
        return await spawner.off_loop(
            lambda: _spawn(grant, argv, around, spawner, passed),
            identity_may_change=grant.definition.user is not None,
        )
    except NoThread as error:
        for descriptor in passed:
            os.close(descriptor)
        raise SpawnFailed(error.message) from error


def _spawn(
    grant: Grant, argv: tuple[str, ...], around: Surroundings, spawner: Spawner, passed: tuple[int, ...]
) -> Spawned:
    """All that touches a disk or the kernel on the way to a process; in a thread."""
    with contextlib.ExitStack() as stack:
        for descriptor in passed:
            stack.callback(os.close, descriptor)
        launch, account = prepare(grant, argv, around, progress_fd=spawner.progress_fd)
        cwd = enter(launch.cwd, launch.identity, account.who, stack)
        return spawner.spawn(replace(launch, cwd=cwd, passed=passed))


def prepare(
    grant: Grant, argv: tuple[str, ...], around: Surroundings, *, progress_fd: int
) -> tuple[Launch, Account]:
    """What is to be started for the grant, looked up with the rights of the job's user. Blocks.

    Raises:
        SpawnFailed: it cannot be started.
    """
    definition = grant.definition
    account = around.account if definition.user is None else account_of(definition.user)
    cwd = _directory(definition, account)
    environment = build_environment(grant, around, cwd=cwd, progress_fd=progress_fd, account=account)
    with looking_as(account.identity):
        program = find_program(argv[0], path=environment["PATH"], cwd=cwd, who=account.who)
    launch = Launch(
        program=program,
        argv=argv,
        environment=environment,
        cwd=cwd,
        stdin=definition.stdin,
        identity=account.identity,
    )
    return launch, account


def _directory(definition: JobDefinition, account: Account) -> str:
    home = definition.env.get("HOME", account.home)
    if account.identity is None:
        return find_directory(definition.cwd, home)
    with looking_as(account.identity):
        try:
            return find_directory(definition.cwd or home, home, who=account.who)
        except SpawnFailed as error:
            if definition.cwd is not None:
                raise
            raise SpawnFailed(f"{error.message}; it is the home of {account.who}: set cwd") from error


def argv_of(action: Action) -> tuple[str, ...]:
    """The words that are executed for a command or a shell line."""
    match action:
        case CommandAction():
            return action.argv
        case ShellAction():
            return (SHELL, "-c", action.line)
        case _:
            raise SpawnFailed(f"a {action.kind} action is not a command")
