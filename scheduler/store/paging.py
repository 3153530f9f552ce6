"""Pages of jobs and runs: rows are found by an index, or stretch by stretch, and decoded beside the loop.

The connection also serves the engine's looks, so no statement reads more than a bounded number of rows, and
a page of definitions is read in its thread: neither a tick nor the loop waits for a long list (I15).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from scheduler.clock import Micros
from scheduler.model.jobs import JobId
from scheduler.model.listed import ListedJob
from scheduler.model.runs import Run
from scheduler.store.rows import Row, listed_of, run_of

T = TypeVar("T")

_END: Final = 1 << 62
"""Past every sequence number: the first page."""

_JOBS_AT_ONCE: Final = 2_000
_RUNS_AT_ONCE: Final = 20_000
"""Rows that one search looks at before it lets others read."""


class SqlitePages:
    """The lists of `Reads`, mixed into it."""

    _queries: Mapping[str, str]

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What `work` returns, in the connection's thread."""
        raise NotImplementedError

    async def jobs(
        self,
        *,
        after: JobId | None,
        limit: int,
        status: str | None = None,
        group: str | None = None,
        label: str | None = None,
        search: str | None = None,
    ) -> list[ListedJob]:
        if label is not None or search is not None or (status and group):
            wanted = {
                "status": status,
                "group_name": group,
                "label": label,
                "search": None if search is None else search.lower(),
            }
            found = await self._search_jobs(after or "", limit, wanted)
            return await self._read(lambda db: self._listed(db, found))
        values: dict[str, object] = {"after": after or "", "limit": limit}
        if status is not None:
            return await self._page("list_jobs_of_status", status=status, **values)
        if group is not None:
            return await self._page("list_jobs_in_group", group_name=group, **values)
        return await self._page("list_jobs", **values)

    async def _search_jobs(self, after: str, limit: int, wanted: Mapping[str, object]) -> list[Row]:
        """The first jobs behind `after` that fit, looked for stretch by stretch."""
        found: list[Row] = []
        while len(found) < limit:
            (stretch,) = await self._rows("jobs_stretch", after=after, stretch=_JOBS_AT_ONCE)
            if stretch["until"] is None:
                break
            left = limit - len(found)
            found += await self._rows(
                "search_jobs", after=after, until=stretch["until"], limit=left, **wanted
            )
            after = stretch["until"]
        return found

    async def _page(self, name: str, **values: object) -> list[ListedJob]:
        """The jobs that the query finds, with their runs."""
        sql = self._queries[name]
        return await self._read(lambda db: self._listed(db, db.execute(sql, values).fetchall()))

    def _listed(self, db: sqlite3.Connection, rows: Sequence[Row]) -> list[ListedJob]:
        """In the connection's thread: these jobs with their runs."""
        runs = self._runs_of(db, [row["id"] for row in rows])
        return [listed_of(row, *of_job) for row, of_job in zip(rows, runs, strict=True)]

    def _runs_of(
        self, db: sqlite3.Connection, jobs: Sequence[str]
    ) -> list[tuple[Run | None, tuple[Run, ...]]]:
        """In the connection's thread: the last run of each of these jobs, and its runs in flight."""
        ids = json.dumps(jobs)
        last = {row["job"]: run_of(row) for row in db.execute(self._queries["last_runs"], {"jobs": ids})}
        live: dict[str, list[Run]] = {}
        for row in db.execute(self._queries["live_runs_of"], {"jobs": ids}):
            live.setdefault(row["job"], []).append(run_of(row))
        return [(last.get(job), tuple(live.get(job, ()))) for job in jobs]

    async def runs(
        self,
        *,
        before: int | None,
        limit: int,
        job: JobId | None = None,
        state: str | None = None,
        since: Micros | None = None,
    ) -> list[Run]:
        values: dict[str, object] = {"before": _END if before is None else before, "limit": limit}
        if job is not None:
            rows = await self._runs_of_job(job, before, limit, {"state": state, "since": since})
        elif since is not None:
            rows = await self._search_runs(before, limit, {"state": state, "since": since})
        elif state is not None:
            rows = await self._rows("list_runs_in_state", state=state, **values)
        else:
            rows = await self._rows("list_runs", **values)
        return [run_of(row) for row in rows]

    async def _runs_of_job(
        self, job: JobId, before: int | None, limit: int, wanted: Mapping[str, object]
    ) -> list[Row]:
        """The job's newest runs before `before` that fit, looked for stretch by stretch."""
        end = _END if before is None else before
        if all(value is None for value in wanted.values()):
            return await self._rows("list_runs_of_job", job=job, before=end, limit=limit)
        found: list[Row] = []
        while len(found) < limit:
            (stretch,) = await self._rows("runs_stretch", job=job, before=end, stretch=_RUNS_AT_ONCE)
            if stretch["start"] is None:
                break
            values: dict[str, Any] = {"before": end, "from": stretch["start"], "limit": limit - len(found)}
            found += await self._rows("search_runs_of_job", job=job, **values, **wanted)
            end = stretch["start"]
        return found

    async def _search_runs(self, before: int | None, limit: int, wanted: Mapping[str, object]) -> list[Row]:
        """The newest runs before `before` that fit, looked for stretch by stretch."""
        if before is None:
            before = int((await self._rows("newest_seq"))[0]["seq"]) + 1
        found: list[Row] = []
        while len(found) < limit and before > 0:
            start = max(0, before - _RUNS_AT_ONCE)
            values: dict[str, Any] = {"before": before, "from": start, "limit": limit - len(found), **wanted}
            found += await self._rows("search_runs", **values)
            before = start
        return found

    async def _rows(self, name: str, **values: object) -> list[Row]:
        sql = self._queries[name]
        rows: list[Row] = await self._read(lambda db: db.execute(sql, values).fetchall())
        return rows
