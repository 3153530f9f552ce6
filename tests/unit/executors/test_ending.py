from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from scheduler.clock import SECOND, Alarm, Micros
from scheduler.executors import ending
from scheduler.executors.ending import end_processes
from scheduler.executors.processes import ProcessId
from scheduler.executors.threads import NoThread


class Stepping:
    """Monotonic time that moves only by sleeping."""

    def __init__(self) -> None:
        self.time = 0

    def now(self) -> Micros:
        return self.time

    def monotonic(self) -> Micros:
        return self.time

    async def sleep(self, duration: Micros) -> None:
        self.time += max(duration, 1000)

    def call_later(self, duration: Micros, call: Callable[[], object]) -> Alarm:
        raise AssertionError("ending sets no alarm")


class World:
    """Processes that end as a case wants; remembers the signals and when they came."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *pids: int) -> None:
        self.clock = Stepping()
        self.alive = [ProcessId(ticks=pid, pid=pid) for pid in pids]
        self.signals: list[tuple[int, str, Micros]] = []
        self.looks = 0
        self.immortal: set[int] = set()
        self.deaf: set[int] = set()
        monkeypatch.setattr(ending, "send_signal", self._signal)

    def find(self) -> list[ProcessId]:
        self.looks += 1
        return sorted(self.alive)

    def _signal(self, process: ProcessId, number: signal.Signals) -> None:
        self.signals.append((process.pid, number.name, self.clock.time))
        killed = number is signal.SIGKILL and process.pid not in self.immortal
        if killed or (number is signal.SIGCONT and process.pid not in self.deaf | self.immortal):
            self.alive.remove(process)


async def test_nobody_is_looked_for_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """One empty look proves nothing, because a fork may hide from it; two in a row do (I11)."""
    world = World(monkeypatch)

    assert await end_processes(world.find, clock=world.clock, grace=SECOND)
    assert world.looks == 2


async def test_who_appears_after_an_empty_look_is_ended_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The count of empty looks begins anew whenever somebody is found."""
    world = World(monkeypatch)
    hidden = [[], [ProcessId(ticks=9, pid=9)], [], [], []]

    def find() -> list[ProcessId]:
        world.looks += 1
        world.alive = list(hidden[world.looks - 1])
        return sorted(world.alive)

    assert await end_processes(find, clock=world.clock, grace=SECOND)
    assert world.looks == 4
    assert [name for _, name, _ in world.signals] == ["SIGTERM", "SIGCONT"]


async def test_term_comes_once_then_cont_then_kill_after_the_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who ignores SIGTERM is asked once, waked once, and killed when its grace is over, not before."""
    world = World(monkeypatch, 7)
    world.deaf = {7}

    assert await end_processes(world.find, clock=world.clock, grace=SECOND)

    assert [name for _, name, _ in world.signals] == ["SIGTERM", "SIGCONT", "SIGKILL"]
    assert SECOND <= world.signals[-1][2] < SECOND + SECOND // 5


async def test_parents_are_asked_before_their_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest comes first, so that no shell goes on to its next command because a child ended."""
    world = World(monkeypatch, 30, 10, 20)

    await end_processes(world.find, clock=world.clock, grace=SECOND)

    assert [pid for pid, name, _ in world.signals if name == "SIGTERM"] == [10, 20, 30]


async def test_who_cannot_be_killed_is_told_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """False comes within the grace and two seconds more."""
    world = World(monkeypatch, 7)
    world.immortal = {7}

    assert not await end_processes(world.find, clock=world.clock, grace=SECOND)
    assert 3 * SECOND <= world.clock.time < 3 * SECOND + SECOND // 5


async def test_grace_of_nothing_kills_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a grace the first signal is SIGKILL."""
    world = World(monkeypatch, 7)

    assert await end_processes(world.find, clock=world.clock, grace=0)
    assert [name for _, name, _ in world.signals] == ["SIGKILL"]


async def test_look_that_fails_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no thread can be had to look, nobody is taken for gone."""

    async def refuse(*_arguments: object) -> int:
        raise NoThread("none")

    monkeypatch.setattr(ending, "off_loop", refuse)
    world = World(monkeypatch)

    assert not await end_processes(world.find, clock=world.clock, grace=0)
