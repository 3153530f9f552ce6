from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from scheduler.clock import MILLISECOND, SECOND, Micros
from scheduler.errors import Conflict, SchedulerError, StoreUnavailable
from scheduler.store.schema import load_queries, prepare
from scheduler.store.transaction import Transaction
from scheduler.store.writer import ANSWERS, MAX_BATCH, ThreadConnection, Writer
from tests.support.clock import FakeClock, settle
from tests.support.gates import Gate, HeldQueries
from tests.support.stores import Trouble, dump

PATIENCE = SECOND


class Desk:
    """A writer on a file of its own, and what it did."""

    def __init__(self, writer: Writer, connection: ThreadConnection, path: Path) -> None:
        self.writer = writer
        self.connection = connection
        self.path = path
        self.commits: list[str] = []

    def note(self, name: str) -> Callable[[Transaction], str]:
        """Work that writes one row and answers its name."""

        def work(tx: Transaction) -> str:
            tx.execute("write_meta", name=name, value=1)
            return name

        return work

    async def submit(self, work: Callable[[Transaction], Any], patience: Micros | None = PATIENCE) -> Any:
        return await self.writer.submit(work, patience=patience)

    def submitted(
        self, work: Callable[[Transaction], Any], patience: Micros | None = PATIENCE
    ) -> asyncio.Task[Any]:
        return asyncio.create_task(self.submit(work, patience))

    def noted(self) -> set[str]:
        """What has committed, as another process sees it."""
        return {row["name"] for row in dump(self.path)["meta"]} - {"store_id"}


@asynccontextmanager
async def writing(
    path: Path,
    clock: FakeClock,
    trouble: Callable[[StoreUnavailable | None], None],
    queries: Mapping[str, str] | None = None,
) -> AsyncIterator[Desk]:
    prepare(path)
    connect = partial(sqlite3.connect, path, isolation_level=None, timeout=0)
    connection = await ThreadConnection.connected(connect)
    writer = Writer(connection, queries or load_queries(), clock, trouble)
    desk = Desk(writer, connection, path)
    await connection.run(
        lambda db: db.set_trace_callback(
            lambda sql: desk.commits.append(sql) if sql.endswith("COMMIT") else None
        )
    )
    try:
        yield desk
    finally:
        closing = asyncio.create_task(writer.close(0))
        await settle()
        await clock.advance(2 * SECOND)
        await closing
        await connection.close()


@pytest.fixture
async def desk(path: Path, clock: FakeClock, trouble: Trouble) -> AsyncIterator[Desk]:
    async with writing(path, clock, trouble) as opened:
        yield opened


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another process holds the writing lock."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        db.execute("ROLLBACK")
        db.close()


async def keep_trying(clock: FakeClock, duration: Micros) -> None:
    """The writer tried again and again for so long, or until nothing waited any more."""
    until = clock.monotonic() + duration
    while (rest := until - clock.monotonic()) > 0:
        for _ in range(100):  # the thread's answer comes in real time
            if clock.sleepers:
                break
            await asyncio.sleep(0.001)
        await clock.advance(min(clock.nearest() or rest, rest))


# --- I15 ---
async def test_many_answers_are_given_in_turns(desk: Desk) -> None:
    """I15: of all that one commit answers no more than a few go on in the same turn of the loop."""
    turns = [0]

    async def ask(number: int) -> None:
        await desk.submit(desk.note(f"row-{number}"))
        turns[-1] += 1

    asking = asyncio.gather(*(ask(number) for number in range(3 * ANSWERS)))
    while not asking.done():
        turns.append(0)
        await asyncio.sleep(0)

    assert sum(turns) == 3 * ANSWERS
    assert max(turns) <= ANSWERS
    assert len(desk.commits) == 1


