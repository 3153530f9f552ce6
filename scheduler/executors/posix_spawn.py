"""Starting a process by the C library's posix_spawn: the loop goes on while the kernel looks for the program.

`subprocess` and `os.posix_spawn` hold the interpreter's lock until the new process has executed its program,
and the former closes one by one what we have open in between. The C library's own call, made without the
lock, does neither. It knows no umask: a thread that makes it has let go of the file-system context (umask,
working directory) that it shared with the others, unshare(2), and set its own umask for good.

Not everywhere: an old C library has no closefrom, musl neither, and a container may refuse unshare; another
user's identity cannot be taken on either. Then `subprocess` does it.

Source: posix_spawn(3), posix_spawn_file_actions_addclosefrom_np of glibc 2.34.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Mapping, Sequence
from typing import Final

_SETSIGDEF: Final = 0x04
_SETSID: Final = 0x80
_CLONE_FS: Final = 0x200
_ROOM: Final = 1024
"""Bytes for an opaque structure of the C library; none has more than 336 on any machine."""

_OURS: Final = (signal.SIGPIPE, signal.SIGXFSZ)
"""Ignored by Python, not to be ignored by what it starts."""

_NEEDED: Final = (
    "posix_spawn_file_actions_addclosefrom_np",
    "posix_spawn_file_actions_addchdir_np",
    "unshare",
)


class PosixSpawn:
    """The calls of the C library, and the attributes that all starts share.

    Raises:
        OSError: it has not all that is needed.
    """

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        for name in _NEEDED:
            if not hasattr(self._libc, name):
                raise OSError(f"the C library has no {name}")
        self._attributes = ctypes.create_string_buffer(_ROOM)
        signals = ctypes.create_string_buffer(_ROOM)
        _checked(self._libc.posix_spawnattr_init(self._attributes))
        _checked(self._libc.sigemptyset(signals))
        for number in _OURS:
            _checked(self._libc.sigaddset(signals, number))
        _checked(self._libc.posix_spawnattr_setsigdefault(self._attributes, signals))
        _checked(self._libc.posix_spawnattr_setflags(self._attributes, ctypes.c_short(_SETSIGDEF | _SETSID)))

    def part_thread(self, umask: int) -> bool:
        """This thread has a umask of its own, and it is that one; False: it cannot have one.

        The thread starts no other threads from now on, for they would share it.
        """
        if self._libc.unshare(_CLONE_FS) != 0:
            return False
        os.umask(umask)
        return True

    def start(
        self,
        program: bytes,
        argv: Sequence[bytes],
        environment: Sequence[bytes],
        *,
        cwd: bytes,
        handed: Mapping[int, int],
    ) -> int:
        """The process runs in a session of its own: its pid. Blocks.

        Args:
            environment: `KEY=VALUE` each.
            handed: number in the process -> descriptor here, above all of these numbers; nothing else is open
                in the process.

        Raises:
            OSError: it could not be started.
        """
        actions = ctypes.create_string_buffer(_ROOM)
        _checked(self._libc.posix_spawn_file_actions_init(actions))
        try:
            self._describe(actions, cwd, handed)
            pid = ctypes.c_int()
            _checked(
                self._libc.posix_spawn(
                    ctypes.byref(pid),
                    program,
                    actions,
                    self._attributes,
                    _strings(argv),
                    _strings(environment),
                )
            )
            return pid.value
        finally:
            self._libc.posix_spawn_file_actions_destroy(actions)

    def _describe(self, actions: ctypes.Array[ctypes.c_char], cwd: bytes, handed: Mapping[int, int]) -> None:
        """What is to be done between the start of the process and that of its program."""
        libc = self._libc
        last = max(handed)
        for number in range(last + 1):
            if number in handed:
                _checked(libc.posix_spawn_file_actions_adddup2(actions, handed[number], number))
            else:
                _checked(libc.posix_spawn_file_actions_addclose(actions, number))
        _checked(libc.posix_spawn_file_actions_addclosefrom_np(actions, last + 1))
        _checked(libc.posix_spawn_file_actions_addchdir_np(actions, cwd))


def _strings(words: Sequence[bytes]) -> ctypes.Array[ctypes.c_char_p]:
    """The words as C wants them, with a NULL at the end.

    Raises:
        ValueError: one has a NUL in it.
    """
    if any(b"\0" in word for word in words):
        raise ValueError("embedded null byte")
    return (ctypes.c_char_p * (len(words) + 1))(*words, None)


def _checked(code: int) -> None:
    """Raises the error that this code of the C library stands for; 0 is none."""
    if code != 0:
        raise OSError(code, os.strerror(code))
