"""Items at any store: frozen once, begun once, ended under their begin, and sums that always add up."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.clock import SECOND
from scheduler.errors import AlreadyRunning, Conflict, Invalid, NotFound
from scheduler.model.items import BegunItem, ItemCounts, ItemState, freeze
from scheduler.model.jobs import JobId, JobStatus, Overlap, PauseMode, PauseReason
from scheduler.model.runs import Run, RunReason, RunState
from scheduler.rules.reconcile import Ending
from scheduler.store.protocol import Store
from scheduler.store.values import (
    BeginItems,
    Begun,
    ItemOutcome,
    ItemSlice,
    NoBegin,
    SettleItem,
    StartRequest,
)
from tests.support.builders import JOB, make_definition
from tests.support.clock import FakeClock
from tests.support.desk import Desk

MILLION = 1_000_000


class Batch:
    """A batch run with a frozen list, and its worker's words."""

    def __init__(self, desk: Desk, run: Run) -> None:
        self.desk = desk
        self.store: Store = desk.store
        self.run = run

    async def begin(self, limit: int = 1) -> Begun:
        request = BeginItems(run_id=self.run.id, claim=self.run.claim, limit=limit)
        return (await self.store.begin_items(self.desk.who, [request]))[0]

    async def begin_one(self) -> BegunItem:
        begun = await self.begin()
        assert len(begun.items) == 1, begun
        return begun.items[0]

    async def end(self, item: BegunItem, state: ItemState = ItemState.DONE, **said: Any) -> bool:
        outcome = ItemOutcome(run_id=self.run.id, index=item.index, nonce=item.nonce, state=state, **said)
        return (await self.store.end_items([outcome]))[0]

    async def work(self, *states: ItemState) -> None:
        for state in states:
            await self.end(await self.begin_one(), state)

    async def counts(self) -> ItemCounts:
        counts = await self.store.item_counts(self.run.id)
        assert counts is not None
        return counts

    async def finish(self) -> Run:
        return (await self.desk.finish(self.run, Ending.ITEMS, reason=None)).run

    async def live(self) -> Run:
        return await self.desk.run(self.run)

    async def settle(self, key: str, state: ItemState) -> Run:
        request = SettleItem(run_id=self.run.id, key=key, state=state, peer=self.desk.peer)
        return (await self.store.settle_item(request))[1]

    async def reclaim(self) -> None:
        (grant,) = await self.desk.claim()
        assert grant.run.id == self.run.id
        self.run = grant.run
        while not await self.store.follow_choice(self.run.id, self.run.claim, limit=2):
            continue


async def make_batch(desk: Desk, items: int | list[Any] = 3, **keys: Any) -> Batch:
    values = list(range(items)) if isinstance(items, int) else items
    batch = {"items": values, **keys.pop("batch", {})}
    await desk.add(make_definition(manual=True, on_crash=keys.pop("on_crash", "resume"), batch=batch, **keys))
    run = (await desk.start()).run
    await fill(desk, run, values)
    return Batch(desk, run)


async def fill(desk: Desk, run: Run, items: int | list[Any]) -> None:
    """The list of the run is whole."""
    values = list(range(items)) if isinstance(items, int) else items
    frozen = tuple(freeze(index, value) for index, value in enumerate(values))
    await desk.store.put_items(ItemSlice(run_id=run.id, claim=run.claim, items=frozen))
    await desk.store.complete_items(run.id, run.claim, len(values))


def numbered(start: str) -> list[str]:
    """Sixty keys that begin alike, and are too long to be meant by any short one."""
    return [f"{start}{number:02}{'z' * 60}" for number in range(60)]


async def test_items_are_begun_in_the_order_of_the_list(desk: Desk) -> None:
    """Each begin takes the next item, with its value, its attempt number and a nonce of its own."""
    batch = await make_batch(desk, ["a", {"key": "b", "text": "x"}])

    first, second = (await batch.begin(5)).items

    assert (first.key, first.payload, first.attempts) == ("a", '"a"', 1)
    assert (second.key, second.payload) == ("b", '{"key":"b","text":"x"}')
    assert first.nonce != second.nonce
    assert (await batch.counts()).running == 2


