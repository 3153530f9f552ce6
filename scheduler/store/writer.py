"""Group commit: what waits at the same time is committed together, each request with its own result.

One task hands batches to the one thread that writes. A batch is one `BEGIN IMMEDIATE` transaction; each
request stands in a savepoint of its own, so that a refused or faulty one fails alone. When the disk or
a lock says no (BUSY, FULL, IOERR), the whole batch is rolled back, kept and tried again together with
what arrived meanwhile: nothing that was to be recorded is lost, and nothing is answered before it is
durable (I10, I14).

No sleep gathers a batch: what arrives while a commit is under way forms the next one. Requests of one kind
that can be carried out together (outcomes of runs) are, and before the others: they free what those ask for.
Only what runs told before their outcomes (`ahead`) comes before that; after it, nobody would take it.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast

import aiosqlite

from scheduler.clock import MILLISECOND, SECOND, Clock, Micros
from scheduler.errors import StoreUnavailable
from scheduler.store.rows import Definitions
from scheduler.store.transaction import Transaction, as_ours

T = TypeVar("T")

MAX_BATCH: Final = 500
"""Requests in one transaction: bounds the time that the loop and other requests wait for one commit."""

ANSWERS: Final = 25
"""Callers that are answered in one turn of the loop: all of them go on in the next one."""

_FIRST_WAIT: Final = 20 * MILLISECOND
_LONGEST_WAIT: Final = SECOND
_TRANSIENT: Final = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_NOMEM")


class ThreadConnection(aiosqlite.Connection):
    """An aiosqlite connection that also runs a whole function in its thread, in one hop."""

    @classmethod
    async def connected(cls, connector: Callable[[], sqlite3.Connection]) -> ThreadConnection:
        """A connection made by `connector` in a thread of its own."""
        connection = cls(connector, iter_chunk_size=64)
        await connection
        return connection

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What `work` returns, called with the raw connection in the connection's own thread."""
        result: T = await self._execute(work, self._conn)  # type: ignore[no-untyped-call] # aiosqlite's own
        return result


Jointly: TypeAlias = Callable[[Transaction, Sequence[Any]], Sequence[Any]]
"""A verb for several requests at once: one result each, in order; if it fails, each is carried out alone."""


@dataclass(slots=True)
class _Request(Generic[T]):
    """A piece of work, where its answer goes, and until when (monotonic) it may be kept.

    Attributes:
        jointly: the verb that carries out what was `asked` together with others of its kind, if there is one.
        ahead: it is carried out before those.
    """

    work: Callable[[Transaction], T]
    answer: asyncio.Future[T]
    give_up_at: Micros | None
    jointly: Jointly | None = None
    asked: object = None
    ahead: bool = False


