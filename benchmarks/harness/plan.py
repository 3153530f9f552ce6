"""Who is measured how often, in the short form and in the full one.

To add a peer is to write its driver in `benchmarks/peers` and to name it here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import burst, precision, sustained
from benchmarks.harness.ours import Schedulerd
from benchmarks.harness.peer import Peer
from benchmarks.harness.scripts import SCRIPTS

NEXT_ONLY = "the next fire time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """Everybody who is measured beside us."""

    memory: Peer
    shipped: Peer
    wal: Peer
    later: Peer
    queue: Peer
    huey: Peer


def peers(root: Path) -> Peers:
    """Their drivers, which store on the disk of `root`."""
    return Peers(
        memory=Peer(
            name="APScheduler 3, memory", durable="nothing", driver="aps3", variant="memory", root=root
        ),
        shipped=Peer(
            name="APScheduler 3, SQLite as shipped",
            durable=NEXT_ONLY,
            driver="aps3",
            variant="sqlite",
            root=root,
        ),
        wal=Peer(
            name="APScheduler 3, SQLite in WAL, FULL",
            durable=NEXT_ONLY,
            driver="aps3",
            variant="sqlite-wal",
            root=root,
        ),
        later=Peer(
            name="APScheduler 4, SQLite in WAL, FULL",
            durable="claim, outcome, next fire",
            driver="aps4",
            environment=".venv-bench-apscheduler4",
            root=root,
        ),
        queue=Peer(
            name="pgqueuer, PostgreSQL", durable="claim, outcome", driver="pgq", needs_server=True, root=root
        ),
        huey=Peer(
            name="huey, SQLite with fsync", durable="that it has left the queue", driver="hueys", root=root
        ),
    )


LADDER = (1_000, 2_000, 4_000, 8_000, 12_000, 16_000, 20_000)
SLOW_LADDER = (500, 1_000, 2_000)
"""Jobs due each second. What is too much shows the capacity too, so the steps need not be fine."""


def sustained_entries(ours: Schedulerd, peers: Peers, *, full: bool) -> list[sustained.Entry]:
    """The first one is ours; a peer that is slow by far is not measured as often in the short form."""
    often, seldom = (3, 2) if full else (2, 1)
    make = sustained.Entry
    entries = [
        make(key="ours", contender=ours, ladder=LADDER, repetitions=often),
        make(key="cron", contender=ours, ladder=LADDER, repetitions=often, trigger="cron"),
        make(key="aps3-memory", contender=peers.memory, ladder=LADDER, repetitions=often),
        make(key="aps3-sqlite", contender=peers.shipped, ladder=SLOW_LADDER, repetitions=seldom),
        make(key="aps3-wal", contender=peers.wal, ladder=SLOW_LADDER, repetitions=seldom),
        make(key="pgqueuer", contender=peers.queue, ladder=LADDER[2:], repetitions=seldom),
        make(key="huey", contender=peers.huey, ladder=SLOW_LADDER, repetitions=seldom),
        make(key="aps4", contender=peers.later, ladder=(100, 200), repetitions=seldom),
    ]
    if full:
        entries.append(make(key="aps3-cron", contender=peers.memory, ladder=LADDER, trigger="cron"))
    return entries


def burst_entries(ours: Schedulerd, peers: Peers, *, full: bool) -> list[burst.Entry]:
    """Ours and the yardstick often; the slow ones only in the full form, one with fewer jobs."""
    make = burst.Entry
    entries = [
        make(key="ours", contender=ours, repetitions=3),
        make(key="aps3-memory", contender=peers.memory, repetitions=3),
        make(key="pgqueuer", contender=peers.queue),
    ]
    if full:
        entries += [
            make(key="aps3-sqlite", contender=peers.shipped),
            make(key="aps3-wal", contender=peers.wal),
            make(key="huey", contender=peers.huey),
            make(key="aps4", contender=peers.later, jobs=1_000),
        ]
    return entries


def precision_entries(ours: Schedulerd, peers: Peers, *, full: bool) -> list[precision.Entry]:
    """As the others."""
    make = precision.Entry
    entries = [
        make(key="ours", contender=ours, repetitions=2),
        make(key="aps3-memory", contender=peers.memory),
        make(key="aps3-wal", contender=peers.wal),
    ]
    if full:
        entries += [
            make(key="aps3-sqlite", contender=peers.shipped),
            make(key="pgqueuer", contender=peers.queue),
            make(key="aps4", contender=peers.later),
        ]
    return entries


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How much of everything.

    Attributes:
        window: seconds that a sustained load is measured for.
        precise: the same of the look at lateness.
        asked: bursts with control requests beside them.
        kills: how often the daemon is killed.
        commands: how often a cold command is timed.
        answers: how often the API is measured.
    """

    window: int
    precise: int
    asked: int
    kills: int
    commands: int
    answers: int


SHORT = Extent(window=3, precise=8, asked=1, kills=1, commands=7, answers=1)
FULL = Extent(window=5, precise=20, asked=3, kills=5, commands=20, answers=3)


def extent(*, full: bool) -> Extent:
    """Of the form that was asked for."""
    return FULL if full else SHORT


SECTIONS: Sequence[str] = (
    *("sustained", "overload", "burst", "precision", "restart", "doors"),
    *(script.name for script in SCRIPTS),
)
"""What `--only` and `--skip` take; `overload` comes after `sustained`, whose peak it doubles."""