async def test_items_that_wait_for_another_try_are_begun_first(desk: Desk) -> None:
    """In one begin, those come first that wait longest, then the fresh ones, each in its order."""
    batch = await make_batch(desk, 4)
    first, second = (await batch.begin(2)).items
    await batch.end(second, ItemState.PENDING)
    await desk.clock.advance(SECOND)
    await batch.end(first, ItemState.PENDING)
    await desk.clock.advance(SECOND)

    assert [item.index for item in (await batch.begin(9)).items] == [1, 0, 2, 3]


async def test_outcomes_in_one_slice_are_judged_one_after_the_other(desk: Desk) -> None:
    """The first outcome of a begin stands; one given up as unknown is proved by the next; strangers fail."""
    batch = await make_batch(desk, 3)
    first, second, third = (await batch.begin(3)).items

    def told(item: BegunItem, state: ItemState, nonce: str | None = None) -> ItemOutcome:
        return ItemOutcome(run_id=batch.run.id, index=item.index, nonce=nonce or item.nonce, state=state)

    kept = await desk.store.end_items(
        [
            told(first, ItemState.DONE),
            told(second, ItemState.UNKNOWN),
            told(first, ItemState.FAILED),
            told(second, ItemState.DONE),
            told(third, ItemState.DONE, "of another begin"),
        ]
    )

    assert kept == [True, True, False, True, False]
    counts = await batch.counts()
    assert (counts.done, counts.unknown, counts.failed, counts.running) == (2, 0, 0, 1)


async def test_a_misspelt_key_gets_the_nearest_one(desk: Desk) -> None:
    """Also in a long list, of which only the neighbours in order are looked at; else where to look."""
    batch = await make_batch(desk, [f"chapter-{number:03}" for number in range(400)])

    with pytest.raises(NotFound) as misspelt:
        await batch.settle("chapter-2077", ItemState.DONE)
    with pytest.raises(NotFound) as foreign:
        await batch.settle("zzz", ItemState.DONE)

    assert misspelt.value.hint == "did you mean chapter-207?"
    assert foreign.value.hint == f"`schedctl items {batch.run.id}` lists its items"


@pytest.mark.parametrize(
    ("keys", "asked", "meant"),
    [
        ([*numbered("a"), "chapter-1", *numbered("x")], "chapter", "chapter-1"),
        ([*numbered("a"), "chapter-1", *numbered("x")], "chapter-2", "chapter-1"),
        (["chapter", *numbered("chapter")], "chapterchapter", "chapter"),
        ([*numbered("chapter-a"), "chapter-m", *numbered("chapter-n")], "chapter-x", None),
    ],
)
async def test_only_keys_that_stand_near_are_looked_at(
    desk: Desk, keys: list[str], asked: str, meant: str | None
) -> None:
    """Fifty to each side of the key, and of its first half; and none of another run's."""
    for job in ("a", "z"):
        await desk.add(make_definition(job, manual=True, batch={"items": [0]}, on_crash="resume"))
        other = [f"{asked}!{number}" for number in range(60)] + [f"{asked[:-1]}!{n}" for n in range(60)]
        await fill(desk, (await desk.start(JobId(job))).run, other)
    batch = await make_batch(desk, keys)

    with pytest.raises(NotFound) as misspelt:
        await batch.settle(asked, ItemState.DONE)

    expected = (
        f"`schedctl items {batch.run.id}` lists its items" if meant is None else f"did you mean {meant}?"
    )
    assert misspelt.value.hint == expected


async def test_a_list_is_not_begun_before_it_is_whole(desk: Desk) -> None:
    """A crash in the middle of writing leaves a list that nobody takes for whole."""
    await desk.add(make_definition(manual=True, on_crash="resume", batch={"items": [1, 2]}))
    run = (await desk.start()).run
    await desk.store.put_items(ItemSlice(run_id=run.id, claim=1, items=(freeze(0, 1),)))

    begun = await Batch(desk, run).begin()

    assert (begun.items, begun.stop) == ((), NoBegin.FENCED)
    with pytest.raises(Conflict):
        await desk.store.complete_items(run.id, 1, 2)
    assert await desk.store.clear_items(run.id, 1, limit=10)
    await desk.store.complete_items(run.id, 1, 0)


