"""A daemon whose answers are lost: what it was asked for it has done, and nobody learns of it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def losing_answers(place: Path, behind: Path, *, times: int) -> Iterator[list[bytes]]:
    """A socket in front of a daemon's; the first `times` answers are lost behind it. Requests are kept."""
    requests: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(place))
        listening.listen()

        def serve() -> None:
            for number in range(times + 1):
                accepted, _ = listening.accept()
                with accepted, socket.socket(socket.AF_UNIX) as onward:
                    onward.connect(str(behind))
                    requests.append(accepted.recv(65_536))
                    onward.sendall(requests[-1])
                    answer = onward.makefile("rb").read()
                    if number >= times:
                        accepted.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield requests
        thread.join(30)
