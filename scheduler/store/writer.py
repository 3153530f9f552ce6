"""Group commit: what waits at the same time is committed together, each request with its own result.

One task hands batches to the one thread that writes. A batch is one `BEGIN IMMEDIATE` transaction; each
request stands in a savepoint of its own, so that a refused or faulty one fails alone. When the disk or
a lock says no (BUSY, FULL, IOERR), the whole batch is rolled back, kept and tried again: nothing that
was to be recorded is lost, and nothing is answered before it is durable (I10, I14).

No sleep gathers a batch: what arrives while a commit is under way forms the next one.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Generic, TypeVar

import aiosqlite

from scheduler.clock import MILLISECOND, SECOND, Clock, Micros
from scheduler.errors import SchedulerError, StoreUnavailable
from scheduler.store.transaction import Transaction

T = TypeVar("T")

MAX_BATCH: Final = 500
"""Requests in one transaction: bounds the time that the loop and other requests wait for one commit."""

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


@dataclass(slots=True)
class _Request(Generic[T]):
    """A piece of work, where its answer goes, and until when (monotonic) it may be kept."""

    work: Callable[[Transaction], T]
    answer: asyncio.Future[T]
    give_up_at: Micros | None


@dataclass(frozen=True, slots=True)
class _Answers:
    """One batch as the thread left it: results in order, each a value or the error of that request."""

    results: list[Any] = field(default_factory=list)


class Writer:
    """The one writer of a SQLite file."""

    def __init__(
        self,
        connection: ThreadConnection,
        queries: Mapping[str, str],
        clock: Clock,
        on_trouble: Callable[[StoreUnavailable | None], None],
    ) -> None:
        self._connection = connection
        self._queries = queries
        self._clock = clock
        self._on_trouble = on_trouble
        self._waiting: deque[_Request[Any]] = deque()
        self._arrived = asyncio.Event()
        self._closing = False
        self._close_by: Micros = 0
        self._task = asyncio.create_task(self._write(), name="store-writer")

    async def submit(self, work: Callable[[Transaction], T], *, patience: Micros | None) -> T:
        """What `work` returned, after its commit.

        A cancel of the caller does not take the work back: it commits, unless it has not begun.

        Args:
            patience: how long the request may be kept while the store cannot commit; None = for ever.

        Raises:
            StoreUnavailable: patience ended first; nothing of `work` was or will be written.
        """
        if self._closing:
            raise StoreUnavailable("the store is closed")
        give_up_at = None if patience is None else self._clock.monotonic() + patience
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Request(work, answer, give_up_at))
        self._arrived.set()
        return await asyncio.shield(answer)

    async def close(self, patience: Micros) -> None:
        """Everything submitted was committed, or given up after `patience`; the writer has ended."""
        self._closing = True
        self._close_by = self._clock.monotonic() + patience
        self._arrived.set()
        await self._task

    async def _write(self) -> None:
        while True:
            if not self._waiting:
                if self._closing:
                    return
                self._arrived.clear()
                await self._arrived.wait()
                continue
            batch = [self._waiting.popleft() for _ in range(min(MAX_BATCH, len(self._waiting)))]
            await self._commit(batch)

    async def _commit(self, batch: list[_Request[Any]]) -> None:
        """The batch is committed; while the store says no, it is kept and tried again."""
        wait, troubled = _FIRST_WAIT, False
        while batch:
            try:
                answers = await self._connection.run(partial(self._transact, batch=batch))
            except sqlite3.Error as error:
                troubled = True
                trouble = StoreUnavailable(f"the store cannot commit: {error}")
                self._on_trouble(trouble)
                batch = self._still_patient(batch, trouble, final=not _is_transient(error))
                await self._clock.sleep(wait)
                wait = min(2 * wait, _LONGEST_WAIT)
                continue
            if troubled:
                self._on_trouble(None)
            _answer(batch, answers.results)
            return

    def _still_patient(
        self, batch: list[_Request[Any]], trouble: StoreUnavailable, *, final: bool
    ) -> list[_Request[Any]]:
        """Those that may wait on; the others are told. A closing store waits for nobody without end."""
        now, kept = self._clock.monotonic(), []
        for request in batch:
            over = request.give_up_at is not None and now >= request.give_up_at
            if over or final or (self._closing and now >= self._close_by):
                _settle(request, trouble)
            else:
                kept.append(request)
        return kept

    def _transact(self, db: sqlite3.Connection, *, batch: list[_Request[Any]]) -> _Answers:
        """In the store's thread: one transaction, one savepoint a request."""
        answers = _Answers()
        db.execute(self._queries["begin"])
        try:
            transaction = Transaction(db, self._queries, self._clock.now())
            for request in batch:
                answers.results.append(_guarded(transaction, request.work))
            db.execute(self._queries["commit"])
        except BaseException:
            if db.in_transaction:
                db.execute(self._queries["rollback"])
            raise
        return answers


def _guarded(transaction: Transaction, work: Callable[[Transaction], Any]) -> Any:
    """The result of one request, or its own error with nothing of it written."""
    with transaction.savepoint() as attempt:
        attempt.result = work(transaction)
    return attempt.error if attempt.error is not None else attempt.result


def _is_transient(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorname", "").startswith(_TRANSIENT)


def _answer(batch: list[_Request[Any]], results: list[Any]) -> None:
    for request, result in zip(batch, results, strict=True):
        _settle(request, result)


def _settle(request: _Request[Any], result: Any) -> None:
    if request.answer.done():
        return
    if isinstance(result, (SchedulerError, sqlite3.Error)):
        request.answer.set_exception(result)
        request.answer.exception()  # a caller that is gone must not make the loop complain
    else:
        request.answer.set_result(result)
