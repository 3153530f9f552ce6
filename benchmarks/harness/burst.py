"""Ten thousand jobs at one instant: when the last starts, when all is stored, and who waits meanwhile."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from benchmarks.harness.contender import Contender, Found, Load
from benchmarks.harness.daemon import Daemon
from benchmarks.harness.figures import middle, ratio, share_below
from benchmarks.harness.ours import Schedulerd
from benchmarks.harness.processes import sleep_until
from benchmarks.harness.section import Section, attempt
from benchmarks.harness.table import Verdict, at_most, milliseconds, number, table, times

ASK_EVERY = 0.02
ASKERS = 16
ASKED = b"GET /v1/jobs/j0 HTTP/1.1\r\nHost: localhost\r\n\r\n"


@dataclass(slots=True, kw_only=True)
class Entry:
    """A contender of this section, and what it has shown so far."""

    key: str
    contender: Contender
    jobs: int = 10_000
    repetitions: int = 1
    found: list[Found] = field(default_factory=list)
    failure: str = ""

    def of(self, figure: str) -> float:
        """The median of that figure."""
        return middle(value for one in self.found if (value := getattr(one, figure)) is not None)


@dataclass(slots=True)
class Asking:
    """Seconds from when a control request was to be sent to its answer.

    One is sent every 20 ms, whether those before it were answered or not: each of 16 clients has a
    connection of its own, and every sixteenth moment.
    """

    waits: list[float] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def beside(self, daemon: Daemon, due: float) -> Iterator[None]:
        """Requests are sent from a little before the due instant to the end of the block."""
        path = str(daemon.place.socket)
        threads = [
            threading.Thread(target=self._ask, args=(path, due - 0.05 + place * ASK_EVERY), daemon=True)
            for place in range(ASKERS)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.over.set()
            for thread in threads:
                thread.join(10)

    def _ask(self, path: str, moment: float) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(path)
            connection.settimeout(30)
            _exchange(connection)
            while not self.over.is_set():
                sleep_until(moment)
                _exchange(connection)
                # One that had to wait for the answer before it has waited, too.
                self.waits.append(time.time() - moment)
                moment += ASKERS * ASK_EVERY


def _exchange(connection: socket.socket) -> None:
    connection.sendall(ASKED)
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += _received(connection)
    head, _, body = answer.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
    while len(body) < length:
        body += _received(connection)


def _received(connection: socket.socket) -> bytes:
    if not (piece := connection.recv(65536)):
        raise ConnectionError("the daemon closed the connection")
    return piece


def measure(entries: Sequence[Entry], ours: Schedulerd, *, asked: int, asking: Asking) -> None:
    """Each entry has been measured, the contenders in turn; then requests are sent beside our own bursts."""
    for repetition in range(max(entry.repetitions for entry in entries)):
        for entry in entries:
            if repetition < entry.repetitions and not entry.failure:
                load = Load(kind="burst", jobs=entry.jobs, folder="")
                what = f"burst, {entry.contender.name}: {entry.jobs:,} at once"
                one = attempt(what, partial(entry.contender.put, load))
                if isinstance(one, str):
                    entry.failure = one
                else:
                    entry.found.append(one)
    load = Load(kind="burst", jobs=entries[0].jobs, folder="")
    for _ in range(asked):
        one_more = Asking()
        attempt("burst, schedulerd, with requests", partial(ours.burst, load, one_more.beside))
        asking.waits += one_more.waits


def section(entries: Sequence[Entry], asking: Asking) -> Section:
    """The table of bursts, and the targets."""
    by_key = {entry.key: entry for entry in entries}
    head = [
        "",
        "jobs",
        "last start after, s",
        "all stored after, s",
        "longest stall of the loop, ms",
        "µs of CPU per job",
    ]
    text = table(head, [_row(entry) for entry in entries])
    waits = asking.waits
    text += (
        f"\n\nControl requests (`GET /v1/jobs/ID`, one every 20 ms, {number(len(waits))} in all) during a"
        f" burst of schedulerd: p50 {milliseconds(share_below(waits, 0.5))} ms, p99"
        f" {milliseconds(share_below(waits, 0.99))} ms, longest {milliseconds(max(waits, default=None))} ms."
        " They were sent in repetitions of their own. The daemon's own metric, which looks four times a"
        f" second, has its loop late by at most {milliseconds(by_key['ours'].of('lag'))} ms."
    )
    return Section(title="A burst", text=text, verdicts=tuple(_verdicts(by_key, waits)))


def _row(entry: Entry) -> list[str]:
    name = entry.contender.name
    if not entry.found:
        return [name, number(entry.jobs), f"not measured: {entry.failure}", "", "", ""]
    stored = "nothing is" if entry.key == "aps3-memory" else number(entry.of("all_stored"), 2)
    cpu = middle(one.cpu for one in entry.found) / entry.jobs * 1e6
    stall = "no loop" if all(one.stall is None for one in entry.found) else milliseconds(entry.of("stall"))
    return [name, number(entry.jobs), number(entry.of("last_start"), 2), stored, stall, number(cpu)]


def _verdicts(entries: Mapping[str, Entry], waits: Sequence[float]) -> Iterator[Verdict]:
    ours, memory = entries["ours"], entries["aps3-memory"]
    last = ours.of("last_start")
    start, stored = ratio(last, memory.of("last_start")), ratio(ours.of("all_stored"), last)
    stall = ours.of("stall")
    share = ratio(stall, memory.of("stall"))
    wait = share_below(waits, 0.99)
    yield at_most("2. burst: last start ≤ 2 × APScheduler 3 in memory", start, 2, times(start))
    yield at_most("2. burst: all outcomes stored ≤ 1.3 × last start", stored, 1.3, times(stored))
    yield at_most("2. burst: loop never held longer than 30 ms", stall, 0.030, f"{milliseconds(stall)} ms")
    yield at_most("2. burst: stall ≤ 1/10 of APScheduler 3 in memory", share, 0.1, times(share))
    yield at_most("2. burst: control requests p99 < 50 ms", wait, 0.050, f"{milliseconds(wait)} ms")
