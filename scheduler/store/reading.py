"""Reads beside the writer: a connection of their own, which never writes and never waits for a commit."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from scheduler.clock import Micros
from scheduler.errors import AlreadyDone, NotFound, StoreUnavailable
from scheduler.model.items import Item, ItemCounts
from scheduler.model.jobs import Job, JobId, Pause, Retention
from scheduler.model.runs import Attempt, Run, RunId
from scheduler.store import pruning
from scheduler.store.items import counts_of
from scheduler.store.once import already_done
from scheduler.store.paging import SqlitePages
from scheduler.store.rows import (
    Row,
    attempt_of,
    audit_of,
    claim_of,
    item_of,
    job_of,
    pause_of,
    run_of,
)
from scheduler.store.values import AuditEntry, Counts, JobView, LiveLook
from scheduler.store.writer import ThreadConnection

T = TypeVar("T")


class Rows(Protocol):
    """All rows of a named query."""

    def __call__(self, name: str, /, **values: object) -> list[Row]: ...


_END = 1 << 62
"""Past every sequence number: the first page."""


class SqliteReads(SqlitePages):
    """`Reads` on a SQLite connection."""

    def __init__(self, connection: ThreadConnection, queries: Mapping[str, str]) -> None:
        self._reader = connection
        self._queries = queries

    async def job(self, job_id: JobId) -> JobView:
        def look(db: sqlite3.Connection) -> JobView | None:
            row = db.execute(self._queries["live_job"], {"id": job_id}).fetchone()
            if row is None or row["removed_at"] is not None:
                return None
            ((last_run, live_runs),) = self._runs_of(db, [job_id])
            return JobView(job=job_of(row), last_run=last_run, live_runs=live_runs)

        view = await self._read(look)
        if view is None:
            raise NotFound(f"there is no job {job_id}")
        return view

    async def run(self, run_id: RunId) -> Run:
        row = await self._one("live_run", id=run_id)
        if row is None:
            raise NotFound(f"there is no run {run_id}")
        return run_of(row)

    async def attempts(self, run_id: RunId) -> list[Attempt]:
        return [attempt_of(row) for row in await self._all("list_attempts", run=run_id)]

    async def live_runs(self, job_id: JobId) -> list[Run]:
        return [run_of(row) for row in await self._all("unfinished_runs", job=job_id)]

    async def run_at(self, job_id: JobId, fire_time: Micros) -> Run | None:
        row = await self._one("run_at", job=job_id, fire_time=fire_time)
        return None if row is None else run_of(row)

    async def audit(self, job_id: JobId, *, before: int | None, limit: int) -> list[AuditEntry]:
        rows = await self._all(
            "list_audit", job=job_id, before=_END if before is None else before, limit=limit
        )
        return [audit_of(row, json.loads(row["detail"])) for row in rows]

    async def counts(self) -> Counts:
        jobs = {row["name"]: row["number"] for row in await self._all("count_jobs")}
        runs = {row["name"]: row["number"] for row in await self._all("count_runs")}
        return Counts(jobs=jobs, runs=runs)

    async def ran_since(self, after: int, *, limit: int) -> tuple[list[JobId], int]:
        row = await self._one("ran_since", after=after, limit=limit)
        return json.loads(row["jobs"]), after if row["until"] is None else row["until"]

    async def newest_run(self) -> int:
        return int((await self._one("newest_seq"))["seq"])

    async def surplus_of(self, kept: Retention, jobs: Sequence[JobId], *, limit: int) -> list[RunId]:
        queries = self._queries
        return await self._read(lambda db: pruning.surplus_of(db, queries, kept, jobs, limit))

    async def next_fires(self, limit: int) -> dict[JobId, Micros]:
        rows = await self._all("next_fires", limit=limit)
        return {JobId(row["id"]): row["due_at"] for row in rows}

    async def global_pause(self) -> Pause | None:
        row = await self._one("global_pause")
        return None if row is None else pause_of(row)

    async def answered(self, uid: int, key: str, after: Micros) -> AlreadyDone | None:
        row = await self._one("recorded_answer", uid=uid, key=key, after=after)
        return None if row is None else already_done(key, row)

    async def claimed_in_group(self, group: str) -> int:
        return int((await self._one("claimed_in_group", group_name=group))[0])

    async def controllers(self) -> dict[int, int]:
        return {row["pid"]: row["pid_ticks"] for row in await self._all("controllers")}

    async def broken_jobs(self) -> list[Job]:
        return [job_of(row) for row in await self._all("broken_jobs")]

    async def telling_jobs(self, *, after: JobId | None, limit: int) -> list[Job]:
        return [job_of(row) for row in await self._all("telling_jobs", after=after or "", limit=limit)]

    async def file_definitions(self) -> dict[JobId, tuple[str | None, str]]:
        def look(db: sqlite3.Connection) -> dict[JobId, tuple[str | None, str]]:
            rows = db.execute(self._queries["file_definitions"])
            return {JobId(job_id): (file, source) for job_id, file, source in rows}

        return await self._read(look)

    async def api_ids(self, among: Collection[JobId]) -> set[JobId]:
        rows = await self._all("api_ids", ids=json.dumps(list(among)))
        return {JobId(row["id"]) for row in rows}

    async def items(
        self, run_id: RunId, *, state: str | None, after: tuple[int, int] | None, limit: int
    ) -> list[Item]:
        ready_at, index = after or (-1, -1)
        if state is None:
            rows = await self._all("list_items", run=run_id, after_seq=index, limit=limit)
        else:
            rows = await self._all(
                "list_items_in_state",
                run=run_id,
                state=state,
                after_ready=ready_at,
                after_seq=index,
                limit=limit,
            )
        return [item_of(row) for row in rows]

    async def item(self, run_id: RunId, key: str) -> Item:
        row = await self._one("item_of_key", run=run_id, key=key)
        if row is None:
            raise NotFound(f"run {run_id} has no item {key}")
        return item_of(row)

    async def item_counts(self, run_id: RunId) -> ItemCounts | None:
        row = await self._one("item_counts", run=run_id)
        return None if row is None else counts_of(row)

    async def claims(self, now: Micros) -> LiveLook:
        """Claims in force, and rows that need a recoverer, all at one moment: no run is in between."""

        def look(rows: Rows) -> LiveLook:
            running = tuple(claim_of(row) for row in rows("claims_in_force"))
            recovering = tuple(run_of(row) for row in rows("recovering_runs"))
            wedged = tuple(RunId(row["run"]) for row in rows("wedged_runs"))
            return LiveLook(now=now, running=running, recovering=recovering, wedged=wedged)

        return await self._snapshot(look)

    async def _snapshot(self, look: Callable[[Rows], T]) -> T:
        """What `look` makes of rows that were all there at one moment."""

        def work(db: sqlite3.Connection) -> T:
            db.execute(self._queries["begin_read"])
            try:
                return look(lambda name, /, **values: db.execute(self._queries[name], values).fetchall())
            finally:
                db.execute(self._queries["end_read"])

        return await self._read(work)

    async def _all(self, name: str, **values: object) -> list[Row]:
        sql = self._queries[name]
        rows: list[Row] = await self._read(lambda db: db.execute(sql, values).fetchall())
        return rows

    async def _one(self, name: str, **values: object) -> Any:
        sql = self._queries[name]
        return await self._read(lambda db: db.execute(sql, values).fetchone())

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await read_on(self._reader, work)


async def read_on(connection: ThreadConnection, work: Callable[[sqlite3.Connection], T]) -> T:
    """What `work` returns, in the connection's thread.

    Raises:
        StoreUnavailable: it cannot be read now.
    """
    try:
        return await connection.run(work)
    except (sqlite3.Error, ValueError) as error:
        raise StoreUnavailable(f"the store cannot be read: {error}") from error
