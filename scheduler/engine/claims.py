"""Claims as memory knows them: the registry, the heartbeat, and the look for dead ones.

A claim is known here before it is submitted, so that a row of ours that memory does not know means that
its caller vanished between commit and answer. A heartbeat is one statement for all claims; what it
answers is also how an operator's wish reaches a worker if every other way failed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from scheduler.clock import Clock, Micros
from scheduler.engine.ports import Liveness, OwnerLiveness
from scheduler.engine.recovery import Recoverer
from scheduler.errors import NotFound, StoreUnavailable
from scheduler.metrics import Metrics
from scheduler.model.runs import OwnerId, Run, RunId, RunState, Wish
from scheduler.rules.recovery import ClaimSeen, OwnerState, may_sweep, should_release
from scheduler.store.protocol import Store
from scheduler.store.values import Claimant, ClaimRef, LiveLook
from scheduler.telemetry import Event, Logger


class Worker(Protocol):
    """What holds a granted claim."""

    def wished(self, wish: Wish) -> None:
        """The operator's wish for this run changed."""
        ...

    def fenced(self) -> None:
        """The claim is another's now: end the work, write nothing."""
        ...


@dataclass(slots=True)
class _Held:
    """A claim in memory; `claim` is None until its grant was answered."""

    claim: int | None = None
    worker: Worker | None = None
    wish: Wish = Wish.RUN


