"""A store under two daemons that crash, an operator, and a clock: what holds after every step.

The rules are the protocol's verbs in any order, with plans, looks and workers that come too late. The
invariants are the promises: one live claim, no more live runs than allowed, no fire lost or told twice,
terminal rows that stay, a pause that nothing but its resume lifts, and no job that is wedged.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from scheduler.clock import MINUTE, SECOND, Micros
from scheduler.errors import Conflict, NotFound
from scheduler.model.jobs import JobId, JobStatus, Overlap, PauseMode
from scheduler.model.runs import LIVE, TERMINAL, Grant, OwnerId, Run, RunId, RunState, RunTrigger, Wish
from scheduler.model.triggers import Schedule
from scheduler.rules.planning import FirePlan, plan_fire
from scheduler.rules.reconcile import SCHEDULED, Ending, Standing
from scheduler.rules.recovery import ClaimSeen, OwnerState, should_release
from scheduler.store.sqlite import FILE_NAME, SqliteStore
from scheduler.store.values import ClaimRef, Missed
from tests.support.builders import make_claimant, make_definition
from tests.support.clock import FakeClock
from tests.support.desk import Desk
from tests.support.stores import pragma

T = TypeVar("T")
UNFINISHED = LIVE | {RunState.QUEUED}
FAILED = frozenset({RunState.FAILED, RunState.CANCELLED, RunState.CRASHED, RunState.INTERRUPTED})
GRIDS = {"skip", "queue", "latest"}
"""Jobs whose schedule the operator changes; `allow` is the one whose fire times he passes over."""

JOBS: dict[str, dict[str, Any]] = {
    "skip": {"every": MINUTE, "on_crash": "retry", "retry": {"attempts": 1, "delay": 20}},
    "allow": {
        "every": 90 * SECOND,
        "overlap": "allow",
        "max_running": 2,
        "catch_up": "all",
        "catch_up_limit": 3,
    },
    "queue": {"every": 2 * MINUTE, "overlap": "queue", "catch_up": "skip", "catch_up_window": 300},
    "latest": {"every": 45 * SECOND, "overlap": "cancel_running", "priority": 1},
    "delay": {"delay": 50 * SECOND, "retry": {"attempts": 1, "delay": 20}},
    "delay-queue": {"delay": 70 * SECOND, "overlap": "queue", "on_crash": "retry", "catch_up_window": 100},
    "hand": {"manual": True, "on_crash": "resume"},
}
ENDINGS = [Ending.SUCCEEDED, Ending.FAILED, Ending.RETRY_ASKED, Ending.CANCELLED, Ending.SHUTDOWN]
daemons = st.integers(0, 1)
choices = st.integers(0, 10_000)
places = st.integers(0, 2)


@dataclass(slots=True)
class Daemon:
    """A process: what it holds in memory dies with it, what it planned or saw may be used too late."""

    desk: Desk
    held: dict[RunId, Run] = field(default_factory=dict)
    zombies: list[Run] = field(default_factory=list)
    recovering: list[Run] = field(default_factory=list)
    plans: list[FirePlan] = field(default_factory=list)
    seen: tuple[ClaimSeen, ...] = ()
    is_frozen: bool = False
    lost: set[RunId] = field(default_factory=set)
    """Claims that the other one took while this one was frozen; it does not know yet."""


@dataclass(slots=True)
class Truth:
    """What the operator said of a job, and which fire times it ought to have had."""

    keys: dict[str, Any]
    paused: bool = False
    removed: bool = False
    passed_over: set[Micros] = field(default_factory=set)
    segments: list[tuple[Micros, Micros | None, Schedule]] = field(default_factory=list)

    def begin(self, now: Micros, schedule: Schedule) -> None:
        self.segments.append((now, None, schedule))

    def end(self, now: Micros) -> None:
        begun, _, schedule = self.segments.pop()
        self.segments.append((begun, now, schedule))

    def slots(self, until: Micros) -> list[Micros]:
        """Every fire time up to `until`, in order: of the schedules in force, or passed over by hand."""
        found = {slot for slot in self.passed_over if slot <= until}
        for begun, ended, schedule in self.segments:
            slot = schedule.next_fire(begun)
            while slot is not None and slot <= (until if ended is None else min(until, ended)):
                found.add(slot)
                slot = schedule.next_fire(slot)
        return sorted(found)


def _is_over(seen: ClaimSeen, now: Micros) -> bool:
    """A daemon elsewhere, of which nothing is known, has lost this claim."""
    return should_release(
        seen, OwnerState.UNKNOWN, now, known=False, beats_unknown=0, lease=make_claimant().lease
    )


class StoreMachine(RuleBasedStateMachine):
    @initialize(names=st.lists(st.sampled_from(sorted(JOBS)), min_size=2, max_size=3, unique=True))
    def begin(self, names: list[str]) -> None:
        self.loop = asyncio.new_event_loop()
        self.folder = Path(tempfile.mkdtemp(prefix="store-machine-"))
        self.stores: list[SqliteStore] = []
        self.clock = FakeClock()
        for _ in range(2):
            self.stores.append(self.do(SqliteStore.open(self.folder / FILE_NAME, self.clock)))
            self.do(pragma(self.stores[-1], "synchronous = OFF"))
        self.daemons = [
            Daemon(Desk(store, self.clock, make_claimant(max_running=4))) for store in self.stores
        ]
        self.truths = {JobId(name): Truth(dict(JOBS[name])) for name in names}
        self.names = [JobId(name) for name in names]
        self.runs: list[Run] = []
        self.cancelled: set[RunId] = set()
        self.granted: set[tuple[RunId, int]] = set()
        self.ended: dict[RunId, Run] = {}
        for name, truth in self.truths.items():
            self.add(name, truth)

    def do(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(coroutine, 20))

    def tried(self, coroutine: Coroutine[Any, Any, T]) -> T | None:
        """The result, or None where the verb was refused."""
        try:
            return self.do(coroutine)
        except (Conflict, NotFound):
            return None

    @property
    def operator(self) -> Desk:
        return self.daemons[0].desk

    def add(self, name: JobId, truth: Truth) -> None:
        definition = make_definition(name, **truth.keys)
        self.do(self.operator.add(definition))
        truth.removed = False
        truth.begin(self.clock.now(), definition.schedule)

    def take(self, daemon: Daemon, grants: list[Grant]) -> None:
        for grant in grants:
            key = (grant.run.id, grant.run.claim)
            assert key not in self.granted, "I2: a claim is granted once"
            self.granted.add(key)
            daemon.held[grant.run.id] = grant.run

    def job(self, place: int) -> JobId:
        return self.names[place % len(self.names)]

    def having(self, states: frozenset[RunState]) -> list[Run]:
        """Runs in one of these states, as the last look at the rows found them."""
        return [run for run in self.runs if run.state in states]

    def some(self, *memories: str) -> bool:
        """A daemon has something in one of these."""
        return any(getattr(daemon, memory) for daemon in self.daemons for memory in memories)

    # --- time and the engine ---
    @rule(seconds=st.integers(1, 200), which=daemons)
    def time_passes_for(self, seconds: int, which: int) -> None:
        self.clock.move(seconds * SECOND)
        self.tick(which)

    @rule(seconds=st.integers(1, 200))
    def time_passes_unseen(self, seconds: int) -> None:
        self.clock.move(seconds * SECOND)

    @rule(which=daemons)
    def tick(self, which: int) -> None:
        daemon = self.awake(which)
        for fired in self.do(daemon.desk.tick()):
            self.take(daemon, list(fired.grants))
        self.take(daemon, self.do(daemon.desk.claim()))

    @rule(which=daemons)
    def plan_for_later(self, which: int) -> None:
        desk = self.awake(which).desk
        look = self.do(desk.store.due(limit=99, late_after=MINUTE, late_limit=99))
        plans = [plan_fire(job, look.now, self.clock.run_id) for job in look.jobs]
        self.awake(which).plans = [plan for plan in plans if plan is not None]

    @precondition(lambda self: self.some("plans"))
    @rule(which=daemons)
    def fire_what_was_planned(self, which: int) -> None:
        daemon = self.awake(which)
        for fired in self.do(daemon.desk.store.fire(daemon.desk.who, daemon.plans)):
            self.take(daemon, list(fired.grants))

    @precondition(lambda self: self.some("held"))
    @rule(which=daemons, ending=st.sampled_from(ENDINGS), choice=choices)
    def a_run_ends(self, which: int, ending: Ending, choice: int) -> None:
        daemon = self.awake(which)
        if daemon.held:
            run_id = list(daemon.held)[choice % len(daemon.held)]  # ids are random, their order is not
            self.do(daemon.desk.finish(daemon.held.pop(run_id), ending))

    @precondition(lambda self: self.some("held"))
    @rule(which=daemons)
    def beat(self, which: int) -> None:
        daemon = self.awake(which)
        refs = [ClaimRef(run_id=run.id, claim=run.claim) for run in daemon.held.values()]
        answer = self.do(daemon.desk.store.renew(daemon.desk.who, refs))
        assert set(answer) == set(daemon.held), "I8: nobody took a claim from a daemon that lives"

    # --- crashes ---
    @precondition(lambda self: self.some("held"))
    @rule(which=daemons)
    def crash(self, which: int) -> None:
        daemon = self.daemons[which]
        daemon.is_frozen = False
        daemon.zombies += daemon.held.values()
        daemon.held, daemon.recovering, daemon.lost = {}, [], set()
        daemon.desk.who = make_claimant(max_running=4)

    @precondition(lambda self: self.some("zombies"))
    @rule(which=daemons, ending=st.sampled_from(ENDINGS), choice=choices)
    def a_worker_of_the_dead_writes(self, which: int, ending: Ending, choice: int) -> None:
        daemon = self.awake(which)
        if not daemon.zombies:
            return
        run = daemon.zombies.pop(choice % len(daemon.zombies))
        before = self.do(daemon.desk.run(run))
        finished = self.do(daemon.desk.finish(run, ending))
        mine = before.state is RunState.RUNNING and before.claim == run.claim
        assert (finished.decision.standing is Standing.WRITTEN) is mine, "I3"
        if not mine:
            assert self.do(daemon.desk.run(run)) == before, "I3"

    def awake(self, which: int) -> Daemon:
        """The daemon, or the other one while it is frozen."""
        daemon = self.daemons[which]
        return self.daemons[1 - which] if daemon.is_frozen else daemon

    @precondition(lambda self: self.some("held") and not self.some("is_frozen"))
    @rule(which=daemons, seconds=st.integers(1, 150))
    def freeze(self, which: int, seconds: int) -> None:
        """SIGSTOP: it neither beats nor ends its runs, and knows nothing of the time that passes."""
        daemon = self.daemons[which]
        daemon = daemon if daemon.held else self.daemons[1 - which]
        daemon.is_frozen = True
        self.the_other_sweeps(seconds)

    @precondition(lambda self: self.some("is_frozen"))
    @rule(seconds=st.integers(1, 60))
    def the_other_sweeps(self, seconds: int) -> None:
        """What it cannot know to be dead, it takes when the lease has run out, and not before."""
        frozen, other = sorted(self.daemons, key=lambda daemon: not daemon.is_frozen)
        self.clock.move(seconds * SECOND)
        look = self.do(other.desk.store.look())
        mine = other.desk.who
        doomed = [seen for seen in look.running if seen.owner != mine.owner.id and _is_over(seen, look.now)]
        assert all(seen.lease_until < look.now for seen in doomed), "I8: slow is not dead"
        other.recovering += (taken := self.do(other.desk.store.recover(doomed)))
        assert {run.id for run in taken} == {seen.run_id for seen in doomed}
        frozen.lost |= {run.id for run in taken if run.id in frozen.held}

    @precondition(lambda self: self.some("is_frozen"))
    @rule()
    def thaw(self) -> None:
        """SIGCONT: it renews before it does anything else; what nobody took is its own still."""
        (daemon,) = [daemon for daemon in self.daemons if daemon.is_frozen]
        refs = [ClaimRef(run_id=run.id, claim=run.claim) for run in daemon.held.values()]
        renewed = set(self.do(daemon.desk.store.renew(daemon.desk.who, refs)))
        assert renewed == set(daemon.held) - daemon.lost, "I3: a lease that ran out alone fences nothing"
        daemon.zombies += [run for run_id, run in daemon.held.items() if run_id in daemon.lost]
        daemon.held = {run_id: run for run_id, run in daemon.held.items() if run_id in renewed}
        daemon.is_frozen, daemon.lost = False, set()

    def owners(self) -> set[OwnerId]:
        return {daemon.desk.who.owner.id for daemon in self.daemons}

    @precondition(lambda self: self.having(frozenset({RunState.RUNNING})))
    @rule(which=daemons)
    def look(self, which: int) -> None:
        daemon = self.awake(which)
        running = self.do(daemon.desk.store.look()).running
        daemon.seen = tuple(seen for seen in running if seen.owner not in self.owners())

    @precondition(lambda self: self.some("seen"))
    @rule(which=daemons)
    def recover_what_was_seen(self, which: int) -> None:
        daemon = self.awake(which)
        taken = self.do(daemon.desk.store.recover(daemon.seen))
        assert all(run.owner not in self.owners() for run in taken), "I8: only claims of the dead are taken"
        daemon.recovering += taken

    @precondition(lambda self: self.having(frozenset({RunState.RUNNING, RunState.RECOVERING})))
    @rule(which=daemons)
    def restart_finds_the_dead(self, which: int) -> None:
        """What a start does: look, take, and record at once."""
        self.look(which)
        self.recover_what_was_seen(which)
        self.recovery_ends(which)

    @precondition(lambda self: self.having(frozenset({RunState.RECOVERING})))
    @rule(which=daemons)
    def recovery_ends(self, which: int) -> None:
        daemon = self.awake(which)
        for run in self.do(daemon.desk.store.look()).recovering:
            if run.id not in {mine.id for other in self.daemons for mine in other.recovering}:
                daemon.recovering.append(run)  # a recovery whose recoverer died
        for run in daemon.recovering:
            finished = self.do(daemon.desk.finish(run, Ending.CRASHED))
            if finished.decision.job is not None and finished.decision.job.pause_reason is not None:
                self.truths[run.job].paused = True
        daemon.recovering = []

    # --- the operator ---
    @rule(place=places, mode=st.sampled_from([PauseMode.DRAIN, PauseMode.ITEM, PauseMode.CANCEL]))
    def pause(self, place: int, mode: PauseMode) -> None:
        name = self.job(place)
        if self.tried(self.operator.pause(name, mode=mode)) is not None:
            self.truths[name].paused = True
            if mode is PauseMode.CANCEL:
                at_work = self.having(frozenset({RunState.RUNNING, RunState.RECOVERING}))
                self.cancelled |= {run.id for run in at_work if run.job == name}

    @precondition(lambda self: any(truth.paused for truth in self.truths.values()))
    @rule(place=places, missed=st.sampled_from(Missed))
    def resume(self, place: int, missed: Missed) -> None:
        name = self.job(place)
        if self.tried(self.operator.resume(name, missed=missed)) is not None:
            self.truths[name].paused = False

    @rule(place=places, which=daemons, overlap=st.sampled_from([None, Overlap.QUEUE, Overlap.CANCEL_RUNNING]))
    def start(self, place: int, which: int, overlap: Overlap | None) -> None:
        name = self.job(place)
        if self.truths[name].removed:
            return
        daemon = self.awake(which)
        free = not self.do(daemon.desk.store.live_runs(name))
        started = self.tried(daemon.desk.start(name, overlap=overlap))
        assert started is not None or not free, "I7: a job without a run can be started"
        if started is not None and started.grant is not None:
            self.take(daemon, [started.grant])

    @rule(place=places, enabled=st.booleans(), timeout=st.integers(1, 3))
    def edit(self, place: int, enabled: bool, timeout: int) -> None:
        name = self.job(place)
        truth = self.truths[name]
        if not truth.removed:
            truth.keys |= {"enabled": enabled, "timeout": timeout}
            self.do(self.operator.edit(make_definition(name, **truth.keys)))

    @precondition(lambda self: self.truths.keys() & GRIDS)
    @rule(place=places, period=st.integers(3, 9))
    def edit_schedule(self, place: int, period: int) -> None:
        name = self.job(place)
        truth = self.truths[name]
        if name not in GRIDS or truth.removed or truth.keys["every"] == period * 10 * SECOND:
            return
        truth.keys["every"] = period * 10 * SECOND
        definition = make_definition(name, **truth.keys)
        self.do(self.operator.edit(definition))
        truth.end(self.clock.now())
        truth.begin(self.clock.now(), definition.schedule)

    @rule(place=places)
    def remove(self, place: int) -> None:
        truth = self.truths[self.job(place)]
        if not truth.removed:
            self.do(self.operator.remove(self.job(place)))
            truth.removed = True
            truth.end(self.clock.now())

    @precondition(lambda self: any(truth.removed for truth in self.truths.values()))
    @rule()
    def add_again(self) -> None:
        for name, truth in self.truths.items():
            if truth.removed:
                self.add(name, truth)

    @precondition(lambda self: "allow" in self.truths)
    @rule(number=st.integers(1, 3))
    def skip_next(self, number: int) -> None:
        name = JobId("allow")
        operated = self.tried(self.operator.store.skip_next(name, number, self.operator.peer))
        for span in () if operated is None else operated.spans:
            slot: Micros | None = span.first
            while slot is not None and slot <= span.last:
                self.truths[name].passed_over.add(slot)
                slot = operated.job.definition.schedule.next_fire(slot) if operated else None

    @precondition(lambda self: self.having(UNFINISHED))
    @rule(choice=choices)
    def cancel(self, choice: int) -> None:
        runs = self.having(UNFINISHED)
        run = runs[choice % len(runs)]
        self.do(self.operator.cancel(run))
        if run.state in (RunState.RUNNING, RunState.RECOVERING):
            self.cancelled.add(run.id)

    @precondition(lambda self: self.having(frozenset({RunState.WAITING})))
    @rule(choice=choices)
    def retry_now(self, choice: int) -> None:
        runs = self.having(frozenset({RunState.WAITING}))
        self.do(self.operator.store.retry_now(runs[choice % len(runs)].id, self.operator.peer))

    @precondition(lambda self: self.having(FAILED))
    @rule(choice=choices)
    def retry(self, choice: int) -> None:
        runs = self.having(FAILED)
        run = runs[choice % len(runs)]
        if self.tried(self.operator.store.retry(run.id, self.operator.peer)) is not None:
            self.ended.pop(run.id, None)
            self.cancelled.discard(run.id)

    # --- what holds after every step ---
    @invariant()
    def promises_hold(self) -> None:
        listed = self.do(self.operator.store.jobs(after=None, limit=99))
        runs = self.runs = self.do(self.operator.runs(None))
        self.check_runs(runs)
        for row in listed:
            job = self.do(self.operator.store.job(row.id)).job
            self.check_job(job, [run for run in runs if run.job == job.id])

    def check_runs(self, runs: list[Run]) -> None:
        held = {
            run.id: run
            for daemon in self.daemons
            for run in daemon.held.values()
            if run.id not in daemon.lost
        }
        for run in runs:
            if run.id in self.ended:
                before = self.ended[run.id]
                if run.state is not RunState.SKIPPED:
                    assert run == before, "a terminal row never changes by itself"
            if run.state in TERMINAL:
                self.ended[run.id] = run
                assert run.finished_at is not None
            if run.state is RunState.RUNNING:
                assert (run.id, run.claim) in self.granted, "I10: what runs was granted"
                if run.owner in self.owners():
                    assert held[run.id].claim == run.claim, "I2: a live claim has its one worker"
            if run.id in self.cancelled:
                assert run.wish is Wish.CANCEL, "a cancel is never taken back"
            if run.state in FAILED:
                assert run.reason, "every non-success says why"
        for run in held.values():
            row = next(one for one in runs if one.id == run.id)
            assert (row.state, row.claim) == (RunState.RUNNING, run.claim), "I8: a live run is left alone"

    def check_job(self, job: Any, runs: list[Run]) -> None:
        truth = self.truths[job.id]
        live = [run for run in runs if run.state in LIVE]
        assert len(live) <= truth.keys.get("max_running", 1), "I2"
        assert job.status is (JobStatus.PAUSED if truth.paused else JobStatus.ACTIVE), "I4"
        assert job.enabled is truth.keys.get("enabled", True), "I4"
        assert job.next_fire_at is None or job.may_fire
        if job.may_fire:
            assert not [run for run in runs if run.state is RunState.HELD], "a resume leaves nothing held"
            assert not [run for run in live if run.wish is Wish.HOLD]
            waits = [run for run in runs if run.state in UNFINISHED and run.trigger in SCHEDULED]
            kind = job.definition.schedule.kind
            silent = job.next_fire_at is None and kind != "manual"
            assert not silent or (kind == "delay" and waits), "I7: an active job fires again"
        if job.definition.schedule.kind == "every":
            pending = job.next_fire_at if job.held_from is None else job.held_from
            assert pending is not None
            self.check_explained(truth, runs, pending)

    def check_explained(self, truth: Truth, runs: list[Run], pending: Micros) -> None:
        """Every fire time before the first pending one is a run, or is counted by one skip row."""
        furthest = max([pending, *(run.fire_time_last or run.fire_time or 0 for run in runs)])
        slots = truth.slots(furthest)
        explained: dict[Micros, int] = dict.fromkeys(slots, 0)
        for run in runs:
            if run.fire_time is None or run.trigger is RunTrigger.MANUAL:
                continue
            covered = [s for s in slots if run.fire_time <= s <= (run.fire_time_last or run.fire_time)]
            assert run.count == len(covered), f"I13: {run.count} told, {len(covered)} were meant"
            for slot in covered:
                explained[slot] += 1
        for slot, times in explained.items():
            assert times == (slot < pending), f"I13: {slot} is explained {times} times"

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            for store in self.stores:
                self.do(store.close())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()
            shutil.rmtree(self.folder)


LONG = "SCHEDULERD_SOAK" in os.environ
pytestmark = pytest.mark.timeout(3_600 if LONG else 300)  # a failure is made small first: that takes its time
TestStore = StoreMachine.TestCase
TestStore.settings = settings(
    max_examples=3_000 if LONG else 30,
    stateful_step_count=50,
    derandomize=not LONG,  # the same walk everywhere; `make soak` searches further, and elsewhere each time
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