async def test_a_whole_list_is_frozen(desk: Desk) -> None:
    """Nothing is added to it, and it is not cleared."""
    batch = await make_batch(desk, 2)

    with pytest.raises(Conflict):
        await desk.store.put_items(ItemSlice(run_id=batch.run.id, claim=1, items=(freeze(2, 9),)))
    await desk.store.clear_items(batch.run.id, 1, limit=10)

    assert [item.key for item in await desk.store.items(batch.run.id, state=None, after=None, limit=9)] == [
        "0",
        "1",
    ]


async def test_keys_that_stand_twice_are_named(desk: Desk) -> None:
    """Within a slice and across slices, with both places."""
    await desk.add(make_definition(manual=True, on_crash="resume", batch={"items": [1]}))
    run = (await desk.start()).run
    await desk.store.put_items(ItemSlice(run_id=run.id, claim=1, items=(freeze(0, "x"),)))

    with pytest.raises(Invalid, match=r"x \(items 0 and 1\)"):
        await desk.store.put_items(ItemSlice(run_id=run.id, claim=1, items=(freeze(1, "x"),)))
    with pytest.raises(Invalid, match=r"y \(items 1 and 2\)"):
        await desk.store.put_items(ItemSlice(run_id=run.id, claim=1, items=(freeze(1, "y"), freeze(2, "y"))))


async def test_a_done_item_is_never_begun_again(desk: Desk) -> None:
    """I9: neither by its worker nor after a crash, a retry or a settlement."""
    batch = await make_batch(desk, 1)
    item = await batch.begin_one()
    assert await batch.end(item, result='"ok"')

    assert (await batch.begin()).stop is NoBegin.EMPTY
    assert not await batch.end(item, ItemState.FAILED)
    assert (await batch.finish()).state is RunState.SUCCEEDED
    with pytest.raises(Conflict, match="nothing to retry"):
        await desk.store.retry(batch.run.id, desk.peer)
    with pytest.raises(Conflict, match="never run again"):
        await batch.settle("0", ItemState.PENDING)


@pytest.mark.parametrize("mode", [PauseMode.ITEM, PauseMode.CANCEL])
async def test_no_item_begins_against_the_operators_wish(desk: Desk, mode: PauseMode) -> None:
    """A begin after the commit of a pause changes nothing."""
    batch = await make_batch(desk, 2)
    await desk.pause(mode=mode)

    begun = await batch.begin()

    assert begun.items == ()
    assert begun.stop is {PauseMode.ITEM: NoBegin.HELD, PauseMode.CANCEL: NoBegin.CANCELLED}[mode]


async def test_no_item_begins_under_an_old_claim(desk: Desk) -> None:
    """I3: a worker whose claim moved on begins nothing."""
    batch = await make_batch(desk, 2)
    await desk.crash(batch.run)
    await desk.claim()

    assert (await batch.begin()).stop is NoBegin.FENCED


async def test_a_draining_daemon_begins_no_item(desk: Desk) -> None:
    """I12."""
    batch = await make_batch(desk, 2)
    desk.who.draining = True

    assert await batch.begin() == Begun(stop=NoBegin.DRAINING)


@pytest.mark.parametrize(
    ("unknown", "state"),
    [("hold", ItemState.UNKNOWN), ("retry", ItemState.PENDING), ("fail", ItemState.FAILED)],
)
async def test_what_was_at_work_at_a_crash_follows_the_jobs_rule(
    desk: Desk, unknown: str, state: ItemState
) -> None:
    """I9: in the FINISH of the recovery, so that no run is seen without a worker and with an item at work."""
    batch = await make_batch(desk, 3, batch={"unknown": unknown})
    await batch.work(ItemState.DONE)
    item = await batch.begin_one()

    finished = await desk.crash(batch.run)

    assert finished.run.state is RunState.WAITING
    assert (await desk.store.item(batch.run.id, item.key)).state is state
    assert (await batch.counts()).running == 0
    await batch.reclaim()
    again = (await batch.begin(5)).items
    assert [one.key for one in again] == (["1", "2"] if unknown == "retry" else ["2"])


async def test_a_late_proof_is_kept(desk: Desk) -> None:
    """An item that was given up as unknown is done after all, and the run is judged anew."""
    batch = await make_batch(desk, 1)
    item = await batch.begin_one()
    await desk.crash(batch.run)
    await batch.reclaim()
    assert (await batch.finish()).state is RunState.PARTIAL

    assert await batch.end(item, result='"late"')

    live = await batch.live()
    assert (live.state, live.progress.done, live.progress.unknown) == (RunState.SUCCEEDED, 1, 0)