# --- I10 ---
async def test_an_answer_comes_after_the_commit(desk: Desk) -> None:
    """I10: while the work is under way others see nothing of it; once it was answered they see all."""
    gate = Gate()

    def work(tx: Transaction) -> str:
        tx.execute("write_meta", name="row", value=1)
        gate.pass_through()
        return "done"

    task = desk.submitted(work)
    await gate.reached()
    assert desk.noted() == set()
    assert not task.done()
    gate.open()

    assert await task == "done"
    assert desk.noted() == {"row"}


async def test_an_answer_waits_for_the_commit_itself(path: Path, clock: FakeClock, trouble: Trouble) -> None:
    """I10: work that is complete, but whose COMMIT has not run, is not answered."""
    gate = Gate()
    async with writing(path, clock, trouble, HeldQueries(gate, "commit")) as desk:
        task = desk.submitted(desk.note("row"))
        await gate.reached()
        await settle()
        assert not task.done()
        assert desk.noted() == set()
        gate.open()

        assert await task == "row"
        assert desk.noted() == {"row"}


# --- group commit ---
async def test_what_waits_goes_into_one_transaction(desk: Desk) -> None:
    """Requests that arrive during a commit form the next one, and each has its own answer."""
    gate = Gate()
    first = desk.submitted(lambda _: gate.pass_through())
    await gate.reached()
    rest = [desk.submitted(desk.note(f"row-{number}")) for number in range(50)]
    await settle()
    gate.open()

    answers = await asyncio.gather(first, *rest)

    assert answers[1:] == [f"row-{number}" for number in range(50)]
    assert len(desk.commits) == 2
    assert len(desk.noted()) == 50


async def test_a_lone_request_waits_for_nobody(desk: Desk) -> None:
    """No sleep gathers a batch: one request is one commit at once."""
    for number in range(3):
        await desk.submit(desk.note(f"row-{number}"))

    assert len(desk.commits) == 3


async def test_a_transaction_is_bounded(desk: Desk) -> None:
    """I15: more requests than MAX_BATCH make more than one transaction, in the order they came."""
    gate, order = Gate(), count()
    first = desk.submitted(lambda _: gate.pass_through())
    await gate.reached()
    rest = [desk.submitted(lambda _: next(order)) for _ in range(2 * MAX_BATCH + 1)]
    await settle()
    gate.open()

    answers = await asyncio.gather(first, *rest)

    assert answers[1:] == list(range(2 * MAX_BATCH + 1))
    assert len(desk.commits) == 1 + 3


def refuse(_: Transaction) -> None:
    raise Conflict("no")


def break_a_rule(tx: Transaction) -> None:
    tx.execute("write_meta", name="half", value=1)
    tx.execute("write_meta", name=None, value=1)


def stumble(tx: Transaction) -> None:
    tx.execute("write_meta", name="half", value=1)
    tx.execute("no_such_query")


@pytest.mark.parametrize(
    ("faulty", "error"), [(refuse, Conflict), (break_a_rule, SchedulerError), (stumble, SchedulerError)]
)
async def test_a_faulty_request_fails_alone(
    desk: Desk, faulty: Callable[[Transaction], None], error: type[Exception]
) -> None:
    """A refusal, a broken rule of the data and a bug of ours each end one request and leave nothing of it."""
    gate = Gate()
    first = desk.submitted(lambda _: gate.pass_through())
    await gate.reached()
    before, bad, after = (desk.submitted(work) for work in (desk.note("a"), faulty, desk.note("b")))
    await settle()
    gate.open()

    await asyncio.gather(first, before, after)
    with pytest.raises(error):
        await bad

    assert desk.noted() == {"a", "b"}
    assert len(desk.commits) == 2


async def test_an_error_of_the_data_keeps_its_cause(desk: Desk) -> None:
    """Foreign errors are translated at the edge of the store; the log still shows where they came from."""
    with pytest.raises(SchedulerError, match="nothing was written") as caught:
        await desk.submit(break_a_rule)

    assert not isinstance(caught.value, StoreUnavailable)
    assert isinstance(caught.value.__cause__, sqlite3.IntegrityError)


