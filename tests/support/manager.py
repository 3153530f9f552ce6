"""What a service manager holds at its end of NOTIFY_SOCKET: the words that a daemon sent, in their order."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_END: Final = "the test has heard enough"


class ServiceManager:
    """A socket of the abstract kind, read as words come: a kernel may hold no more than ten of them."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._words: list[str] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + address[1:])
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def told(self) -> list[str]:
        """Every assignment so far; those of a process that has ended are all among them."""
        self._end()
        return self._words

    def _listen(self) -> None:
        while (words := self._socket.recv(4096).decode()) != _END:
            self._words += words.splitlines()

    def _end(self) -> None:
        if self._thread.is_alive():
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:
                own.sendto(_END.encode(), "\0" + self.address[1:])
            self._thread.join()

    def close(self) -> None:
        """Nobody listens any more."""
        self._end()
        self._socket.close()


@contextmanager
def service_manager() -> Iterator[ServiceManager]:
    """A manager that listens."""
    manager = ServiceManager(f"@schedulerd-manager-{os.getpid()}-{os.urandom(4).hex()}")
    try:
        yield manager
    finally:
        manager.close()