async def test_an_outcome_of_an_earlier_begin_is_not_kept(desk: Desk) -> None:
    """The nonce fences: who was given up and begun again is ended by its last worker alone."""
    batch = await make_batch(desk, 1, batch={"unknown": "retry"})
    old = await batch.begin_one()
    await desk.crash(batch.run)
    await batch.reclaim()
    new = await batch.begin_one()

    assert (new.key, new.attempts) == (old.key, 2)
    assert not await batch.end(old, ItemState.FAILED)
    assert await batch.end(new)


async def test_a_failed_item_waits_for_its_next_try(desk: Desk, clock: FakeClock) -> None:
    """It is begun again when its time has come, before those that were never begun."""
    batch = await make_batch(desk, 3)
    item = await batch.begin_one()
    await batch.end(item, ItemState.PENDING, wait=5 * SECOND, charged=True)
    assert (await batch.begin_one()).key == "1"

    clock.move(5 * SECOND)
    again = await batch.begin_one()

    assert (again.key, again.attempts, again.tries) == ("0", 2, 1)


async def test_waiting_items_tell_when_they_are_ready(desk: Desk, clock: FakeClock) -> None:
    """A worker with nothing else to do knows how long to wait."""
    batch = await make_batch(desk, 1)
    await batch.end(await batch.begin_one(), ItemState.PENDING, wait=5 * SECOND)

    begun = await batch.begin()

    assert (begun.stop, begun.next_ready_at) == (NoBegin.WAITING, clock.now() + 5 * SECOND)


@pytest.mark.parametrize(
    ("states", "state", "reason"),
    [
        ([ItemState.DONE] * 3, RunState.SUCCEEDED, None),
        ([ItemState.DONE, ItemState.FAILED, ItemState.DONE], RunState.PARTIAL, RunReason.ITEMS_FAILED),
        ([ItemState.FAILED] * 3, RunState.FAILED, RunReason.ITEMS_FAILED),
        ([ItemState.FAILED, ItemState.UNKNOWN, ItemState.DONE], RunState.PARTIAL, RunReason.UNKNOWN_ITEMS),
    ],
)
async def test_the_end_is_decided_from_rows(
    desk: Desk, states: list[ItemState], state: RunState, reason: RunReason | None
) -> None:
    """All done, some failed, all failed, some unknown."""
    batch = await make_batch(desk, 3)
    await batch.work(*states)

    run = await batch.finish()

    assert (run.state, run.reason) == (state, reason)


async def test_an_empty_list_succeeds(desk: Desk) -> None:
    """0 of 0 is done."""
    batch = await make_batch(desk, 0)

    assert (await batch.begin()).stop is NoBegin.EMPTY
    run = await batch.finish()

    assert (run.state, run.progress.done, run.progress.total) == (RunState.SUCCEEDED, 0, 0)


@pytest.mark.parametrize(
    ("threshold", "states", "stops"),
    [
        ({"max_failed": 2}, [ItemState.FAILED, ItemState.DONE, ItemState.FAILED], True),
        ({"max_failed_percent": 20.0}, [ItemState.DONE, ItemState.FAILED, ItemState.FAILED], True),
        ({"max_failed_percent": 40.0}, [ItemState.DONE, ItemState.FAILED, ItemState.FAILED], False),
        ({"max_consecutive_failed": 2}, [ItemState.FAILED, ItemState.DONE, ItemState.FAILED], False),
        ({"max_consecutive_failed": 2}, [ItemState.DONE, ItemState.FAILED, ItemState.FAILED], True),
    ],
)
async def test_enough_failures_stop_the_batch(
    desk: Desk,
    threshold: dict[str, Any],
    states: list[ItemState],
    stops: bool,
) -> None:
    """No further item begins; the run failed, and what was not begun stays so."""
    batch = await make_batch(desk, 10, batch=threshold)
    await batch.work(*states)

    begun = await batch.begin()

    assert (begun.stop is NoBegin.FAILED_ENOUGH) is stops
    if stops:
        run = await batch.finish()
        assert (run.state, run.reason) == (RunState.FAILED, RunReason.ITEMS_FAILED)
        assert (await batch.counts()).pending == 7


