"""Claims as memory knows them, one by one: who is told what by a beat, and what a sweep takes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from scheduler.clock import MINUTE, SECOND
from scheduler.engine.claims import Claims
from scheduler.engine.ports import Liveness
from scheduler.model.items import freeze
from scheduler.model.jobs import JobId, PauseMode
from scheduler.model.runs import OwnerId, Run, RunId, RunState, Wish
from scheduler.rules.reconcile import Ending
from scheduler.store.schema import load_queries
from scheduler.store.values import BeginItems, Claimant, ItemSlice
from scheduler.telemetry import Event
from tests.support.builders import make_claimant, make_definition
from tests.support.clock import FakeClock
from tests.support.desk import Desk
from tests.support.engine import ToldLog
from tests.support.stores import sqlite_store
from tests.support.tables import write

BEAT = 20 * SECOND


class Hand:
    """A worker that remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[Wish | str] = []

    def wished(self, wish: Wish) -> None:
        self.told.append(wish)

    def fenced(self) -> None:
        self.told.append("fenced")


class Registry:
    """The claims of one daemon at a real store; who is recovered, and who is charged, is remembered."""

    def __init__(self, store: Any, clock: FakeClock, path: Path) -> None:
        self.clock = clock
        self.path = path
        self.desk = Desk(store, clock)
        self.log = ToldLog()
        self.liveness: dict[OwnerId, Liveness] = {}
        self.taken: list[tuple[JobId, bool]] = []
        self.renewed: list[int] = []
        self.after_renewal: Callable[[], Awaitable[None]] | None = None
        self.stuck: set[RunId] = set()
        self._store = store
        self.claims = Claims(
            store=cast(Any, self),
            clock=clock,
            claimant=self.desk.who,
            heartbeat=BEAT,
            liveness=lambda owner: self.liveness.get(owner, Liveness.ALIVE),
            recoverer=cast(Any, self),
            log=cast(Any, self.log),
            metrics=cast(Any, self),
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def renew(self, who: Claimant, claims: Any) -> dict[RunId, Wish]:
        """The store's, with whatever happens before it is looked at."""
        renewed: dict[RunId, Wish] = await self._store.renew(who, claims)
        if self.after_renewal is not None:
            await self.after_renewal()
        return renewed

    def take_up(self, run: Run, *, counts_crash: bool) -> None:
        self.taken.append((run.job, counts_crash))

    def leases_renewed(self, count: int) -> None:
        self.renewed.append(count)

    async def start(self, job: str = "job", who: Claimant | None = None, **keys: Any) -> Run:
        """A running run of a new job, by default ours."""
        await self.desk.add(make_definition(job, manual=True, **{"on_crash": "retry", **keys}))
        desk = self.desk if who is None else Desk(self._store, self.clock, who)
        return (await desk.start(JobId(job))).run

    async def hold(self, job: str = "job", **keys: Any) -> tuple[Run, Hand]:
        """A run of ours with its worker."""
        run, hand = await self.start(job, **keys), Hand()
        self.claims.expect(run.id)
        self.claims.hold(run, hand)
        return run, hand

    async def beat(self) -> None:
        self.clock.move(BEAT)
        await self.claims.beat()


@pytest.fixture
async def registry(tmp_path: Path) -> AsyncIterator[Registry]:
    clock = FakeClock()
    async with sqlite_store(tmp_path / "store.db", clock) as store:
        yield Registry(store, clock, tmp_path / "store.db")


# --- the registry ---
async def test_all_are_answered_only_when_each_is(registry: Registry) -> None:
    """Whoever waits for the claims on their way goes on after the last one, granted or not."""
    claims = registry.claims
    run = await registry.start()
    await asyncio.wait_for(claims.answered(), timeout=30)
    claims.expect(run.id)
    claims.expect(RunId("other"))
    waiting = asyncio.ensure_future(claims.answered())

    claims.hold(run, Hand())
    await asyncio.sleep(0)
    assert not waiting.done()
    assert len(claims) == 2
    claims.forget(RunId("other"))

    await asyncio.wait_for(waiting, timeout=30)
    assert len(claims) == 1


async def test_only_the_worker_that_holds_a_claim_lets_it_go(registry: Registry) -> None:
    """An earlier worker of the same run, or one of a run that nobody holds, changes nothing."""
    run, hand = await registry.hold()
    earlier = Hand()

    registry.claims.let_go(run.id, earlier)
    registry.claims.let_go(RunId("other"), hand)
    assert len(registry.claims) == 1
    registry.claims.let_go(run.id, hand)

    assert len(registry.claims) == 0


async def test_a_worker_hears_each_wish_once(registry: Registry) -> None:
    """A nudge says the same again; a run that nobody holds, or that waits for its answer, hears nothing."""
    claims = registry.claims
    run, hand = await registry.hold()
    claims.expect(RunId("expected"))

    for wish in (Wish.RUN, Wish.HOLD, Wish.HOLD, Wish.RUN):
        for name in (run.id, RunId("expected"), RunId("unknown")):
            claims.wish(name, wish)
    assert hand.told == [Wish.HOLD, Wish.RUN]
    for name in (run.id, RunId("expected"), RunId("unknown")):
        claims.nudge(name)

    assert hand.told == [Wish.HOLD, Wish.RUN, Wish.RUN]


# --- beats ---
async def test_a_beat_renews_what_was_granted_and_brings_the_wish(registry: Registry) -> None:
    """A claim that is still on its way has nothing to renew."""
    registry.claims.expect(RunId("expected"))
    await registry.beat()
    assert registry.renewed == []
    run, hand = await registry.hold()
    await registry.desk.pause(mode=PauseMode.ITEM)

    await registry.beat()

    assert registry.renewed == [1]
    assert hand.told == [Wish.HOLD]
    assert (await registry.desk.run(run)).lease_until == registry.clock.now() + registry.desk.who.lease


async def _ended(registry: Registry, run: Run) -> None:
    await registry.desk.finish(run)


async def _taken(registry: Registry, run: Run) -> None:
    await registry.desk.take(run)


async def _claimed_again(registry: Registry, run: Run) -> None:
    await registry.desk.crash(run)
    await registry.desk.claim()


async def _another_owners(registry: Registry, run: Run) -> None:
    await registry.desk.finish(run)
    write(registry.path, "UPDATE runs SET owner = 'another'")


async def _pruned(registry: Registry, run: Run) -> None:
    await registry.desk.finish(run)
    assert await registry.desk.store.prune([run.id]) == 1


@pytest.mark.parametrize(
    ("became", "told"),
    [
        (_ended, []),
        (_taken, ["fenced"]),
        (_claimed_again, ["fenced"]),
        (_another_owners, ["fenced"]),
        (_pruned, ["fenced"]),
    ],
)
async def test_a_worker_is_fenced_where_its_claim_is_lost(
    registry: Registry, became: Callable[[Registry, Run], Awaitable[None]], told: list[str]
) -> None:
    """I3: in recovery, under another claim or owner, or gone; not where its own outcome stands there."""
    run, hand = await registry.hold()
    await became(registry, run)

    await registry.beat()

    assert hand.told == told
    assert [line["run_id"] for line in registry.log.of(Event.LEASE_LOST)] == [run.id] * len(told)
    assert registry.renewed == [0]


async def test_a_worker_that_came_meanwhile_is_not_judged_by_an_old_renewal(registry: Registry) -> None:
    """What was let go, or is held under a later claim by now, was not what the beat has asked about."""
    gone, first = await registry.hold("gone")
    moved, second = await registry.hold("moved")
    later = Hand()
    for run in (gone, moved):
        await registry.desk.crash(run)

    async def meanwhile() -> None:
        registry.claims.let_go(gone.id, first)
        (grant,) = [grant for grant in await registry.desk.claim() if grant.run.id == moved.id]
        registry.claims.hold(grant.run, later)

    registry.after_renewal = meanwhile
    await registry.beat()

    assert (first.told, second.told, later.told) == ([], [], [])
    assert registry.log.of(Event.LEASE_LOST) == []


# --- sweeps ---
@pytest.mark.parametrize(
    ("liveness", "later", "taken"),
    [
        (Liveness.ALIVE, 10 * MINUTE, []),
        (Liveness.DEAD, SECOND, [("job", True)]),
        (Liveness.UNKNOWN, SECOND, []),
        (Liveness.UNKNOWN, 10 * MINUTE, [("job", True)]),
    ],
)
async def test_what_is_known_of_an_owner_decides(
    registry: Registry, liveness: Liveness, later: int, taken: list[tuple[str, bool]]
) -> None:
    """I7, I8: a dead one's claim is taken at once, a stranger's by its lease, that of a live one never."""
    who = make_claimant()
    run = await registry.start(who=who)
    registry.liveness[who.owner.id] = liveness
    registry.clock.move(later)

    await registry.claims.take_over()

    assert registry.taken == taken
    told = registry.log.of(Event.RUN_RECOVERING)
    assert [(line["run_id"], line["claim"], line["owner"]) for line in told] == (
        [(run.id, 1, who.owner.id)] if taken else []
    )
    assert (await registry.desk.run(run)).state is (RunState.RECOVERING if taken else RunState.RUNNING)


async def test_a_row_of_ours_is_taken_after_two_beats_that_did_not_know_it(registry: Registry) -> None:
    """I7: what is held, or expected, is known; another owner's is none of ours."""
    lost = await registry.start("lost")
    expected = await registry.start("expected")
    registry.claims.expect(expected.id)
    await registry.hold("held")
    other = await registry.start("other", who=make_claimant())

    for _ in range(2):
        assert registry.taken == []
        await registry.beat()

    assert registry.taken == [(lost.job, False)]
    assert (await registry.desk.run(other)).state is RunState.RUNNING


async def test_two_beats_have_to_follow_each_other(registry: Registry) -> None:
    """A row that was known in between counts anew."""
    run = await registry.start()
    await registry.beat()
    registry.claims.expect(run.id)
    await registry.beat()
    registry.claims.forget(run.id)

    await registry.beat()
    assert registry.taken == []
    await registry.beat()

    assert registry.taken == [(run.job, True)]


@pytest.mark.parametrize(("serial", "charged"), [(False, False), (True, True)])
async def test_a_crash_is_charged_to_the_only_one_at_the_death_or_to_one_restarted_alone(
    registry: Registry, serial: bool, charged: bool
) -> None:
    """As the first look has seen it, whatever is recorded since; what is in recovery already counts."""
    who = make_claimant()
    taken = await registry.start("taken", who=who)
    running = await registry.start("running", who=who)
    await registry.desk.take(taken)
    write(registry.path, "UPDATE runs SET serial = :serial WHERE id = :id", serial=serial, id=running.id)
    registry.liveness[who.owner.id] = Liveness.DEAD

    await registry.claims.take_over()
    assert registry.taken == [(taken.job, False), (running.job, charged)]
    await registry.desk.finish(await registry.desk.run(taken), Ending.CRASHED)
    await registry.claims.sweep()

    assert registry.taken[2:] == [(running.job, charged)]


async def test_items_that_a_run_left_behind_are_settled_and_told(tmp_path: Path) -> None:
    """No item is told to be at work for whom nobody works."""
    queries = {**load_queries(), "settle_begun": "SELECT seq, key FROM items WHERE 0"}
    clock = FakeClock()
    async with sqlite_store(tmp_path / "store.db", clock, queries=queries) as store:
        registry = Registry(store, clock, tmp_path / "store.db")
        run = await registry.start(batch={"items": ["a"]}, on_crash="resume")
        await store.put_items(ItemSlice(run_id=run.id, claim=1, items=(freeze(0, "a"),)))
        await store.complete_items(run.id, 1, 1)
        await store.begin_items(registry.desk.who, [BeginItems(run_id=run.id, claim=1, limit=1)])
        await registry.desk.finish(run, Ending.CANCELLED)

        await registry.claims.take_over()

        (told,) = registry.log.of(Event.ITEM_UNKNOWN)
        assert (told["run_id"], told["item"]) == (run.id, "a")
        assert (await store.item(run.id, "a")).state == "unknown"
