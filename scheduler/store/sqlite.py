"""The store on SQLite: one file in WAL mode, `synchronous=FULL`, one writer, reads beside it.

This module only wires: each verb is one transaction whose body stands in the module of its family
(`firing`, `finishing`, `leases`, `operating`, `defining`, `clockwork`, `settling`; those of a batch's
worker are wired in `itemstore`), each read one query in `reading`.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from scheduler.clock import SECOND, Clock, Micros
from scheduler.errors import SchedulerError, StoreUnavailable
from scheduler.model.items import Item
from scheduler.model.jobs import JobId, Retention
from scheduler.model.runs import Grant, Owner, OwnerId, Run, RunId, Wish
from scheduler.rules.planning import FirePlan
from scheduler.rules.reconcile import Verdict, reconcile
from scheduler.rules.recovery import ClaimSeen
from scheduler.store import (
    claiming,
    clockwork,
    defining,
    finishing,
    firing,
    leases,
    manual,
    operating,
    pausing,
    pruning,
    settling,
)
from scheduler.store.dues import Limits, due_look
from scheduler.store.finishing import Decide
from scheduler.store.integrity import Unchecked, mark_closed, mark_open
from scheduler.store.itemstore import SqliteItemVerbs
from scheduler.store.once import once
from scheduler.store.pausevalues import AllOperated, Expired, PauseAllRequest, ResumeAllRequest
from scheduler.store.reading import SqliteReads, read_on
from scheduler.store.rows import Definitions
from scheduler.store.schema import load_queries, prepare, refusal, refusal_of_place
from scheduler.store.transaction import Transaction
from scheduler.store.values import (
    Cancelled,
    Claimant,
    ClaimRef,
    DefinitionChange,
    DueLook,
    Finished,
    Fired,
    LiveLook,
    Operated,
    PauseRequest,
    Peer,
    Report,
    ResumeRequest,
    SettleItem,
    Started,
    StartRequest,
)
from scheduler.store.writer import ThreadConnection, Writer

T = TypeVar("T")
R = TypeVar("R", PauseRequest, ResumeRequest)

FILE_NAME: Final = "schedulerd.db"
PATIENCE: Final[Micros] = 5 * SECOND
"""How long a verb waits for a store that cannot commit; outcomes and signs of life wait for ever."""

CHECK_FOR: Final[Micros] = 5 * SECOND
"""How long a start looks for damage after an unclean stop; a single big table may take longer."""

_BUSY_TIMEOUT_MS: Final = 1_000
_LOG_LIMIT: Final = 16 << 20
"""Bytes that the write-ahead log keeps once no reader needs more of it."""

_WRITER_PRAGMAS: Final = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_MS}",
    "PRAGMA wal_autocheckpoint = 1000",
    f"PRAGMA journal_size_limit = {_LOG_LIMIT}",
)
_READER_PRAGMAS: Final = (
    f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_MS}",
    "PRAGMA query_only = ON",
)


class SqliteStore(SqliteReads, SqliteItemVerbs):
    """`Store` on one SQLite file. Made by `open`, ended by `close`."""

    def __init__(  # noqa: PLR0913 - what `open` has made
        self,
        *,
        writer_connection: ThreadConnection,
        reader: ThreadConnection,
        due_reader: ThreadConnection,
        writer: Writer,
        definitions: Definitions,
        path: Path,
        queries: Mapping[str, str],
        clock: Clock,
        store_id: str,
        decide: Decide,
    ) -> None:
        super().__init__(reader, queries)
        self._connections = (writer_connection, reader, due_reader)
        self._due_reader = due_reader
        self._writer = writer
        self._definitions = definitions
        self._path = path
        self._clock = clock
        self._store_id = store_id
        self._decide = decide
        self._finish = self._finish_all  # one object, so that the writer sees that all calls are of one kind

    @classmethod
    async def open(
        cls,
        path: Path,
        clock: Clock,
        *,
        on_trouble: Callable[[StoreUnavailable | None], None] = lambda _: None,
        on_commit: Callable[[Micros, int], None] = lambda _duration, _requests: None,
        on_checked: Callable[[Unchecked], None] = lambda _: None,
        queries: Mapping[str, str] | None = None,
        decide: Decide = reconcile,
    ) -> SqliteStore:
        """The store at `path`, made or upgraded where needed, and ready.

        Args:
            on_trouble: called on the loop when a commit fails, and with None when commits work again.
            on_commit: called on the loop with the time of each commit and the number of its requests.
            on_checked: called with what a check of the file came to, where it had not been closed in order.
            queries: the named SQL; the package's own unless a test weakens one to prove a guard.
            decide: `reconcile`, unless a test holds or weakens it.

        Raises:
            StoreRefused: the file is not one that this version may open; it is left as it was.
            StoreUnavailable: it cannot be opened now.
        """
        names, definitions = load_queries() if queries is None else queries, Definitions()
        deadline = clock.monotonic() + CHECK_FOR
        checked = await asyncio.to_thread(_opened, path, lambda: clock.monotonic() >= deadline)
        if checked is not None:
            on_checked(checked)
        connections: list[ThreadConnection] = []
        try:
            writer_connection, reader, due_reader = await _connect_all(path, connections)
            store_id = await reader.run(partial(_id_of, names["read_meta"]))
        except sqlite3.DatabaseError as error:
            await _close_all(connections)
            raise refusal(path, error) from error
        return cls(
            writer_connection=writer_connection,
            reader=reader,
            due_reader=due_reader,
            writer=Writer(writer_connection, names, clock, on_trouble, on_commit, definitions),
            definitions=definitions,
            path=path,
            queries=names,
            clock=clock,
            store_id=store_id,
            decide=decide,
        )

    @property
    def store_id(self) -> str:
        return self._store_id

    async def _verb(
        self, work: Callable[[Transaction], T], *, patience: Micros | None = PATIENCE, ahead: bool = False
    ) -> T:
        return await self._writer.submit(work, patience=patience, ahead=ahead)

    async def register(self, owner: Owner) -> int:
        return await self._verb(lambda tx: leases.register(tx, owner))

    async def sign_off(self, owner: OwnerId) -> None:
        await self._verb(lambda tx: leases.sign_off(tx, owner))

    async def due(self, *, limit: int, late_after: Micros, late_limit: int) -> DueLook:
        now, names, known = self._clock.now(), self._queries, self._definitions
        limits = Limits(on_time=limit, late=late_limit, late_before=now - late_after)
        return await read_on(
            self._due_reader, lambda db: due_look(Transaction(db, names, now, known), limits)
        )

    async def fire(self, who: Claimant, plans: Sequence[FirePlan]) -> list[Fired]:
        return await self._verb(lambda tx: firing.fire(tx, who, plans))

    async def start(self, who: Claimant, requests: Sequence[StartRequest]) -> list[Started | SchedulerError]:
        return await self._verb(lambda tx: manual.start(tx, who, requests))

    async def claim(self, who: Claimant, *, limit: int) -> tuple[list[Grant], list[Run]]:
        return await self._verb(lambda tx: claiming.claim(tx, who, limit))

    async def renew(self, who: Claimant, claims: Sequence[ClaimRef]) -> dict[RunId, Wish]:
        return await self._verb(lambda tx: leases.renew(tx, who, claims))

    async def report(self, reports: Sequence[Report]) -> None:
        await self._writer.submit_jointly(leases.report, reports, patience=PATIENCE, ahead=True)

    async def finish(self, verdicts: Sequence[Verdict]) -> list[Finished]:
        finished: list[Finished] = await self._writer.submit_jointly(self._finish, verdicts, patience=None)
        return finished

    def _finish_all(self, tx: Transaction, calls: Sequence[Sequence[Verdict]]) -> list[list[Finished]]:
        """The verdicts of several calls are one set."""
        finished = iter(finishing.finish(tx, [one for verdicts in calls for one in verdicts], self._decide))
        return [[next(finished) for _ in verdicts] for verdicts in calls]

    async def look(self) -> LiveLook:
        return await self.claims(self._clock.now())

    async def recover(self, claims: Sequence[ClaimSeen]) -> list[Run]:
        return await self._verb(lambda tx: leases.recover(tx, claims))

    async def reattach(self, who: Claimant, run_id: RunId, claim: int) -> Grant | None:
        return await self._verb(lambda tx: leases.reattach(tx, who, run_id, claim))

    async def leave(self, who: Claimant, claims: Sequence[ClaimRef]) -> None:
        await self._verb(lambda tx: leases.leave(tx, who, claims))

    async def next_wake(self, after: Micros) -> Micros | None:
        moment: Micros | None = (await self._one("next_wake", after=after))[0]
        return moment

    async def surplus(
        self, kept: Retention, *, after: str, limit: int
    ) -> tuple[Sequence[RunId], JobId | None]:
        names = self._queries
        return await self._read(lambda db: pruning.surplus(db, names, kept, after, limit))

    async def prune(self, runs: Sequence[RunId]) -> int:
        return await self._verb(lambda tx: pruning.prune(tx, runs))

    async def pruned(self, *, limit: int) -> list[RunId]:
        return [RunId(row["run"]) for row in await self._all("list_pruned", limit=limit)]

    async def clear(self, runs: Sequence[RunId], *, limit: int) -> None:
        await self._verb(lambda tx: pruning.clear(tx, runs, limit))

    async def prune_records(self, before: Micros | None, *, limit: int) -> int:
        return await self._verb(lambda tx: pruning.prune_records(tx, before, limit))

    def log_size(self) -> int:
        try:
            return self._path.with_name(f"{self._path.name}-wal").stat().st_size
        except OSError:
            return 0

    async def give_back(self) -> bool:
        return await self._verb(pruning.give_back)

    async def set_problem(self, job_id: JobId, code: str | None, message: str | None) -> None:
        await self._verb(lambda tx: tx.execute("set_problem", id=job_id, code=code, message=message))

    async def see_wall(self) -> Micros | None:
        return await self._verb(clockwork.see_wall)

    async def rearm(self, stepped: Micros) -> None:
        after: str | None = ""
        while after is not None:
            after = await self._verb(partial(_rearm_slice, stepped, after))

    async def pause(self, requests: Sequence[PauseRequest]) -> list[Operated | SchedulerError]:
        return await self._each(operating.pause, requests)

    async def resume(self, requests: Sequence[ResumeRequest]) -> list[Operated | SchedulerError]:
        return await self._each(operating.resume, requests)

    async def pause_all(self, request: PauseAllRequest) -> AllOperated:
        return await self._once(request.peer, lambda tx: pausing.pause_all(tx, request))

    async def resume_all(self, request: ResumeAllRequest) -> AllOperated:
        return await self._once(request.peer, lambda tx: pausing.resume_all(tx, request))

    async def expire_pauses(self, peer: Peer) -> Expired:
        return await self._verb(lambda tx: pausing.expire(tx, peer))

    async def apply(self, changes: Sequence[DefinitionChange]) -> list[Operated | SchedulerError]:
        return await self._verb(lambda tx: defining.apply(tx, changes))

    async def cancel(self, run_id: RunId, peer: Peer) -> Cancelled:
        return await self._once(peer, lambda tx: operating.cancel(tx, run_id, peer))

    async def release(self, run_id: RunId, peer: Peer) -> Finished:
        return await self._once(peer, lambda tx: operating.release(tx, run_id, peer))

    async def retry_now(self, run_id: RunId, peer: Peer) -> Run:
        return await self._once(peer, lambda tx: operating.retry_now(tx, run_id, peer))

    async def retry(
        self, run_id: RunId, peer: Peer, *, keys: Sequence[str] | None = None, failed_only: bool = False
    ) -> Run:
        return await self._once(
            peer, lambda tx: operating.retry(tx, run_id, peer, keys=keys, failed_only=failed_only)
        )

    async def settle_item(self, request: SettleItem) -> tuple[Item, Run]:
        return await self._once(request.peer, lambda tx: settling.settle_item(tx, request))

    async def skip_next(self, job_id: JobId, count: int, peer: Peer) -> Operated:
        return await self._once(peer, lambda tx: operating.skip_next(tx, job_id, count, peer))

    async def _once(self, peer: Peer, verb: Callable[[Transaction], T]) -> T:
        """The verb, which is carried out once if the peer's request has a key."""
        return await self._verb(lambda tx: once(tx, peer, partial(verb, tx)))

    async def _each(
        self, verb: Callable[[Transaction, R], Operated], requests: Sequence[R]
    ) -> list[Operated | SchedulerError]:
        """All requests in one transaction; a refused one is its error, with nothing of it written."""

        def one(tx: Transaction, request: R) -> Operated:
            return once(tx, request.peer, partial(verb, tx, request))

        return await self._verb(lambda tx: [tx.alone(partial(one, tx, request)) for request in requests])

    async def close(self) -> None:
        await self._writer.close(PATIENCE)
        if await _close_all(self._connections):
            await asyncio.to_thread(mark_closed, self._path)