async def test_a_batch_held_by_a_pause_goes_on_after_resume(desk: Desk) -> None:
    """`item`: running items end, none begins, the run is held; resume lets it wait for its next claim."""
    batch = await make_batch(desk, 3)
    item = await batch.begin_one()
    await desk.pause(mode=PauseMode.ITEM)
    await batch.end(item)
    assert (await batch.finish()).state is RunState.HELD

    await desk.resume()
    await batch.reclaim()

    assert [one.key for one in (await batch.begin(5)).items] == ["1", "2"]


async def test_a_resume_that_races_with_the_last_item_leaves_nothing_held(desk: Desk) -> None:
    """The step to `held` is conditional on the wish as it is then."""
    batch = await make_batch(desk, 3)
    await desk.pause(mode=PauseMode.ITEM)
    assert (await batch.begin()).stop is NoBegin.HELD
    await desk.resume()

    assert (await batch.finish()).state is RunState.WAITING


async def test_cancel_leaves_the_rest_not_started(desk: Desk) -> None:
    """What was not begun is pending, not failed; what was at work is unknown; retry goes on from there."""
    batch = await make_batch(desk, 4)
    await batch.work(ItemState.DONE)
    await batch.begin_one()
    await desk.cancel(batch.run)

    run = (await desk.finish(batch.run, Ending.CANCELLED)).run

    counts = await batch.counts()
    assert run.state is RunState.CANCELLED
    assert (counts.done, counts.unknown, counts.pending, counts.failed) == (1, 1, 2, 0)
    await desk.store.retry(run.id, desk.peer)
    await batch.reclaim()
    assert [one.key for one in (await batch.begin(9)).items] == ["2", "3"]


async def test_retry_failed_runs_exactly_the_failed_ones(desk: Desk) -> None:
    """Under the same run, with the same keys; the done ones stay counted."""
    batch = await make_batch(desk, 5)
    await batch.work(ItemState.DONE, ItemState.FAILED, ItemState.DONE)
    await desk.cancel(batch.run)
    await desk.finish(batch.run, Ending.CANCELLED)

    await desk.store.retry(batch.run.id, desk.peer, failed_only=True)
    with pytest.raises(AlreadyRunning):
        await desk.store.retry(batch.run.id, desk.peer, failed_only=True)
    await batch.reclaim()
    begun = await batch.begin(9)

    assert [(one.key, one.attempts) for one in begun.items] == [("1", 2)]
    await batch.end(begun.items[0])
    run = await batch.finish()
    assert (run.state, run.progress.done) == (RunState.PARTIAL, 3)


async def test_a_retry_that_is_cancelled_in_the_queue_leaves_failed_items_failed(desk: Desk) -> None:
    """They count as pending only while the run is on its way; the next retry takes the same ones."""
    batch = await make_batch(desk, 4)
    await batch.work(ItemState.DONE, ItemState.FAILED, ItemState.FAILED, ItemState.DONE)
    await batch.finish()

    await desk.store.retry(batch.run.id, desk.peer, failed_only=True)
    queued = await batch.counts()
    await desk.cancel(batch.run)
    cancelled = await batch.counts()

    assert (queued.failed, queued.pending, queued.chosen) == (0, 2, 2)
    assert (cancelled.failed, cancelled.pending) == (2, 0)
    await desk.store.retry(batch.run.id, desk.peer, failed_only=True)
    await batch.reclaim()
    assert [item.key for item in (await batch.begin(9)).items] == ["1", "2"]


async def test_retry_of_named_items(desk: Desk) -> None:
    """Only those run; one that is not in the list, or done, is refused by name."""
    batch = await make_batch(desk, 3)
    await batch.work(ItemState.FAILED, ItemState.FAILED, ItemState.DONE)
    await batch.finish()

    with pytest.raises(NotFound, match="new"):
        await desk.store.retry(batch.run.id, desk.peer, keys=["0", "new"])
    with pytest.raises(Conflict, match="2 is done"):
        await desk.store.retry(batch.run.id, desk.peer, keys=["2"])
    await desk.store.retry(batch.run.id, desk.peer, keys=["1"])
    await batch.reclaim()

    assert [one.key for one in (await batch.begin(9)).items] == ["1"]