async def test_the_writer_goes_on_after_a_bug(desk: Desk) -> None:
    """A request that stumbles over a bug of ours does not end the writer."""
    with pytest.raises(SchedulerError):
        await desk.submit(stumble)

    assert await desk.submit(desk.note("after")) == "after"


async def test_a_cancelled_caller_leaves_its_work(desk: Desk) -> None:
    """A caller that is gone takes nothing back: what it submitted commits."""
    gate = Gate()
    first = desk.submitted(lambda _: gate.pass_through())
    await gate.reached()
    waiting = desk.submitted(desk.note("row"))
    await settle()
    first.cancel()
    waiting.cancel()
    await settle()
    gate.open()

    await desk.submit(desk.note("last"))

    assert first.cancelled()
    assert waiting.cancelled()
    assert desk.noted() == {"row", "last"}


async def test_a_cancelled_caller_of_a_refused_request_disturbs_nobody(desk: Desk) -> None:
    """An error that nobody is there to hear is not reported as unheard."""
    task = desk.submitted(refuse)
    await settle()
    task.cancel()

    assert await desk.submit(desk.note("row")) == "row"


# --- I14: BUSY ---
async def test_a_locked_store_is_told_after_patience(desk: Desk, clock: FakeClock, trouble: Trouble) -> None:
    """I14: a verb waits as long as its patience, then says that the store cannot commit."""
    with locked(desk.path):
        task = desk.submitted(desk.note("row"))
        await keep_trying(clock, PATIENCE - MILLISECOND)
        assert not task.done()
        await keep_trying(clock, 2 * SECOND)
        with pytest.raises(StoreUnavailable, match="locked"):
            await task

    await desk.submit(desk.note("other"))
    assert desk.noted() == {"other"}


async def test_an_outcome_is_kept_and_written_when_it_works_again(
    desk: Desk, clock: FakeClock, trouble: Trouble
) -> None:
    """I14: what has no patience to end is kept for an hour of trouble, and then written."""
    with locked(desk.path):
        task = desk.submitted(desk.note("outcome"), None)
        await keep_trying(clock, 10 * SECOND)
        clock.move(3_600 * SECOND)
        assert not task.done()
    await clock.advance(SECOND)

    assert await task == "outcome"
    assert desk.noted() == {"outcome"}


async def test_trouble_is_told_once_and_its_end_once(desk: Desk, clock: FakeClock, trouble: Trouble) -> None:
    """I14: however often the writer tries, one error and one None are told; the next trouble anew."""
    for _ in range(2):
        trouble.told.clear()
        with locked(desk.path):
            task = desk.submitted(desk.note("row"), None)
            await keep_trying(clock, 5 * SECOND)
            assert len(trouble.told) == 1
        await clock.advance(SECOND)
        await task

        assert isinstance(trouble.told[0], StoreUnavailable)
        assert trouble.told[1:] == [None]


async def test_the_end_of_trouble_is_told_also_where_nobody_waited_for_it(
    desk: Desk, clock: FakeClock, trouble: Trouble
) -> None:
    """I14: if all gave up during the trouble, the first commit that works again tells that it is over."""
    with locked(desk.path):
        task = desk.submitted(desk.note("row"))
        await keep_trying(clock, 3 * SECOND)
        with pytest.raises(StoreUnavailable):
            await task
    await desk.submit(desk.note("other"))

    assert [error is None for error in trouble.told] == [False, True]


async def test_what_arrives_during_trouble_has_its_own_patience(desk: Desk, clock: FakeClock) -> None:
    """I14: an outcome that is kept for ever does not make the verbs behind it wait for ever."""
    with locked(desk.path):
        outcome = desk.submitted(desk.note("outcome"), None)
        await keep_trying(clock, SECOND)
        verb = desk.submitted(desk.note("verb"))
        await keep_trying(clock, 4 * SECOND)

        assert verb.done()
        with pytest.raises(StoreUnavailable):
            await verb
        assert not outcome.done()
    await clock.advance(SECOND)
    await outcome


