"""What may lie in a state directory: plain files of our own, in a directory that nobody else writes.

The store and the output of jobs hold what was done and what was printed; a link in their place would let its
author read it elsewhere, or have us overwrite a file of his choice. Looked at once, under the lock's
directory, before anything in it is opened: from then on only our own user could change it.
"""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Final

from scheduler.errors import StoreRefused
from scheduler.trust import foreign_hands

FILES: Final = (
    "schedulerd.lock",
    "schedulerd.db",
    "schedulerd.db-wal",
    "schedulerd.db-shm",
    "schedulerd.db-open",
    "schedulerd.db.restoring",
)
FOLDERS: Final = ("output",)


def check_state(state: Path) -> None:
    """The directory is ours alone, and none of the names that we open in it is a link.

    Raises:
        StoreRefused: it is not so; it says what to do.
        OSError: it cannot be looked at.
    """
    why = foreign_hands(state, state.stat())
    if why is not None:
        raise StoreRefused(f"the state directory {why}", hint="or name another one with --state")
    for name in FILES:
        _check_file(state / name)
    for name in FOLDERS:
        _check_folder(state / name)


def _check_file(path: Path) -> None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if stat.S_ISLNK(found.st_mode):
        raise _refused(path, "is a symbolic link: put the file itself there, or move the link away")
    if not stat.S_ISREG(found.st_mode):
        raise _refused(path, "is not a file: move away what stands there")
    if found.st_nlink > 1:
        raise _refused(path, f"has {found.st_nlink} names (hard links): remove the others, or copy the file")
    why = foreign_hands(path, found)
    if why is not None:
        raise _refused(path, why)


def _check_folder(path: Path) -> None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(found.st_mode):
        kind = "a symbolic link" if stat.S_ISLNK(found.st_mode) else "not a directory"
        raise _refused(path, f"is {kind}: move it away; to keep output elsewhere, mount or bind it there")
    why = foreign_hands(path, found)
    if why is not None:
        raise _refused(path, why)


def _refused(path: Path, why: str) -> StoreRefused:
    return StoreRefused(f"{path} {why}")