async def test_settling_the_last_unknown_item_ends_the_run_well(desk: Desk) -> None:
    """From partial to succeeded, once nothing is left that is not done."""
    batch = await make_batch(desk, 2)
    await batch.work(ItemState.DONE, ItemState.UNKNOWN)
    assert (await batch.finish()).reason == RunReason.UNKNOWN_ITEMS

    run = await batch.settle("1", ItemState.DONE)

    assert (run.state, run.reason, run.progress.done, run.progress.unknown) == (
        RunState.SUCCEEDED,
        None,
        2,
        0,
    )


async def test_an_item_settled_as_pending_is_what_a_retry_runs(desk: Desk) -> None:
    """The operator says that the call had no effect: it is run again under the same key."""
    batch = await make_batch(desk, 2)
    await batch.work(ItemState.DONE, ItemState.UNKNOWN)
    await batch.finish()
    with pytest.raises(Conflict, match="nothing to retry"):
        await desk.store.retry(batch.run.id, desk.peer)

    run = await batch.settle("1", ItemState.PENDING)
    assert run.state is RunState.PARTIAL
    await desk.store.retry(batch.run.id, desk.peer)
    await batch.reclaim()

    assert [(one.key, one.attempts) for one in (await batch.begin(9)).items] == [("1", 2)]


async def test_settlement_tells_what_is_left_to_run(desk: Desk) -> None:
    """A run at rest keeps its state; reason and message follow each word of the operator."""
    batch = await make_batch(desk, 3)
    await batch.work(ItemState.UNKNOWN, ItemState.UNKNOWN, ItemState.UNKNOWN)
    await batch.finish()

    again = await batch.settle("0", ItemState.PENDING)
    await batch.settle("1", ItemState.DONE)
    given_up = await batch.settle("2", ItemState.FAILED)
    changed_mind = await batch.settle("2", ItemState.DONE)

    assert {run.state for run in (again, given_up, changed_mind)} == {RunState.PARTIAL}
    assert [
        (run.reason, (run.message or "").partition(";")[0]) for run in (again, given_up, changed_mind)
    ] == [
        (RunReason.UNKNOWN_ITEMS, "0 of 3 done, 2 unknown, 1 left to run"),
        (RunReason.ITEMS_FAILED, "1 of 3 done, 1 failed, 1 left to run"),
        (RunReason.ITEMS_FAILED, "2 of 3 done, 1 left to run"),
    ]


async def test_settlement_keeps_the_cause_of_an_end_that_was_not_the_items(desk: Desk) -> None:
    """A cancelled run with items left stays one that was cancelled; only its tally is told anew."""
    batch = await make_batch(desk, 3)
    await batch.begin_one()
    await desk.cancel(batch.run)
    await desk.finish(batch.run, Ending.CANCELLED, reason=RunReason.CANCELLED, message="cancelled by uid:0")

    run = await batch.settle("0", ItemState.PENDING)

    assert (run.state, run.reason) == (RunState.CANCELLED, RunReason.CANCELLED)
    assert run.message == "cancelled by uid:0; 0 of 3 done, 3 left to run"


async def test_an_item_at_work_is_its_workers(desk: Desk) -> None:
    """An operator's word on it is refused."""
    batch = await make_batch(desk, 1)
    await batch.begin_one()

    with pytest.raises(Conflict, match="running"):
        await batch.settle("0", ItemState.DONE)


@pytest.mark.parametrize("last", [ItemState.UNKNOWN, None])
async def test_a_fresh_run_is_refused_while_an_earlier_one_is_not_whole(
    desk: Desk, last: ItemState | None
) -> None:
    """An unknown item, or one that was never begun: the answer names the run and the hint `retry`."""
    batch = await make_batch(desk, 2)
    await batch.work(ItemState.DONE, *([last] if last else []))
    await desk.cancel(batch.run)
    await desk.finish(batch.run, Ending.CANCELLED)

    with pytest.raises(AlreadyRunning) as refused:
        await desk.start()

    assert refused.value.run_id == batch.run.id
    assert "retry" in (refused.value.hint or "")
    request = StartRequest(job_id=JOB, run_id=desk.clock.run_id(), peer=desk.peer, new=True)
    (started,) = await desk.store.start(desk.who, [request])
    assert not isinstance(started, Exception)


