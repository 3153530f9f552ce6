"""The users that attempts run as: the daemon's own, or the one that a job names (`user = "export"`).

A daemon of root can become anyone. What it looks up on the way for such a job (the directory to start in, the
program, the list of items) it looks up with that user's rights, and the kernel says what they are: this one
thread takes on the user's identity for file access. So no job reaches a file through the daemon that its
user could not reach himself.

Source: credentials(7), setfsuid(2), initgroups(3).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import pwd
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from scheduler.errors import SpawnFailed

# The numbers of setgroups: the C library's own function changes all threads, the system call this one alone.
_SETGROUPS: Final = {
    "x86_64": 116,
    "aarch64": 159,
    "riscv64": 159,
    "loongarch64": 159,
    "ppc64le": 81,
    "s390x": 206,
}
_NOBODY: Final = 2**32 - 1
"""No user has this number: setfsuid(2) changes nothing then, and tells what is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What the kernel knows of a user: ids, and the groups that initgroups(3) would give."""

    uid: int
    gid: int
    groups: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The user that attempts run as.

    Attributes:
        identity: to be taken on before the start; None: the daemon's own user, as it is.
    """

    name: str
    home: str
    shell: str = "/bin/sh"
    identity: Identity | None = None

    @property
    def who(self) -> str:
        """The user in a message."""
        return "the daemon's user" if self.identity is None else f"user {self.name}"


def own_account() -> Account:
    """The daemon's own user, from the password database; a uid without an entry lives in `/`."""
    try:
        entry = pwd.getpwuid(os.geteuid())
    except KeyError:
        return Account(name=str(os.geteuid()), home="/")
    return Account(name=entry.pw_name, home=entry.pw_dir or "/")


def account_of(name: str) -> Account:
    """The user of that name, as the machine knows it now.

    Raises:
        SpawnFailed: there is none, or this process cannot become another user.
    """
    if os.geteuid() != 0:
        raise SpawnFailed(f"user {name}: only a daemon that runs as root can start a job as another user")
    try:
        entry = pwd.getpwnam(name)
        groups = os.getgrouplist(name, entry.pw_gid)
    except (KeyError, ValueError, OSError) as error:
        raise SpawnFailed(f"there is no user {name} on this machine any more") from error
    return Account(
        name=name,
        home=entry.pw_dir or "/",
        shell=entry.pw_shell or "/bin/sh",
        identity=Identity(uid=entry.pw_uid, gid=entry.pw_gid, groups=tuple(groups)),
    )


@contextlib.contextmanager
def looking_as(identity: Identity | None) -> Iterator[None]:
    """Files are looked up and opened with the rights of that user, by this thread, until the block ends.

    For threads other than the loop's; nothing is to be made or started in the block. None: no change.

    Raises:
        SpawnFailed: the machine does not allow it, or cannot do it.
    """
    if identity is None:
        yield
        return
    own = Identity(uid=os.geteuid(), gid=os.getegid(), groups=tuple(os.getgroups()))
    try:
        _become(identity)
        yield
    finally:
        _become(own)


def enter(cwd: str, identity: Identity | None, who: str, stack: contextlib.ExitStack) -> str:
    """How to get to the directory: for another user the very one that he was let into.

    The process changes its directory before it becomes that user, so a name could lead it elsewhere by then.

    Args:
        stack: until it is closed the answer is good.

    Raises:
        SpawnFailed: he may not enter it.
    """
    if identity is None:
        return cwd
    with looking_as(identity):
        try:
            place = os.open(cwd, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, place)
            os.close(os.open(".", os.O_PATH | os.O_CLOEXEC, dir_fd=place))  # to be let in, not only to see it
        except OSError as error:
            raise SpawnFailed(
                f"cwd {cwd} may not be entered by {who}: choose one that it may enter"
            ) from error
    return f"/proc/self/fd/{place}"


def _become(identity: Identity) -> None:
    """This thread's file access is that of the user; root's rights to files go and come with the uid."""
    libc = ctypes.CDLL(None, use_errno=True)
    number = _SETGROUPS.get(platform.machine())
    if number is None:
        raise SpawnFailed(f"user is not supported on this kind of machine ({platform.machine()})")
    groups = (ctypes.c_uint32 * len(identity.groups))(*identity.groups)
    if libc.syscall(ctypes.c_long(number), ctypes.c_size_t(len(groups)), groups) != 0:
        raise SpawnFailed(f"the groups of a user cannot be taken on: {os.strerror(ctypes.get_errno())}")
    for take, wanted in ((libc.setfsgid, identity.gid), (libc.setfsuid, identity.uid)):
        take.argtypes, take.restype = (ctypes.c_uint32,), ctypes.c_uint32
        take(wanted)
        if take(_NOBODY) != wanted:
            raise SpawnFailed(f"user {identity.uid} cannot be taken on: is the daemon really root?")
