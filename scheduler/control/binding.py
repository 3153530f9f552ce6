"""The socket in the file system: bound so that nobody unwanted can ever connect, and taken away again.

The mode is set on the descriptor before it is bound (Linux takes it over to the file, less the umask) and
again on the file, so at no moment is there a socket with a wider mode, and before `listen`, which comes
last, nobody can connect at all. A lock on the directory keeps two starting daemons from taking one
another's fresh socket for a stale one.

Source: unix(7), unix_bind() in Linux net/unix/af_unix.c.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scheduler.config.paths import checked_socket
from scheduler.errors import AlreadyServed, ConfigError
from scheduler.trust import foreign_hands

SOCKET_MODE: Final = 0o660
DIRECTORY_MODE: Final = 0o750

_KNOCK_TIMEOUT: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A socket that listens, so that clients queue; nobody accepts yet.

    Attributes:
        socket: closed by its holder.
        path: where it is in the file system.
        inode: device and inode of that file; None: somebody else made it, and takes it away.
    """

    socket: socket.socket
    path: Path
    inode: tuple[int, int] | None

    def remove(self) -> None:
        """The file is gone, if it is still the one that was made here."""
        if self.inode is None:
            return
        with contextlib.suppress(FileNotFoundError):
            if _inode(self.path) == self.inode:
                self.path.unlink()


def bind(path: Path, group: int | None = None) -> Bound:
    """A socket of mode 0660 is bound at `path`, in a directory that is ours.

    Args:
        group: whose members may connect; None: the group that this process creates files with.

    Raises:
        ConfigError: the path is too long, something else is in its place, or the directory is not safe.
        AlreadyServed: somebody listens there.
    """
    checked_socket(path)
    _make_directory(path.parent)
    with _alone_in(path.parent, path):
        _clear(path)
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            os.fchmod(bound.fileno(), SOCKET_MODE)
            bound.bind(os.fspath(path))
            path.chmod(SOCKET_MODE)
            if group is not None:
                _open_to(group, path)
            bound.setblocking(False)
            bound.listen()  # within the lock: from here on whoever knocks finds somebody
        except OSError as error:
            bound.close()
            raise _refused(path, f"it cannot be bound ({error.strerror})") from error
        return Bound(socket=bound, path=path, inode=_inode(path))


def refuse_served(path: Path) -> None:
    """Nobody listens at `path`: worth a look before anything is begun; `bind` decides.

    Raises:
        AlreadyServed: somebody listens there.
    """
    with contextlib.suppress(OSError):  # whatever else is wrong with the place, `bind` tells it
        if stat.S_ISSOCK(path.lstat().st_mode) and _is_served(path):
            raise _served(path)


def adopt(fd: int) -> Bound:
    """The listening Unix socket that the service manager opened; its file stays the service manager's.

    Raises:
        ConfigError: the descriptor is something else.
    """
    try:
        given = socket.socket(fileno=fd)
        listens = given.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        raise ConfigError(
            f"descriptor {fd} of the service manager is no socket ({error.strerror})"
        ) from error
    if given.family != socket.AF_UNIX or given.type != socket.SOCK_STREAM or not listens:
        given.detach()
        raise ConfigError(
            f"descriptor {fd} of the service manager is no listening Unix stream socket",
            hint="write ListenStream=PATH in the socket unit",
        )
    name = given.getsockname()
    if not isinstance(name, str) or not name.startswith("/"):
        given.detach()
        raise ConfigError(
            f"descriptor {fd} of the service manager is an abstract socket, which everybody may open",
            hint="write a path in ListenStream= of the socket unit",
        )
    given.setblocking(False)
    return Bound(socket=given, path=Path(name), inode=None)


def _make_directory(directory: Path) -> None:
    """The directory is there, ours, and nobody else can put something in it."""
    try:
        for missing in reversed([place for place in (directory, *directory.parents) if not place.exists()]):
            with contextlib.suppress(FileExistsError):
                missing.mkdir(DIRECTORY_MODE)
                missing.chmod(DIRECTORY_MODE)
        found = directory.stat()
    except OSError as error:
        raise _refused(directory, f"the directory cannot be made or looked at ({error.strerror})") from error
    if not stat.S_ISDIR(found.st_mode):
        raise _refused(directory, "it is no directory")
    if found.st_uid not in (0, os.geteuid()):
        raise _refused(directory, f"it belongs to user {found.st_uid}, who could put another socket there")
    if found.st_mode & stat.S_IWOTH:
        raise _refused(directory, "everybody may write there, and put another socket in place of ours")
    why = foreign_hands(directory, found)
    if why is not None:
        raise _refused(directory, f"it {why}, for others could put another socket in place of ours")


@contextlib.contextmanager
def _alone_in(directory: Path, path: Path) -> Iterator[None]:
    """No other starting daemon looks at this directory meanwhile."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyServed(
                f"another daemon is starting on {path}",
                hint="one daemon per socket: choose another with --socket",
            ) from None
        yield
    finally:
        os.close(fd)


def _clear(path: Path) -> None:
    """Nothing is at `path`; a socket that nobody listened on was removed.

    Raises:
        ConfigError: something else is there, also a symbolic link: where it points to may be anybody's.
        AlreadyServed: somebody listens there.
    """
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        kind = "a symbolic link" if stat.S_ISLNK(found.st_mode) else "no socket"
        raise _refused(path, f"{kind} is in its place: move it away")
    if _is_served(path):
        raise _served(path)
    path.unlink()


def _is_served(path: Path) -> bool:
    """Somebody answers there; in doubt somebody does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as visitor:
        visitor.settimeout(_KNOCK_TIMEOUT)
        reason = visitor.connect_ex(os.fspath(path))
    return reason not in (errno.ECONNREFUSED, errno.ENOENT)


def _served(path: Path) -> AlreadyServed:
    return AlreadyServed(
        f"a daemon listens on {path} already", hint="stop it, or choose another socket with --socket"
    )


def _open_to(group: int, path: Path) -> None:
    """The group may connect: the socket is its own, and so is the directory, if it is ours to give."""
    os.chown(path, -1, group)
    directory = path.parent
    if directory.stat().st_uid == os.geteuid() and directory.stat().st_mode & stat.S_IXGRP:
        os.chown(directory, -1, group)


def _inode(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_dev, found.st_ino


def _refused(place: Path, why: str) -> ConfigError:
    return ConfigError(
        f"control socket: {place}: {why}",
        hint="choose another place with --socket, SCHEDULER_SOCKET or listen.socket",
    )