class Writer:
    """The one writer of a SQLite file."""

    def __init__(
        self,
        connection: ThreadConnection,
        queries: Mapping[str, str],
        clock: Clock,
        on_trouble: Callable[[StoreUnavailable | None], None],
        on_commit: Callable[[Micros, int], None] = lambda _duration, _requests: None,
        definitions: Definitions | None = None,
    ) -> None:
        self._connection = connection
        self._queries = queries
        self._definitions = definitions or Definitions()
        self._clock = clock
        self._on_trouble = on_trouble
        self._on_commit = on_commit
        self._loop = asyncio.get_running_loop()
        self._answers: deque[tuple[_Request[Any], object]] = deque()
        self._waiting: deque[_Request[Any]] = deque()
        self._arrived = asyncio.Event()
        self._close_by: Micros | None = None
        self._troubled = False
        self._wait = _FIRST_WAIT
        self._task = asyncio.create_task(self._write(), name="store-writer")

    async def submit(
        self, work: Callable[[Transaction], T], *, patience: Micros | None, ahead: bool = False
    ) -> T:
        """What `work` returned, after its commit.

        A cancel of the caller does not take the work back: it commits all the same.

        Args:
            patience: how long the request may be kept while the store cannot commit; None = for as long
                as the store is open.
            ahead: an outcome of its batch, which may have been submitted after it, does not overtake it.

        Raises:
            StoreUnavailable: patience ended first; nothing of `work` was or will be written.
        """
        return await self._put(work, patience, ahead=ahead)

    async def submit_jointly(
        self, verb: Jointly, asked: object, *, patience: Micros | None, ahead: bool = False
    ) -> Any:
        """The result of `verb` for what was asked, after its commit; as `submit` for all else."""
        return await self._put(lambda tx: verb(tx, [asked])[0], patience, verb, asked, ahead=ahead)

    def _put(
        self,
        work: Callable[[Transaction], T],
        patience: Micros | None,
        jointly: Jointly | None = None,
        asked: object = None,
        *,
        ahead: bool = False,
    ) -> asyncio.Future[T]:
        if self._close_by is not None or self._task.done():
            raise StoreUnavailable("the store is closed")
        give_up_at = None if patience is None else self._clock.monotonic() + patience
        answer: asyncio.Future[T] = self._loop.create_future()
        self._waiting.append(_Request(work, answer, give_up_at, jointly, asked, ahead))
        self._arrived.set()
        return answer

    async def close(self, patience: Micros) -> None:
        """Everything submitted was committed, or given up after `patience`; the writer has ended."""
        self._close_by = self._clock.monotonic() + patience
        self._arrived.set()
        await self._task
        while self._answers:
            self._settle_some()

    async def _write(self) -> None:
        try:
            while await self._has_work():
                batch = list(islice(self._waiting, MAX_BATCH))
                begun_at = self._clock.monotonic()
                try:
                    results = await self._connection.run(partial(self._transact, batch))
                except sqlite3.Error as error:
                    await self._wait_out(error)
                else:
                    self._on_commit(self._clock.monotonic() - begun_at, len(batch))
                    self._answer(results)
        finally:  # also where the loop above fails: nobody waits for an answer that cannot come
            for request in self._waiting:
                _settle(request, StoreUnavailable("the store is closed"))

    async def _has_work(self) -> bool:
        """Something waits: True. The store is closed and nothing waits: False."""
        while not self._waiting:
            if self._close_by is not None:
                return False
            self._arrived.clear()
            await self._arrived.wait()
        return True

    def _answer(self, results: Sequence[object]) -> None:
        """The oldest requests, which have just committed, have their answers in this turn or the next."""
        if self._troubled:
            self._troubled, self._wait = False, _FIRST_WAIT
            self._on_trouble(None)
        is_settling = bool(self._answers)
        self._answers.extend((self._waiting.popleft(), result) for result in results)
        if not is_settling:
            self._settle_some()

    def _settle_some(self) -> None:
        """The next transaction is under way meanwhile: it waits for no answer."""
        for _ in range(min(ANSWERS, len(self._answers))):
            _settle(*self._answers.popleft())
        if self._answers:
            self._loop.call_soon(self._settle_some)

    async def _wait_out(self, error: sqlite3.Error) -> None:
        """Nothing was written. Who may wait no longer is told; the rest stays in line for another try."""
        message = f"the store cannot commit: {error}"
        if not self._troubled:
            self._troubled = True
            self._on_trouble(StoreUnavailable(message))
        now, hopeless = self._clock.monotonic(), not _is_transient(error)
        for request in list(self._waiting):
            if self._is_over(request, now, hopeless=hopeless):
                self._waiting.remove(request)
                _settle(request, StoreUnavailable(message))
        if self._waiting:
            await self._clock.sleep(self._wait)
            self._wait = min(2 * self._wait, _LONGEST_WAIT)

    def _is_over(self, request: _Request[Any], now: Micros, *, hopeless: bool) -> bool:
        """The request waits no longer: its patience ended, trying is hopeless, or the store must close."""
        if self._close_by is not None and now >= self._close_by:
            return True
        return request.give_up_at is not None and (hopeless or now >= request.give_up_at)

    def _transact(self, batch: Sequence[_Request[Any]], db: sqlite3.Connection) -> list[object]:
        """In the store's thread: one transaction; results in order."""
        db.execute(self._queries["begin"])
        try:
            transaction = Transaction(db, self._queries, self._clock.now(), self._definitions)
            results = _carried_out(transaction, batch)
            db.execute(self._queries["commit"])
        except BaseException:
            if db.in_transaction:
                db.execute(self._queries["rollback"])
            raise
        return results


def _carried_out(tx: Transaction, batch: Sequence[_Request[Any]]) -> list[object]:
    """The result of each request, or its error; each kind and each other request has its own savepoint."""
    results: dict[int, object] = {}
    for ahead in (True, False):
        _carry_out(tx, {place: one for place, one in enumerate(batch) if one.ahead is ahead}, results)
    return [results[place] for place in range(len(batch))]


def _carry_out(tx: Transaction, requests: Mapping[int, _Request[Any]], results: dict[int, object]) -> None:
    """The results of these requests, by place: kinds together, then each other one."""
    kinds: dict[Jointly, list[int]] = defaultdict(list)
    for place, request in requests.items():
        if request.jointly is not None:
            kinds[request.jointly].append(place)
    for verb, places in kinds.items():
        if len(places) == 1:
            results[places[0]] = _guarded(tx, requests[places[0]].work)
            continue
        done = _guarded(tx, partial(_jointly, verb, [requests[place].asked for place in places]))
        if not isinstance(done, Exception):
            results.update(zip(places, cast("Sequence[object]", done), strict=True))
    for place, request in requests.items():
        if place not in results:
            results[place] = _guarded(tx, request.work)


def _jointly(verb: Jointly, asked: Sequence[object], tx: Transaction) -> Sequence[object]:
    return verb(tx, asked)


def _guarded(transaction: Transaction, work: Callable[[Transaction], object]) -> object:
    """The result of one request, or its own error with nothing of it written."""
    with transaction.savepoint() as attempt:
        attempt.result = work(transaction)
    return attempt.result if attempt.error is None else attempt.error


def _is_transient(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorname", "").startswith(_TRANSIENT)


def _settle(request: _Request[Any], result: object) -> None:
    if request.answer.done():
        return
    if isinstance(result, Exception):
        request.answer.set_exception(as_ours(result))
        request.answer.exception()  # a caller that is gone must not make the loop complain
    else:
        request.answer.set_result(result)
