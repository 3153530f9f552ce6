"""Who is connected, and who has to go when there is no room or no time left."""

from __future__ import annotations

import asyncio
from typing import Protocol

from scheduler.clock import Micros, seconds


class Client(Protocol):
    """A connection as the roster needs it."""

    @property
    def is_stalled(self) -> bool:
        """It does not take what was written to it."""
        ...

    def shutdown(self) -> None:
        """It ends once the answer that is owed is given."""
        ...

    def cut(self) -> None:
        """It ends now."""
        ...


class Roster:
    """Every open connection; the quiet ones (no whole request waits for an answer) longest quiet first."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._all: set[Client] = set()
        self._quiet: dict[Client, None] = {}
        self._empty = asyncio.Event()
        self._empty.set()

    def opened(self, client: Client) -> bool:
        """The client has a place, for which another one may have had to go; False: all are at work."""
        if len(self._all) >= self._room and not self._make_room():
            return False
        self._all.add(client)
        self._empty.clear()
        return True

    def closed(self, client: Client) -> None:
        """The client is gone."""
        self._quiet.pop(client, None)
        self._all.discard(client)
        if not self._all:
            self._empty.set()

    def became_quiet(self, client: Client) -> None:
        """The client has its answer, or has not asked yet."""
        self._quiet.pop(client, None)
        if client in self._all:
            self._quiet[client] = None

    def became_busy(self, client: Client) -> None:
        """The client has asked."""
        self._quiet.pop(client, None)

    async def dismiss(self, grace: Micros) -> None:
        """All are gone: the quiet ones at once, the others with their answer, or without it after `grace`."""
        for client in list(self._all):
            client.shutdown()
        try:
            async with asyncio.timeout(seconds(grace)):
                await self._empty.wait()
        except TimeoutError:
            for client in list(self._all):
                client.cut()
            await self._empty.wait()

    def _make_room(self) -> bool:
        stalled = (client for client in self._all if client.is_stalled)
        leaving = next(iter(self._quiet), None) or next(stalled, None)
        if leaving is None:
            return False
        # It stays on the list of those that a stop waits for no longer: `cut` takes effect in the loop.
        self.closed(leaving)
        leaving.cut()
        return True