async def test_what_arrives_during_trouble_joins_the_next_try(desk: Desk, clock: FakeClock) -> None:
    """What was kept and what came meanwhile commit together."""
    with locked(desk.path):
        tasks = [desk.submitted(desk.note("first"), None)]
        await keep_trying(clock, SECOND)
        tasks += [desk.submitted(desk.note(f"later-{number}")) for number in range(5)]
        await settle()
    desk.commits.clear()
    await clock.advance(SECOND)
    await asyncio.gather(*tasks)

    assert len(desk.commits) == 1


async def test_the_waits_between_tries_grow_to_a_second(desk: Desk, clock: FakeClock) -> None:
    """A store in trouble is tried soon, then ever more rarely, and never more rarely than every second."""
    waits: list[Micros] = []
    with locked(desk.path):
        task = desk.submitted(desk.note("row"), None)
        for _ in range(8):
            await clock.asleep()
            wait = clock.nearest()
            assert wait is not None
            waits.append(wait // MILLISECOND)
            await clock.advance(wait)
    await keep_trying(clock, 2 * SECOND)
    await task

    assert waits == [20, 40, 80, 160, 320, 640, 1_000, 1_000]


# --- I14: FULL ---
async def fill(desk: Desk, *, full: bool) -> None:
    """The file may not grow by a single page more; or it may again."""

    def limit(db: sqlite3.Connection) -> None:
        pages = db.execute("PRAGMA page_count").fetchone()[0] if full else 1_000_000
        db.execute(f"PRAGMA max_page_count = {pages}")

    await desk.connection.run(limit)


def big(tx: Transaction) -> str:
    tx.execute("write_meta", name="big", value="x" * 100_000)
    return "big"


async def test_a_full_disk_loses_nothing_that_was_recorded(
    desk: Desk, clock: FakeClock, trouble: Trouble
) -> None:
    """I14: on SQLITE_FULL a verb is refused, an outcome is kept, and both work when there is room again."""
    await desk.submit(desk.note("before"))
    await fill(desk, full=True)
    verb, outcome = desk.submitted(big), desk.submitted(big, None)
    await keep_trying(clock, 3 * SECOND)

    with pytest.raises(StoreUnavailable, match="full"):
        await verb
    assert not outcome.done()
    assert desk.noted() == {"before"}
    await fill(desk, full=False)
    await clock.advance(SECOND)

    assert await outcome == "big"
    assert desk.noted() == {"before", "big"}
    assert [error is None for error in trouble.told] == [False, True]


async def test_a_request_caught_in_a_full_transaction_commits_later(desk: Desk, clock: FakeClock) -> None:
    """I14: a small request that shared its transaction with the one that hit the limit is not lost."""
    await fill(desk, full=True)
    gate = Gate()
    first = desk.submitted(lambda _: gate.pass_through())
    await gate.reached()
    small, too_big = desk.submitted(desk.note("small"), None), desk.submitted(big)
    await settle()
    gate.open()
    await first

    await keep_trying(clock, 3 * SECOND)

    with pytest.raises(StoreUnavailable):
        await too_big
    assert await small == "small"
    assert desk.noted() == {"small"}


# --- what trying again does not help ---
async def test_a_hopeless_error_is_told_at_once(path: Path, clock: FakeClock, trouble: Trouble) -> None:
    """Where trying again cannot help a verb is told at once; an outcome is kept while the store is open."""
    queries = {**load_queries(), "begin": "SELECT * FROM nothing_of_that_name"}
    async with writing(path, clock, trouble, queries) as desk:
        outcome = desk.submitted(desk.note("outcome"), None)
        # Both are in line before the writer looks: after its error it sleeps until the clock is moved.
        verb = desk.submitted(desk.note("verb"))
        with pytest.raises(StoreUnavailable, match="nothing_of_that_name"):
            await verb
        assert not outcome.done()
    with pytest.raises(StoreUnavailable):
        await outcome


async def test_a_file_that_became_read_only_is_the_whole_stores_trouble(
    desk: Desk, clock: FakeClock, trouble: Trouble
) -> None:
    """I14: a read-only file is not the fault of the request that met it: outcomes are kept."""
    await desk.connection.run(lambda db: db.execute("PRAGMA query_only = ON"))
    outcome = desk.submitted(desk.note("outcome"), None)
    await clock.asleep()
    assert not outcome.done()
    await desk.connection.run(lambda db: db.execute("PRAGMA query_only = OFF"))
    await clock.advance(SECOND)

    assert await outcome == "outcome"


# --- the end ---
async def test_a_close_commits_what_waits(path: Path, clock: FakeClock, trouble: Trouble) -> None:
    """What was submitted before the close is committed by it, and nothing is taken after it."""
    async with writing(path, clock, trouble) as desk:
        gate = Gate()
        tasks = [desk.submitted(lambda _: gate.pass_through())]
        await gate.reached()
        tasks += [desk.submitted(desk.note(f"row-{number}")) for number in range(3)]
        await settle()
        closing = asyncio.create_task(desk.writer.close(SECOND))
        await settle()
        with pytest.raises(StoreUnavailable, match="closed"):
            await desk.submit(desk.note("late"))
        gate.open()
        await closing

        await asyncio.gather(*tasks)
        assert desk.noted() == {"row-0", "row-1", "row-2"}


async def test_a_close_in_trouble_ends(path: Path, clock: FakeClock, trouble: Trouble) -> None:
    """I12: a stop on a full disk or under a foreign lock ends: what cannot be written is told."""
    async with writing(path, clock, trouble) as desk:
        with locked(path):
            outcome = desk.submitted(desk.note("outcome"), None)
            await clock.asleep()
            closing = asyncio.create_task(desk.writer.close(5 * SECOND))
            await keep_trying(clock, 5 * SECOND - MILLISECOND)
            assert not closing.done()
            await clock.advance(2 * SECOND)
            await closing
        with pytest.raises(StoreUnavailable):
            await outcome


async def test_a_store_that_heals_during_its_close_keeps_the_outcome(
    path: Path, clock: FakeClock, trouble: Trouble
) -> None:
    """I12: the last patience of a close is there to be used."""
    async with writing(path, clock, trouble) as desk:
        with locked(path):
            outcome = desk.submitted(desk.note("outcome"), None)
            await clock.asleep()
            closing = asyncio.create_task(desk.writer.close(5 * SECOND))
            await settle()
        await clock.advance(SECOND)
        await closing

        assert await outcome == "outcome"


async def test_nobody_waits_for_a_writer_that_ended(path: Path, clock: FakeClock) -> None:
    """If the writer itself fails, those who wait are told, and so is everybody after them."""

    def angry(_: StoreUnavailable | None) -> None:
        raise RuntimeError("told the wrong one")

    prepare(path)
    connection = await ThreadConnection.connected(
        partial(sqlite3.connect, path, isolation_level=None, timeout=0)
    )
    writer = Writer(connection, load_queries(), clock, angry)
    try:
        with locked(path):
            waiting = [asyncio.create_task(writer.submit(lambda tx: tx.now, patience=None)) for _ in range(2)]
            for task in waiting:
                with pytest.raises(StoreUnavailable):
                    await task
        with pytest.raises(StoreUnavailable):
            await writer.submit(lambda tx: tx.now, patience=None)
        with pytest.raises(RuntimeError):
            await writer.close(0)
    finally:
        await connection.close()


async def test_one_moment_for_all_that_commits_together(desk: Desk, clock: FakeClock) -> None:
    """The store's clock is read once a transaction."""
    gate = Gate()
    first = desk.submitted(lambda _: gate.pass_through())
    await gate.reached()
    rest = [desk.submitted(lambda tx: tx.now) for _ in range(3)]
    await settle()
    clock.move(SECOND)
    gate.open()
    await first

    assert set(await asyncio.gather(*rest)) == {clock.now()}
