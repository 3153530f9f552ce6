"""Whose hands a file is in: nobody but root and this process's own user may be able to change it.

A job file says what is run, the state directory says what was run: whoever can write them has the rights of
the daemon. Write access of a group is fine where the group is the owner's private one (same name, no further
member: the default of most systems, with umask 002), and refused otherwise. Access control lists count as
far as the mode shows them. Here the rules are judged; what follows from that is the caller's business.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path


def foreign_hands(path: Path, found: os.stat_result, *, as_name: bool = False) -> str | None:
    """Why others could change what is at `path`, and the command that ends it; None: they cannot.

    Args:
        found: of the open file, or of the directory.
        as_name: of a directory only the names matter that are in it already: the sticky bit protects them.
    """
    own = os.geteuid()
    if found.st_uid not in (0, own):
        owner = f"belongs to user {found.st_uid}, who may change it"
        return f"{owner}: it has to be root's or the daemon's own (chown {own} {path})"
    if as_name and stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX:
        return None
    if found.st_mode & stat.S_IWOTH:
        return f"may be written by everybody: chmod o-w {path}"
    if found.st_mode & stat.S_IWGRP and not _is_private(found.st_gid, found.st_uid):
        return f"may be written by group {_group_name(found.st_gid)}: chmod g-w {path}"
    return None


def is_roots_alone(path: Path) -> bool:
    """No user but root can change what `path` is: no link is in it, and each part of it is root's to write.

    Raises:
        OSError: it cannot be looked at.
    """
    if Path(os.path.realpath(path)) != path:
        return False
    for place in (path, *path.parents):
        found = place.stat()
        if found.st_uid != 0 or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return False
    return True


def _is_private(gid: int, uid: int) -> bool:
    """The group has its owner's name and no other member."""
    try:
        user = pwd.getpwuid(uid)
        group = grp.getgrgid(gid)
    except KeyError:  # a number without a name, as in containers
        return gid == uid
    return user.pw_gid == gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
