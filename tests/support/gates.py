"""Gates: a store's thread is held at a chosen point inside its transaction, until the test lets it go on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from typing import Final

from scheduler.clock import Micros
from scheduler.rules.reconcile import Decision, LiveRows, Verdict, reconcile
from scheduler.store.finishing import Decide
from scheduler.store.schema import load_queries

_REAL_SECONDS: Final = 20.0


class Gate:
    """Closed until `open`; a thread that came to it waits there. Used once."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._opened = threading.Event()

    def pass_through(self) -> None:
        """In the thread that is held: returns once the gate is open."""
        self._reached.set()
        assert self._opened.wait(_REAL_SECONDS), "nobody opened the gate"

    async def reached(self) -> None:
        """A thread waits at the gate."""
        assert await asyncio.to_thread(self._reached.wait, _REAL_SECONDS), "nobody came to the gate"

    def open(self) -> None:
        """Whoever waits, or comes later, goes on."""
        self._opened.set()


def held_decide(gate: Gate, decide: Decide = reconcile) -> Decide:
    """A FINISH that stops at `gate` between what it read and what it writes."""

    def decide_late(verdict: Verdict, live: LiveRows, now: Micros) -> Decision:
        gate.pass_through()
        return decide(verdict, live, now)

    return decide_late


class HeldQueries(Mapping[str, str]):
    """Named queries of which one stops at `gate` whenever it is about to be executed."""

    def __init__(self, gate: Gate, name: str, queries: Mapping[str, str] | None = None) -> None:
        self._queries = load_queries() if queries is None else queries
        self._gate = gate
        self._name = name
        assert name in self._queries

    def __getitem__(self, name: str) -> str:
        if name == self._name:
            self._gate.pass_through()
        return self._queries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._queries)

    def __len__(self) -> int:
        return len(self._queries)