@pytest.mark.parametrize(
    ("ending", "work", "state"),
    [
        (Ending.ITEMS, [ItemState.DONE, ItemState.UNKNOWN], RunState.PARTIAL),
        (Ending.FAILED, [ItemState.UNKNOWN], RunState.FAILED),
        (Ending.CRASHED, [ItemState.UNKNOWN], RunState.CRASHED),
        (Ending.SHUTDOWN, [ItemState.DONE], RunState.INTERRUPTED),
        (Ending.CANCELLED, [], RunState.CANCELLED),
    ],
)
async def test_the_newest_run_that_is_not_whole_keeps_a_fresh_one_away(
    desk: Desk, ending: Ending, work: list[ItemState], state: RunState
) -> None:
    """However it ended, with an item in doubt or left; an older one is not named."""
    batch = await make_batch(desk, 2, on_crash="record")
    await desk.finish(batch.run, Ending.CANCELLED)
    request = StartRequest(job_id=JOB, run_id=desk.clock.run_id(), peer=desk.peer, new=True)
    (started,) = await desk.store.start(desk.who, [request])
    assert not isinstance(started, Exception)
    run = started.run
    await fill(desk, run, 2)
    await Batch(desk, run).work(*work)
    if ending is Ending.CRASHED:
        run = await desk.take(run)
    assert (await desk.finish(run, ending, retryable=False)).run.state is state

    with pytest.raises(AlreadyRunning) as refused:
        await desk.start()

    assert refused.value.run_id == run.id


async def test_what_is_not_whole_elsewhere_keeps_no_fresh_run_away(desk: Desk) -> None:
    """Neither a run of another job nor one at work."""
    for job in (JOB, JobId("other")):
        await desk.add(make_definition(job, manual=True, batch={"items": [0, 1]}, on_crash="resume"))

    fresh = await desk.start()
    await fill(desk, fresh.run, 2)
    behind = await desk.start(overlap=Overlap.QUEUE)
    await desk.cancel(behind.run)
    await desk.finish(fresh.run, Ending.CANCELLED)

    assert fresh.grant is not None
    assert behind.run.state is RunState.QUEUED
    assert (await desk.start(JobId("other"))).grant is not None


async def test_a_batch_put_back_is_not_paid_for_again(desk: Desk) -> None:
    """What a run left in doubt keeps a fresh one away, though its job was removed since; `retry` goes on."""
    batch = await make_batch(desk, 2)
    await desk.finish(batch.run, Ending.CANCELLED)
    await desk.remove()
    await desk.add(make_definition(manual=True, batch={"items": [0, 1]}, on_crash="resume"))

    with pytest.raises(AlreadyRunning) as refused:
        await desk.start()

    assert refused.value.run_id == batch.run.id
    await desk.store.retry(batch.run.id, desk.peer)
    assert [grant.run.id for grant in await desk.claim()] == [batch.run.id]


async def test_failed_items_alone_do_not_keep_a_fresh_run_away(desk: Desk) -> None:
    """Only what was cut, or is in doubt, may be billed twice by a fresh run."""
    batch = await make_batch(desk, 2)
    await batch.work(ItemState.DONE, ItemState.FAILED)
    await batch.finish()

    assert (await desk.start()).grant is not None


async def test_an_item_of_a_live_worker_is_never_wedged(desk: Desk) -> None:
    """Neither while its run goes on nor under a later claim; what is left begun: races/test_item_flaws."""
    batch = await make_batch(desk, 2)
    await batch.work(ItemState.DONE)
    late = await batch.begin_one()
    await batch.finish()
    assert (await desk.store.look()).wedged == ()
    await batch.end(late, ItemState.PENDING)
    await desk.store.retry(batch.run.id, desk.peer)
    await batch.reclaim()
    await batch.begin_one()

    assert (await desk.store.look()).wedged == ()
    assert await desk.store.settle_wedged(batch.run.id) == [], "a live worker's item was taken from it"


async def test_an_item_done_forgives_crashes(desk: Desk) -> None:
    """A job that gets on is no poison: three deaths with an item done between them do not pause it."""
    batch = await make_batch(desk, 9)
    for _ in range(4):
        await batch.work(ItemState.DONE)
        await desk.crash(batch.run)
        await batch.reclaim()

    assert (await desk.job()).status is JobStatus.ACTIVE


# --- money ---
BUDGET = {"per_run": 1.0, "unit": "EUR", "cost_estimate": 0.4}


