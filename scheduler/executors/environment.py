"""The environment of an attempt, built from nothing: what is not written here does not reach a job.

Later ones win: our base (PATH HOME USER LOGNAME SHELL LANG TZ), the job's `env`, its `env_file`, and last the
SCHEDULER_ variables, which no job can forge. Nothing of the daemon's own environment is passed on, so that a
job sees the same in a terminal, in a unit and after a restart, and never our notify socket or secrets.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from scheduler.clock import rfc3339
from scheduler.errors import SpawnFailed
from scheduler.executors.accounts import Account
from scheduler.executors.env_file import read_env_file
from scheduler.executors.surroundings import Surroundings
from scheduler.model.runs import Grant

_AS_JSON: Final = json.JSONEncoder(ensure_ascii=False).encode

LARGEST_STRING: Final = 32 * 4096 - 1
"""Bytes of one argument or `KEY=VALUE` that the kernel takes (MAX_ARG_STRLEN, without the closing NUL)."""


def build_environment(
    grant: Grant, around: Surroundings, *, cwd: str, progress_fd: int, account: Account | None = None
) -> dict[str, str]:
    """All variables of one attempt; values read from the `env_file` were told to `around.mask`.

    Args:
        account: the user that the job names; None: the daemon's own.
        cwd: what a relative `env_file` starts from.
        progress_fd: the number that the progress pipe has in the child.

    Raises:
        SpawnFailed: the `env_file` is unreadable or malformed, or a variable is more than a kernel takes.
    """
    definition = grant.definition
    account = account or around.account
    environment = _base(around.path, account, zone_of(grant, around))
    environment.update(definition.env)
    if definition.env_file is not None:
        path = os.path.join(cwd, definition.env_file)  # noqa: PTH118 - text stays as written
        secrets = read_env_file(path, account)
        around.mask([value for value in secrets.values() if value])
        environment.update(secrets)
    environment.update(_about_the_run(grant, around))
    environment["SCHEDULER_PROGRESS_FD"] = str(progress_fd)
    _refuse_oversize(environment)
    return environment


def zone_of(grant: Grant, around: Surroundings) -> str:
    """The name of the time zone that the job thinks in."""
    return grant.definition.timezone or around.timezone


def args_of(grant: Grant) -> str:
    """The arguments of this run as JSON text: those of the start by hand, else the job's."""
    if grant.run.args is not None:
        return grant.run.args
    args = grant.definition.args
    return _AS_JSON(dict(args)) if args else "{}"


def idempotency_key(grant: Grant) -> str:
    """The same over attempts and restarts, so that a paid call made twice is charged once."""
    return grant.run.id if grant.item is None else f"{grant.run.id}:{grant.item.key}"


def _base(path: str, account: Account, zone: str) -> dict[str, str]:
    return {
        "PATH": path,
        "HOME": account.home,
        "USER": account.name,
        "LOGNAME": account.name,
        "SHELL": account.shell,
        "LANG": "C.UTF-8",
        "TZ": zone,
    }


def _about_the_run(grant: Grant, around: Surroundings) -> dict[str, str]:
    run = grant.run
    return {
        "SCHEDULER_JOB": run.job,
        "SCHEDULER_RUN_ID": run.id,
        "SCHEDULER_ATTEMPT": str(run.attempt),
        "SCHEDULER_FIRE_TIME": _fire_time(grant, around),
        "SCHEDULER_TRIGGER": run.trigger.value,
        "SCHEDULER_ARGS": args_of(grant),
        "SCHEDULER_SOCKET": around.socket_path,
        "SCHEDULER_STORE_ID": around.store_id,
        "SCHEDULER_CLAIM": str(run.claim),
        "SCHEDULER_IDEMPOTENCY_KEY": idempotency_key(grant),
        **_about_the_item(grant),
    }


def _about_the_item(grant: Grant) -> dict[str, str]:
    if grant.item is None:
        return {}
    return {"SCHEDULER_ITEM": grant.item.payload, "SCHEDULER_ITEM_KEY": grant.item.key}


def _fire_time(grant: Grant, around: Surroundings) -> str:
    """The slot with the offset of the job's zone; empty for a start by hand."""
    name = zone_of(grant, around)
    try:
        zone = ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise SpawnFailed(f"timezone {name} is not known on this machine; install tzdata") from error
    return rfc3339(grant.run.fire_time, zone) or ""


def _refuse_oversize(environment: Mapping[str, str]) -> None:
    for name, value in environment.items():
        if 4 * (len(name) + 1 + len(value)) <= LARGEST_STRING:  # UTF-8 takes four bytes at most
            continue
        size = len(encode(name)) + 1 + len(encode(value))
        if size > LARGEST_STRING:
            raise SpawnFailed(
                f"variable {name} has {size} bytes, the kernel takes {LARGEST_STRING}; "
                "pass it by file or stdin"
            )


def encode(text: str) -> bytes:
    """The text as UTF-8, whatever the daemon's own locale; bytes that came in undecoded go out unchanged."""
    return text.encode("utf-8", "surrogateescape")
