"""One daemon per state directory: the lock that proves that every other owner of a claim is dead.

The kernel lets go of it when its holder dies, however it dies, so it never wedges and needs no clean-up
(flock(2)). On SQLite this is what lets recovery at start release claims at once instead of waiting for
leases.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

from scheduler.errors import AlreadyServed, StoreRefused
from scheduler.store.statefiles import check_state

_NAME: Final = "schedulerd.lock"


class StateLock:
    """A held lock on a state directory."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def take(cls, state: Path) -> StateLock:
        """The lock of this directory is ours; the directory is made, private, where it is missing.

        Raises:
            AlreadyServed: another daemon holds it.
            StoreRefused: the directory cannot be made or written, or is not ours alone to write.
        """
        try:
            state.mkdir(mode=0o700, parents=True, exist_ok=True)
            check_state(state)
            descriptor = os.open(state / _NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise StoreRefused(
                f"the state directory {state} cannot be used: {error.strerror}",
                hint="check its owner and mode, or name another one with --state",
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(descriptor)
            raise AlreadyServed(
                f"another schedulerd (pid {holder}) serves the state directory {state}",
                hint="stop it first, or give this one a directory of its own with --state",
            ) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
        return cls(descriptor)

    def release(self) -> None:
        """Another daemon may serve the directory."""
        os.close(self._descriptor)