async def test_a_begin_reserves_the_estimate_and_its_end_replaces_it(desk: Desk) -> None:
    """The sum of the run is that of its items, all the time."""
    batch = await make_batch(desk, 3, budget=BUDGET)

    item = await batch.begin_one()
    assert (await batch.live()).spent == 400_000
    await batch.end(item, cost=50_000)

    assert (await batch.live()).spent == 50_000
    assert (await batch.live()).cost == 0.05


async def test_an_unknown_item_keeps_its_estimate_until_its_cost_is_told(desk: Desk) -> None:
    """It may have been billed; a late proof brings the real cost."""
    batch = await make_batch(desk, 2, budget=BUDGET)
    item = await batch.begin_one()
    await batch.end(item, ItemState.UNKNOWN)
    assert (await batch.live()).spent == 400_000

    await batch.end(item, cost=10_000)

    assert (await batch.live()).spent == 10_000


async def test_at_the_cap_the_job_is_paused(desk: Desk) -> None:
    """Reason `budget`, by schedulerd, through the pause: its run is held, a start is refused."""
    batch = await make_batch(desk, 5, budget=BUDGET)
    begun = await batch.begin(5)
    assert len(begun.items) == 2, "two estimates fit under the cap"
    assert (await batch.begin()).stop is NoBegin.WAITING, "those under way may turn out cheaper"
    for item in begun.items:
        await batch.end(item)

    stopped = await batch.begin()

    assert stopped.stop is NoBegin.BUDGET
    job = await desk.job()
    assert job.pause is not None
    assert (job.pause.reason, job.pause.by, job.pause.mode) == (
        PauseReason.BUDGET,
        "schedulerd",
        PauseMode.ITEM,
    )
    assert (await batch.finish()).state is RunState.HELD
    with pytest.raises(Conflict, match="budget"):
        await desk.start()


async def test_at_the_cap_a_pause_stays_its_operators(desk: Desk) -> None:
    """I4: a job that was paused meanwhile keeps who and why, and gets the words of the cap beside them."""
    batch = await make_batch(desk, 2, budget={"per_run": 1.0, "cost_estimate": 1.0})
    await batch.work(ItemState.DONE)
    await desk.pause(note="month end")

    assert (await batch.begin()).stop is NoBegin.BUDGET

    pause = (await desk.job()).pause
    assert pause is not None
    assert (pause.reason, pause.by, pause.mode) == (PauseReason.OPERATOR, "uid:1000", PauseMode.DRAIN)
    assert pause.note == "month end; budget.per_run = 1 is reached: 1 spent by this run"


async def test_a_day_is_a_day_of_the_jobs_zone(desk: Desk, clock: FakeClock) -> None:
    """The cap of a day is lifted at midnight there, not in UTC."""
    budget = {"per_day": 0.5, "cost_estimate": 0.4}
    batch = await make_batch(desk, 5, budget=budget, timezone="Pacific/Kiritimati")  # UTC+14: 02:00 there
    await batch.work(ItemState.DONE)
    clock.move(21 * 3600 * SECOND)
    assert (await batch.begin()).stop is NoBegin.BUDGET

    clock.move(3600 * SECOND)
    await desk.resume()

    assert len((await batch.begin()).items) == 1


async def test_pages_of_items(desk: Desk) -> None:
    """In the order of the list, all of them or those in one state; of this run alone."""
    await desk.add(make_definition("a", manual=True, batch={"items": [0]}, on_crash="resume"))
    beside = (await desk.start(JobId("a"))).run
    await fill(desk, beside, 7)
    await Batch(desk, beside).work(*[ItemState.DONE] * 7)
    batch = await make_batch(desk, 5)
    await batch.work(ItemState.DONE, ItemState.FAILED, ItemState.DONE)

    first = await desk.store.items(batch.run.id, state=None, after=None, limit=3)
    rest = await desk.store.items(batch.run.id, state=None, after=(0, first[-1].index), limit=3)
    done = await desk.store.items(batch.run.id, state="done", after=None, limit=1)
    more = await desk.store.items(batch.run.id, state="done", after=(0, done[0].index), limit=9)

    assert [item.key for item in first] == ["0", "1", "2"]
    assert [item.key for item in rest] == ["3", "4"]
    assert [item.key for item in (*done, *more)] == ["0", "2"]