def _opened(path: Path, is_over: Callable[[], bool]) -> Unchecked | None:
    """The file is there, as `prepare` makes it, and marked as open."""
    checked = prepare(path, is_over)
    try:
        mark_open(path)
    except OSError as error:
        raise refusal_of_place(path, error) from error
    return checked


def _rearm_slice(stepped: Micros, after: str, tx: Transaction) -> str | None:
    return clockwork.rearm(tx, stepped, after)


def _id_of(query: str, db: sqlite3.Connection) -> str:
    row = db.execute(query, {"name": "store_id"}).fetchone()
    if row is None:
        raise sqlite3.DatabaseError("the id of the store is missing")
    return str(row[0])


def _connect(path: Path, pragmas: Sequence[str]) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None, cached_statements=256)
    db.row_factory = sqlite3.Row
    for pragma in pragmas:
        db.execute(pragma)
    return db


async def _connect_all(path: Path, connected: list[ThreadConnection]) -> list[ThreadConnection]:
    """Connections to write, to read and for ticks; `connected` has those made before one that fails."""
    # INVARIANT: I15, what a tick asks for never stands in line behind pages that people ask for.
    for pragmas in (_WRITER_PRAGMAS, _READER_PRAGMAS, _READER_PRAGMAS):
        connection = await ThreadConnection.connected(partial(_connect, path, pragmas))
        connected.append(connection)
    return connected


async def _close_all(connections: Sequence[ThreadConnection]) -> bool:
    """Every connection is closed and its thread ended, also where closing one fails; then False."""
    in_order = True
    for connection in connections:
        try:
            await connection.close()
        except sqlite3.Error:
            connection.stop()
            in_order = False
    return in_order
