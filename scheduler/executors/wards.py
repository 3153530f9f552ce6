"""What is to be ended with the daemon, and who sees to it, as executions need to know it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from scheduler.executors.processes import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Ward:
    """One attempt's processes, as the warden knows them."""

    session: Session
    run_id: str
    claim: int

    def told(self, sign: str) -> bytes:
        """The line for the warden: `+` for a ward that begins, `-` for one that has ended."""
        return f"{sign} {self.session.leader} {self.session.ticks} {self.run_id} {self.claim}\n".encode()


class Guard(Protocol):
    """Ends the processes of attempts should the daemon die."""

    def watch(self, ward: Ward) -> None:
        """The ward is ended with the daemon, however that ends."""
        ...

    def forget(self, ward: Ward) -> None:
        """What is left of the ward is left alone."""
        ...


class Unguarded:
    """No warden: what is left over is ended by the next start. Fulfils `Guard`."""

    def watch(self, ward: Ward) -> None:
        """Nothing more is done for the ward."""

    def forget(self, ward: Ward) -> None:
        """Nothing was done for it."""