class Claims:
    """The registry of one daemon's claims."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        claimant: Claimant,
        heartbeat: Micros,
        liveness: OwnerLiveness,
        recoverer: Recoverer,
        log: Logger,
        metrics: Metrics,
    ) -> None:
        self._store = store
        self._clock = clock
        self._claimant = claimant
        self._heartbeat = heartbeat
        self._liveness = liveness
        self._recoverer = recoverer
        self._log = log
        self._metrics = metrics
        self._held: dict[RunId, _Held] = {}
        self._expected: set[RunId] = set()
        self._all_answered = asyncio.Event()
        self._all_answered.set()
        self._unknown: Counter[tuple[RunId, int]] = Counter()
        self._charged: dict[tuple[RunId, int], bool] = {}
        """Whether a crash is charged, as the first look saw it: later looks miss those that are done."""
        self.last_beat = clock.monotonic()
        self.last_try = self.last_beat
        """The last beat that came to an end, if only to be told by the store that it cannot commit."""

    def __len__(self) -> int:
        return len(self._held)

    def stuck_recoveries(self) -> set[RunId]:
        """Runs in recovery of which something could not be ended yet."""
        return set(self._recoverer.stuck)

    def expect(self, run_id: RunId) -> None:
        """A claim of this run may commit at any moment from now."""
        self._held.setdefault(run_id, _Held())
        self._expected.add(run_id)
        self._all_answered.clear()

    def forget(self, run_id: RunId) -> None:
        """The claim was not granted."""
        self._held.pop(run_id, None)
        self._answered(run_id)

    async def answered(self) -> None:
        """No claim that was expected is still on its way: each has its worker, or was not granted."""
        await self._all_answered.wait()

    def let_go(self, run_id: RunId, worker: Worker) -> None:
        """The claim that `worker` held ended; a later one of the same run is another's."""
        held = self._held.get(run_id)
        if held is not None and held.worker is worker:
            del self._held[run_id]

    def hold(self, run: Run, worker: Worker) -> None:
        """The claim was granted, and `worker` holds it."""
        self._held[run.id] = _Held(claim=run.claim, worker=worker)
        self._answered(run.id)

    def _answered(self, run_id: RunId) -> None:
        self._expected.discard(run_id)
        if not self._expected:
            self._all_answered.set()

    def wish(self, run_id: RunId, wish: Wish) -> None:
        """The worker, if it is ours, learns of the wish now instead of at the next beat."""
        held = self._held.get(run_id)
        if held is None or held.worker is None or held.wish is wish:
            return
        held.wish = wish
        held.worker.wished(wish)

    def nudge(self, run_id: RunId) -> None:
        """The worker, if it is ours, looks at its wish again: something of its run was changed by hand."""
        held = self._held.get(run_id)
        if held is not None and held.worker is not None:
            held.worker.wished(held.wish)

    async def run(self) -> None:
        """Beats for as long as the daemon lives; a store that cannot commit is told by its own watcher.

        A beat that fails for another reason is told and comes again; health follows the last good one.
        """
        while True:
            await self._clock.sleep(self._heartbeat)
            try:
                await self.beat()
            except StoreUnavailable:
                pass
            except Exception as error:  # noqa: BLE001 - one bad beat must not be the last one
                message = f"a heartbeat failed and is tried again: {error!r}"
                self._log.error(Event.LOOP_BLOCKED, message=message, exc_info=error)
                continue
            self.last_try = self._clock.monotonic()

    async def beat(self) -> None:
        """Every lease of ours is renewed, wishes are delivered, lost claims are given up."""
        gap_ok = may_sweep(self.last_beat, self._clock.monotonic(), self._heartbeat)
        refs = [
            ClaimRef(run_id=run_id, claim=held.claim)
            for run_id, held in self._held.items()
            if held.claim is not None
        ]
        if refs:
            renewed = await self._store.renew(self._claimant, refs)
            self._metrics.leases_renewed(len(renewed))
            for ref in refs:
                if ref.run_id in renewed:
                    self.wish(ref.run_id, renewed[ref.run_id])
                else:
                    await self._judge_missing(ref)
        self.last_beat = self._clock.monotonic()
        if gap_ok:
            await self.sweep(counts_beat=True)

    async def _judge_missing(self, ref: ClaimRef) -> None:
        """A row that was not renewed is read again, then judged: it may have ended, or be another's."""
        held = self._held.get(ref.run_id)
        if held is None or held.claim != ref.claim or held.worker is None:
            return
        try:
            live = await self._store.run(ref.run_id)
        except NotFound:
            live = None
        mine = live is not None and live.claim == ref.claim and live.owner == self._claimant.owner.id
        if live is not None and mine and live.state is not RunState.RECOVERING:
            return
        self._log.warning(Event.LEASE_LOST, run_id=ref.run_id, claim=ref.claim)
        held.worker.fenced()

    async def leave(self, claims: Sequence[ClaimRef]) -> None:
        """The rows of these claims say that their work goes on without a daemon, if the store can."""
        if claims:
            with contextlib.suppress(StoreUnavailable):
                await self._store.leave(self._claimant, claims)

    async def take_over(self) -> None:
        """The first look: what dead daemons left is being recovered, however long the start has taken."""
        self.last_beat = self._clock.monotonic()
        await self.sweep()

    async def sweep(self, *, counts_beat: bool = False) -> None:
        """Dead claims are being recovered; live and finishing ones are left alone (I7, I8).

        After a gap of our own beats nothing is swept before the next beat: renew before reap.
        """
        if not may_sweep(self.last_beat, self._clock.monotonic(), self._heartbeat):
            return
        look = await self._store.look()
        if counts_beat:
            self._count_unknown(look)
        doomed = [seen for seen in look.running if self._is_dead(seen, look.now)]
        taken = await self._store.recover(doomed) if doomed else []
        owners = Counter(seen.owner for seen in look.running)
        owners.update(run.owner for run in look.recovering if run.owner is not None)
        for run in taken:
            self._log.warning(
                Event.RUN_RECOVERING, job=run.job, run_id=run.id, claim=run.claim, owner=run.owner
            )
        charged = self._charged
        self._charged = {}
        for run in (*look.recovering, *taken):
            alone = run.owner is not None and owners[run.owner] == 1
            charge = charged.get((run.id, run.claim), alone or run.serial)
            self._charged[run.id, run.claim] = charge
            self._recoverer.take_up(run, counts_crash=charge)
        for run_id in look.wedged:
            await self._settle_wedged(run_id)

    async def _settle_wedged(self, run_id: RunId) -> None:
        """Items that their run has left behind are no longer told to be at work."""
        for key in await self._store.settle_wedged(run_id):
            self._log.warning(
                Event.ITEM_UNKNOWN,
                run_id=run_id,
                item=key,
                message="left begun by a run that went on without it",
            )

    def _is_dead(self, seen: ClaimSeen, now: Micros) -> bool:
        held = self._held.get(seen.run_id)
        known = held is not None and held.claim in (None, seen.claim)
        return should_release(
            seen,
            self._state_of(seen.owner),
            now,
            known=known,
            beats_unknown=self._unknown[seen.run_id, seen.claim],
            lease=self._claimant.lease,
        )

    def _state_of(self, owner: OwnerId) -> OwnerState:
        if owner == self._claimant.owner.id:
            return OwnerState.ME
        return {
            Liveness.ALIVE: OwnerState.ALIVE,
            Liveness.DEAD: OwnerState.DEAD,
            Liveness.UNKNOWN: OwnerState.UNKNOWN,
        }[self._liveness(owner)]

    def _count_unknown(self, look: LiveLook) -> None:
        """How many beats in a row a row of ours has not been known here."""
        mine = {
            (seen.run_id, seen.claim)
            for seen in look.running
            if seen.owner == self._claimant.owner.id and seen.run_id not in self._held
        }
        self._unknown = Counter({key: self._unknown[key] + 1 for key in mine})
