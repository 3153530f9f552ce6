"""Batches: one action, called once per item, so that a crash costs the items at work and no other.

The list is frozen before anything is called; an item is called only after its begin has committed, and its
outcome is committed before the next one takes its place. The rows are the one truth: this worker remembers
nothing that a restart would need.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from scheduler.clock import MINUTE, SECOND, Clock, Micros
from scheduler.engine.ports import (
    AttemptHooks,
    BatchProgress,
    Ended,
    EndKind,
    Execution,
    Executor,
    ItemDesk,
    ProgressReport,
)
from scheduler.engine.stopwatch import Stopwatch
from scheduler.errors import Conflict, Invalid, SpawnFailed, StoreUnavailable
from scheduler.executors.capture import open_output
from scheduler.executors.dispatch import Executors
from scheduler.executors.item_call import ItemCall
from scheduler.executors.item_list import (
    CommandList,
    ItemSource,
    ListFailed,
    open_file,
    open_listed,
    start_command,
)
from scheduler.executors.item_outcome import ItemCut
from scheduler.executors.item_output import BatchOutput
from scheduler.executors.item_pace import Pace
from scheduler.executors.output import Output
from scheduler.model.items import BegunItem, FrozenItem
from scheduler.model.jobs import BatchPolicy
from scheduler.model.runs import Grant, Wish
from scheduler.store.values import Begun, ItemOutcome, NoBegin

T = TypeVar("T")

MOST_BEGUN: Final = 256
"""Items begun in one transaction: bounds what others wait for it."""

_AFTER_TROUBLE: Final[Micros] = SECOND
_LONGEST_REST: Final[Micros] = MINUTE
_GOES_ON: Final = (None, NoBegin.WAITING, NoBegin.FROZEN)


class BatchExecutor:
    """Starts batches, and hands every other attempt on. Fulfils `engine.ports.Executor`."""

    def __init__(self, executors: Executors, desk: ItemDesk, clock: Clock) -> None:
        self._executors = executors
        self._desk = desk
        self._clock = clock
        self._controlling: set[BatchExecution] = set()

    def controllers(self) -> dict[int, int]:
        """Main processes (pid -> start ticks) of items at work whose jobs say `control = true`."""
        return dict(child for batch in self._controlling for child in batch.children())

    async def start(self, grant: Grant, hooks: AttemptHooks) -> Execution:
        if grant.definition.batch is None:
            if grant.run.items_total is not None:
                raise SpawnFailed(
                    f"run {grant.run.id} has items, but job {grant.run.job} is no batch any more",
                    hint="give the job its batch table back, or cancel the run",
                )
            return await self._executors.start(grant, hooks)
        whole = open_output(grant, self._executors.around)
        executors = self._executors.with_output(BatchOutput(whole).of)
        try:
            executor = await executors.prepared(grant)
        except BaseException:
            whole.close()
            raise
        batch = BatchExecution(
            grant,
            hooks,
            executor=executor,
            executors=executors,
            desk=self._desk,
            clock=self._clock,
            output=whole,
        )
        if grant.definition.control:
            self._controlling.add(batch)
            batch.when_over(lambda: self._controlling.discard(batch))
        return batch


class BatchExecution:
    """A batch under one claim. Fulfils `engine.ports.Execution`."""

    def __init__(
        self,
        grant: Grant,
        hooks: AttemptHooks,
        *,
        executor: Executor,
        executors: Executors,
        desk: ItemDesk,
        clock: Clock,
        output: Output,
    ) -> None:
        self._grant = grant
        self._policy = grant.definition.batch or BatchPolicy()
        self._hooks = hooks
        self._executor = executor
        self._executors = executors
        self._desk = desk
        self._clock = clock
        self._output = output
        self._watch = Stopwatch(clock)
        self._pace = Pace()
        self._calls: dict[int, ItemCall] = {}
        self._ended: list[tuple[BegunItem, ItemOutcome]] = []
        self._broken: str | None = None
        self._stopping = False
        self._lister: CommandList | None = None
        self._wake = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name=f"batch:{grant.run.id}")

    def when_over(self, call: Callable[[], None]) -> None:
        """`call` is made once the batch has ended."""
        self._task.add_done_callback(lambda _: call())

    def children(self) -> list[tuple[int, int]]:
        """Pid and start ticks of the main process of each item that has one."""
        return [call.child for call in self._calls.values() if call.child is not None]

    async def wait(self) -> Ended:
        return await asyncio.shield(self._task)

    async def end(self, grace: Micros) -> bool:
        self._stopping = True
        for call in list(self._calls.values()):
            call.cut(ItemCut.STOPPED, grace)
        self._wake.set()
        if self._lister is not None:
            await self._lister.execution.end(grace)
        patience = asyncio.create_task(self._clock.sleep(grace + 3 * SECOND))
        try:
            await asyncio.wait({self._task, patience}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            patience.cancel()
        return self._task.done()

    def heed(self, wish: Wish) -> None:
        """Items at work are frozen or go on with their batch; a resume lets further ones begin."""
        self._watch.set_frozen(wish is Wish.FREEZE)
        for call in self._calls.values():
            call.heed(wish)
        self._wake.set()

    # --- its life ---

    async def _run(self) -> Ended:
        try:
            if self._grant.run.items_total is None:
                await self._write_list()
            else:
                await self._follow_choice()
            return await self._work()
        except ListFailed as failed:
            return failed.ended
        except Conflict as fenced:
            return Ended(kind=EndKind.ITEMS, stop=NoBegin.FENCED, message=fenced.message)
        finally:
            self._output.close()

    async def _write_list(self) -> None:
        """The list is whole and frozen, or nobody will take it for whole."""
        run, total = self._grant.run, 0
        await self._until_stored(lambda: self._desk.clear(run))
        source = await self._open_source()
        try:
            while items := await source.next_slice():
                await self._put(items)
                total += len(items)
                self._hooks.progressed(ProgressReport())
                if self._stopping:
                    raise ListFailed("stopped while the items were listed; no item was begun")
            await self._until_stored(lambda: self._desk.complete(run, total))
        finally:
            source.close()

    async def _follow_choice(self) -> None:
        """The items that an operator chose to have again are pending, however many they are."""
        run = self._grant.run
        while not self._stopping and not await self._until_stored(lambda: self._desk.follow_choice(run)):
            self._hooks.progressed(ProgressReport())

    async def _open_source(self) -> ItemSource:
        policy, around = self._policy, self._executors.around
        if policy.items_command is not None:
            self._lister = await start_command(self._grant, self._hooks, self._executors.with_output, around)
            return await self._lister.source()
        if policy.items_file is not None:
            return await open_file(self._grant.definition, around)
        return open_listed(policy)

    async def _put(self, items: list[FrozenItem]) -> None:
        try:
            await self._until_stored(lambda: self._desk.put(self._grant.run, items))
        except Invalid as error:
            hint = f" ({error.hint})" if error.hint else ""
            raise ListFailed(f"{error.message}{hint}") from error

    async def _until_stored(self, verb: Callable[[], Awaitable[T]]) -> T:
        """What the verb answers; a store that cannot commit is asked again for as long as the batch lives."""
        while True:
            try:
                return await verb()
            except StoreUnavailable:
                if self._stopping:
                    raise ListFailed("stopped while the store could not commit") from None
                await self._clock.sleep(_AFTER_TROUBLE)

    async def _work(self) -> Ended:
        """Items are begun, called and ended, until none is under way and none may be begun."""
        while True:
            self._wake.clear()
            begun = await self._step()
            for item in begun.items:
                self._call(item)
            idle = not self._calls and not self._ended
            if idle and self._broken is not None:
                return Ended(kind=EndKind.BROKEN, message=self._broken)
            if idle and (self._stopping or begun.stop not in _GOES_ON):
                return Ended(kind=EndKind.ITEMS, stop=begun.stop, message=begun.message)
            await self._rest(begun)

    async def _step(self) -> Begun:
        """What has ended is on record, and free places are taken: both in one commit, in this order."""
        ended, self._ended = self._ended, []
        free = min(self._policy.concurrency - len(self._calls), MOST_BEGUN)
        begins = free > 0 and not self._stopping and self._broken is None
        ending = asyncio.ensure_future(self._desk.end(self._grant.run, ended)) if ended else None
        beginning = asyncio.ensure_future(self._desk.begin(self._grant.run, free)) if begins else None
        try:
            begun = await beginning if beginning is not None else Begun()
        except StoreUnavailable:
            await self._clock.sleep(_AFTER_TROUBLE)
            begun = Begun(stop=NoBegin.WAITING)
            self._wake.set()
        if ending is not None:
            await ending
            self._hooks.progressed(self._report(begun))
        return begun

    def _report(self, begun: Begun) -> ProgressReport:
        if begun.counts is None:
            return ProgressReport()
        rate = self._pace.see(self._clock.monotonic(), begun.counts.ended)
        return ProgressReport(batch=BatchProgress(counts=begun.counts, rate=rate))

    def _call(self, item: BegunItem) -> None:
        self._calls[item.index] = ItemCall(
            self._grant,
            item,
            executor=self._executor,
            hooks=self._hooks,
            clock=self._clock,
            deadline=self._watch.now() + self._policy.item_timeout,
            on_end=self._on_end,
        )

    def _on_end(self, call: ItemCall, outcome: ItemOutcome) -> None:
        self._calls.pop(call.item.index, None)
        self._broken = self._broken or call.broken
        self._ended.append((call.item, outcome))
        self._wake.set()

    async def _rest(self, begun: Begun) -> None:
        """Until an item has ended, its time is over, another one is ready, or somebody wakes us."""
        left = self._time_left(begun)
        if self._wake.is_set() or left <= 0:
            return
        waits = [asyncio.ensure_future(self._wake.wait()), asyncio.ensure_future(self._clock.sleep(left))]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        self._cut_overdue()

    def _time_left(self, begun: Begun) -> Micros:
        left = _LONGEST_REST
        if begun.next_ready_at is not None:
            left = min(left, max(SECOND // 100, begun.next_ready_at - self._clock.now()))
        # All have the same time, so the oldest is due first.
        first = next((call for call in self._calls.values() if not call.is_cut), None)
        if first is not None and not self._watch.is_frozen:
            left = min(left, max(0, first.deadline - self._watch.now()))
        if not self._calls and begun.stop is NoBegin.WAITING:  # to wait for a backoff is no stall
            self._hooks.progressed(ProgressReport())
            left = min(left, (self._grant.definition.stall_after or left) // 2)
        return left

    def _cut_overdue(self) -> None:
        if self._watch.is_frozen:
            return
        now = self._watch.now()
        for call in list(self._calls.values()):
            if call.deadline <= now and not call.is_cut:
                call.cut(ItemCut.TIMEOUT, self._grant.definition.kill_grace)
