"""schedctl called beside a real daemon that a test starts, kills and starts again."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.cli.support.client import Called, call, command
from tests.support.daemon import Daemon


def environ_of(daemon: Daemon, **more: str) -> dict[str, str]:
    """The environment of a schedctl that finds this daemon, and no other store than its own."""
    nowhere = str(daemon.folder / "nowhere")
    return {
        **{key: value for key, value in os.environ.items() if key != "SCHEDULER_STATE"},
        "SCHEDULER_SOCKET": str(daemon.socket),
        "XDG_STATE_HOME": nowhere,
        "TZ": "UTC",
        **more,
    }


def schedctl(daemon: Daemon, *arguments: str) -> Called:
    """One call, against the daemon or, where it is down, its store."""
    return call(*arguments, env=environ_of(daemon, SCHEDULER_STATE=str(daemon.state)))


def begun(daemon: Daemon, *arguments: str) -> subprocess.Popen[str]:
    """A call that goes on while the test does something."""
    return subprocess.Popen(
        command(*arguments),
        env=environ_of(daemon),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def rest_of(called: subprocess.Popen[str]) -> tuple[str, str]:
    """What the call still prints until it ends; `communicate` would lose what `readline` has read ahead."""
    assert called.stdout is not None
    assert called.stderr is not None
    with called:
        rest, errors = called.stdout.read(), called.stderr.read()
        called.wait(timeout=30)
    return rest, errors


def listing(folder: Path) -> dict[str, tuple[int, int, int]]:
    """What lies in the folder: inode, size and time of every entry."""
    found = [path.lstat() for path in sorted(folder.iterdir())]
    names = sorted(path.name for path in folder.iterdir())
    return {
        name: (stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in zip(names, found, strict=True)
    }
